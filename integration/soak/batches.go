package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// squad has steps that are called for several instances at a time. Processes are killed, stopped
// and cut off in the middle of such calls as in all others, and the log has a line of each instance
// of a call: so every check of single steps holds for them, too.
var squad = fsm.Declare[work, ending]("squad")

const squadSize = 6

func (p player) squad() fsm.Definition {
	return squad.Define(
		p.together("start", func(r *run) fsm.Outcome { return r.next("drill", r.moved()) }),
		p.together("drill", func(r *run) fsm.Outcome { return r.next("end", r.moved()) }),
		p.step("end", p.finish),
	).OnError(func(ctx context.Context, v *visit, failed error) (fsm.Outcome, error) {
		if among := (*fsm.BatchError)(nil); errors.As(failed, &among) {
			failed = errPassing // who is to blame is known once it runs alone
		}
		return p.handle(ctx, v, failed)
	})
}

// together returns a batch step. Instances fail by themselves as often as their states say. One
// with another fate makes the call fail for all.
func (p player) together(name string, body func(*run) fsm.Outcome) fsm.StepDef[work, ending] {
	return fsm.BatchStep(name, func(ctx context.Context, visits []*visit) ([]fsm.Outcome, error) {
		longest, poisoned := work{}, false
		for _, v := range visits {
			began := of(&v.Info, &v.State)
			began.Kind = evStarted
			p.log.write(began)
			longest.Busy = max(longest.Busy, v.State.Busy)
			poisoned = poisoned || v.State.Fate != "done"
			if v.Machine != squad.Name() || v.Step != name {
				(&run{visit: v, log: p.log}).wrong("it is in a call of " + name)
			}
		}
		if len(visits) > 1 {
			p.log.write(event{Kind: evTogether, Label: name, Count: int64(len(visits))})
		}
		err := longest.toil(ctx)
		if err == nil && poisoned {
			err = errFatal
		}
		var outcomes []fsm.Outcome
		for _, v := range visits {
			r := &run{visit: v, log: p.log}
			ended := of(&v.Info, &v.State)
			ended.Kind = evEnded
			switch {
			case err != nil:
				ended.Outcome, ended.Detail = failure(ctx, err)
			case v.Attempt < v.State.Fails:
				ended.Outcome, ended.Detail = failure(v.Context(), errPassing)
				outcomes = append(outcomes, v.Raise(errPassing))
			default:
				outcomes = append(outcomes, body(r))
				ended.Outcome, ended.To, ended.ToN = r.decided.Outcome, r.decided.To, r.decided.ToN
			}
			p.log.write(ended)
		}
		return outcomes, err
	}, fsm.BatchOf(squadSize), fsm.Within(150*time.Millisecond))
}

// muster inserts instances that run together, some under a partition key, and sometimes one that
// makes every call fail in which it is.
func (u *undertaking) muster(ctx context.Context) {
	var specs []fsm.Spec
	for n := range 2 + u.IntN(squadSize) {
		w := u.work()
		if w.Label = fmt.Sprintf("%s/%d", u.name, n); n == 0 && u.IntN(5) == 0 {
			w.Fate, w.Fails = string(fsm.FailureDecided), 0
		}
		spec := squad.New(w)
		if n > 0 && u.IntN(4) == 0 {
			spec = spec.PartitionKey("squad " + u.name)
		}
		specs = append(specs, spec)
	}
	ids, ok := u.insertMany(ctx, specs)
	if !ok {
		return
	}
	for _, id := range ids {
		u.outcome(ctx, id)
	}
}
