package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Request struct {
	Document  string
	Reminders int // how many are still to be sent
}

type Decision struct {
	By       string
	Approved bool
}

var (
	Approval = fsm.Declare[Request, Decision]("approval", fsm.Deadline(30*24*time.Hour))
	Decided  = fsm.DeclareSignal[Decision]("decided")
)

type approval struct {
	ask func(ctx context.Context, document, idempotencyKey string) error
}

func (m approval) definition() fsm.Definition {
	return Approval.Define(
		fsm.Step("start", m.remind).To("decide").Timeout(time.Minute),
		fsm.Step("decide", m.decide).To("start"),
	).Retry(fsm.RetryPolicy{})
}

// remind asks for a decision, the first time and each time after, and parks for a day.
func (m approval) remind(ctx context.Context, v *fsm.Visit[Request, Decision]) (fsm.Outcome, error) {
	if err := m.ask(ctx, v.State.Document, v.IdempotencyKey("mail")); err != nil {
		return nil, err
	}
	return v.Await("decide", v.State, Decided).Timeout(24 * time.Hour), nil
}

func (m approval) decide(_ context.Context, v *fsm.Visit[Request, Decision]) (fsm.Outcome, error) {
	decision, ok, err := Decided.First(v)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return v.Done(decision).Discard(), nil // the first decision counts
	case v.State.Reminders == 0:
		return v.Done(Decision{By: "nobody"}).Unless("decide", Decided), nil
	}
	return v.Next("start", Request{Document: v.State.Document, Reminders: v.State.Reminders - 1}), nil
}
