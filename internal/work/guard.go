package work

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// failure is an error that a visit got. User code may return any error: one that panics when it is
// unwrapped or printed, or that ends the goroutine. So the guard looks at it once, and code outside
// of a guard uses only the results of that look.
type failure struct {
	err    error         // as user code returned it; only for handlers and hooks, which have guards of their own
	safe   error         // the same error for everybody else
	passes bool          // it is an error of Postgres that may be absent the next time
	locked bool          // it waited in vain for somebody's lock
	again  bool          // it asks for another run
	turned bool          // it asks for another run, since a provider has turned the step away
	after  time.Duration // this long from now; 0 if turned and the provider does not say
}

// known makes a failure of an error of the engine's own, which is safe.
func known(err error) *failure { return &failure{err: err, safe: err} }

// look examines an error of user code, within the guard. An error whose methods panic counts as a
// panic of the step.
func look(err error) (f *failure) {
	defer func() {
		if p := recover(); p != nil {
			f = panicked(p)
		}
	}()
	after, again := hidden.Snoozed(err)
	turned := false
	if !again {
		after, turned = hidden.ThrottledFor(err)
	}
	return &failure{err: err, safe: errors.New(step.SanitizeError(err)), passes: store.MayPass(err),
		locked: store.IsLockTimeout(err), again: again, turned: turned, after: after}
}

func panicked(value any) *failure {
	err := &fsm.PanicError{Value: value, Stack: debug.Stack()}
	return &failure{err: err, safe: errors.New(step.SanitizeError(err))}
}

// and combines two failures: f, some words, and the one that followed.
func (f *failure) and(words string, then *failure) *failure {
	text := f.safe.Error() + words + then.safe.Error()
	return &failure{err: &chain{text, []error{f.err, then.err}}, safe: errors.New(text)}
}

// chain joins several errors under one text. Package fmt would call the Error method of each.
type chain struct {
	text string
	errs []error
}

func (c *chain) Error() string   { return c.text }
func (c *chain) Unwrap() []error { return c.errs }

// guarded is guard that also tells the detection of zombies that user code runs.
func (x *execution) guarded(run func() (*step.Commit, error)) (*step.Commit, *failure) {
	x.f.told.Store(0)
	x.f.inside.Store(true)
	defer x.f.inside.Store(false)
	return guard(run)
}

// guard runs user code and turns a panic into a failure. It cannot stop runtime.Goexit: see
// execution.run.
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
		return nil, known(errors.New("the step returned neither an outcome nor an error: return one of the two"))
	}
	return out, nil
}

func goexit() *failure {
	return known(&fsm.PanicError{Value: fsm.ErrGoexit, Stack: debug.Stack()})
}
