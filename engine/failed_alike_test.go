package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// failed inserts instances that have failed, by SQL that gives the error of the n-th.
func failed(t *testing.T, pool *pgxpool.Pool, n int, queue, text string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, last_error, errors, finished_at, labels)
		SELECT 'shop', 'pay', $2, 'failed', 'error', `+text+`, jsonb_build_array(jsonb_build_object('step', 'pay', 'error', `+text+`)),
			now() - n * interval '1 s', jsonb_build_object('tenant', (n % 3)::text) FROM generate_series(1, $1::int) n`, n, queue)
	require.NoError(t, err)
}

// A group has all instances that failed alike, also where an id in hexadecimal digits makes each
// text another one. Its fingerprint selects exactly these: for lists, in either order, and for
// verbs in bulk, also when these look again under the lock.
func TestAGroupOfFailuresIsItsFingerprint(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	failed(t, pool, 300, "mail", `'request ' || substr(md5(n::text), 1, 12) || ': card of "customer ' || n || '" was declined'`)
	failed(t, pool, 70, "mail", `'request ' || md5(n::text)::uuid || ': gateway timed out'`)
	failed(t, pool, 5, "bulk", `'request ' || md5(n::text)::uuid || ': gateway timed out'`)

	found, err := e.Failures(t.Context(), engine.FailuresOptions{})
	require.NoError(t, err)
	require.Len(t, found.Groups, 3)
	require.EqualValues(t, 375, found.Looked)
	require.False(t, found.More)
	var sizes []int64
	for _, g := range found.Groups {
		sizes = append(sizes, g.Count)
		require.False(t, g.AtLeast)
		for _, oldest := range []bool{true, false} {
			ids := map[fsm.ID]bool{}
			for i, err := range e.All(t.Context(), engine.Query{Filter: engine.Filter{Fingerprint: g.Fingerprint}, OldestFirst: oldest, Limit: 17}) {
				require.NoError(t, err)
				require.Equal(t, g.Queue, i.Queue)
				require.Equal(t, g.Error[len(g.Error)-9:], i.LastError[len(i.LastError)-9:])
				ids[i.ID] = true
			}
			require.Len(t, ids, int(g.Count))
			require.True(t, ids[g.Newest])
		}
		alone, err := e.Failures(t.Context(), engine.FailuresOptions{Fingerprint: g.Fingerprint})
		require.NoError(t, err)
		require.Equal(t, []engine.FailureGroup{g}, alone.Groups)
		require.Equal(t, g.Count, alone.Looked)
	}
	require.Equal(t, []int64{300, 70, 5}, sizes)

	plan, err := e.Admin().Bulk(t.Context(), engine.VerbRetry, engine.Filter{Fingerprint: found.Groups[1].Fingerprint})
	require.NoError(t, err)
	require.EqualValues(t, 70, plan.Matched)
	_, err = pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET last_error = 'something else', errors = '[{"error": "something else"}]' WHERE id = $1`, int64(plan.Sample[0].ID))
	require.NoError(t, err)
	applied, err := plan.Apply(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: 69, Skipped: 1}, applied)
	after, err := e.Failures(t.Context(), engine.FailuresOptions{})
	require.NoError(t, err)
	sizes = nil
	for _, g := range after.Groups {
		sizes = append(sizes, g.Count)
	}
	require.Equal(t, []int64{300, 5, 1}, sizes)
	gone, err := e.Failures(t.Context(), engine.FailuresOptions{Fingerprint: found.Groups[1].Fingerprint})
	require.NoError(t, err)
	require.Equal(t, engine.Failures{Groups: []engine.FailureGroup{}}, gone)

	for _, text := range []string{"1", "no", found.Groups[0].Fingerprint + "0", "XXXXXXXXXXXXXXXX"} {
		for _, ask := range []func() error{
			func() error { _, err := e.Failures(t.Context(), engine.FailuresOptions{Fingerprint: text}); return err },
			func() error {
				_, err := e.List(t.Context(), engine.Query{Filter: engine.Filter{Fingerprint: text}})
				return err
			},
		} {
			var bad *engine.QueryError
			require.ErrorAs(t, ask(), &bad)
			require.Equal(t, "Fingerprint", bad.Field)
		}
		_, err = e.Admin().Bulk(t.Context(), engine.VerbRetry, engine.Filter{Fingerprint: text})
		require.ErrorContains(t, err, "Filter.Fingerprint")
	}
}

