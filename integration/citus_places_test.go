package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	places "github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

const (
	placesOnCitus = 4
	lanesOnCitus  = 12 // partition keys, each with its tag
)

// placesLoad is a load on a cluster of places that Citus distributes: inserts, signals, chains
// under partition keys, and children.
type placesLoad struct {
	watch

	t       *testing.T
	c       *places.Cluster
	ordered [lanesOnCitus]atomic.Int64
	open    chan struct{} // bounds the orders that have not come to their last visit
	stop    chan struct{}
	senders sync.WaitGroup
}

var (
	placedOrder = fsm.Declare[counter, int]("placed order")
	placedPart  = fsm.Declare[int, int]("placed part")
	placedPaid  = fsm.DeclareSignal[int]("placed paid")
)

func (w *placesLoad) machines() []fsm.Definition {
	type visit = fsm.Visit[counter, int]
	guarded := func(name string, do func(v *visit) (fsm.Outcome, error)) fsm.StepDef[counter, int] {
		return fsm.Step(name, func(_ context.Context, v *visit) (fsm.Outcome, error) {
			w.begin(v.Info.PartitionKey, v.Info.FencingToken)
			defer w.end(v.Info.PartitionKey)
			return do(v)
		})
	}
	return []fsm.Definition{
		placedPart.Job(func(_ context.Context, n int) (int, error) { return n, nil }),
		placedOrder.Define(
			guarded("start", func(v *visit) (fsm.Outcome, error) {
				if v.State.N < 2 {
					return v.Next("start", counter{v.State.N + 1}), nil
				}
				return v.Await("paid", v.State, placedPaid), nil
			}),
			guarded("paid", func(v *visit) (fsm.Outcome, error) {
				sent, err := placedPaid.All(v)
				return v.ScheduleChildren("join", counter{v.State.N*10 + len(sent)}, placedPart.New(1), placedPart.New(1)), err
			}),
			guarded("join", func(v *visit) (fsm.Outcome, error) {
				select {
				case <-w.open:
				default: // the visit is repeated
				}
				done := 0
				for _, c := range v.Children() {
					if c.Status == fsm.StatusDone {
						done++
					}
				}
				return v.Done(v.State.N*10 + done), nil
			})),
	}
}

// placedResult is two visits, one signal, two children.
const placedResult = "212"

// order orders in one lane until the load stops.
func (w *placesLoad) order(lane int) {
	again := func(do func() error) bool { // an error means that it is not known, or that the place moves
		for w.t.Context().Err() == nil {
			err := do()
			if err == nil || errors.Is(err, engine.ErrDuplicate) {
				return true
			}
		}
		return false
	}
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		case w.open <- struct{}{}:
		}
		key := fsm.Key(fmt.Sprintf("%d{%d}", i, lane))
		if !again(func() error {
			_, err := w.c.Insert(w.t.Context(), placedOrder.New(counter{}).Key(key).Scope(fsm.ScopeAll).PartitionKey(fmt.Sprintf("lane{%d}", lane)))
			return err
		}) {
			return
		}
		if !again(func() error {
			_, err := w.c.Signal(w.t.Context(), key, placedPaid.With(1).DedupKey("once"))
			if errors.Is(err, engine.ErrNoTarget) {
				return nil // an attempt without an answer has ended it
			}
			return err
		}) {
			return
		}
		w.ordered[lane].Add(1)
	}
}

// some waits until every lane has ordered more.
func (w *placesLoad) some() {
	w.t.Helper()
	for lane := range w.ordered {
		before := w.ordered[lane].Load()
		eventually(w.t, func() bool { return w.ordered[lane].Load() > before+2 }, "nothing is ordered in a lane")
	}
}

