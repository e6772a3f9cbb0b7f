package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	schema = "gendurable"
	cap10  = 10 // the most signals in an inbox, for tests that do not depend on it
)

// bench is a store on its own database, and can write rows without the store.
type bench struct {
	*store.Store
	*query.Reader
	t    testing.TB
	pool *pgxpool.Pool
}

func benchOn(t testing.TB, pool *pgxpool.Pool) bench {
	s := store.New(entpgx.New(pool), schema)
	located(t, s)
	return bench{Store: s, Reader: query.New(s), t: t, pool: pool}
}

func newBench(t *testing.T) bench {
	t.Helper()
	t.Parallel()
	notOnCitus(t)
	return benchOn(t, pgtest.Pool(t, pgtest.Migrated(t))).besideHeld(t.Name())
}

// Line returns a line that has connected: on a busy machine an attempt may run out of its time, and
// a test's only heartbeat with it.
func (b bench) Line() *store.Line {
	line := b.Store.Line()
	for err := line.Check(b.t.Context()); err != nil && b.t.Context().Err() == nil; err = line.Check(b.t.Context()) {
		b.t.Log("connects again:", err)
	}
	return line
}

// row inserts an instance. It appends columns, in SQL, to the required ones.
func (b bench) row(columns, values string, args ...any) (id int64) {
	b.t.Helper()
	if columns != "" {
		columns, values = ", "+columns, ", "+values
	}
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(),
		byHand(`INSERT INTO gendurable.gen_durable (fsm, step`+columns+`) VALUES ('m', 's'`+values+`) RETURNING id`), args...).Scan(&id))
	return id
}

func (b bench) parked(names ...string) int64 {
	b.t.Helper()
	return b.row("status, awaits, await_deadline", "'awaiting_signal', $1, now() + interval '1 hour'", names)
}

const liveScope = "'{runnable,executing,awaiting_signal,awaiting_children}'"

func (b bench) keyed(key string) int64 {
	b.t.Helper()
	return b.row("correlation_key, correlation_scope, status, awaits", "$1, "+liveScope+", 'awaiting_signal', '{go}'", key)
}

func (b bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), byHand(sql), args...)
	require.NoError(b.t, err)
}

func (b bench) number(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), byHand(sql), args...).Scan(&n))
	return n
}

func (b bench) text(sql string, args ...any) (s string) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), byHand(sql), args...).Scan(&s))
	return s
}

func (b bench) status(id int64) string {
	b.t.Helper()
	return b.text(`SELECT status::text FROM gendurable.gen_durable WHERE id = $1`, id)
}

func (b bench) signals(id int64) int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM gendurable.signals WHERE target_id = $1 AND consumed_at IS NULL`, id)
}

// begin opens the transaction of another session. The test's end rolls it back unless the test has
// ended it.
func (b bench) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (b bench) inTx(tx pgx.Tx, sql string, args ...any) {
	b.t.Helper()
	_, err := tx.Exec(b.t.Context(), byHand(sql), args...)
	require.NoError(b.t, err)
}

// waiting blocks until n sessions of this database wait for a lock.
func (b bench) waiting(n int) {
	b.t.Helper()
	steady.Eventually(b.t, func() bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	})
}

type delivered struct {
	store.Delivery
	err error
}

// delivering starts a delivery and returns a channel for its result.
func (b bench) delivering(to store.Address, m *step.Signal) <-chan delivered {
	done := make(chan delivered, 1)
	go func() {
		d, err := b.Deliver(b.t.Context(), to, m, cap10)
		done <- delivered{d, err}
	}()
	return done
}

func byID(id int64) store.Address    { return store.Address{ID: id} }
func byKey(key string) store.Address { return store.Address{Key: key} }
func named(name string) *step.Signal {
	return &step.Signal{Name: name, Payload: json.RawMessage(`{"n": 1}`)}
}
func deduped(name, k string) *step.Signal {
	return &step.Signal{Name: name, Payload: json.RawMessage(`{}`), DedupKey: k}
}

func TestDeliverWakesWhoAwaitsTheName(t *testing.T) {
	b := newBench(t)
	id := b.parked("stop", "go")
	b.exec(`UPDATE gendurable.gen_durable SET pick_lane = 2, eligible_at = now() - interval '1 day', queue = 'q' WHERE id = $1`, id)

	d, err := b.Deliver(t.Context(), byID(id), named("go"), cap10)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: id, Queue: "q", Woken: true, Runnable: true}, d)
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND status = 'runnable' AND await_deadline IS NULL
		AND awaits = '{stop,go}' AND pick_lane = 0 AND eligible_at BETWEEN now() - interval '1 minute' AND now()`, id))
	require.Equal(t, `{"n": 1}`, b.text(`SELECT payload::text FROM gendurable.signals WHERE target_id = $1 AND name = 'go'`, id))
}

