package engine_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

type spanKey struct{}

func TestCallMiddlewareSurroundsTheVerbs(t *testing.T) {
	t.Parallel()
	var calls []engine.VerbCall
	e, pool := client(t, func(c *engine.Config) {
		outer := engine.Middleware{Call: func(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error {
			err := run(context.WithValue(ctx, spanKey{}, c.Verb))
			calls = append(calls, *c)
			return err
		}}
		inner := engine.Middleware{Insert: func(ctx context.Context, s fsm.Spec) (fsm.Spec, error) {
			require.NotNil(t, ctx.Value(spanKey{}), "what surrounds the call is outside")
			return s, nil
		}}
		c.Middleware = []engine.Middleware{inner, outer, {}}
	})
	ctx := t.Context()
	id, err := e.Insert(ctx, echoes.New("a").Key("k"))
	require.NoError(t, err)
	_, err = e.Insert(ctx, echoes.New("a").Key("k"))
	require.ErrorIs(t, err, engine.ErrDuplicate)
	many, err := e.InsertMany(ctx, []fsm.Spec{echoes.New("b"), echoes.New("c").Key("k")})
	require.NoError(t, err)
	_, err = e.InsertMany(ctx, nil)
	require.NoError(t, err)
	_, err = e.GetOrInsert(ctx, echoes.New("a").Key("k"))
	require.NoError(t, err)
	_, err = e.Signal(ctx, fsm.Key("k"), paid.With(1))
	require.NoError(t, err)
	_, err = e.Signal(ctx, fsm.ID(77_777), paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)
	_, err = e.SignalOrInsert(ctx, echoes.New("a").Key("k"), paid.With(2))
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	within, err := e.WithPgx(tx).Insert(ctx, echoes.New("d"))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, []engine.VerbCall{
		{Verb: "insert", Machine: "echo", Specs: 1, IDs: []fsm.ID{id}},
		{Verb: "insert", Machine: "echo", Specs: 1},
		{Verb: "insert_many", Machine: "echo", Specs: 2, IDs: []fsm.ID{many[0].ID, id}},
		{Verb: "get_or_insert", Machine: "echo", Specs: 1, IDs: []fsm.ID{id}},
		{Verb: "signal", Signal: "paid", To: fsm.Key("k"), IDs: []fsm.ID{id}},
		{Verb: "signal", Signal: "paid", To: fsm.ID(77_777)},
		{Verb: "signal_or_insert", Machine: "echo", Specs: 1, Signal: "paid", IDs: []fsm.ID{id}},
		{Verb: "insert", Machine: "echo", Specs: 1, IDs: []fsm.ID{within}},
	}, calls)
}

func TestCallMiddlewareDecidesAboutErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call func(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error
		spec fsm.Spec
		says string
	}{
		"refuses":        {func(context.Context, *engine.VerbCall, func(context.Context) error) error { return errTold }, echoes.New("a"), "as told"},
		"forgets to run": {func(context.Context, *engine.VerbCall, func(context.Context) error) error { return nil }, echoes.New("a"), "has not run the call"},
		"runs it twice": {func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error {
			return errors.Join(run(ctx), run(ctx))
		}, echoes.New("a"), "a second time"},
		"swallows an error": {func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error {
			_ = run(ctx)
			return nil
		}, echoes.New("a").Key(""), "key"},
		"adds to a success": {func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error {
			return errors.Join(run(ctx), errTold)
		}, echoes.New("a"), "as told"},
		"passes an error on":  {func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error { return run(ctx) }, echoes.New("a").Key(""), "key"},
		"passes a success on": {func(ctx context.Context, _ *engine.VerbCall, run func(context.Context) error) error { return run(ctx) }, echoes.New("a"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := client(t, func(config *engine.Config) { config.Middleware = []engine.Middleware{{Call: c.call}} })
			_, err := e.Insert(t.Context(), c.spec)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// Middleware around a step sees what was stored with the instance and its signals, and afterwards
// the outcome.
func TestStepMiddlewareSeesTracesAndOutcomes(t *testing.T) {
	t.Parallel()
	type seen struct {
		outcome  fsm.OutcomeKind
		instance map[string]string
		awaited  []map[string]string
	}
	var mu sync.Mutex
	var got []seen
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Inject = func(ctx context.Context) map[string]string {
			if verb, ok := ctx.Value(spanKey{}).(string); ok {
				return map[string]string{"from": verb}
			}
			return nil
		}
		c.Middleware = []engine.Middleware{{
			Call: func(ctx context.Context, c *engine.VerbCall, run func(context.Context) error) error {
				return run(context.WithValue(ctx, spanKey{}, c.Verb))
			},
			Step: func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
				before := fsm.OutcomeFrom(ctx)
				err := run(ctx)
				instance, awaited := fsm.TracesFrom(ctx)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, seen{before + fsm.OutcomeFrom(ctx), maps.Clone(instance), awaited})
				return err
			},
		}}
	})
	id, err := e.Insert(t.Context(), ticket.New("a"))
	require.NoError(t, err)
	_, err = e.Signal(t.Context(), id, paid.With(1))
	require.NoError(t, err)
	_, err = ticket.Wait(within(t), e, id)
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, got, 2)
	from := map[string]string{"from": "insert"}
	require.Equal(t, seen{"await", from, nil}, got[0])
	require.Equal(t, seen{"done", from, []map[string]string{{"from": "signal"}}}, got[1])

	none, awaited := fsm.TracesFrom(t.Context())
	require.Nil(t, none)
	require.Nil(t, awaited)
	require.Empty(t, fsm.OutcomeFrom(t.Context()))
}
