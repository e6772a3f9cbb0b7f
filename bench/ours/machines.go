package ours

import (
	"context"
	"strconv"

	"github.com/gendurable/gendurable/fsm"
)

// The machines' names.
var (
	Noop  = fsm.Declare[Order, Result]("noop")
	Chain = fsm.Declare[Order, Result]("chain", fsm.Initial("step0"))
)

type visit = fsm.Visit[Order, Result]

// NoopMachine is a job that does nothing; ran is told each time, unless nil.
func NoopMachine(ran func(Order)) fsm.Definition {
	return Noop.Job(func(_ context.Context, o Order) (Result, error) {
		if ran != nil {
			ran(o)
		}
		return Result{OK: true}, nil
	})
}

// ChainMachine goes through so many steps that do nothing; ran is told of each, unless nil.
func ChainMachine(steps int, ran func()) fsm.Definition {
	defs := make([]fsm.StepDef[Order, Result], steps)
	for i := range steps {
		next, last := "step"+strconv.Itoa(i+1), i == steps-1
		def := fsm.Step("step"+strconv.Itoa(i), func(_ context.Context, v *visit) (fsm.Outcome, error) {
			if ran != nil {
				ran()
			}
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
