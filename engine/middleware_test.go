package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var errTold = errors.New("as told")

// obeying is a job that fails if its argument says so.
func obeying(_ context.Context, s string) (string, error) {
	switch s {
	case "fail":
		return "", errTold
	case "panic":
		panic("as told")
	}
	return s, nil
}

// around is an engine with a job that is not retried, and one middleware around its steps.
func around(t *testing.T, step ...func(ctx context.Context, i fsm.Info, run func(context.Context) error) error) *engine.Engine {
	t.Helper()
	return working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(obeying).Retry(fsm.RetryPolicy{MaxAttempts: 1})}
		for _, s := range step {
			c.Middleware = append(c.Middleware, engine.Middleware{Step: s}, engine.Middleware{})
		}
	})
}

func runs(t *testing.T, e *engine.Engine, s string) (string, error) {
	t.Helper()
	id, err := e.Insert(t.Context(), echoes.New(s))
	require.NoError(t, err)
	return echoes.Wait(within(t), e, id)
}

func TestStepMiddlewareInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []string
	tell := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}
	type key struct{}
	named := func(name string) func(context.Context, fsm.Info, func(context.Context) error) error {
		return func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
			own, ok := fsm.InfoFrom(ctx)
			if !ok || own.ID != i.ID || i.Machine != "echo" || i.Step != "start" {
				tell("a wrong context")
			}
			before, _ := ctx.Value(key{}).(string)
			tell(name + " after " + before)
			err := run(context.WithValue(ctx, key{}, name))
			tell(name + " is over")
			return err
		}
	}
	e := around(t, named("outer"), named("inner"))
	got, err := runs(t, e, "x")
	require.NoError(t, err)
	require.Equal(t, "x", got)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"outer after ", "inner after outer", "inner is over", "outer is over"}, told)
}

func TestStepMiddlewareDecidesAboutErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step func(ctx context.Context, i fsm.Info, run func(context.Context) error) error
		arg  string
		says string // "": done
	}{
		"passes an error on": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error { return run(ctx) }, "fail", "as told"},
		"passes a panic on":  {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error { return run(ctx) }, "panic", "panic: as told"},
		"adds to an error": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			if err := run(ctx); err != nil {
				return errors.New("more about: " + err.Error())
			}
			return nil
		}, "fail", "more about: as told"},
		"fails a step that succeeded": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			return errors.Join(run(ctx), errors.New("too late"))
		}, "x", "too late"},
		"refuses":           {func(context.Context, fsm.Info, func(context.Context) error) error { return errors.New("not today") }, "x", "not today"},
		"forgets to run":    {func(context.Context, fsm.Info, func(context.Context) error) error { return nil }, "x", "has not run the step"},
		"panics":            {func(context.Context, fsm.Info, func(context.Context) error) error { panic("mine") }, "x", "panic: mine"},
		"swallows an error": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error { _ = run(ctx); return nil }, "fail", "middleware returned no error although the step failed"},
		"runs it twice": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
			return errors.Join(run(ctx), run(ctx))
		}, "x", "a second time"},
		"lets pass": {func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error { return run(ctx) }, "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := runs(t, around(t, c.step), c.arg)
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, c.arg, got)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A middleware that does not let a step run costs no attempt, however often: the job, which has one
// attempt, runs once in the end. No error is noted, and no handler called.
func TestStepMiddlewareSnoozes(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int32
	e := around(t, func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
		if refusals.Add(1) <= 5 {
			return fmt.Errorf("busy: %w", fsm.Again(0))
		}
		if i.Attempt != 0 || i.Visit != 0 {
			return fmt.Errorf("attempt %d of visit %d", i.Attempt, i.Visit)
		}
		return run(ctx)
	})
	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	got, err := echoes.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "x", got)
	require.EqualValues(t, 6, refusals.Load())
	errs, err := e.Errors(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, errs)
}

var (
	parents  = fsm.Declare[string, int]("parent")
	children = fsm.Declare[string, string]("child")
)

// founding spawns a child of its state, and ends with how many there were.
func founding() fsm.Definition {
	return parents.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			return v.ScheduleChildren("join", v.State, children.New(v.State)), nil
		}),
		fsm.Step("join", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			return v.Done(len(v.Children())), nil
		}))
}

