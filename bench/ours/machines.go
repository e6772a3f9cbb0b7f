package ours

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gendurable/gendurable/fsm"
)

// The names of the machines.
var (
	Noop  = fsm.Declare[Order, Result]("noop")
	Chain = fsm.Declare[Order, Result]("chain", fsm.Initial("step0"))
)

type visit = fsm.Visit[Order, Result]

// NoopMachine is a job that does nothing except call ran.
func NoopMachine(ran func(Order)) fsm.Definition {
	return Noop.Job(func(_ context.Context, o Order) (Result, error) {
		ran(o)
		return Result{OK: true}, nil
	})
}

// ChainMachine has so many steps that do nothing except call ran.
func ChainMachine(steps int, ran func()) fsm.Definition {
	defs := make([]fsm.StepDef[Order, Result], steps)
	for i := range steps {
		next, last := "step"+strconv.Itoa(i+1), i == steps-1
		def := fsm.Step("step"+strconv.Itoa(i), func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			if last {
				return v.Done(Result{OK: true}), nil
			}
			return v.Next(next, v.State), nil
		})
		if last {
			defs[i] = def.To()
		} else {
			defs[i] = def.To(next)
		}
	}
	return Chain.Define(defs...)
}

// Loop is an instance that runs one step Order.N times.
var Loop = fsm.Declare[Order, Result]("loop", fsm.Initial("loop"))

// LoopMachine calls ran in each step.
func LoopMachine(ran func()) fsm.Definition {
	return Loop.Define(fsm.Step("loop", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		ran()
		o := v.State
		if o.N--; o.N == 0 {
			return v.Done(Result{OK: true}), nil
		}
		return v.Next("loop", o), nil
	}).To("loop"))
}

// Waiter is an instance that awaits Wake again and again, for ever.
var (
	Waiter = fsm.Declare[Order, Result]("waiter", fsm.Initial("park"))
	Wake   = fsm.DeclareSignal[Order]("wake")
)

// WaiterMachine calls woken with the payload of each signal, and parked before each time that it
// awaits one. It goes back through the step park, since progress consumes the signal.
func WaiterMachine(parked func(), woken func(Order)) fsm.Definition {
	return Waiter.Define(
		fsm.Step("park", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			parked()
			return v.Await("woken", v.State, Wake), nil
		}).To("woken"),
		fsm.Step("woken", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			orders, err := Wake.All(v)
			if err != nil {
				return nil, err
			}
			for _, o := range orders {
				woken(o)
			}
			return v.Next("park", v.State), nil
		}).To("park"))
}

// Parent is an instance that spawns Order.N no-op jobs and ends when they have ended.
var Parent = fsm.Declare[Order, Result]("parent", fsm.Initial("spawn"))

// ParentMachine checks that all children are there, and calls ran in each of its two steps.
func ParentMachine(ran func()) fsm.Definition {
	return Parent.Define(
		fsm.Step("spawn", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			children := make([]fsm.Spec, v.State.N)
			for i := range children {
				children[i] = Noop.New(NewOrder(i))
			}
			return v.ScheduleChildren("join", v.State, children...), nil
		}).To("join"),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			ran()
			if n := len(Noop.Children(v)); n != v.State.N {
				return v.Stop(fmt.Errorf("%d of %d children joined", n, v.State.N)), nil
			}
			return v.Done(Result{OK: true}), nil
		}).To())
}
