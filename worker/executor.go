package worker

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// executor runs flights in slots.
type executor struct {
	*process
	flights *flights
	claims  *claims
	commits *committer
	runners runners
}

func newExecutor(p *process, flights *flights, claims *claims, commits *committer) *executor {
	return &executor{process: p, flights: flights, claims: claims, commits: commits,
		runners: runners{atOnce: runtime.GOMAXPROCS(0)}}
}

// execute executes a flight, which has a slot from here until it lands, or leaves it. It does not
// wait. One that comes back goes on where it was.
func (e *executor) execute(f *flight) {
	f.started.Store(true)
	e.flights.started.Add(1)
	if x := f.resumes; x != nil {
		f.resumes, f.left = nil, false
		f.queue.shown.held.Add(-1)
		e.runners.add(x)
		return
	}
	m := e.machines[machineKey{f.claim.Machine, f.claim.Version}]
	e.runners.add(&execution{executor: e, f: f, m: m, begun: e.since()})
}

// execution is one flight in a slot: it runs the claimed step, has its outcome committed and, where
// the claim is kept, runs the next one. It is a goroutine's only while it runs user code: an
// outcome on its way is the committer's, whose answer goes on with it.
type execution struct {
	*executor
	f *flight
	m *step.Machine

	begun time.Duration // of the flight
	ahead int           // steps that it has run ahead so far

	// Of the visit under way.
	phase   phase
	failed  *failure // what the handler is called for
	refused bool     // Postgres has refused an outcome of this visit once already
	final   bool     // and what is under way now is the last resort: to fail with a safe text
	took    time.Duration
	rerun   int // how often in a row its own transaction met what may pass

	sent   pending      // the outcome under way
	before phase        // in which it was decided
	answer *commitReply // what became of it, not yet considered
	undone turn         // what follows if it was undone
}

// run runs what there is to run: until the flight has ended, or until an outcome is on its way to
// the database. If user code ends the goroutine by runtime.Goexit, another takes over: to the
// machine that is a step that failed (T73).
func (x *execution) run() {
	returned := false
	defer func() {
		if !returned {
			x.runners.add(x)
		}
	}()
	over := x.proceed()
	returned = true
	if over {
		x.flights.land(x.f)
	}
}

// proceed reports whether the flight is over. If it is not, the execution is somebody else's
// already.
func (x *execution) proceed() (over bool) {
	if x.phase == fresh && x.ahead == 0 && x.since() > time.Duration(x.f.until.Load()) {
		// It waited in the buffer until the lease was doubtful: give it back, if it is still ours
		// (T23).
		x.f.cancel(fsm.ErrLeaseLost)
	}
	var outcome *step.Commit
	if r := x.answer; r != nil {
		if x.f.left && (r.refused != nil || r.undone) && x.returns() {
			return false
		}
		x.answer = nil
		if outcome, over = x.consider(*r); over {
			return true
		}
	}
	for {
		if outcome == nil {
			outcome = x.decide()
		}
		switch {
		case outcome == nil:
			x.release()
			return true
		case !x.flights.current(x.f):
			x.stale()
			return true
		case outcome.Within == nil:
			x.before, x.phase = x.phase, decided
			x.sent = pending{flight: x.f, entry: store.Entry{Claim: x.f.claim, Commit: outcome, Keep: x.mayRunAhead(outcome)}, to: x}
			x.commits.commit(&x.sent)
			return false
		}
		x.before = x.phase
		t := x.transact(outcome)
		if t.kind == turnHeld {
			x.await(t)
			return false
		}
		if outcome, over = x.follow(t); over {
			return true
		}
	}
}

// answered is the committer's answer. The usual end of a flight needs nobody's code, and no
// goroutine.
func (x *execution) answered(r commitReply) {
	if r == (commitReply{}) && !x.sent.entry.Keep && len(x.hooks.step) == 0 {
		x.flights.land(x.f)
		return
	}
	x.answer = &r
	x.runners.add(x)
}

