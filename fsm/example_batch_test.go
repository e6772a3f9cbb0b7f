//go:build !goexperiment.jsonv2

// The test kit has all of the engine behind it, which the tests on the other encoding/json need not
// compile.

package fsm_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

type document struct {
	Model, Text string
	Vector      []float64
}

var documents = fsm.Declare[document, fsm.None]("document", fsm.Initial("embed"))

// A machine embeds documents, a hundred per request, the documents of one model together. A
// document that the service refuses fails alone.
func ExampleBatchStep() {
	embed := func(_ context.Context, visits []*fsm.Visit[document, fsm.None]) ([]fsm.Outcome, error) {
		fmt.Println("one request for", len(visits))
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			if v.State.Text == "" {
				outcomes[i] = v.Raise(fsm.Permanent(errors.New("no text")))
				continue
			}
			outcomes[i] = v.Next("store", document{Text: v.State.Text, Vector: []float64{1}})
		}
		return outcomes, nil
	}
	store := func(_ context.Context, v *fsm.Visit[document, fsm.None]) (fsm.Outcome, error) {
		return v.Done(fsm.None{}), nil
	}
	machine := documents.Define(
		fsm.BatchStep("embed", embed, fsm.BatchOf(100), fsm.Within(time.Second), fsm.ByState(func(d document) string { return d.Model })).
			To("store").Timeout(time.Minute),
		fsm.Step("store", store),
	).Retry(fsm.RetryPolicy{})

	outcomes, errs := durabletest.RunBatch(context.Background(), machine, "embed",
		[]durabletest.Visit{{State: document{Text: "one"}}, {State: document{}}})
	fmt.Println(outcomes[0].Kind, outcomes[0].Step, errs[0])
	fmt.Println(outcomes[1].Kind, errs[1])
	// Output:
	// one request for 2
	// next store <nil>
	// none no text
}

// A part of a call can use what belongs to one instance alone.
func ExampleVisit_Context() {
	charge := func(ctx context.Context, visits []*fsm.Visit[int, fsm.None]) ([]fsm.Outcome, error) {
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			if err := context.Cause(v.Context()); err != nil {
				outcomes[i] = v.Raise(err) // this one has been cancelled; the others go on
				continue
			}
			_, ofOne := fsm.InfoFrom(v.Context())
			_, ofCall := fsm.InfoFrom(ctx)
			fmt.Println(ofOne, ofCall)
			outcomes[i] = v.Done(fsm.None{})
		}
		return outcomes, nil
	}
	m := fsm.Declare[int, fsm.None]("charge").Define(fsm.BatchStep("start", charge))
	_, err := durabletest.RunStep(context.Background(), m, "start", durabletest.Visit{})
	fmt.Println(err)
	// Output:
	// true false
	// <nil>
}
