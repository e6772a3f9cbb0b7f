package work

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
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

// execute runs a flight. The flight has a slot from now until it hands its outcome over, or lands.
// execute does not block. A flight that comes back continues at the same place.
func (e *executor) execute(f *flight) {
	f.started.Store(true)
	e.flights.started.Add(1)
	e.flights.settleIn(f)
	f.where = inSlot
	if x := f.resumes; x != nil {
		f.resumes, f.group = nil, nil
		e.runners.add(x)
		return
	}
	r := e.route(f.claim) // it has one: see scheduler.withoutStrays
	e.runners.add(&execution{executor: e, f: f, m: r.machine, route: r, begun: e.since()})
}

// execution is one flight in a slot. It runs the claimed step, has its outcome committed and, if
// the claim is kept, runs the next step. It occupies a goroutine only while it runs user code:
// while the committer has an outcome, only the committer's answer continues the execution.
type execution struct {
	*executor
	f     *flight
	m     *step.Machine
	route *route // by which the instance came to the machine

	begun time.Duration // when the flight began
	ahead int           // steps that it has run ahead so far

	// The following fields belong to the visit under way.
	phase   phase
	failed  *failure // the failure for which the handler is called
	fault   string   // why the state cannot be converted: the instance is to be paused
	refused bool     // Postgres has already refused an outcome of this visit
	final   bool     // the outcome under way is the last resort, which fails with a safe text
	took    time.Duration
	rerun   int // how often in a row the step's own transaction failed with an error that may be absent next time
	// hindered is why the step could not be given what it needs: somebody holds it.
	hindered *failure

	called time.Duration // when its step was called, by process.since
	sent   pending       // the outcome under way
	before phase         // the phase in which it was decided
	answer *commitReply  // its fate, not yet considered
	undone turn          // what follows if it was undone
}

// run runs the execution until the flight has ended, or until an outcome is on its way to the
// database. If user code ends the goroutine by runtime.Goexit, another goroutine takes over, and
// the machine sees a failed step (T73).
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

