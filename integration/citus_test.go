package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

// distributed is a database of a Citus cluster for engines in a distributed schema.
type distributed struct {
	pgtest.Distributed
	meta *pgxpool.Pool // leads to the coordinator
}

func newDistributed(t *testing.T) distributed {
	t.Helper()
	d := pgtest.Distribute(t)
	return distributed{d, pgtest.Pool(t, d.Nodes[0])}
}

// follow returns a pool that leads to the owner of the schema.
func (d distributed) follow(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, d.Nodes[d.Owner], func(c *pgxpool.Config) { citus.Follow(c, d.meta, "gendurable") })
}

// move moves the schema to the other worker, and returns the port of the new owner.
func (d distributed) move(t *testing.T, o citus.MoveOptions) uint16 {
	t.Helper()
	_, from, err := citus.Owner(t.Context(), d.meta, "gendurable")
	require.NoError(t, err)
	for _, url := range d.Nodes[1:] {
		node, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		if node.Port == from {
			continue
		}
		require.NoError(t, citus.Move(t.Context(), d.meta, "gendurable", node.Host, node.Port, o))
		_, to, err := citus.Owner(t.Context(), d.meta, "gendurable")
		require.NoError(t, err)
		require.Equal(t, node.Port, to)
		return to
	}
	require.Fail(t, "no worker to move to")
	return 0
}

// watch knows who runs under each partition key, and the last fencing token there.
type watch struct {
	mu       sync.Mutex
	running  map[string]int
	last     map[string]int64
	overlaps int
	fell     []string
}

func (w *watch) begin(key string, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[key]++; w.running[key] > 1 {
		w.overlaps++
	}
	if token < w.last[key] {
		w.fell = append(w.fell, fmt.Sprintf("%s: %d after %d", key, token, w.last[key]))
	}
	w.last[key] = max(w.last[key], token)
}

func (w *watch) end(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[key]--
}

// orders is a load on a distributed schema: inserts, signals, and instances with partition keys
// that take several visits.
type orders struct {
	watch

	t        *testing.T
	d        distributed
	eng      *engine.Engine
	inserted atomic.Int64
	open     chan struct{} // bounds the orders that have not come to their last visit
	stop     chan struct{}
	senders  sync.WaitGroup
}

// ordersOpen bounds the orders that are open at a time. Customers who do not wait for their orders
// may be faster than the few partition keys are: a busy machine then had thousands of orders to
// finish at the end.
const ordersOpen = 50

// An order is paid by a signal. Before it waits for that, it takes four visits.
var (
	paid       = fsm.DeclareSignal[int]("paid")
	movedOrder = fsm.Declare[counter, int]("moved")
)

// orderMachine calls visit when a visit begins, and what that returns when the visit ends.
func orderMachine(visit func(fsm.Info) (end func())) fsm.Definition {
	return movedOrder.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			defer visit(v.Info)()
			if v.State.N < 3 {
				return v.Next("start", counter{v.State.N + 1}), nil
			}
			return v.Await("end", v.State, paid), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			defer visit(v.Info)()
			sent, err := paid.All(v)
			return v.Done(v.State.N*100 + len(sent)), err
		}))
}

// take starts an engine, and customers who order all the time.
func (d distributed) take(t *testing.T) *orders {
	t.Helper()
	w := newOrders(t, d)
	c := configOn(t, d.Nodes[d.Owner], orderMachine(func(i fsm.Info) func() {
		w.begin(i.PartitionKey, i.FencingToken)
		return func() {
			w.end(i.PartitionKey)
			if i.Step == "end" {
				w.leave() // a visit may be repeated
			}
		}
	}))
	c.Pool = d.follow(t)
	w.eng = start(t, c)
	for n := range 2 {
		w.senders.Go(func() {
			for i := 0; w.enter(); i++ {
				w.order(fmt.Sprintf("%d of %d", i, n), movedOrder.New(counter{}).PartitionKey("key "+strconv.Itoa(i%5)))
			}
		})
	}
	return w
}

func newOrders(t *testing.T, d distributed) *orders {
	return &orders{watch: watch{running: map[string]int{}, last: map[string]int64{}}, t: t, d: d,
		open: make(chan struct{}, ordersOpen), stop: make(chan struct{})}
}

// enter waits until there may be one more open order. It reports whether there is to be one.
func (w *orders) enter() bool {
	select {
	case <-w.stop:
		return false
	case <-w.t.Context().Done(): // the test has failed
		return false
	case w.open <- struct{}{}:
		return true
	}
}

func (w *orders) leave() {
	select {
	case <-w.open:
	default:
	}
}

// order makes an order, and pays it.
func (w *orders) order(name string, spec fsm.Spec) {
	ctx := w.t.Context()
	if w.again(func() error {
		_, err := w.eng.Insert(ctx, spec.Key(fsm.Key(name)).Scope(fsm.ScopeAll))
		return err
	}) && w.again(func() error {
		_, err := w.eng.Signal(ctx, fsm.Key(name), paid.With(1).DedupKey("once"))
		if errors.Is(err, engine.ErrNoTarget) {
			return nil // an attempt without an answer has ended it
		}
		return err
	}) {
		w.inserted.Add(1)
	}
}