// Bounds are a predicate of groups, too: a group has the instances within, and its newest and its
// error are of these. A fingerprint of others selects nothing.
func TestGroupsOfFailuresStayWithinBounds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	failed(t, pool, 30, "mail", `'declined'`)
	failed(t, pool, 12, "bulk", `'tenant ' || n % 3 || ' timed out'`)
	all, err := e.Failures(t.Context(), engine.FailuresOptions{})
	require.NoError(t, err)
	require.Len(t, all.Groups, 2)
	own := engine.Bounds{Labels: map[string]string{"tenant": "1"}}
	for name, c := range map[string]struct {
		within engine.Bounds
		sizes  []int64
	}{
		"queue":     {engine.Bounds{Queues: []string{"bulk", "none"}}, []int64{12}},
		"machine":   {engine.Bounds{Machines: []string{"shop"}}, []int64{30, 12}},
		"others":    {engine.Bounds{Machines: []string{"other"}}, nil},
		"nothing":   {engine.Bounds{Queues: []string{}}, nil},
		"label":     {own, []int64{10, 4}},
		"label too": {engine.Bounds{Queues: []string{"mail"}, Labels: own.Labels}, []int64{10}},
	} {
		found, err := e.Failures(t.Context(), engine.FailuresOptions{Within: c.within})
		require.NoError(t, err, name)
		var sizes []int64
		var sum int64
		for _, g := range found.Groups {
			sizes, sum = append(sizes, g.Count), sum+g.Count
			newest, err := e.List(t.Context(), engine.Query{Filter: engine.Filter{Fingerprint: g.Fingerprint, Within: c.within}, Limit: fsm.MaxLimit})
			require.NoError(t, err)
			require.Len(t, newest.Instances, int(g.Count), name)
			shown := map[fsm.ID]string{}
			for _, i := range newest.Instances {
				shown[i.ID] = i.LastError
			}
			require.Equal(t, shown[g.Newest], g.Error, name)
			if c.within.Labels != nil && g.Queue == "bulk" {
				require.Equal(t, "tenant 1 timed out", g.Error)
			}
		}
		require.Equal(t, c.sizes, sizes, name)
		require.Equal(t, sum, found.Looked, name)
	}
	for _, g := range all.Groups {
		plan, err := e.Admin().Bulk(t.Context(), engine.VerbRetry, engine.Filter{Fingerprint: g.Fingerprint, Within: engine.Bounds{Queues: []string{"other"}}})
		require.NoError(t, err)
		require.Zero(t, plan.Matched)
		hidden, err := e.Failures(t.Context(), engine.FailuresOptions{Fingerprint: g.Fingerprint, Within: engine.Bounds{Queues: []string{"other"}}})
		require.NoError(t, err)
		require.Empty(t, hidden.Groups)
		require.Zero(t, hidden.Looked)
	}
}

// More kinds of failures than are looked at: the newest are among them, and More says that there
// are others. A group with more than are counted says so.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	words := `'no ' || translate(n::text, '0123456789', 'ghijklmnop')`
	failed(t, pool, engine.MaxFailureKinds, "kinds", words)
	found, err := e.Failures(t.Context(), engine.FailuresOptions{Limit: fsm.MaxLimit})
	require.NoError(t, err)
	require.Len(t, found.Groups, engine.MaxFailureKinds)
	require.False(t, found.More)
	failed(t, pool, 40, "newest", words)
	found, err = e.Failures(t.Context(), engine.FailuresOptions{Limit: fsm.MaxLimit})
	require.NoError(t, err)
	require.True(t, found.More)
	require.Len(t, found.Groups, engine.MaxFailureKinds)
	newest := 0
	for _, g := range found.Groups {
		if g.Queue == "newest" {
			newest++
		}
	}
	require.Equal(t, 40, newest)
	var since time.Time
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT min(finished_at) + interval '20 s' FROM gendurable.gen_durable WHERE queue = 'newest'`).Scan(&since))
	one, err := e.Failures(t.Context(), engine.FailuresOptions{Queue: "newest", Limit: fsm.MaxLimit, Since: since})
	require.NoError(t, err)
	require.Len(t, one.Groups, 20)

	failed(t, pool, engine.MaxFailuresAlike+1, "many", `'equal'`)
	found, err = e.Failures(t.Context(), engine.FailuresOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, int64(engine.MaxFailuresAlike), found.Groups[0].Count)
	require.True(t, found.Groups[0].AtLeast)
	require.True(t, found.More)
	failed(t, pool, engine.MaxFailuresAlike+1, "many", `'equal too'`)
	found, err = e.Failures(t.Context(), engine.FailuresOptions{Limit: fsm.MaxLimit})
	require.NoError(t, err)
	require.Len(t, found.Groups, engine.MaxFailureKinds, "large groups take no others' place")
	exactly, err := e.Failures(t.Context(), engine.FailuresOptions{Fingerprint: found.Groups[0].Fingerprint})
	require.NoError(t, err)
	require.Equal(t, int64(engine.MaxFailuresAlike+1), exactly.Groups[0].Count)
	require.False(t, exactly.Groups[0].AtLeast)
}

// However many others were inserted behind them, the first page of failed instances has the newest
// of them, and each page is full; so has a plan all of them.
func TestFailedInstancesAreFoundBehindOthers(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	failed(t, pool, 750, "old", `'declined by bank ' || n`)
	failed(t, pool, 10, "old", `'timed out'`)
	_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at) SELECT 'shop', 'pay', 'done', now() FROM generate_series(1, 19240)`)
	require.NoError(t, err)
	for _, c := range []struct {
		f    engine.Filter
		want int
	}{
		{engine.Filter{Status: []fsm.Status{fsm.StatusFailed}}, 760},
		{engine.Filter{Failure: []fsm.Failure{fsm.FailureError}}, 760},
		{engine.Filter{Status: []fsm.Status{fsm.StatusFailed}, Queue: "old", ErrorText: "timed"}, 10},
	} {
		for _, oldest := range []bool{false, true} {
			q := engine.Query{Filter: c.f, Limit: 100, OldestFirst: oldest}
			for got := 0; ; {
				page, err := e.List(t.Context(), q)
				require.NoError(t, err)
				got += len(page.Instances)
				if q.After = page.Next; page.Next == "" {
					require.Equal(t, c.want, got)
					break
				}
				require.Len(t, page.Instances, 100, fmt.Sprintf("%+v", c.f))
			}
		}
		plan, err := e.Admin().Bulk(t.Context(), engine.VerbRetry, c.f)
		require.NoError(t, err)
		require.EqualValues(t, c.want, plan.Matched)
	}
}
