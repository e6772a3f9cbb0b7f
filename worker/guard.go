package worker

import (
	"errors"
	"runtime/debug"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// failure is an error that a visit met. User code may return any error: one that panics when it is
// unwrapped or printed, or that ends the goroutine. So the guard looks at it once, and everything
// outside of a guard goes by what was seen.
type failure struct {
	err    error // as it was returned, for handlers and hooks alone, which are called in guards of their own
	safe   error // the same for everybody else
	passes bool  // it is an error of Postgres that may not be met again
}

// known is a failure of the engine's own making: its error is safe.
func known(err error) *failure { return &failure{err: err, safe: err} }

// look looks at an error of user code, within the guard. Code that panics here has panicked in the
// step.
func look(err error) (f *failure) {
	defer func() {
		if p := recover(); p != nil {
			f = panicked(p)
		}
	}()
	return &failure{err: err, safe: errors.New(step.SanitizeError(err)), passes: store.MayPass(err)}
}

func panicked(value any) *failure {
	err := &fsm.PanicError{Value: value, Stack: debug.Stack()}
	return &failure{err: err, safe: errors.New(step.SanitizeError(err))}
}

// and makes one failure of two: of f, some words, and what followed.
func (f *failure) and(words string, then *failure) *failure {
	text := f.safe.Error() + words + then.safe.Error()
	return &failure{err: &chain{text, []error{f.err, then.err}}, safe: errors.New(text)}
}

// chain is several errors under one text. Package fmt would ask each of them for its own.
type chain struct {
	text string
	errs []error
}

func (c *chain) Error() string   { return c.text }
func (c *chain) Unwrap() []error { return c.errs }

// guarded is guard, noted for what counts zombies.
func (x *execution) guarded(run func() (*step.Commit, error)) (*step.Commit, *failure) {
	x.f.told.Store(0)
	x.f.inside.Store(true)
	defer x.f.inside.Store(false)
	return guard(run)
}

// guard runs user code and makes a panic a failure. runtime.Goexit passes through it: nothing can stop
// that, see execution.run.
func guard(run func() (*step.Commit, error)) (out *step.Commit, failed *failure) {
	defer func() {
		if p := recover(); p != nil {
			out, failed = nil, panicked(p)
		}
	}()
	out, err := run()
	switch {
	case err != nil:
		return nil, look(err)
	case out == nil:
		return nil, known(errors.New("neither an outcome nor an error"))
	}
	return out, nil
}

func goexit() *failure {
	return known(&fsm.PanicError{Value: fsm.ErrGoexit, Stack: debug.Stack()})
}