func TestDeliverLeavesOthersAsTheyAre(t *testing.T) {
	b := newBench(t)
	for name, id := range map[string]int64{
		"another name": b.parked("stop"),
		"runnable":     b.row("awaits, eligible_at", "'{go}', now() + interval '1 hour'"),
		"executing":    b.row("status, awaits, locked_by, lease_expires_at", "'executing', '{go}', 'w', now() + interval '1 hour'"),
		"children":     b.row("status, children_pending", "'awaiting_children', 1"),
	} {
		const image = `SELECT row(status, awaits, await_deadline, eligible_at, pick_lane, locked_by, lease_expires_at, updated_at)::text
			FROM gendurable.gen_durable WHERE id = $1`
		before := b.text(image, id)
		d, err := b.Deliver(t.Context(), byID(id), named("go"), cap10)
		require.NoError(t, err, name)
		require.False(t, d.Woken, name)
		require.Equal(t, before, b.text(image, id), name)
		require.Equal(t, 1, b.signals(id), name)
	}
}

func TestDeliverToNobody(t *testing.T) {
	b := newBench(t)
	done := b.row("status, finished_at, correlation_key, correlation_scope",
		"'done', now(), 'kept', '{runnable,executing,awaiting_signal,awaiting_children,done}'")
	failed := b.row("status, finished_at, failure", "'failed', now(), 'error'")
	for _, to := range []store.Address{byID(done), byID(failed), byID(1 << 40), byKey("kept"), byKey("nobody's")} {
		_, err := b.Deliver(t.Context(), to, named("go"), cap10)
		require.ErrorIs(t, err, store.ErrNoTarget, to)
		require.ErrorContains(t, err, to.String())
	}
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.signals`))
}

func TestDeliverByKeyReachesTheOccupant(t *testing.T) {
	b := newBench(t)
	b.row("status, finished_at, correlation_key, correlation_scope", "'done', now(), 'k', "+liveScope)
	id := b.keyed("k")
	b.row("correlation_key", "'k'") // with scope none the key is no address

	d, err := b.Deliver(t.Context(), byKey("k"), named("go"), cap10)
	require.NoError(t, err)
	require.Equal(t, id, d.Target)
	require.True(t, d.Woken)
}

func TestDeliverDuplicate(t *testing.T) {
	b := newBench(t)
	id, other := b.parked("go"), b.parked("go")
	for _, to := range []int64{id, other} { // the key belongs to id, and not to other
		d, err := b.Deliver(t.Context(), byID(to), deduped("go", "evt-1"), cap10)
		require.NoError(t, err)
		require.Equal(t, store.Delivery{Target: to, Queue: "default", Woken: true, Runnable: true}, d)
	}
	for _, consumed := range []bool{false, true} {
		if consumed {
			b.exec(`UPDATE gendurable.signals SET consumed_at = now() WHERE target_id = $1`, id)
		}
		b.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal' WHERE id = $1`, id)
		d, err := b.Deliver(t.Context(), byID(id), deduped("go", "evt-1"), cap10)
		require.NoError(t, err)
		require.Equal(t, store.Delivery{Target: id, Queue: "default", Duplicate: true}, d)
		require.Equal(t, "awaiting_signal", b.status(id), "a duplicate wakes nobody")
	}
}

