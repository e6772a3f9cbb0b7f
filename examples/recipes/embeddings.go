package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Document struct {
	Model  string
	Text   string
	Vector []float32
}

var Documents = fsm.Declare[Document, fsm.None]("document", fsm.Queue("documents"))

type embedding struct {
	// embed returns a vector for each text, or nil for a text that the model refuses. One request
	// costs about as much as another, however many texts it is for.
	embed func(ctx context.Context, model string, texts []string) ([][]float32, error)
	// store keeps a vector. It may be called again for the same document.
	store func(ctx context.Context, id fsm.ID, vector []float32) error
}

func (m embedding) definition() fsm.Definition {
	model := func(d Document) string { return d.Model }
	return Documents.Define(
		fsm.BatchStep("start", m.start, fsm.BatchOf(100), fsm.Within(time.Second), fsm.ByState(model)).To("keep").Timeout(time.Minute),
		fsm.Step("keep", m.keep).To(),
	).Retry(fsm.RetryPolicy{})
}

// start embeds up to a hundred documents of one model by one request.
func (m embedding) start(ctx context.Context, visits []*fsm.Visit[Document, fsm.None]) ([]fsm.Outcome, error) {
	texts := make([]string, len(visits))
	for i, v := range visits {
		texts[i] = v.State.Text
	}
	vectors, err := m.embed(ctx, visits[0].State.Model, texts)
	if err != nil {
		return nil, err // of the request: each document fails with it
	}
	outcomes := make([]fsm.Outcome, len(visits))
	for i, v := range visits {
		if vectors[i] == nil {
			outcomes[i] = v.Raise(fsm.Permanent(errors.New("refused by the model"))) // this one alone
			continue
		}
		state := v.State
		state.Vector = vectors[i]
		outcomes[i] = v.Next("keep", state)
	}
	return outcomes, nil
}

// keep runs for each document by itself.
func (m embedding) keep(ctx context.Context, v *fsm.Visit[Document, fsm.None]) (fsm.Outcome, error) {
	if err := m.store(ctx, v.ID, v.State.Vector); err != nil {
		return nil, err
	}
	return v.Done(fsm.None{}), nil
}