// proceed reports whether the flight is over. If it is not, another goroutine may already have the
// execution.
func (x *execution) proceed() (over bool) {
	if x.phase == fresh && x.ahead == 0 && x.since() > time.Duration(x.f.until.Load()) {
		// The flight waited in the buffer until its lease was doubtful. Give the claim back, if it is
		// still ours (T23).
		x.f.cancel(fsm.ErrLeaseLost)
	}
	var outcome *step.Commit
	if r := x.answer; r != nil {
		if x.f.outside() && (r.refused != nil || r.undone) && x.returns() {
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
		case outcome == nil && x.hindered != nil:
			x.hinder()
			return false
		case outcome == nil:
			x.release()
			return true
		case !x.flights.current(x.f):
			x.stale()
			return true
		case outcome.Within == nil:
			x.before, x.phase = x.phase, decided
			x.sent = pending{flight: x.f, entry: x.entry(outcome, x.took), to: x}
			x.sent.entry.Drop = x.f.claim.Fleeting && x.config.Archive == nil
			x.sent.bytes = x.sent.entry.Bytes()
			if !x.sent.entry.Keep {
				x.flights.handOver(x.f, x.sent.bytes)
			}
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

// answered takes the committer's answer. Usually the flight ends here: that runs no user code, and
// needs no goroutine.
func (x *execution) answered(r commitReply) {
	if r == (commitReply{}) && !x.sent.entry.Keep && len(x.hooks.step) == 0 {
		x.flights.land(x.f)
		return
	}
	x.answer = &r
	x.runners.add(x)
}

// leave frees the slot, if the flight still has it, since the outcome under way is held up.
func (x *execution) leave() { x.flights.leave(x.f, x.sent.bytes) }

// returns puts an execution that has left its slot, and still has code to run, back in line for a
// slot. It reports false if it cannot have one: a worker that drains starts nothing else, so the
// execution continues without a slot.
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

// hinder makes the flight wait for the lock that its step needs. It waits as a step whose own
// transaction met a lock: out of its slot after a few tries, and for as long as it takes. Then the
// visit is decided anew, from the beginning.
func (x *execution) hinder() {
	nothing := store.Entry{Claim: x.f.claim, Commit: &step.Commit{Kind: step.Retry}}
	t := turn{kind: turnHeld, entry: nothing, failed: x.hindered, innocent: true}
	x.before, x.hindered = fresh, nil
	x.f.claim.Children, x.f.claim.Portion = nil, nil
	x.await(t)
}

// await makes the committer find out whether a step's own transaction took effect.
func (x *execution) await(t turn) {
	x.phase, x.undone = decided, t
	x.sent = pending{flight: x.f, entry: t.entry, doubt: t.doubt, probe: true, to: x}
	if t.mark != "" {
		x.sent.marks = []string{t.mark}
	}
	x.commits.probeLater(&x.sent, pace.Backoff(x.rerun, 10*time.Millisecond, 5*time.Second))
}

// consider decides what follows from the fate of an outcome: another outcome, or the end of the
// flight, or neither, so that the visit is decided anew.
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
		if o := x.sent.entry.Commit; o != nil && o.Unbegun { // applied or not, nothing has run
			x.f.taken.Store(true)
			return nil, true
		}
		x.stale()
		return nil, true
	case r.undone:
		x.repeat(x.undone)
		return nil, false
	}
	o := x.sent.entry.Commit
	if r.turned {
		x.report(&step.Commit{Kind: step.Next})
		return nil, true
	}
	x.report(o)
	if x.sent.entry.Keep {
		x.advance(o)
		if x.f.outside() { // the next step needs a slot, so the instance is claimed again for it
			x.release()
			return nil, true
		}
		return nil, false
	}
	return nil, true
}

// follow does what a step's own transaction requires. Like consider, it returns another outcome, or
// that the flight is over, or neither, so that the visit is decided anew.
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

// release gives the claim back, with attempt, crashes, visit and state unchanged. A run that had
// begun is noted with the errors of attempts, since nothing else tells that it did: an instance may
// begin again and again. If the claim is no longer ours, release does nothing.
func (x *execution) release() {
	x.report(nil)
	if cause := x.f.lost(); cause != nil && x.phase > converting {
		x.f.claim.CutOff = cause.Error()
	}
	if x.fault != "" {
		x.claims.setAside(x.base, []*flight{x.f}, x.fault, func(*flight) {})
		return
	}
	x.claims.giveBack(x.base, []*flight{x.f}, func(*flight) {}) // may take long: meanwhile the heartbeat extends its lease
}

// stuck leaves an instance that Postgres does not even let fail to its lease. The reaper's growing
// delays keep the repeated attempts from becoming a busy loop.
func (x *execution) stuck(err error) {
	c := x.f.claim
	x.log.Error("Postgres refuses every outcome of an instance: it is tried again when its lease expires, until it is repaired by hand",
		slog.Int64("instance", c.ID), slog.String("machine", c.Machine), slog.String("step", c.Step), slog.Any("error", err))
}

func (x *execution) stale() {
	c := x.f.claim
	x.f.taken.Store(true)
	x.log.Warn("an outcome came too late and changed nothing", slog.Int64("instance", c.ID), slog.String("machine", c.Machine),
		slog.String("step", c.Step), slog.Int64("visit", c.Visit), slog.Int64("token", c.FencingToken))
	tell(x.base, x.process, x.hooks.stale, worker.StaleEvent{Instance: hidden.InfoOf(c)})
}

// report calls the hooks about a visit. o is nil if the claim was given back.
func (x *execution) report(o *step.Commit) {
	if len(x.hooks.step) == 0 {
		return
	}
	e := worker.StepEvent{Instance: hidden.InfoOf(x.f.claim), Took: x.took}
	if o != nil {
		e.Outcome, e.Failure = o.Kind, fsm.Failure(o.Failure)
	}
	if x.failed != nil {
		e.Err = x.failed.err
	}
	if o == nil && x.phase > converting {
		e.CutOff = x.f.lost()
	}
	tell(x.f.ctx, x.process, x.hooks.step, e)
}
