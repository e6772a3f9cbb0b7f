package soak

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// work is the state of every machine of the soak. It says how the instance must end, so that the
// checks know.
type work struct {
	Label string // unique; a child's begins with its parent's
	Fate  string // "done", or why it fails
	N     int    // grows with every progress: the state's place in the instance's history
	Seed  uint64 // of its children

	Busy  int // ms that a step takes
	Deaf  bool
	Fails int // runs of each visit that fail before one succeeds
	Steps int // of a chain
	Nap   int // ms of a chain's delayed step

	Want     int // signals
	Got      []int
	Within   int       // ms after which an await times out
	Until    time.Time // or the time when it does
	TimedOut int

	Brood  int // children of each round
	Rounds int
	Depth  int // how deep children may have children

	Rule    string // by which a council waits for its children
	Cancel  bool   // and whether it has the others cancelled
	Rejoins int
	Name    string // of a node
	Adds    int    // how many nodes it adds

	Sends int64 // the mailbox that a teller writes to

	Ballast string // makes a state large: more than a socket holds, up to the limit
	Heavy   int    // its length

	Place int // among those of its partition key, from 1; 0: it has none
}

// ending is the result of every machine.
type ending struct {
	Label string
	N     int
}

// ping is the payload of every signal.
type ping struct {
	Index int    // which of those that its target wants
	Tag   string // unique: the label of the target, a slash, the index, then # and a text that tells repetitions apart
}

type visit = fsm.Visit[work, ending]

var (
	job       = fsm.Declare[work, ending]("job")
	doomed    = fsm.Declare[work, ending]("doomed")
	chainOne  = fsm.Declare[work, ending]("chain")
	chainTwo  = fsm.Declare[work, ending]("chain", fsm.Version(2))
	mailbox   = fsm.Declare[work, ending]("mailbox", fsm.Queue("post"))
	collector = fsm.Declare[work, ending]("collector", fsm.Queue("post"))
	timer     = fsm.Declare[work, ending]("timer", fsm.Queue("post"))
	family    = fsm.Declare[work, ending]("family")
	teller    = fsm.Declare[work, ending]("teller")
	purse     = fsm.Declare[work, ending]("purse")

	pings = fsm.DeclareSignal[ping]("ping")
	pongs = fsm.DeclareSignal[ping]("pong") // awaited beside ping, and never sent
)

// doomedAttempts is how often the doomed run; each of these runs fails.
const doomedAttempts = 3

var (
	errPassing = errors.New("a fault that passes")
	errFatal   = errors.New("a fault that stays")
)

// player is a worker process's side of the machines: it has their log.
type player struct{ log *journal }

// definitions returns all machines; an old process does not know the second version.
func (p player) definitions(old bool) []fsm.Definition {
	patient := fsm.RetryPolicy{MaxAttempts: 1000, Base: 20 * time.Millisecond, Max: 200 * time.Millisecond}
	all := []fsm.Definition{
		job.Job(p.job).Retry(patient),
		doomed.Job(p.job).Retry(fsm.RetryPolicy{MaxAttempts: doomedAttempts, Base: 20 * time.Millisecond}),
		chainOne.Define(p.step("start", p.advance("work")), p.step("work", p.link("work")), p.step("end", p.finish)).OnError(p.handle),
		mailbox.Define(p.step("start", p.park("take")), p.step("take", p.take), p.step("more", p.more)).OnError(p.handle),
		purse.Define(p.step("start", p.park("take")), p.step("take", p.take), p.step("more", p.spent)).OnError(p.handle),
		collector.Define(p.step("start", p.park("gather")), p.step("gather", p.gather), p.step("sum", p.finish)).OnError(p.handle),
		timer.Define(p.step("start", p.park("rang")), p.step("rang", p.rang)).OnError(p.handle),
		teller.Define(p.step("start", p.advance("book")), p.step("book", p.book)).OnError(p.handle),
		p.squad(),
		family.Define(p.step("start", p.found), p.step("spawn", p.spawn), p.step("join", p.join)).OnError(p.handle),
	}
	all = append(all, p.councils()...)
	if old {
		return all
	}
	return append(all, chainTwo.Define(p.step("start", p.advance("labour")), p.step("labour", p.link("labour")),
		p.step("end", p.finish)).OnError(p.handle))
}

