package rollout

import (
	"context"
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
	Left int  // steps to go
}

// Both sides of the test know these machines.
var (
	Paid = fsm.DeclareSignal[int]("paid")

	Order1  = fsm.Declare[Order, string]("order", fsm.Version(1))
	Order2  = fsm.Declare[Order, string]("order", fsm.Version(2))
	Item1   = fsm.Declare[Order, string]("item", fsm.Version(1))
	Item2   = fsm.Declare[Order, string]("item", fsm.Version(2))
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
	first := []fsm.Definition{t.order(Order1, Item1), t.item(Item1)}
	second := []fsm.Definition{t.order(Order2, Item2), t.item(Item2), t.item(Fresh)}
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
func (t Traces) order(m, item fsm.Machine[Order, string]) fsm.Definition {
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
			return v.Done(strconv.Itoa(v.Version)), nil
		})),
	).OnError(t.failed)
}

// item has one step, which may be long.
func (t Traces) item(m fsm.Machine[Order, string]) fsm.Definition {
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
	return v.Stop(err), t.write(context.WithoutCancel(ctx), v.Info, err)
}

func (t Traces) write(ctx context.Context, i fsm.Info, failed error) error {
	var text *string
	if failed != nil {
		said := failed.Error()
		text = &said
	}
	_, err := t.Pool.Exec(ctx, `INSERT INTO traces (instance, machine, version, attempt, crashes, error, process) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		int64(i.ID), i.Machine, i.Version, i.Attempt, i.Crashes, text, os.Getpid())
	return err
}
