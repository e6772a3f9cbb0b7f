package worker

import (
	"errors"
	"runtime/debug"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// guarded is guard, noted for what counts zombies.
func (x *execution) guarded(run func() (*step.Commit, error)) (*step.Commit, error) {
	x.f.told.Store(0)
	x.f.inside.Store(true)
	defer x.f.inside.Store(false)
	return guard(run)
}

// guard runs user code and makes a panic an error. runtime.Goexit passes through it: nothing can
// stop that, see execution.run.
func guard(run func() (*step.Commit, error)) (out *step.Commit, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, &fsm.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	out, err = run()
	if err == nil && out == nil {
		err = errors.New("neither an outcome nor an error")
	}
	return out, err
}

func goexit() error { return &fsm.PanicError{Value: fsm.ErrGoexit, Stack: debug.Stack()} }
