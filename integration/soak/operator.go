package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
)

// hand carries out operators' verbs, and logs the order and the result. Clients have one, too.
type hand struct {
	eng *engine.Engine
	log *journal
}

// The log has these names for verbs in addition to the engine's.
const (
	verbFamily = "descendants" // the outcome of an evOrdered: the descendants are meant, too
	verbPlan   = "plan"
)

// operate carries out a verb once. ok says that it is known whether it took effect.
func (h hand) operate(ctx context.Context, verb engine.Verb, id fsm.ID, options ...engine.VerbOption) (done, ok bool) {
	return h.carryOut(ctx, event{ID: int64(id), Detail: string(verb)}, func(ctx context.Context) (engine.Changed, error) {
		a := h.eng.Admin()
		switch verb { //nolint:exhaustive // the other verbs have calls of their own
		case engine.VerbCancel:
			return a.Cancel(ctx, id, options...)
		case engine.VerbRetry:
			return a.Retry(ctx, id, options...)
		case engine.VerbRestart:
			return a.Restart(ctx, id, options...)
		case engine.VerbRunNow:
			return a.RunNow(ctx, id, options...)
		case engine.VerbPause:
			return a.Pause(ctx, id, options...)
		default:
			return a.Resume(ctx, id, options...)
		}
	})
}

func (h hand) carryOut(ctx context.Context, e event, call func(ctx context.Context) (engine.Changed, error)) (done, ok bool) {
	e.Kind = evOrdered
	h.log.write(e)
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	changed, err := call(calling)
	switch {
	case err == nil:
		e.Kind, e.Outcome, e.To, e.Children = evOperated, string(changed.Is), string(changed.Was), nil
		for _, d := range changed.Descendants {
			e.Children = append(e.Children, int64(d))
		}
		h.log.write(e)
		return true, true
	case errors.Is(err, engine.ErrConflict), errors.Is(err, engine.ErrDuplicate):
		return false, true
	}
	slog.Warn("not carried out", slog.String("verb", e.Detail), slog.Int64("instance", e.ID), slog.Any("error", err))
	return false, false
}

// operator does what operators do, to any instance and at the wrong moment.
type operator struct {
	hand
	r role
}

// act is one act of an operator.
type act struct {
	*operator
	*rand.Rand
}

// acts are the acts of an operator, each with its share of a hundred.
var acts = []struct {
	share int
	do    func(*act, context.Context)
}{
	{22, (*act).cancel},
	{8, (*act).cancelFamily},
	{18, (*act).retry},
	{8, (*act).restart},
	{11, (*act).reschedule},
	{7, (*act).runNow},
	{18, (*act).pause},
	{8, (*act).apply},
}

// playOperator works until SIGTERM, and leaves nothing paused.
func (r role) playOperator(ctx context.Context, pool *pgxpool.Pool, log *journal, ready func()) error {
	eng, err := engine.New(engine.Config{Pool: pool})
	if err != nil {
		return err
	}
	o := &operator{hand{eng, log}, r}
	life, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ready()
	var running sync.WaitGroup
	running.Go(func() { o.pauseQueues(ctx, life) })
	running.Go(func() { o.meddle(ctx, life) })
	running.Go(func() { o.changeGates(ctx, life) })
	tick := time.NewTicker(time.Duration(float64(time.Second) / r.Pace))
	defer tick.Stop()
	random := rand.New(rand.NewPCG(r.Seed, 2)) //nolint:gosec // repeatable
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		a := &act{o, rand.New(rand.NewPCG(r.Seed, random.Uint64()))} //nolint:gosec // repeatable
		running.Go(func() { a.do(life) })
	}
	late := time.AfterFunc(finishWithin, func() { cancel(errUnfinished) })
	defer late.Stop()
	running.Wait()
	o.resumeAll(life)
	if err := context.Cause(life); err != nil {
		return err
	}
	return eng.Stop(context.Background())
}

func (a *act) do(ctx context.Context) {
	for n, i := a.IntN(100), 0; ; i++ {
		if n -= acts[i].share; n < 0 {
			acts[i].do(a, ctx)
			return
		}
	}
}

// some chooses one of the newest instances with some properties; 0 if there is none, or the server
// is away.
func (a *act) some(ctx context.Context, where ...predicate.Instance) (fsm.ID, *work) {
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const newest = 100
	found, err := a.eng.Ent().Instance.Query().Where(where...).Order(instance.ByID(sql.OrderDesc())).Limit(newest).All(calling)
	if err != nil || len(found) == 0 {
		return 0, nil
	}
	i := found[a.IntN(len(found))]
	var w work
	if err := json.Unmarshal(i.State, &w); err != nil {
		a.log.write(event{Kind: evWrong, ID: int64(i.ID), Detail: fmt.Sprintf("its state: %v", err)})
		return 0, nil
	}
	return i.ID, &w
}

