package rollout

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/fsm"
)

// These say which machines a build registers. The new one has another version of one machine, a
// machine more, and a machine less.
const (
	Old = "old"
	New = "new"
	All = "all" // those of the new one, and the one that it lacks
	One = "one" // version 1 of the machines of versions.go
	Two = "two" // version 2 of them, which takes instances from version 1
)

// Order is the state of all machines.
type Order struct {
	Long bool // a step of it takes longer than a drain
	Left int  // steps to go; of a choice, children that it has seen done; of a flow, children that it was shown
}

// Both sides of the test know these machines.
var (
	Paid = fsm.DeclareSignal[int]("paid")

	Order1  = fsm.Declare[Order, string]("order", fsm.Version(1))
	Order2  = fsm.Declare[Order, string]("order", fsm.Version(2))
	Item1   = fsm.Declare[Order, string]("item", fsm.Version(1))
	Item2   = fsm.Declare[Order, string]("item", fsm.Version(2))
	Choice  = fsm.Declare[Order, string]("choice")
	Flow    = fsm.Declare[Order, string]("flow")
	Rush    = fsm.Declare[Order, string]("rush")
	Graph   = fsm.Declare[Order, string]("graph")
	Retired = fsm.Declare[Order, string]("retired")
	Fresh   = fsm.Declare[Order, string]("fresh")
)

type visit = fsm.Visit[Order, string]

// Traces is the table that the steps write to.
type Traces struct{ Pool *pgxpool.Pool }

// TracesDDL creates the table of Traces.
const TracesDDL = `CREATE TABLE traces (instance bigint, machine text, version int, attempt int, crashes int, error text, process int,
	at timestamptz NOT NULL DEFAULT clock_timestamp())`

// Machines returns the machines of a build.
func Machines(build string, t Traces) []fsm.Definition {
	first := []fsm.Definition{t.order(Order1, Item1), t.item(Item1), t.choice(), t.flow(), t.rush()}
	second := []fsm.Definition{t.order(Order2, Item2), t.item(Item2), t.item(Fresh), t.graph()}
	switch build {
	case Old:
		return append(first, t.item(Retired))
	case New:
		return append(first, second...)
	case One:
		return []fsm.Definition{t.tripOne(), t.errand(false)}
	case Two:
		return []fsm.Definition{t.tripTwo(), t.errand(true)}
	default:
		return append(append(first, second...), t.item(Retired))
	}
}

// order has several steps under one claim, a signal, and a pair of children.
func (t Traces) order(m, item *fsm.Machine[Order, string]) fsm.Definition {
	return m.Define(
		fsm.Step("start", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			if v.State.Left == 0 {
				return v.Await("ship", v.State, Paid).Timeout(time.Hour), nil
			}
			v.State.Left--
			return v.Next("start", v.State), nil
		})),
		fsm.Step("ship", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.ScheduleChildren("end", v.State, item.New(v.State), item.New(Order{})), nil
		})),
		fsm.Step("end", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			for _, c := range item.Children(v) {
				if _, err := c.Result(); err != nil {
					return nil, err
				}
			}
			return v.Done(strconv.Itoa(v.Version)).Discard(), nil
		})),
	).OnError(t.failed)
}

// choice goes on with the first of three children, and then with each further one, as it ends.
func (t Traces) choice() fsm.Definition {
	return Choice.Define(
		fsm.Step("start", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.ScheduleChildren("gather", Order{}, Item1.New(v.State), Item1.New(Order{}), Item1.New(Order{})).Quorum(1), nil
		})),
		fsm.Step("gather", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			r := v.Round()
			if r.Done <= v.State.Left {
				return nil, fmt.Errorf("woken by nothing new: %+v, after %d were done", r, v.State.Left)
			}
			if r.Left == 0 {
				return v.Done(strconv.Itoa(v.Version)), nil
			}
			return v.Rejoin("gather", Order{Left: r.Done}).Race(), nil
		})),
	).OnError(t.failed)
}