// Children pass the middleware of inserts, in the context of the step that spawns them.
func TestInsertMiddlewareOfChildren(t *testing.T) {
	t.Parallel()
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Machines = []fsm.Definition{founding(), children.Job(obeying)}
		c.Middleware = []engine.Middleware{{Insert: func(ctx context.Context, s fsm.Spec) (fsm.Spec, error) {
			if s.State() == "refused" && s.Options().Machine == "child" {
				return s, errors.New("no such child")
			}
			by := "nobody"
			if i, ok := fsm.InfoFrom(ctx); ok {
				by = i.Machine + " at " + i.Step
			}
			return s.Label("by", by), nil
		}}}
	})
	id, err := e.Insert(t.Context(), parents.New("x"))
	require.NoError(t, err)
	n, err := parents.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	parent, err := e.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"by": "nobody"}, parent.Labels)
	child, err := e.Ent().Instance.Query().All(t.Context())
	require.NoError(t, err)
	require.Len(t, child, 2)
	for _, i := range child {
		if i.ID != id {
			require.Equal(t, fsm.Texts{"by": "parent at start"}, i.Labels)
		}
	}

	id, err = e.Insert(t.Context(), parents.New("refused"))
	require.NoError(t, err)
	_, err = parents.Wait(within(t), e, id)
	require.ErrorContains(t, err, "children[0].middleware: no such child")
}

type traceKey struct{}

// What Inject makes of the inserter's context is there in the step, its handler, its children, and
// with the signals.
func TestTraceContext(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{}
	note := func(ctx context.Context, where string) {
		mu.Lock()
		defer mu.Unlock()
		seen[where], _ = ctx.Value(traceKey{}).(string)
	}
	failing := fsm.Declare[string, string]("failing")
	waiting := fsm.Declare[string, string]("waiting")
	var sent map[string]string
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Inject = func(ctx context.Context) map[string]string {
			trace, _ := ctx.Value(traceKey{}).(string)
			if trace == "" {
				return nil
			}
			return map[string]string{"trace": trace, "bad": "\x00", "long": strings.Repeat("x", 1025)}
		}
		c.Extract = func(ctx context.Context, stored map[string]string) context.Context {
			require.Len(t, stored, 1)
			return context.WithValue(ctx, traceKey{}, stored["trace"]+"'")
		}
		c.Machines = []fsm.Definition{
			founding(),
			children.Job(func(ctx context.Context, s string) (string, error) { note(ctx, "child"); return s, nil }),
			failing.Define(fsm.Step("start", func(ctx context.Context, _ *fsm.Visit[string, string]) (fsm.Outcome, error) {
				note(ctx, "step")
				return nil, errTold
			})).OnError(func(ctx context.Context, v *fsm.Visit[string, string], _ error) (fsm.Outcome, error) {
				note(ctx, "handler")
				return v.Done(""), nil
			}),
			waiting.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.Await("go", v.State, paid), nil
			}), fsm.Step("go", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				sent = v.Awaited()[0].Trace
				return v.Done(""), nil
			})),
			echoes.Job(func(ctx context.Context, s string) (string, error) { note(ctx, "untraced"); return s, nil }),
		}
	})
	ctx := context.WithValue(within(t), traceKey{}, "t")
	id, err := e.Insert(ctx, failing.New(""))
	require.NoError(t, err)
	_, err = failing.Wait(ctx, e, id)
	require.NoError(t, err)
	id, err = e.Insert(ctx, parents.New(""))
	require.NoError(t, err)
	_, err = parents.Wait(ctx, e, id)
	require.NoError(t, err)
	id, err = e.Insert(within(t), echoes.New(""))
	require.NoError(t, err)
	_, err = echoes.Wait(ctx, e, id)
	require.NoError(t, err)
	for _, arrived := range []bool{false, true} {
		id, err = e.Insert(within(t), waiting.New("").Key("w"))
		require.NoError(t, err)
		if arrived {
			_, err = e.SignalOrInsert(ctx, waiting.New("").Key("w"), paid.With(1))
		} else {
			_, err = e.Signal(ctx, id, paid.With(1))
		}
		require.NoError(t, err)
		_, err = waiting.Wait(ctx, e, id)
		require.NoError(t, err)
		mu.Lock()
		require.Equal(t, map[string]string{"trace": "t"}, sent)
		sent = nil
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]string{"step": "t'", "handler": "t'", "child": "t''", "untraced": ""}, seen)
}
