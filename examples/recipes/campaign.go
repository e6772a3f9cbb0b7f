package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Campaign struct {
	Left   []string // whom it still has to reach
	Rounds int      // that are left
	Sent   int
}

type Reached struct {
	Sent   int
	Failed []string
}

var (
	Sending = fsm.Declare[Campaign, Reached]("campaign")
	Message = fsm.Declare[string, fsm.None]("campaign.message", fsm.Queue("mail"))
)

func campaign(send func(ctx context.Context, to string) (fsm.None, error)) []fsm.Definition {
	return []fsm.Definition{
		Sending.Define(fsm.Step("start", fanOut).To("joined"), fsm.Step("joined", joined).To("start")).Retry(fsm.RetryPolicy{}),
		Message.Job(send),
	}
}

func fanOut(_ context.Context, v *fsm.Visit[Campaign, Reached]) (fsm.Outcome, error) {
	children := make([]fsm.Spec, len(v.State.Left))
	for i, to := range v.State.Left {
		children[i] = Message.New(to).Deadline(time.Hour)
	}
	return v.ScheduleChildren("joined", v.State, children...), nil
}

// joined counts the children that are done, and tries the others again in another round.
func joined(_ context.Context, v *fsm.Visit[Campaign, Reached]) (fsm.Outcome, error) {
	var failed []string
	for i, child := range Message.Children(v) { // in the order of Left
		if _, err := child.Result(); err != nil {
			failed = append(failed, v.State.Left[i])
		}
	}
	sent := v.State.Sent + len(v.State.Left) - len(failed)
	if len(failed) == 0 || v.State.Rounds == 0 {
		return v.Done(Reached{Sent: sent, Failed: failed}), nil
	}
	return v.Next("start", Campaign{Left: failed, Rounds: v.State.Rounds - 1, Sent: sent}).After(10 * time.Minute), nil
}