// flow takes the ends of three children as a stream, two at a time. It counts those that it was
// shown.
func (t Traces) flow() fsm.Definition {
	return Flow.Define(
		fsm.Step("start", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.ScheduleChildren("take", Order{}, Item1.New(v.State), Item1.New(Order{}), Item1.New(Order{})).Stream(2), nil
		})),
		fsm.Step("take", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			children, r := Item1.Children(v), v.Round()
			shown := v.State.Left + len(children)
			if len(children) == 0 || len(children) > 2 || shown+r.Left != 3 {
				return nil, fmt.Errorf("shown %d children, %+v, after %d", len(children), r, v.State.Left)
			}
			for _, c := range children {
				if _, err := c.Result(); err != nil {
					return nil, err
				}
			}
			if r.Left == 0 {
				return v.Done(strconv.Itoa(v.Version)), nil
			}
			return v.Rejoin("take", Order{Left: shown}).Stream(2), nil
		})),
	).OnError(t.failed)
}

// rush goes on with the first of its children to end, also with a failure, a signal or a time. The
// other children are cancelled then, and it waits for that.
func (t Traces) rush() fsm.Definition {
	return Rush.Define(
		fsm.Step("start", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.ScheduleChildren("first", v.State, Item1.New(v.State), Item1.New(v.State), Item1.New(Order{})).
				Quorum(2).FailFast().Or(Paid).Timeout(time.Minute).CancelRest(), nil
		})),
		fsm.Step("first", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			if r := v.Round(); r.Done < 2 && len(v.Awaited()) == 0 && !v.TimedOut() {
				return nil, fmt.Errorf("woken too early: %+v", r)
			}
			return v.Rejoin("rest", v.State), nil
		})),
		fsm.Step("rest", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			for _, c := range Item1.Children(v) {
				if !c.Status.Terminal() || c.Status == fsm.StatusFailed && c.Failure != fsm.FailureCancelled {
					return nil, fmt.Errorf("child %d is %s, %s", c.ID, c.Status, c.Failure)
				}
			}
			return v.Done(strconv.Itoa(v.Version)).Discard(), nil
		})),
	).OnError(t.failed)
}

// graph makes a graph of two nodes, one behind the other.
func (t Traces) graph() fsm.Definition {
	return Graph.Define(
		fsm.Step("start", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.ScheduleGraph("end", v.State, fsm.Node("a", Item1.New(Order{})), fsm.Node("b", Item1.New(Order{})).After("a")), nil
		})),
		fsm.Step("end", t.traced(func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Done(fmt.Sprint(v.Round().Done, " nodes")), nil
		})),
	).OnError(t.failed)
}

// item has one step, which may be long.
func (t Traces) item(m *fsm.Machine[Order, string]) fsm.Definition {
	return m.Define(fsm.Step("start", t.traced(func(ctx context.Context, v *visit) (fsm.Outcome, error) {
		if !v.State.Long {
			return v.Done(strconv.Itoa(v.Version)), nil
		}
		late := time.NewTimer(time.Second)
		defer late.Stop()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late.C:
			return v.Done(strconv.Itoa(v.Version)), nil
		}
	}))).OnError(t.failed)
}

// traced records every run of a step.
func (t Traces) traced(f fsm.StepFunc[Order, string]) fsm.StepFunc[Order, string] {
	return traced(t, f)
}

func traced[S any](t Traces, f fsm.StepFunc[S, string]) fsm.StepFunc[S, string] {
	return func(ctx context.Context, v *fsm.Visit[S, string]) (fsm.Outcome, error) {
		if err := t.write(ctx, v.Info, nil); err != nil {
			return nil, err
		}
		return f(ctx, v)
	}
}

// failed records every error, too: there must be none.
func (t Traces) failed(ctx context.Context, v *visit, err error) (fsm.Outcome, error) {
	return v.Fail(err), t.write(context.WithoutCancel(ctx), v.Info, err)
}

func (t Traces) write(ctx context.Context, i fsm.Info, failed error) error {
	var text *string
	if failed != nil {
		said := failed.Error()
		text = &said
	}
	//gendurable:ignore effect each run leaves a trace of its own
	_, err := t.Pool.Exec(ctx, `INSERT INTO traces (instance, machine, version, attempt, crashes, error, process) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		int64(i.ID), i.Machine, i.Version, i.Attempt, i.Crashes, text, os.Getpid())
	return err
}
