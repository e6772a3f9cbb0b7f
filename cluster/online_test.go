package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// onlineScript is the guide's script. It is run while processes work at the place.
const onlineScript = `set -eo pipefail
sql() { psql --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$@"; }
pg_dump --schema place_1 --schema-only "$NORTH" | sql --single-transaction "$SOUTH"
sql "$NORTH" --command 'CREATE PUBLICATION place_1 FOR TABLES IN SCHEMA place_1'
sql "$SOUTH" --command "CREATE SUBSCRIPTION place_1 CONNECTION '$NORTH' PUBLICATION place_1"
until [ "$(sql "$SOUTH" --command "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'")" = 0 ]; do sleep 1; done

# The copy is complete, and follows. The place stands still from here on.
sql "$NORTH" --command "SET lock_timeout = '5s'; DO \$\$ BEGIN
  EXECUTE (SELECT 'LOCK TABLE ' || string_agg(oid::regclass::text, ', ') || ' IN ACCESS EXCLUSIVE MODE'
    FROM pg_class WHERE relnamespace = 'place_1'::regnamespace AND relkind IN ('r', 'p'));
  ALTER SCHEMA place_1 RENAME TO place_1_moved;
END \$\$"
end=$(sql "$NORTH" --command 'SELECT pg_current_wal_lsn()')
until [ "$(sql "$NORTH" --command "SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'place_1'")" = t ]; do sleep 0.1; done
sql "$NORTH" --command "SELECT format('SELECT setval(%L, %s);', 'place_1.' || quote_ident(sequencename), last_value)
  FROM pg_sequences WHERE schemaname = 'place_1_moved' AND last_value IS NOT NULL" | sql "$SOUTH" >/dev/null
sql "$SOUTH" --command 'DROP SUBSCRIPTION place_1'
sql "$NORTH" --command 'DROP PUBLICATION place_1'`

// customers insert tickets at two places and pay them, until they are stopped.
type customers struct {
	t    *testing.T
	mu   sync.Mutex
	ids  map[fsm.Key]fsm.ID // what was acknowledged
	gone bool               // place 1 may be away
}

// serve serves one customer more at each place, by a cluster that may be about to lose place 1.
func (w *customers) serve(ctx context.Context, c *cluster.Cluster, n int) {
	for place := range 2 {
		key := keyOf(place, 2, n)
		id, err := c.Insert(ctx, ticket.New("A").Key(key))
		if err == nil {
			w.mu.Lock()
			w.ids[key] = id
			w.mu.Unlock()
			_, err = c.Signal(ctx, id, paid.With(n).DedupKey("once"))
		}
		w.mu.Lock()
		allowed := w.gone && place == 1 || ctx.Err() != nil
		w.mu.Unlock()
		if !allowed && !errors.Is(err, engine.ErrUnknown) {
			assert.NoError(w.t, err, "place %d", place)
		}
	}
}

// A place moves to another server while processes work: only it stands still, from its last
// transaction there to the start of those that know the new address, and nothing is lost.
func TestAPlaceMovesWhileOthersWork(t *testing.T) {
	t.Parallel()
	run := ofGuide(t, onlineScript)
	var urls []string
	for range 2 {
		server, err := pgdev.Start(t.Context(), pgdev.WithoutFsync(), pgdev.WithSetting("wal_level", "logical"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop()) })
		urls = append(urls, server.URL("postgres"))
	}
	north := pgtest.Pool(t, urls[0])
	var before []cluster.Place
	for place := range 2 {
		schema := fmt.Sprint("place_", place)
		_, err := migrate.Migrator{Pool: north, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		before = append(before, cluster.Place{Pool: north, Schema: schema})
	}
	require.NoError(t, cluster.Init(t.Context(), before))

	// Instances that execute when the place goes have to wait for their leases.
	shortly := func(c *cluster.Config) {
		c.Engine.Lease, c.Engine.Heartbeat, c.Engine.Reap = 3*time.Second, time.Second, 300*time.Millisecond
		c.Engine.DrainTimeout, c.Engine.DrainGrace = time.Second, time.Second
	}
	old := open(t, before, works, impatient, shortly)
	require.NoError(t, old.Start(t.Context()))
	w := &customers{t: t, ids: map[fsm.Key]fsm.ID{}}
	loading, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	served := make(chan int, 1)
	load.Go(func() {
		n := 0
		for ; loading.Err() == nil; n++ {
			w.serve(loading, old, n)
		}
		served <- n
	})
	until(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ids) > 40 })
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	run(urls[0], urls[1])
	for n := range 3 {
		echo(t, old, 0, n) // goes on
	}
	_, err := old.Insert(within(t), echoes.New("").Key(keyOf(1, 2, 0)+"{"+keyOf(1, 2, 0)+"}"))
	require.Equal(t, 1, placeError(t, err).Place)

	after := []cluster.Place{before[0], {Pool: pgtest.Pool(t, urls[1]), Schema: "place_1"}}
	c := working(t, after, shortly)
	stop()
	load.Wait()
	_ = old.Stop(context.Background()) // it cannot say goodbye to place 1
	w.gone = false
	n := <-served
	for i := range 5 {
		w.serve(t.Context(), c, n+i)
	}
	greatest := fsm.ID(0)
	for key, id := range w.ids {
		if cluster.PlaceOfID(id) == 1 {
			greatest = max(greatest, id)
		}
		_, err := c.Signal(t.Context(), id, paid.With(0).DedupKey("once")) // as its sender would again
		if err != nil {
			require.ErrorIs(t, err, engine.ErrNoTarget, "%s", key)
		}
		result, err := ticket.Wait(within(t), c, id)
		require.NoError(t, err, "%s", key)
		require.Equal(t, "A paid", result)
	}
	last, err := c.Insert(t.Context(), echoes.New("").Key(keyOf(1, 2, n+100)))
	require.NoError(t, err)
	require.Greater(t, last, greatest)
	only(t, c.Check(t.Context()))
	t.Logf("%d tickets", len(w.ids))
}