var alive = instance.StatusNotIn(fsm.StatusDone, fsm.StatusFailed)

// unrecorded are the instances of which no record of calls says what has become of them: an
// operator may end them.
var unrecorded = instance.MachineNEQ(purse.Name())

func (a *act) cancel(ctx context.Context) {
	status := fsm.Statuses()[a.IntN(4)] // one that lives
	if id, _ := a.some(ctx, instance.StatusEQ(status), unrecorded); id != 0 {
		a.operate(ctx, engine.VerbCancel, id, engine.Reason("soaked"))
	}
}

func (a *act) cancelFamily(ctx context.Context) {
	where := []predicate.Instance{instance.StatusEQ(fsm.StatusAwaitingChildren)} // they are few
	if a.IntN(3) == 0 {
		where = []predicate.Instance{alive, instance.MachineEQ(family.Name())}
	}
	id, _ := a.some(ctx, where...)
	if id == 0 {
		return
	}
	e := event{ID: int64(id), Detail: string(engine.VerbCancel), Outcome: verbFamily}
	a.carryOut(ctx, e, func(ctx context.Context) (engine.Changed, error) {
		return a.eng.Admin().Cancel(ctx, id, engine.Descendants())
	})
}

// retry leaves instances alone that want signals: their sender may have seen them end, and sends no
// more.
func (a *act) retry(ctx context.Context) {
	if id, w := a.some(ctx, instance.StatusEQ(fsm.StatusFailed)); id != 0 && w.Want == 0 {
		a.operate(ctx, engine.VerbRetry, id)
	}
}

// restart restarts an instance that waits for failed children, one of these children, or a failed
// instance.
func (a *act) restart(ctx context.Context) {
	waits := instance.StatusEQ(fsm.StatusAwaitingChildren)
	where := [][]predicate.Instance{
		{waits, instance.HasChildrenWith(instance.StatusEQ(fsm.StatusFailed))},
		{instance.StatusEQ(fsm.StatusFailed), instance.HasParentWith(waits)},
		{instance.StatusEQ(fsm.StatusFailed), instance.MachineIn(family.Name(), council.Name())},
		{instance.StatusEQ(fsm.StatusFailed), instance.ParentIDNotNil()},
	}[a.IntN(4)]
	if id, w := a.some(ctx, where...); id != 0 && w.Want == 0 {
		a.operate(ctx, engine.VerbRestart, id)
	}
}

func (a *act) reschedule(ctx context.Context) {
	id, _ := a.some(ctx, instance.StatusEQ(fsm.StatusRunnable))
	if id == 0 {
		return
	}
	at := time.Now().Add(time.Duration(a.IntN(1500)-300) * time.Millisecond)
	a.carryOut(ctx, event{ID: int64(id), Detail: string(engine.VerbReschedule)}, func(ctx context.Context) (engine.Changed, error) {
		return a.eng.Admin().Reschedule(ctx, id, at)
	})
}

func (a *act) runNow(ctx context.Context) {
	if id, _ := a.some(ctx, instance.StatusEQ(fsm.StatusRunnable), instance.EligibleAtGT(time.Now())); id != 0 {
		a.operate(ctx, engine.VerbRunNow, id)
	}
}

