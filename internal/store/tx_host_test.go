package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A host's transaction has none of the settings that hold the plans of the store's own (T98). What
// it sends to cancel instances, and to see whether they are live, finds them by their indexes all
// the same.
func TestAHostsCancelReadsNoTableFromEndToEnd(t *testing.T) {
	b := newBench(t)
	conn, err := pgx.Connect(t.Context(), b.pool.Config().ConnString())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	end := func(ids ...int64) (scans int) {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		scanned := func() (n int) {
			t.Helper()
			require.NoError(t, tx.QueryRow(t.Context(), `SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables
				WHERE relname ~ '^(gen_durable|lost_claims)(_\d+)?$'`).Scan(&n))
			return n
		}
		before := scanned() // the view may also have what the session did shortly before
		hosted := b.Within(store.Pgx(tx))
		_, err = hosted.Live(t.Context(), ids)
		require.NoError(t, err)
		done, err := hosted.Cancel(t.Context(), ids, &store.Order{Mark: uuid.NewString(), Descendants: true, Most: 1000})
		require.NoError(t, err)
		require.Len(t, done.Changed, len(ids))
		scans = scanned() - before
		require.NoError(t, tx.Rollback(t.Context()))
		return scans
	}
	for n := range int64(7) { // from the sixth time on Postgres may keep a plan
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, partition_key) VALUES ('m', 's', $1)`, fmt.Sprint("key ", n))
		var id int64
		require.NoError(t, b.pool.QueryRow(t.Context(), byHand(`SELECT max(id) FROM gendurable.gen_durable`)).Scan(&id))
		end(id)
	}
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, partition_key) SELECT 'm', 's', 'key ' || n % 1000 FROM generate_series(1, 50000) n`)
	b.exec(`ANALYZE gendurable.gen_durable`)
	first := int64(b.number(`SELECT min(id) FROM gendurable.gen_durable`))
	require.Zero(t, end(first+100, first+20_000, first+40_000))
}

// A host's transaction that has made sure that a child has ended holds its row, and no parent's,
// and waits for none.
func TestALookWhetherChildrenHaveEndedLocksNoParent(t *testing.T) {
	b := newBench(t)
	parent := b.row("status, round, visit, children_pending", "'awaiting_children', 1, 1, 1")
	ended := b.ended("done", 0, "parent_id, parent_round", "$1, 1", parent)
	lived := b.row("parent_id, parent_round", "$1, 1", parent)
	host := b.begin()
	live := func(ids ...int64) []store.Change {
		t.Helper()
		found, err := b.Within(store.Pgx(host)).Live(t.Context(), ids)
		require.NoError(t, err)
		return found
	}
	free := func(id int64) bool {
		return b.number(`SELECT count(*) FROM (SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED) l`, id) == 1
	}
	b.inTx(host, `SET LOCAL lock_timeout = '1s'`)
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, parent)
	require.Empty(t, live(ended, 1<<40), "it does not wait for the parent")
	require.NoError(t, stranger.Rollback(t.Context()))
	require.True(t, free(parent))
	require.False(t, free(ended), "nobody makes it live meanwhile")
	require.Equal(t, []store.Change{{ID: lived, Was: "runnable", Is: "runnable", Asked: true}}, live(lived, ended, lived))
	require.True(t, free(parent))
	require.False(t, free(lived))
	require.Len(t, live(parent), 1)
	require.False(t, free(parent), "unless it was asked about")
}

// A refusal that Citus might have caused makes the store look for it, but not for ever: the host's
// transaction has the pool's only connection here.
func TestARefusalOnTheLastConnection(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER TABLE gendurable.gen_durable RENAME TO hidden`)
	one := b.beside(func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, _, err := one.Within(store.Pgx(one.begin())).Insert(t.Context(), specsOf("k"), store.By{})
	require.Equal(t, store.FaultConfig, store.Classify(err), err)
}
