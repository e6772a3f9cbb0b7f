package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type Pending struct{ Document, Text string }

var (
	Reindex = fsm.Declare[Pending, fsm.None]("reindex")
	Edited  = fsm.DeclareSignal[string]("edited")
)

type reindex struct {
	index func(ctx context.Context, document, text string) error
}

func edit(ctx context.Context, eng *engine.Engine, document, text string) error {
	_, err := eng.SignalOrInsert(ctx, Reindex.New(Pending{Document: document}).Key(fsm.Key("reindex:"+document)), Edited.With(text))
	return err
}

func (m reindex) definition() fsm.Definition {
	return Reindex.Define(
		fsm.Step("start", m.start).To("quiet"),
		fsm.Step("quiet", m.quiet).To("quiet", "index"),
		fsm.Step("index", m.write).To("quiet").Timeout(time.Minute),
	).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited}).CrashLimit(0)
}

func (m reindex) start(_ context.Context, v *fsm.Visit[Pending, fsm.None]) (fsm.Outcome, error) {
	return v.Await("quiet", v.State, Edited), nil
}

// quiet parks towards itself until nothing has come for five seconds, or a thousand edits have.
func (m reindex) quiet(_ context.Context, v *fsm.Visit[Pending, fsm.None]) (fsm.Outcome, error) {
	edits, err := Edited.All(v)
	if err != nil {
		return nil, err
	}
	if len(edits) == 0 || !v.TimedOut() && len(edits) < 1000 {
		return v.Await("quiet", v.State, Edited).Timeout(5 * time.Second), nil
	}
	return v.Next("index", Pending{Document: v.State.Document, Text: edits[len(edits)-1]}), nil // consumes them
}

func (m reindex) write(ctx context.Context, v *fsm.Visit[Pending, fsm.None]) (fsm.Outcome, error) {
	if err := m.index(ctx, v.State.Document, v.State.Text); err != nil {
		return nil, err
	}
	return v.Await("quiet", Pending{Document: v.State.Document}, Edited), nil // those that came meanwhile wake it at once
}