func TestDeliverToAFullInbox(t *testing.T) {
	b := newBench(t)
	id := b.parked("other")
	b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at)
		SELECT $1, 'go', 'old-' || n, now() FROM generate_series(1, 20) n`, id)
	for n := range 3 {
		_, err := b.Deliver(t.Context(), byID(id), deduped("go", fmt.Sprint("evt-", n)), 3)
		require.NoError(t, err, "tombstones do not count")
	}
	b.exec(`UPDATE gendurable.gen_durable SET awaits = '{go}' WHERE id = $1`, id)

	_, err := b.Deliver(t.Context(), byID(id), deduped("go", "evt-9"), 3)
	require.ErrorIs(t, err, store.ErrInboxFull)
	require.Equal(t, 3, b.signals(id))
	require.Equal(t, "awaiting_signal", b.status(id))

	d, err := b.Deliver(t.Context(), byID(id), deduped("go", "evt-0"), 3)
	require.NoError(t, err, "a duplicate outranks a full inbox")
	require.True(t, d.Duplicate)
}

func TestDeliverSameKeySideBySide(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
	one, two := b.delivering(byID(id), deduped("go", "evt")), b.delivering(byID(id), deduped("go", "evt"))
	b.waiting(2)
	require.NoError(t, stranger.Commit(t.Context()))
	first, second := <-one, <-two
	require.NoError(t, errors.Join(first.err, second.err))
	require.True(t, first.Duplicate != second.Duplicate)
	require.True(t, first.Woken != second.Woken)
	require.Equal(t, 1, b.signals(id))
}

// The inbox never exceeds its limit, although all deliveries count before any of them commits.
func TestDeliverManySideBySideToTheCap(t *testing.T) {
	b := newBench(t)
	id := b.parked("other")
	var wait sync.WaitGroup
	results := make(chan error, 25)
	for range 25 {
		wait.Go(func() {
			_, err := b.Deliver(t.Context(), byID(id), named("go"), 10)
			results <- err
		})
	}
	wait.Wait()
	close(results)
	full := 0
	for err := range results {
		if err != nil {
			require.ErrorIs(t, err, store.ErrInboxFull)
			full++
		}
	}
	require.Equal(t, 15, full)
	require.Equal(t, 10, b.signals(id))
}

// T3, T6: a transaction that ends or deletes the target first leaves nothing behind for a sender
// that waited for it.
func TestDeliverBehindAnEnd(t *testing.T) {
	b := newBench(t)
	for name, end := range map[string]string{
		"done":    `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), result = '{}' WHERE id = $1`,
		"deleted": `DELETE FROM gendurable.gen_durable WHERE id = $1`,
	} {
		id, key := b.parked("go"), "key of "+name
		for target, to := range map[int64]store.Address{id: byID(id), b.keyed(key): byKey(key)} {
			stranger := b.begin()
			b.inTx(stranger, end, target)
			result := b.delivering(to, named("go"))
			b.waiting(1)
			require.NoError(t, stranger.Commit(t.Context()))
			require.ErrorIs(t, (<-result).err, store.ErrNoTarget, "%s, %s", name, to)
		}
	}
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.signals`))
}