// pause pauses an instance for a while.
func (a *act) pause(ctx context.Context) {
	id, _ := a.some(ctx, alive, instance.Paused(false))
	if id == 0 {
		return
	}
	if done, ok := a.operate(ctx, engine.VerbPause, id); ok && !done {
		return
	}
	pause(ctx, time.Duration(50+a.IntN(1500))*time.Millisecond)
	for ctx.Err() == nil {
		if _, ok := a.operate(ctx, engine.VerbResume, id); ok {
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// apply plans a verb for the instances that have the key of some instance, or one with the same
// beginning, and carries out the plan.
func (a *act) apply(ctx context.Context) {
	verbs := []engine.Verb{engine.VerbCancel, engine.VerbReschedule, engine.VerbPause, engine.VerbRetry}
	verb := verbs[a.IntN(len(verbs))]
	where := []predicate.Instance{instance.CorrelationKeyNotNil(), alive}
	switch verb { //nolint:exhaustive // the others apply to any live instance
	case engine.VerbRetry:
		where = []predicate.Instance{instance.CorrelationKeyNotNil(), instance.StatusEQ(fsm.StatusFailed), instance.MachineEQ(job.Name())}
	case engine.VerbReschedule:
		where = append(where, instance.StatusEQ(fsm.StatusRunnable))
	case engine.VerbCancel:
		where = append(where, unrecorded)
	}
	id, _ := a.some(ctx, where...)
	if id == 0 {
		return
	}
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	i, err := a.eng.Get(calling, id)
	if err != nil {
		return
	}
	a.plan(calling, verb, engine.Filter{Machine: i.Machine, KeyPrefix: string(i.Key)})
	if verb == engine.VerbPause {
		pause(ctx, time.Duration(a.IntN(1000))*time.Millisecond)
		resuming, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		a.plan(resuming, engine.VerbResume, engine.Filter{Machine: i.Machine, KeyPrefix: string(i.Key)})
	}
}

// plan makes a plan and applies it, if the plan lists all instances that it will change.
func (h hand) plan(ctx context.Context, verb engine.Verb, f engine.Filter) {
	p, err := h.eng.Admin().Bulk(ctx, verb, f)
	if err != nil || p.Matched == 0 || p.Matched > int64(len(p.Sample)) {
		return
	}
	var options []engine.VerbOption
	if verb == engine.VerbReschedule {
		options = append(options, engine.At(time.Now().Add(300*time.Millisecond)))
	}
	for _, i := range p.Sample {
		h.log.write(event{Kind: evOrdered, ID: int64(i.ID), Detail: string(verb)})
	}
	done, err := p.Apply(ctx, options...)
	if err == nil && done.Changed+done.Skipped != p.Matched {
		h.log.write(event{Kind: evWrong, Label: f.KeyPrefix, Detail: fmt.Sprintf("a plan of %d: %+v", p.Matched, done)})
	}
	if done.Changed > 0 {
		h.log.write(event{Kind: evOperated, Detail: verbPlan, Outcome: string(verb), Count: done.Changed})
	}
}

// pauseQueues pauses a queue, for longer than any process may need to notice, and goes on with
// another one.
func (o *operator) pauseQueues(ctx, life context.Context) {
	random := rand.New(rand.NewPCG(o.r.Seed, 3)) //nolint:gosec // repeatable
	for n := 0; ; n++ {
		pause(ctx, time.Duration(1500+random.IntN(5000))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		queue := []string{"post", "narrow", "default"}[n%3]
		if o.insist(life, func(ctx context.Context) (bool, error) { return o.eng.Admin().PauseQueue(ctx, queue) }) {
			o.log.write(event{Kind: evPaused, Label: queue})
			pause(ctx, noticed+time.Duration(500+random.IntN(1500))*time.Millisecond)
		}
		o.log.write(event{Kind: evResuming, Label: queue})
		o.insist(life, func(ctx context.Context) (bool, error) { return o.eng.Admin().ResumeQueue(ctx, queue) })
	}
}

// insist repeats a call until there is an answer.
func (h hand) insist(ctx context.Context, call func(ctx context.Context) (bool, error)) (changed bool) {
	for ctx.Err() == nil {
		calling, cancel := context.WithTimeout(ctx, patience)
		changed, err := call(calling)
		cancel()
		if err == nil {
			return changed
		}
		slog.Warn("again", slog.Any("error", err))
		pause(ctx, 100*time.Millisecond)
	}
	return false
}

// settled is how long a call whose answer was lost may still take effect.
const settled = 3 * time.Second

// resumeAll ends every pause. It does so again later: a pause that was cut off may still be about
// to commit.
func (o *operator) resumeAll(ctx context.Context) {
	for range 2 {
		o.log.write(event{Kind: evOrdered, Detail: string(engine.VerbResume)}) // of everything
		o.insist(ctx, func(ctx context.Context) (bool, error) {
			p, err := o.eng.Admin().Bulk(ctx, engine.VerbResume, engine.Filter{All: true})
			if err != nil {
				return false, err
			}
			_, err = p.Apply(ctx)
			return true, err
		})
		o.insist(ctx, func(ctx context.Context) (bool, error) {
			paused, err := o.eng.Admin().PausedQueues(ctx)
			for _, q := range paused {
				if _, err := o.eng.Admin().ResumeQueue(ctx, q.Queue); err != nil {
					return false, err
				}
			}
			return true, err
		})
		o.insist(ctx, func(ctx context.Context) (bool, error) {
			for s, err := range o.eng.Admin().AllSchedules(ctx, engine.ScheduleQuery{}) {
				if err != nil {
					return false, err
				}
				if _, err := there(o.eng.Admin().ResumeSchedule(ctx, s.Name)); err != nil {
					return false, err
				}
			}
			return true, nil
		})
		pause(ctx, settled)
	}
}
