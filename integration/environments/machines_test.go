package environments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type (
	order struct {
		N    int
		Text string
	}
	visit = fsm.Visit[order, string]
)

var (
	paid  = fsm.DeclareSignal[order]("paid")
	piece = fsm.DeclareSignal[int]("piece")
	never = fsm.DeclareSignal[int]("never")
)

// Each machine tests one primitive, or a few that belong together. Its result says whether
// everything was right.
var (
	double   = fsm.Declare[order, string]("double")   // a job
	stubborn = fsm.Declare[order, string]("stubborn") // a job that fails at first
	hopeless = fsm.Declare[order, string]("hopeless") // a job that fails for good
	counter  = fsm.Declare[order, string]("counter")  // runs ahead, then takes a timer
	patient  = fsm.Declare[order, string]("patient")  // awaits a signal, and one that never comes
	puzzle   = fsm.Declare[order, string]("puzzle")   // collects a set of signals
	family   = fsm.Declare[order, string]("family")   // children, one of which fails and one of which is dropped
	serial   = fsm.Declare[order, string]("serial")   // runs under a partition key
	slow     = fsm.Declare[order, string]("slow")     // outlives several heartbeats
	foreign  = fsm.Declare[order, string]("foreign")  // no engine has it
)

// text is a text that a state or payload may hold, and that a faulty protocol would break.
const text = `'; -- "quoted" \ $1 ä 漢 {NULL}`

func twice(_ context.Context, o order) (string, error) { return fmt.Sprint(2*o.N, o.Text), nil }

func (s *scene) definitions() []fsm.Definition {
	return []fsm.Definition{
		double.Job(twice),
		stubborn.Job(func(ctx context.Context, o order) (string, error) {
			i, _ := fsm.InfoFrom(ctx)
			if i.Attempt < 2 {
				return "", fsm.RetryAfter(time.Millisecond, errors.New("not yet: "+text))
			}
			return strconv.Itoa(i.Attempt), nil
		}),
		hopeless.Job(func(context.Context, order) (string, error) {
			return "", fsm.Permanent(errors.New("hopeless: " + text))
		}),
		counter.Define(fsm.Step("start", count), fsm.Step("end", timed)),
		patient.Define(fsm.Step("start", wait), fsm.Step("paid", book), fsm.Step("booked", waitInVain), fsm.Step("end", timedOut)),
		puzzle.Define(fsm.Step("start", collect)),
		family.Define(fsm.Step("start", spawn), fsm.Step("join", join)),
		serial.Job(s.alone),
		slow.Job(s.outliveLease),
	}
}

func count(_ context.Context, v *visit) (fsm.Outcome, error) {
	if v.State.N == 0 {
		return v.Next("end", order{Text: text}).After(20 * time.Millisecond), nil
	}
	return v.Next("start", order{N: v.State.N - 1}), nil
}

func timed(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Done(fmt.Sprint(v.Visit, v.State.Text)), nil
}

func wait(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("paid", v.State, paid, never).Timeout(time.Hour), nil
}

func book(_ context.Context, v *visit) (fsm.Outcome, error) {
	o, ok, err := paid.First(v)
	if err != nil || !ok || v.TimedOut() {
		return nil, errors.Join(err, errors.New("woken without a payment"))
	}
	return v.Next("booked", o), nil
}

func waitInVain(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("end", v.State, never).Timeout(20 * time.Millisecond), nil
}

// timedOut also finds the signal that was not awaited in the inbox, and no consumed one.
func timedOut(ctx context.Context, v *visit) (fsm.Outcome, error) {
	inbox, err := v.Inbox(ctx)
	if err != nil {
		return nil, err
	}
	return v.Done(fmt.Sprint(v.TimedOut(), len(v.Awaited()), len(inbox), v.State.Text)), nil
}

func collect(_ context.Context, v *visit) (fsm.Outcome, error) {
	pieces, err := piece.All(v)
	if err != nil || len(pieces) < v.State.N {
		return v.Await("start", v.State, piece), err
	}
	sum := 0
	for _, n := range pieces {
		sum += n
	}
	return v.Done(fmt.Sprint(len(pieces), sum)), nil
}

func spawn(_ context.Context, v *visit) (fsm.Outcome, error) {
	key := fsm.Key(fmt.Sprint("child of ", v.ID))
	children := []fsm.Spec{hopeless.New(order{}), double.New(order{N: 1}).Key(key), double.New(order{N: 2}).Key(key)}
	for n := range v.State.N {
		children = append(children, double.New(order{N: n, Text: text}).Priority(n%3))
	}
	return v.ScheduleChildren("join", v.State, children...), nil
}

func join(_ context.Context, v *visit) (fsm.Outcome, error) {
	done := 0
	for _, c := range double.Children(v) {
		if _, err := c.Result(); err != nil {
			return nil, err
		}
		done++
	}
	return v.Done(fmt.Sprint(done, len(v.Children())-done, len(v.Dropped()))), nil
}

// alone fails if another instance of its key runs, or its predecessor has not run.
func (s *scene) alone(_ context.Context, o order) (string, error) {
	if !s.running.CompareAndSwap(false, true) {
		return "", fsm.Permanent(errors.New("two at a time"))
	}
	defer s.running.Store(false)
	if !s.turn.CompareAndSwap(int64(o.N), int64(o.N+1)) {
		return "", fsm.Permanent(fmt.Errorf("%d ran when it was %d's turn", o.N, s.turn.Load()))
	}
	return "", nil
}

// outliveLease runs until the heartbeat has extended its lease twice.
func (s *scene) outliveLease(ctx context.Context, _ order) (string, error) {
	i, _ := fsm.InfoFrom(ctx)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last time.Time
	for moved := -1; moved < 2; {
		var lease time.Time
		if err := s.admin.QueryRow(ctx, `SELECT lease_expires_at FROM `+s.table("gen_durable")+` WHERE id = $1`, i.ID).Scan(&lease); err != nil {
			return "", err
		}
		if lease.After(last) {
			last = lease
			moved++
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-tick.C:
		}
	}
	return "", nil
}