// TestPlacesOnCitusLoseNothing moves the places of a cluster under load, and lets a worker fail.
// Each order ends once, after each of its visits, its signal and its children; no two visits of a
// key overlap, and its tokens grow; each id is one of its place.
func TestPlacesOnCitusLoseNothing(t *testing.T) {
	t.Parallel()
	nodes, own := pgtest.OwnCitus(t)
	meta := pgtest.Pool(t, own.Nodes[0])
	var at []places.Place
	for n := range placesOnCitus {
		schema := fmt.Sprintf("place_%d", n)
		_, err := migrate.Migrator{Pool: meta, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		require.NoError(t, citus.Distribute(t.Context(), meta, schema))
		at = append(at, places.Place{Schema: schema, Pool: pgtest.Pool(t, own.Nodes[0], func(c *pgxpool.Config) { citus.Follow(c, meta, schema) })})
	}
	require.NoError(t, places.Init(t.Context(), at))
	fail := failover(t, nodes.Workers[0], meta)

	w := &placesLoad{watch: watch{running: map[string]int{}, last: map[string]int64{}}, t: t,
		open: make(chan struct{}, ordersOpen), stop: make(chan struct{})}
	c, err := places.New(places.Config{Places: at, Engine: engine.Config{
		Machines: w.machines(), Queues: map[string]engine.Queue{"default": quick(8)}, Logger: newJournal(t).logger(),
	}})
	require.NoError(t, err)
	w.c = c
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	for lane := range w.ordered {
		w.senders.Go(func() { w.order(lane) })
	}

	workers := nodes.Workers
	moves := 0
	move := func(place int, blocking bool) {
		_, from, err := citus.Owner(t.Context(), meta, at[place].Schema)
		require.NoError(t, err)
		to := workers[0].Port()
		if int(from) == to {
			to = workers[1].Port()
		}
		require.NoError(t, citus.Move(t.Context(), meta, at[place].Schema, "127.0.0.1", uint16(to), citus.MoveOptions{BlockWrites: blocking})) //nolint:gosec // a port
		moves++
	}
	w.some()
	move(0, false)
	move(1, true)
	w.some()
	fail()
	w.some()
	close(w.stop)
	w.senders.Wait()

	total := int64(0)
	for place := range placesOnCitus {
		pool, schema := at[place].Pool, at[place].Schema
		eventually(t, func() bool {
			return query[int](t, pool, `SELECT count(*) FROM `+schema+`.gen_durable WHERE status NOT IN ('done', 'failed')`) == 0
		}, "some instance does not end")
		var ordered int64
		for lane := range w.ordered {
			if c.PlaceOf(fmt.Sprintf("lane{%d}", lane)) == place {
				ordered += w.ordered[lane].Load()
			}
		}
		require.NotZero(t, ordered)
		total += ordered
		require.EqualValues(t, ordered, query[int](t, pool, `SELECT count(*) FROM `+schema+`.gen_durable WHERE fsm = 'placed order' AND status = 'done' AND result::text = '`+placedResult+`'`))
		require.EqualValues(t, 3*ordered, query[int](t, pool, `SELECT count(*) FROM `+schema+`.gen_durable WHERE status = 'done'`), "two children of each")
		require.Zero(t, query[int](t, pool, fmt.Sprintf(`SELECT count(*) FROM %s.gen_durable WHERE id >> 44 <> %d`, schema, place)))
	}
	t.Logf("%d orders at %d places, %d moves, one failover", total, placesOnCitus, moves)
	w.mu.Lock()
	require.Empty(t, w.fell)
	require.Zero(t, w.overlaps)
	w.mu.Unlock()
	require.Equal(t, moves, query[int](t, meta, `SELECT sum(epoch)::int - 4 FROM (SELECT epoch FROM place_0.gen_durable_home UNION ALL SELECT epoch FROM place_1.gen_durable_home
		UNION ALL SELECT epoch FROM place_2.gen_durable_home UNION ALL SELECT epoch FROM place_3.gen_durable_home) e`), "a failover is no move")
	require.Empty(t, c.Check(t.Context()))
	all, err := c.Status(t.Context(), places.StatusOptions{})
	require.NoError(t, err)
	for n, s := range all {
		require.Equal(t, n, s.Record.Place)
		require.Empty(t, s.Wrong)
		require.Equal(t, 1, s.Workers)
	}
}
