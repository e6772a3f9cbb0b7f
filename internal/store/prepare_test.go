package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A session that has locked the tables, as ALTER TABLE does, makes even the preparation of a
// statement wait. The limits of a verb hold there, too, so each verb gives up on a connection that
// has never been used, while the tables stay locked.
func TestLimitsHoldOnAFreshConnection(t *testing.T) {
	pgtest.PlainOnly(t, "the shards are locked by other names")
	b := newBench(t)
	verbs := roundTrips
	verbs = append(verbs[:len(verbs):len(verbs)], trip{"history", 1, func(bench, int) any { return nil }, func(b bench, _ any) error {
		_, err := b.StepTimes(b.t.Context(), &store.HistoryFilter{Machine: "m", Since: time.Now().Add(-time.Hour), Until: time.Now(), Most: 10,
			Timeout: 100 * time.Millisecond})
		return err
	}}, trip{"count within a moment", 1, func(bench, int) any { return nil }, func(b bench, _ any) error {
		_, err := b.Count(b.t.Context(), 100*time.Millisecond)
		require.ErrorIs(b.t, err, store.ErrCutOff)
		return err
	}})
	// A worker that commits in the slow lane says how long it waits for locks.
	slowly := func(b bench, entries any) error {
		_, err := b.Commit(b.t.Context(), me, newMark(), entries.([]store.Entry), 100*time.Millisecond)
		return err
	}
	prepared := make([]any, len(verbs))
	for i, verb := range verbs {
		prepared[i] = verb.prepare(b, 1)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
	stranger, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer stranger.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it only locks
	_, err = stranger.Exec(t.Context(), `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'gendurable'::regnamespace AND relkind IN ('r', 'p') LOOP
			EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
		END LOOP; END $$`)
	require.NoError(t, err)
	// Subtests would wait for their turn among all tests, with the transaction open that long.
	// Beside it, the tests that measure plans can measure nothing.
	var all sync.WaitGroup
	errs := make([]error, len(verbs))
	for i, verb := range verbs {
		if verb.verb == "count" || strings.HasPrefix(verb.verb, "insert") {
			continue // a count may take a minute, and an insert is tried until its context ends
		}
		fresh := b.beside(func(c *pgxpool.Config) { c.MaxConns = 1 })
		do := verb.do
		if do == nil {
			do = func(b bench, claims any) error {
				line := b.Line()
				_, err := line.Beat(t.Context(), me, claims.([]*step.Claim), lease)
				return errors.Join(err, line.Close(t.Context()))
			}
		}
		if strings.Contains(verb.verb, "slow lane") || strings.Contains(verb.verb, "keyed children") {
			do = slowly
		}
		if strings.HasPrefix(verb.verb, "fail ") {
			do = func(b bench, _ any) error {
				_, err := b.Expire(b.t.Context(), newMark(), 1000)
				return err
			}
		}
		all.Go(func() { errs[i] = do(fresh, prepared[i]) })
	}
	all.Wait()
	for i, verb := range verbs {
		if verb.verb == "count" || strings.HasPrefix(verb.verb, "insert") {
			continue
		}
		var refused *pgconn.PgError
		require.ErrorAs(t, errs[i], &refused, verb.verb)
		require.Contains(t, []string{"55P03", "57014"}, refused.Code, "%s: a limit of the server: %v", verb.verb, errs[i])
	}
}
