// Timer shows a durable timer: a step that goes on later. Nothing waits in memory meanwhile, so the
// process may end; whichever process works on the queue when the time has come goes on.
//
//	go run ./examples/timer
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

// Trial is the state of a trial subscription: here its days pass in tenths of a second.
type Trial struct {
	Customer string    `json:"customer"`
	Days     int       `json:"days"`
	Began    time.Time `json:"began"`
}

// Subscription ends with how long the trial took.
var Subscription = fsm.Declare[Trial, time.Duration]("subscription.trial")

const day = 100 * time.Millisecond

type visit = fsm.Visit[Trial, time.Duration]

// trial writes what it does to out.
type trial struct{ out io.Writer }

func (m trial) Definition() fsm.Definition {
	return Subscription.Define(
		fsm.Step("start", m.start).To("remind"),
		fsm.Step("remind", m.remind).To("expire"),
		fsm.Step("expire", m.expire),
	)
}

// start waits until two days before the end.
func (m trial) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	v.State.Began = time.Now()
	fmt.Fprintf(m.out, "%s: the trial begins\n", v.State.Customer)
	return v.Next("remind", v.State).After(time.Duration(v.State.Days-2) * day), nil
}

// remind waits until a point in time: how late this step itself ran does not add up.
func (m trial) remind(_ context.Context, v *visit) (fsm.Outcome, error) {
	fmt.Fprintf(m.out, "%s: two days left\n", v.State.Customer)
	return v.Next("expire", v.State).At(v.State.Began.Add(time.Duration(v.State.Days) * day)), nil
}

func (m trial) expire(_ context.Context, v *visit) (fsm.Outcome, error) {
	took := time.Since(v.State.Began)
	fmt.Fprintf(m.out, "%s: the trial is over\n", v.State.Customer)
	return v.Done(took), nil
}

func main() { run.Main("gendurable_timer", subscribe) }

func subscribe(ctx context.Context, out io.Writer, db *run.Database) error {
	ada := Trial{Customer: "ada", Days: 14}
	var id fsm.ID
	first, err := newEngine(out, db)
	if err != nil {
		return err
	}
	if err := run.While(ctx, first, func(ctx context.Context) (err error) {
		if id, err = first.Insert(ctx, Subscription.New(ada)); err != nil {
			return err
		}
		return untilAt(ctx, first, id, "remind")
	}); err != nil {
		return err
	}
	fmt.Fprintln(out, "the engine is stopped while the timer runs, and another one started")
	second, err := newEngine(out, db)
	if err != nil {
		return err
	}
	return run.While(ctx, second, func(ctx context.Context) error {
		took, err := Subscription.Wait(ctx, second, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "it took %v\n", took.Round(time.Millisecond))
		if due := time.Duration(ada.Days) * day; took < due {
			return fmt.Errorf("the trial took %v, at least %v were due", took, due)
		}
		return nil
	})
}

func newEngine(out io.Writer, db *run.Database) (*engine.Engine, error) {
	return engine.New(engine.Config{
		Pool:     db.Pool,
		Schema:   db.Schema,
		Machines: []fsm.Definition{trial{out}.Definition()},
		Queues:   map[string]engine.Queue{"default": {}},
	})
}

// untilAt waits until the instance has got to a step.
func untilAt(ctx context.Context, eng *engine.Engine, id fsm.ID, step string) error {
	for {
		at, err := Subscription.Get(ctx, eng, id)
		if err != nil || at.Step == step {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