// leave frees the slot: the outcome under way is held up.
func (x *execution) leave() { x.flights.leave(x.f) }

// returns puts an execution that has left its slot, and still has code to run, back in line for one,
// and reports whether there is still somebody who gives it one. A worker that drains starts nothing
// else, so there it goes on without.
func (x *execution) returns() bool {
	x.f.resumes = x
	select {
	case x.f.queue.returned <- x.f:
		return true
	case <-x.draining:
		x.f.resumes = nil
		return false
	}
}

// await has the committer find out whether a step's own transaction took effect.
func (x *execution) await(t turn) {
	x.phase, x.undone = decided, t
	x.sent = pending{flight: x.f, entry: t.entry, marks: []string{t.mark}, doubt: t.doubt, probe: true, to: x}
	x.commits.probeLater(&x.sent, pace.Backoff(x.rerun, 10*time.Millisecond, 5*time.Second))
}

// consider decides what follows from what became of an outcome: another one, or the flight is over,
// or neither: decide anew.
func (x *execution) consider(r commitReply) (outcome *step.Commit, over bool) {
	switch {
	case r.refused != nil && x.final:
		x.stuck(r.refused)
		return nil, true
	case r.refused != nil:
		return x.refuse(r.refused), false
	case r.abandoned:
		return nil, true
	case r.stale:
		x.stale()
		return nil, true
	case r.undone:
		x.repeat(x.undone)
		return nil, false
	}
	o := x.sent.entry.Commit
	x.report(o)
	if x.sent.entry.Keep {
		x.advance(o)
		if x.f.left { // the next step needs a slot: it is claimed again for it
			x.release()
			return nil, true
		}
		return nil, false
	}
	return nil, true
}

// follow does what follows a step's own transaction. As after consider, it returns another outcome,
// or that the flight is over, or neither: decide anew.
func (x *execution) follow(t turn) (outcome *step.Commit, over bool) {
	switch t.kind {
	case turnReply:
		x.phase, x.sent.entry = decided, t.entry
		return x.consider(t.reply)
	case turnRepeat:
		x.repeat(t)
	case turnFail:
		x.fail(t.failed)
	case turnEnded:
		x.end()
	case turnHeld: // see await
	}
	return nil, false
}

// release gives the claim back as it was: attempt, crashes, visit and state untouched. If it is not
// ours any more, nothing happens.
func (x *execution) release() {
	x.report(nil)
	x.claims.giveBack(x.base, []*flight{x.f}) // as long as it takes: meanwhile its lease is extended
}

// stuck leaves an instance that Postgres does not even let fail to its lease: the reaper's growing
// delays keep what is tried again in vain from becoming a busy loop.
func (x *execution) stuck(err error) {
	c := x.f.claim
	x.log.Error("Postgres refuses every outcome of an instance: it is tried again when its lease expires, until it is repaired by hand",
		slog.Int64("instance", c.ID), slog.String("machine", c.Machine), slog.String("step", c.Step), slog.Any("error", err))
}

func (x *execution) stale() {
	c := x.f.claim
	x.log.Warn("an outcome came too late and changed nothing", slog.Int64("instance", c.ID), slog.String("machine", c.Machine),
		slog.String("step", c.Step), slog.Int64("visit", c.Visit), slog.Int64("token", c.FencingToken))
	tell(x.base, x.process, x.hooks.stale, StaleEvent{Instance: fsm.InfoOf(c)})
}

// report tells what became of a visit; o is nil where the claim was given back.
func (x *execution) report(o *step.Commit) {
	if len(x.hooks.step) == 0 {
		return
	}
	e := StepEvent{Instance: fsm.InfoOf(x.f.claim), Took: x.took}
	if o != nil {
		e.Outcome, e.Failure = o.Kind, fsm.Failure(o.Failure)
	}
	if x.failed != nil {
		e.Err = x.failed.err
	}
	tell(x.f.ctx, x.process, x.hooks.step, e)
}
