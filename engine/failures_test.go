package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestFailuresAreGrouped(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	ctx := context.Background()
	found, err := e.Failures(ctx, engine.FailuresOptions{})
	require.NoError(t, err)
	require.Equal(t, engine.Failures{Groups: []engine.FailureGroup{}}, found)

	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, last_error, errors, finished_at)
		SELECT m, s, 'q', st::gendurable.durable_status, f, e || n, jsonb_build_array(jsonb_build_object('step', s, 'error', e || n)), now() - n * interval '1 s' FROM generate_series(1, 3) n, (VALUES
		('a', 's', 'failed', 'error', 'no order '), ('a', 't', 'failed', 'error', 'no order '), ('b', 's', 'failed', 'decided', repeat('x', 300)),
		('b', 's', 'done', NULL, NULL)) v (m, s, st, f, e)`)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, last_error, errors, finished_at)
		VALUES ('a', 's', 'q', 'failed', 'error', 'no order 77, not at all', '[{"step": "s", "error": "no order 77, not at all"}]', now() - interval '1 h'),
			('a', 's', 'r', 'failed', 'error', 'no order 9', '[{"step": "s", "error": "no order 9"}]', now())`)
	require.NoError(t, err)
	found, err = e.Failures(ctx, engine.FailuresOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 11, found.Looked)
	require.False(t, found.More)
	counts := map[string]int64{}
	for _, g := range found.Groups {
		require.LessOrEqual(t, len(g.Error), 200)
		require.False(t, g.First.After(g.Last))
		newest, err := e.Get(ctx, g.Newest)
		require.NoError(t, err)
		require.Contains(t, newest.LastError, g.Error)
		counts[fmt.Sprintf("%s %s %s %.20s", g.Machine, g.Step, g.Queue, g.Error)] = g.Count
	}
	require.Equal(t, map[string]int64{"a s q no order 1": 3, "a t q no order 1": 3, "b s q xxxxxxxxxxxxxxxxxxxx": 3, "a s q no order 77, not at ": 1,
		"a s r no order 9": 1}, counts)

	for _, one := range []struct {
		o    engine.FailuresOptions
		want int
	}{
		{engine.FailuresOptions{Machine: "b"}, 1},
		{engine.FailuresOptions{Queue: "r"}, 1},
		{engine.FailuresOptions{Limit: 2}, 2},
		{engine.FailuresOptions{Since: time.Now().Add(-time.Minute)}, 4},
	} {
		found, err := e.Failures(ctx, one.o)
		require.NoError(t, err)
		require.Len(t, found.Groups, one.want, "%+v", one.o)
	}
	for field, o := range map[string]engine.FailuresOptions{
		"Limit": {Limit: fsm.MaxLimit + 1}, "Machine": {Machine: "\x00"}, "Queue": {Queue: "\x00"}, "Since": {Since: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := e.Failures(ctx, o)
		var bad *engine.QueryError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
}

// An error is found by a part of its text, in any case, and bulk verbs select by it, too.
func TestFilterByErrorText(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	ctx := context.Background()
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, status, failure, last_error, finished_at)
		SELECT 'a', 's', 'failed', 'error', e, now() FROM unnest('{Timeout of pump,no TIMEOUT,refused,100% full}'::text[]) e`)
	require.NoError(t, err)
	for text, want := range map[string]int{"timeout": 2, "TIMEOUT OF": 1, "% f": 1, "_": 0, "%f": 0} {
		page, err := e.List(ctx, engine.Query{Filter: engine.Filter{ErrorText: text}})
		require.NoError(t, err)
		require.Len(t, page.Instances, want, text)
		plan, err := e.Admin().Bulk(ctx, engine.VerbRetry, engine.Filter{ErrorText: text})
		require.NoError(t, err)
		require.EqualValues(t, want, plan.Matched, text)
		if text == "timeout" {
			_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET last_error = 'other' WHERE last_error LIKE 'Timeout%'`)
			require.NoError(t, err)
			applied, err := plan.Apply(ctx)
			require.NoError(t, err)
			require.Equal(t, engine.Applied{Changed: 1, Skipped: 1}, applied, "the filter is looked at again under the lock")
			_, err = pool.Exec(ctx, `TRUNCATE gendurable.gen_durable CASCADE`)
			require.NoError(t, err)
			_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, status, failure, last_error, finished_at)
				SELECT 'a', 's', 'failed', 'error', e, now() FROM unnest('{Timeout of pump,no TIMEOUT,refused,100% full}'::text[]) e`)
			require.NoError(t, err)
		}
	}
	_, err = e.List(ctx, engine.Query{Filter: engine.Filter{ErrorText: string(make([]byte, fsm.MaxErrorText+1))}})
	require.ErrorContains(t, err, "ErrorText")
	_, err = e.List(ctx, engine.Query{Filter: engine.Filter{Status: []fsm.Status{"nope"}}})
	require.ErrorContains(t, err, "want one of runnable, executing, awaiting_signal, awaiting_children, done, failed")
}

func TestChildCounts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	ctx := context.Background()
	parent, err := e.Insert(ctx, fsm.Declare[string, string]("parent").New(""))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round) SELECT 'child', 's', $1, n % 2 + 1
		FROM generate_series(1, 5) n`, int64(parent))
	require.NoError(t, err)
	found, err := e.ChildCounts(ctx, parent)
	require.NoError(t, err)
	require.Equal(t, engine.ChildCounts{Counts: []engine.ChildCount{{1, "child", fsm.StatusRunnable, 2}, {2, "child", fsm.StatusRunnable, 3}}}, found)
	for _, nobody := range []fsm.Target{fsm.ID(999_999), fsm.Key("nobody")} {
		_, err = e.ChildCounts(ctx, nobody)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
}