// run is one execution of a step, and its outcome.
type run struct {
	*visit
	log     *journal
	decided event
}

// step logs when a step begins and what it returns. An interrupted step leaves only the first line.
func (p player) step(name string, body func(ctx context.Context, r *run) (fsm.Outcome, error)) fsm.StepDef[work, ending] {
	return fsm.Step(name, func(ctx context.Context, v *visit) (fsm.Outcome, error) {
		r := &run{visit: v, log: p.log}
		began := of(&v.Info, &v.State)
		began.Kind = evStarted
		for _, s := range v.Awaited() {
			payload, err := pings.Decode(v, s)
			if err != nil {
				return nil, err
			}
			began.Signals, began.Tags = append(began.Signals, s.ID), append(began.Tags, payload.Tag)
		}
		p.log.write(began)
		if v.State.light() {
			r.wrong("its state is not whole")
		}
		out, err := body(ctx, r)
		ended := of(&v.Info, &v.State)
		ended.Kind, ended.Outcome, ended.To, ended.ToN, ended.Policy = evEnded, r.decided.Outcome, r.decided.To, r.decided.ToN, r.decided.Policy
		if err != nil {
			ended.Outcome, ended.Detail = failure(ctx, err)
		}
		p.log.write(ended)
		return out, err
	})
}

// failure tells a step's own error from an error that it returns because the engine cancelled it.
func failure(ctx context.Context, err error) (outcome, detail string) {
	if cause := context.Cause(ctx); cause != nil {
		return "cancelled", cause.Error()
	}
	return "error", err.Error()
}

func of(i *fsm.Info, s *work) event {
	return event{ID: int64(i.ID), Visit: i.Visit, Token: i.FencingToken, Machine: i.Machine, Version: i.Version, Step: i.Step,
		Attempt: i.Attempt, Crashes: i.Crashes, N: s.N, Label: s.Label, Key: i.PartitionKey, Idempotency: i.IdempotencyKey()}
}

// moved returns the state of the next visit.
func (r *run) moved() work {
	s := r.State
	s.N++
	return s
}

func (r *run) decide(outcome, to string, n int) {
	r.decided = event{Outcome: outcome, To: to, ToN: n}
}

func (r *run) next(to string, s work) *fsm.NextOutcome {
	r.decide("next", to, s.N)
	return r.Next(to, s)
}

func (r *run) await(to string, s work) *fsm.AwaitOutcome {
	r.decide("await", to, s.N)
	return r.Await(to, s, pings, pongs)
}

func (r *run) done() fsm.Outcome {
	r.decide("done", r.Step, r.State.N)
	return r.Done(ending{r.State.Label, r.State.N})
}

// light reports whether a state has lost ballast.
func (s *work) light() bool { return len(s.Ballast) != s.Heavy }

// wrong logs that a step saw what it must not see.
func (r *run) wrong(what string) { r.wrongOf(0, what) }

// wrongOf logs the same about another instance.
func (r *run) wrongOf(id fsm.ID, what string) {
	e := of(&r.Info, &r.State)
	e.Kind, e.Target, e.Detail = evWrong, int64(id), what
	r.log.write(e)
}

// toil takes the time that the state says. Deaf steps finish what they began, even if their context
// ends.
func (s *work) toil(ctx context.Context) error {
	if s.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	t := time.NewTimer(time.Duration(s.Busy) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// attempt begins every step: it works, and fails as often as the state says.
func (r *run) attempt(ctx context.Context) error {
	if err := r.State.toil(ctx); err != nil {
		return err
	}
	if r.Attempt < r.State.Fails {
		return errPassing
	}
	return nil
}

// handle retries transient errors and fails at others.
func (p player) handle(ctx context.Context, v *visit, failed error) (fsm.Outcome, error) {
	e := of(&v.Info, &v.State)
	e.Kind, e.Detail, e.To, e.ToN = evHandled, failed.Error(), v.Step, v.State.N
	defer func() { p.log.write(e) }()
	if errors.Is(failed, errPassing) {
		e.Outcome = "retry"
		return v.Retry(v.State, 20*time.Millisecond), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		e.Outcome = "cancelled"
		return nil, cause
	}
	e.Outcome = "fail"
	return v.Fail(failed), nil
}
