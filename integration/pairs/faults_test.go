package pairs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
)

// faults are what may go wrong in a case. Most of them strike one run of a step, which the seed
// chooses.
var faults = []string{
	"none",
	"kill",        // the process of a step dies before it has done anything, and its claim is reaped
	"stop",        // the process of a step stands still beyond its lease, and its outcome comes too late
	"drain",       // the engine stops in the middle of a step, and another one goes on
	"lost",        // the answer of a commit is lost
	"held",        // a stranger holds the row of the step, or that of its parent, when its outcome comes
	"held parent", // a stranger holds the parent of the step for longer, while others of its children end
	"fail",        // a step fails until an operator mends it
	"over",        // an operator cancels the root while a step runs
	"slow",        // each statement of the engine, and its answer, is under way for some milliseconds
	"bound",       // all limits are as tight as the features allow
	"month",       // a month passes, while one instance is paused
}

// struck is a fault that strikes the run of a step. A nil one strikes none.
type struck struct {
	name string
	at   int // the run of a step that it strikes, of the case
	runs atomic.Int32

	losing atomic.Bool
	cut    atomic.Pointer[ran] // the run of a step that a drain has ended
	end    atomic.Pointer[context.CancelFunc]
	broken atomic.Pointer[string] // the step that fails, of one instance, until it is mended
}

// ran is a run of a step.
type ran struct {
	id      fsm.ID
	visit   int64
	attempt int
	crashes int
}

func runOf(v *visit) *ran { return &ran{v.ID, v.Visit, v.Attempt, v.Crashes} }

var (
	errGone   = errors.New("its process is gone")
	errBroken = errors.New("broken")
)

// strike runs a step, and lets the fault strike it.
func (r *rig) strike(ctx context.Context, v *visit, f step) (fsm.Outcome, error) {
	defer r.runs(v)()
	if r.breaks != nil && r.breaks(v) {
		return v.Fail(errBroken), nil
	}
	if v.State.Kind == node && v.Visit == 0 {
		if err := r.waited(ctx, v); err != nil {
			return nil, err
		}
	}
	s := r.fault
	if s == nil {
		return f(ctx, v)
	}
	if cut := s.cut.Load(); cut != nil && cut.id == v.ID && s.cut.CompareAndSwap(cut, nil) && *runOf(v) != *cut && cut.visit == v.Visit && r.c.Verb == "none" {
		r.violate("a drain counts against an instance", "%+v runs again as %+v", *cut, *runOf(v))
	}
	place := v.State.Path + " " + v.Step
	if b := s.broken.Load(); b != nil && *b == place {
		return v.Fail(errBroken), nil
	}
	if int(s.runs.Add(1)) != s.at {
		return f(ctx, v)
	}
	r.tell("fault %s at %s, instance %d", s.name, place, v.ID)
	switch s.name {
	case "kill":
		return nil, errors.Join(errGone, r.loseClaim(ctx, v.ID))
	case "stop":
		outcome, err := f(ctx, v)
		return outcome, errors.Join(err, r.loseClaim(ctx, v.ID), r.overtaken(ctx, v))
	case "drain":
		if r.leaving != nil {
			s.cut.Store(runOf(v))
			r.leaving <- engine.FromContext(ctx)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if end := s.end.Load(); end != nil {
			s.cut.Store(runOf(v))
			(*end)()
			<-ctx.Done()
			return nil, ctx.Err()
		}
	case "lost":
		s.losing.Store(true)
	case "fail":
		s.broken.Store(&place)
		return v.Fail(errBroken), nil
	case "over":
		if _, err := engine.FromContext(ctx).Admin().Cancel(ctx, r.root); err != nil && !errors.Is(err, engine.ErrConflict) {
			return nil, err
		}
	case "held":
		id := v.ID
		if v.Parent != 0 && r.c.Seed%2 == 0 {
			id = v.Parent
		}
		if err := r.hold(ctx, id, holdFor); err != nil {
			return nil, err
		}
	case "held parent":
		id := v.ID
		if v.Parent != 0 {
			id = v.Parent
		}
		if err := r.hold(ctx, id, parentFor); err != nil {
			return nil, err
		}
	}
	return f(ctx, v)
}

// loseClaim lets a claim's lease be over, and reaps it, so that the next claim runs the step again.
func (r *rig) loseClaim(ctx context.Context, id fsm.ID) error {
	if _, err := r.pool.Exec(ctx, `UPDATE gendurable.gen_durable SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE id = $1`, int64(id)); err != nil {
		return err
	}
	return r.reap(ctx)
}

// overtaken waits until another claim of a step has committed, if engines work by themselves, so
// that the outcome of this one comes behind it. A verb may keep the other claim from that.
func (r *rig) overtaken(ctx context.Context, v *visit) error {
	const looks = 200
	for n := 0; r.fleet != nil && n < looks; n++ {
		i, err := r.eng.Get(ctx, v.ID)
		if err != nil || i.Visit > v.Visit || i.Status.Terminal() {
			return err
		}
		pace.Sleep(ctx, 5*time.Millisecond)
	}
	return nil
}

// holdFor is how long another session holds a row, and parentFor long enough that only some of many
// ends that wait for it try. A session that waits for it waits as long: nothing depends on how long
// that is.
const holdFor, parentFor = 60 * time.Millisecond, 400 * time.Millisecond

// hold lets another session hold the row of an instance.
func (r *rig) hold(ctx context.Context, id fsm.ID, long time.Duration) error {
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, int64(id)); err != nil {
		return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	r.m.Lock()
	defer r.m.Unlock()
	r.held.Go(func() {
		select {
		case <-time.After(long):
		case <-ctx.Done():
		}
		_ = tx.Rollback(context.WithoutCancel(ctx))
	})
	return nil
}

// mend lets the step that fails work again.
func (s *struck) mend() {
	if s != nil {
		s.broken.Store(nil)
	}
}

func (s *struck) drains() bool { return s != nil && s.name == "drain" && int(s.runs.Load())+1 == s.at }

func (s *struck) drain(cancel context.CancelFunc) { s.end.Store(&cancel) }

// loses reports whether the answer to these statements is lost: the first commit of an outcome
// behind the strike.
func (s *struck) loses(stmts []entpgx.Stmt) bool {
	return s != nil && s.losing.Load() && slices.ContainsFunc(stmts, func(m entpgx.Stmt) bool {
		return strings.HasPrefix(m.Name, "commit")
	}) && s.losing.CompareAndSwap(true, false)
}
