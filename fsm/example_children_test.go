package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

var (
	Loan  = fsm.Declare[int, string]("loan")
	Quote = fsm.Declare[int, string]("loan.quote")
	Hurry = fsm.DeclareSignal[string]("hurry")
)

type loanVisit = fsm.Visit[int, string]

// banks are the children of the examples below.
func banks(v *loanVisit) *fsm.ChildrenOutcome {
	return v.ScheduleChildren("choose", v.State, Quote.New(1), Quote.New(2), Quote.New(3), Quote.New(4), Quote.New(5))
}

// decided says what an outcome waits for besides the end of all children.
func decided(ask func(v *loanVisit) fsm.Outcome) string {
	m := hidden.Machine(Loan.Define(
		fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) { return ask(v), nil }),
		fsm.Step("choose", choose),
	))

	claim := &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "start", State: json.RawMessage(`1000`)}
	out, err := m.Steps["start"].Run(context.Background(), claim)
	if err != nil {
		return err.Error()
	}
	j, then := out.Join, ""
	if j.Cancel {
		then = ", then cancels"
	}
	return fmt.Sprint(j.Done, " done, ", j.Failed, " failed, ", j.Ended, " ended", then, ", or ", j.Names, " ", j.Timeout, " ", j.At.Year())
}

// The first two quotes are enough. Where four banks of five fail, the loan goes on, too: two can
// never be.
func ExampleChildrenOutcome_Quorum() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Quorum(2) }))
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Quorum(6) }))
	// Output:
	// 2 done, 0 failed, 0 ended, or [] 0s 1
	// outcome: quorum: 6, at most the number of children, 5
}

func ExampleChildrenOutcome_Race() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Race() }))
	// Output: 0 done, 0 failed, 1 ended, or [] 0s 1
}

func ExampleChildrenOutcome_FailFast() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).FailFast() }))
	// Output: 0 done, 1 failed, 0 ended, or [] 0s 1
}

// Two quotes, or as many as there are when a signal says so.
func ExampleChildrenOutcome_Or() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Quorum(2).Or(Hurry) }))
	// Output: 2 done, 0 failed, 0 ended, or [hurry] 0s 1
}

// Two quotes, or whatever there is after ten minutes.
func ExampleChildrenOutcome_Timeout() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Quorum(2).Timeout(10 * time.Minute) }))
	// Output: 2 done, 0 failed, 0 ended, or [] 10m0s 1
}

func ExampleChildrenOutcome_Until() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome {
		return banks(v).Quorum(2).Until(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC))
	}))
	// Output: 2 done, 0 failed, 0 ended, or [] 0s 2026
}

// The first quote wins, and the other banks need not go on.
func ExampleChildrenOutcome_CancelRest() {
	fmt.Println(decided(func(v *loanVisit) fsm.Outcome { return banks(v).Quorum(1).CancelRest() }))
	// Output: 1 done, 0 failed, 0 ended, then cancels, or [] 0s 1
}

func choose(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
	round := v.Round()
	if round.Done == 0 {
		return v.Fail(errors.New("no bank answers")), nil
	}
	for _, quote := range Quote.Children(v) {
		if offer, err := quote.Result(); err == nil { // ErrNotTerminal of those that have not ended
			return v.Done(fmt.Sprintf("%s, of %d; %d failed, %d go on", offer, round.Done, round.Failed, round.Left)), nil
		}
	}
	return nil, errors.New("unreachable")
}

// The joining step sees all children of the round, also those that the join did not wait for.
func ExampleVisit_Round() {
	m := hidden.Machine(Loan.Define(fsm.Step("choose", choose), fsm.Step("start", choose)))
	claim := &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "choose", State: json.RawMessage(`1000`), Children: []step.Child{
		{ID: 2, Machine: "loan.quote", Status: "executing"},
		{ID: 3, Machine: "loan.quote", Status: "done", Result: json.RawMessage(`"3.1 %"`)},
		{ID: 4, Machine: "loan.quote", Status: "failed"},
		{ID: 5, Machine: "loan.quote", Status: "done", Result: json.RawMessage(`"2.9 %"`)},
	}}
	out, err := m.Steps["choose"].Run(context.Background(), claim)
	fmt.Println(string(out.Result), err)
	// Output: "3.1 %, of 2; 1 failed, 1 go on" <nil>
}

// A step that takes one quote after the other, as they come: it waits for the rest again as long as
// there is one.
func ExampleVisit_Rejoin() {
	collect := func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		round := v.Round()
		if round.Left == 0 || round.Done == 2 {
			return v.Done(fmt.Sprint(round.Done, " offers")), nil
		}
		return v.Rejoin("collect", v.State).Race().CancelRest(), nil
	}
	m := hidden.Machine(Loan.Define(fsm.Step("start", choose), fsm.Step("collect", collect)))
	quotes := []step.Child{{Status: "done"}, {Status: "executing"}, {Status: "executing"}}
	for visit := int64(2); ; visit++ {
		out, err := m.Steps["collect"].Run(context.Background(), &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "collect", State: json.RawMessage(`1000`),
			Round: 2, Visit: visit, JoinsAt: visit, Children: quotes})
		if err != nil || out.Kind == step.Done {
			fmt.Println(string(out.Result), err)
			return
		}
		fmt.Println(out.Kind, "until", out.Join.Ended, "more has ended")
		quotes[visit-1].Status = "done"
	}
	// Output:
	// rejoin until 1 more has ended
	// "2 offers" <nil>
}

// A step that adds up the results of any number of children, at most 100 at a time, in the order in
// which they end.
func ExampleChildrenOutcome_Stream() {
	collect := func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		sum := v.State + len(Quote.Children(v))
		if v.Round().Left == 0 {
			return v.Done(fmt.Sprint(sum, " offers")), nil
		}
		return v.Rejoin("collect", sum).Stream(100), nil
	}
	m := hidden.Machine(Loan.Define(fsm.Step("start", choose), fsm.Step("collect", collect)))
	claim := &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "collect", State: json.RawMessage(`0`), Round: -2, Visit: 2}
	for shown, left := range []int{120, 20, 0} {
		claim.Portion = &step.Portion{Left: left}
		claim.Children = slices.Repeat([]step.Child{{Machine: "loan.quote", Status: "done"}}, []int{3, 100, 20}[shown])
		out, err := m.Steps["collect"].Run(context.Background(), claim)
		if err != nil || out.Kind == step.Done {
			fmt.Println(string(out.Result), err)
			return
		}
		fmt.Println(out.Kind, "for at most", out.Join.Stream, "with", string(out.State))
		claim.State = out.State
	}
	// Output:
	// rejoin for at most 100 with 3
	// rejoin for at most 100 with 103
	// "123 offers" <nil>
}