// again repeats a call: an error means that it is not known, or that the schema moves.
func (w *orders) again(do func() error) bool {
	for w.t.Context().Err() == nil {
		err := do()
		if err == nil || errors.Is(err, engine.ErrDuplicate) {
			return true
		}
	}
	return false
}

// some waits until more is ordered.
func (w *orders) some() {
	w.t.Helper()
	before := w.inserted.Load()
	if !happens(w.t, func() bool { return w.inserted.Load() > before+20 }) {
		require.Fail(w.t, "nothing is inserted", w.unfinished())
	}
}

// finish ends the load. Each instance has ended once, having made each visit durable once; no two
// ran under a key at a time, and no fencing token of a key fell.
func (w *orders) finish() *pgxpool.Pool {
	t := w.t
	t.Helper()
	close(w.stop)
	w.senders.Wait()
	pool := w.d.follow(t)
	live := func() int {
		return query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed')`)
	}
	if !happens(t, func() bool { return live() == 0 }) {
		require.Fail(t, "some instance does not end", w.unfinished())
	}
	require.EqualValues(t, w.inserted.Load(), query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'`))
	require.Zero(t, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE result::text <> '301'`),
		"a visit is lost or doubled, or a signal")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.fell)
	require.Zero(t, w.overlaps)
	return pool
}

// TestMovesOnCitusLoseNothing moves the schema under load.
func TestMovesOnCitusLoseNothing(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	w := d.take(t)
	w.some()
	for _, block := range []bool{false, true, false} {
		var told []citus.Progress
		d.move(t, citus.MoveOptions{BlockWrites: block, Progress: func(p citus.Progress) { told = append(told, p) }, Every: 10 * time.Millisecond})
		require.NotEmpty(t, told)
		w.some()
	}
	require.EqualValues(t, 4, query[int](t, w.finish(), `SELECT epoch::int FROM gendurable.gen_durable_home`))
}

// failover gives a worker a standby, which has each commit before it is acknowledged. What it
// returns kills the worker, promotes the standby, tells Citus, and returns it.
func failover(t *testing.T, worker *pgdev.Cluster, meta *pgxpool.Pool) func() *pgdev.Cluster {
	t.Helper()
	standby, err := worker.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	require.NoError(t, worker.Run(t.Context(), "", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"))
	at := pgtest.Pool(t, worker.URL(""))
	eventually(t, func() bool {
		return query[bool](t, at, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync')`)
	}, "the standby does not follow")
	at.Close()
	return func() *pgdev.Cluster {
		was := worker.Port()
		require.NoError(t, worker.StopImmediate())
		require.NoError(t, standby.Promote(t.Context()))
		_, err = meta.Exec(t.Context(), `SELECT citus_update_node(nodeid, '127.0.0.1', $2) FROM pg_dist_node WHERE nodeport = $1`, was, standby.Port())
		require.NoError(t, err)
		return standby
	}
}

// TestAFailoverOnCitusLosesNothing kills the owner under load, promotes its standby, which has each
// commit before it is acknowledged, and tells Citus where the node is from now on.
func TestAFailoverOnCitusLosesNothing(t *testing.T) {
	t.Parallel()
	nodes, own := pgtest.OwnCitus(t)
	d := distributed{own, pgtest.Pool(t, own.Nodes[0])}
	fail := failover(t, nodes.Nodes()[own.Owner], d.meta)
	w := d.take(t)
	w.some()
	to := fail()
	w.some()
	_, port, err := citus.Owner(t.Context(), d.meta, "gendurable")
	require.NoError(t, err)
	require.EqualValues(t, to.Port(), port)
	require.EqualValues(t, 1, query[int](t, w.finish(), `SELECT epoch::int FROM gendurable.gen_durable_home`), "it is the same group")
}

// TestCitusKeepsStrangersFromAMovedSchema shows what the entrance is for. A transaction that has
// entered makes the move wait for it, what it has written goes with the schema, and after the move
// no transaction enters at the old owner.
func TestCitusKeepsStrangersFromAMovedSchema(t *testing.T) {
	t.Parallel()
	d := newDistributed(t)
	old := pgtest.Pool(t, d.Nodes[d.Owner])
	tx, err := old.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT gendurable.gen_durable_enter()`)
	require.NoError(t, err)
	var shard string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT 'paused_queues_' || shardid FROM pg_dist_shard
		WHERE logicalrelid = 'gendurable.paused_queues'::regclass`).Scan(&shard))

	moved := make(chan struct{})
	go func() {
		defer close(moved)
		d.move(t, citus.MoveOptions{BlockWrites: true})
	}()
	eventually(t, func() bool {
		return query[bool](t, old, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND mode = 'ExclusiveLock'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	}, "the move does not wait")
	_, err = tx.Exec(t.Context(), `INSERT INTO gendurable.`+shard+` (queue) VALUES ('written before')`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	<-moved

	_, err = old.Exec(t.Context(), `SELECT gendurable.gen_durable_enter()`)
	require.True(t, store.IsReadOnly(err), err)
	require.Equal(t, "written before", query[string](t, d.follow(t), `SELECT queue FROM gendurable.paused_queues`))

	c := configOn(t, d.Nodes[d.Owner], plainJob())
	c.Pool = old
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.ErrorContains(t, eng.Start(t.Context()), "another node has this schema")
}