// T1, from the sender's side: it waits for the commit that parks the target, and then sees the
// committed awaits.
func TestDeliverBehindAPark(t *testing.T) {
	b := newBench(t)
	id := b.row("status, locked_by, lease_expires_at", "'executing', 'w', now() + interval '1 hour'")
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{go}', locked_by = NULL,
		lease_expires_at = NULL WHERE id = $1`, id)
	result := b.delivering(byID(id), named("go"))
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	d := <-result
	require.NoError(t, d.err)
	require.True(t, d.Woken)
	require.Equal(t, "runnable", b.status(id))
}

// T4: the key moves to another instance while the delivery waits for the old one.
func TestDeliverFollowsAKeyThatMoves(t *testing.T) {
	b := newBench(t)
	old := b.keyed("k")
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = $1`, old)
	var heir int64
	require.NoError(t, stranger.QueryRow(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope, status, awaits)
		VALUES ('m', 's', 'k', `+liveScope+`, 'awaiting_signal', '{go}') RETURNING id`).Scan(&heir))
	result := b.delivering(byKey("k"), named("go"))
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	d := <-result
	require.NoError(t, d.err)
	require.Equal(t, heir, d.Target)
	require.True(t, d.Woken)
	require.Zero(t, b.signals(old))
}

// T9: a delivery does not wait without end for a locked row, and the holder can be named.
func TestDeliverGivesUpOnAHeldRow(t *testing.T) {
	b := newBench(t)
	id := b.keyed("k")
	stranger := b.begin()
	b.inTx(stranger, `SET LOCAL application_name = 'forgetful'`)
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
	var pid int32
	require.NoError(t, stranger.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))

	_, err := b.Deliver(t.Context(), byID(id), named("go"), cap10)
	require.True(t, store.IsLockTimeout(err), err)
	require.Equal(t, store.FaultTransient, store.Classify(err))
	for _, of := range []store.Address{byID(id), byKey("k")} {
		h, ok, err := b.Holder(t.Context(), of)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, store.Holder{PID: pid, State: "idle in transaction", Application: "forgetful"}, h)
	}
	require.NoError(t, stranger.Rollback(t.Context()))
	_, ok, err := b.Holder(t.Context(), byID(id))
	require.NoError(t, err)
	require.False(t, ok)
}

// T8: the foreign key check of another delivery, in a transaction that is left open, does not hide
// the row.
func TestDeliverBesideAForeignKeysLock(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR KEY SHARE`, id)
	_, err := b.Deliver(t.Context(), byID(id), named("go"), cap10)
	require.NoError(t, err)
}

// Neither the role's settings (T31) nor a foreign search_path with a table of the same name (T92)
// affect a delivery.
func TestDeliverUnderForeignSettings(t *testing.T) {
	b := newBench(t)
	id := b.keyed("k")
	b.exec(`CREATE TABLE gen_durable (id bigint)`)
	foreign := b.beside(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "public"
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["lock_timeout"] = "1ms"
	})
	stranger := b.begin()
	b.inTx(stranger, `UPDATE gendurable.gen_durable SET priority = 7 WHERE id = $1`, id)
	result := foreign.delivering(byKey("k"), named("go"))
	b.waiting(1)
	require.NoError(t, stranger.Commit(t.Context()))
	d := <-result
	require.NoError(t, d.err)
	require.Equal(t, id, d.Target)
	require.True(t, d.Woken)
}

// T33: delivery works in every mode in which pgx can send statements.
func TestDeliverInEveryMode(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			pool := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			s := store.New(entpgx.New(pool), schema)
			located(t, s)
			b := bench{Store: s, Reader: query.New(s), t: t, pool: pool}
			id := b.row("status, awaits, correlation_key, correlation_scope", "'awaiting_signal', '{go}', '"+mode.String()+"', "+liveScope)
			d, err := b.Deliver(t.Context(), byKey(mode.String()), deduped("go", "evt"), cap10)
			require.NoError(t, err)
			require.Equal(t, store.Delivery{Target: id, Queue: "default", Woken: true, Runnable: true}, d)
			d, err = b.Deliver(t.Context(), byID(id), deduped("go", "evt"), cap10)
			require.NoError(t, err)
			require.True(t, d.Duplicate)

			inbox, _, err := b.Inbox(t.Context(), id, 0)
			require.NoError(t, err)
			require.Len(t, inbox, 1)
			require.Equal(t, "evt", inbox[0].DedupKey)
			i, err := b.Get(t.Context(), byKey(mode.String()))
			require.NoError(t, err)
			require.Equal(t, id, int64(i.ID))
			ended, err := b.Ended(t.Context(), []int64{id, 1 << 40})
			require.NoError(t, err)
			require.Equal(t, []int64{1 << 40}, ended)
			_, err = b.Prune(t.Context(), store.PruneParams{Tombstones: 1, Limit: 10})
			require.NoError(t, err)
		})
	}
}

// If Postgres refuses one signal, that is this signal's fault.
func TestDeliverRefusedData(t *testing.T) {
	b := newBench(t)
	id := b.parked("go")
	_, err := b.Deliver(t.Context(), byID(id), &step.Signal{Name: "go", Payload: json.RawMessage(`"\u0000"`)}, cap10)
	require.Equal(t, store.FaultData, store.Classify(err))
	require.Equal(t, "awaiting_signal", b.status(id))
}
