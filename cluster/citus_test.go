package cluster_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// onCitus is a database of a Citus cluster, with schemas place_0 and so on.
type onCitus struct {
	meta   *pgxpool.Pool // of the coordinator
	urls   []string      // of the workers
	places []cluster.Place
}

var joining sync.Mutex

// newOnCitus makes migrated schemas, of which the first few are distributed.
func newOnCitus(t *testing.T, schemas, distributed int) *onCitus {
	t.Helper()
	nodes := pgtest.Citus(t)
	name := pgclone.Name()
	joining.Lock() // Citus adds a node to one database at a time
	err := nodes.Join(t.Context(), name)
	joining.Unlock()
	require.NoError(t, err)
	s := &onCitus{meta: pgtest.Pool(t, nodes.Coordinator.URL(name))}
	for _, node := range nodes.Workers {
		s.urls = append(s.urls, node.URL(name))
	}
	for i := range schemas {
		schema := fmt.Sprintf("place_%d", i)
		_, err := migrate.Migrator{Pool: s.meta, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		s.places = append(s.places, cluster.Place{Pool: s.meta, Schema: schema})
		if i < distributed {
			s.distribute(t, i)
		}
	}
	return s
}

// distribute distributes a place, and makes its pool follow it.
func (s *onCitus) distribute(t *testing.T, place int) {
	t.Helper()
	schema := s.places[place].Schema
	require.NoError(t, citus.Distribute(t.Context(), s.meta, schema))
	s.places[place].Pool = pgtest.Pool(t, s.urls[0], func(c *pgxpool.Config) { citus.Follow(c, s.meta, schema) })
}

// move moves a place to the other worker.
func (s *onCitus) move(t *testing.T, place int) {
	t.Helper()
	_, from, err := citus.Owner(t.Context(), s.meta, s.places[place].Schema)
	require.NoError(t, err)
	for _, url := range s.urls {
		node, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		if node.Port != from {
			require.NoError(t, citus.Move(within(t), s.meta, s.places[place].Schema, node.Host, node.Port, citus.MoveOptions{BlockWrites: true}))
			return
		}
	}
}

func (s *onCitus) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := s.meta.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// Two places that Citus distributes, and a plain one beside them, are a cluster like any other.
func TestPlacesOnCitus(t *testing.T) {
	t.Parallel()
	s := newOnCitus(t, 3, 2)
	notStarted(t, s.places, 0, cluster.ErrUninitialised, "not initialised")
	plain, err := engine.New(engine.Config{Pool: s.places[0].Pool, Schema: "place_0"})
	require.NoError(t, err)
	first, err := plain.Insert(t.Context(), ticket.New("old").Key(keyOf(0, 3, 9)))
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<34|1), first, "of the first epoch")

	atOther := []cluster.Place{s.places[0], {Pool: s.meta, Schema: "place_1"}, s.places[2]}
	require.ErrorContains(t, cluster.Init(t.Context(), atOther), "another node has this schema")
	require.NoError(t, cluster.Init(t.Context(), s.places))
	host, err := s.places[0].Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = host.Exec(t.Context(), `SELECT place_0.gen_durable_enter()`)
	require.NoError(t, err)
	require.NoError(t, cluster.Init(t.Context(), s.places), "it waits for nobody where it has nothing to write")
	require.NoError(t, host.Rollback(t.Context()))
	swapped := []cluster.Place{s.places[0], s.places[2], s.places[1]}
	notStarted(t, swapped, 1, cluster.ErrPlaces, "it was recorded as place 2, and is given as place 1")

	c := working(t, s.places)
	registered(t, c)
	require.Empty(t, c.Check(t.Context()))
	ids := map[int]fsm.ID{}
	for place := range 3 {
		id, err := c.Insert(t.Context(), family.New(string(keyOf(place, 3, 0))).Key(keyOf(place, 3, 0)))
		require.NoError(t, err)
		require.Equal(t, place, cluster.PlaceOfID(id))
		ids[place] = id
	}
	s.move(t, 1)
	for place, id := range ids {
		_, err := c.Signal(t.Context(), fsm.Key("child{"+string(keyOf(place, 3, 0))+"}"), paid.With(1))
		require.NoError(t, err)
		_, err = family.Wait(within(t), c, id)
		require.NoError(t, err)
	}
	moved, err := c.Insert(t.Context(), echoes.New("after the move").Key(keyOf(1, 3, 1)))
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|2<<34|1), moved, "the second epoch of place 1")
	require.Empty(t, c.Check(t.Context()))
	for _, at := range status(t, c, cluster.StatusOptions{}) {
		require.Equal(t, cluster.Record{Place: at.Place, Of: 3, Cluster: at.Record.Cluster}, *at.Record)
		require.NotZero(t, at.Counts[fsm.StatusDone])
	}
}

// The ids of a place end before the ids of the next one, or of the next epoch.
func TestTheBoundsOfAPlaceOnCitus(t *testing.T) {
	t.Parallel()
	s := newOnCitus(t, 2, 2)
	require.NoError(t, cluster.Init(t.Context(), s.places))
	c := open(t, s.places)
	insert := func() (fsm.ID, error) {
		return c.Insert(within(t), echoes.New("").PartitionKey(string(keyOf(1, 2, 0))))
	}
	id, err := insert()
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|1<<34|1), id)

	owner := pgtest.Pool(t, s.places[1].Pool.Config().ConnString(), func(c *pgxpool.Config) { citus.Follow(c, s.meta, "place_1") })
	_, err = owner.Exec(t.Context(), `SELECT setval('place_1.gen_durable_id_draw', nextval('place_1.gen_durable_id_draw') + (1::bigint << 34) - 4)`)
	require.NoError(t, err)
	last, err := insert()
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|2<<34-1), last)
	_, err = insert()
	require.ErrorContains(t, err, "2200H")
	require.ErrorContains(t, err, "left what this epoch may give")
	s.exec(t, `UPDATE place_1.gen_durable_home SET grp = -1`) // as the hint says
	id, err = insert()
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|2<<34|1), id)
	_, err = owner.Exec(t.Context(), `SELECT setval('place_1.gen_durable_id_draw', last_value - 10) FROM place_1.gen_durable_id_draw`)
	require.NoError(t, err)
	_, err = insert()
	require.ErrorContains(t, err, "2200H", "a sequence that went back gives no ids of an earlier epoch")

	s.exec(t, `UPDATE place_1.gen_durable_home SET grp = -1, epoch = 1022`)
	id, err = insert()
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|1023<<34|1), id)
	s.exec(t, `UPDATE place_1.gen_durable_home SET grp = -1`)
	_, err = insert()
	require.ErrorContains(t, err, "has begun 1023 epochs")
	s.exec(t, `UPDATE place_1.gen_durable_home SET epoch = 1024`)
	notStarted(t, s.places, 1, cluster.ErrPlaces, "carry epochs up to 1023")
}

// A plain place is distributed with its record and what it holds, and goes on.
func TestAPlainPlaceIsDistributedOnCitus(t *testing.T) {
	t.Parallel()
	s := newOnCitus(t, 2, 0)
	require.NoError(t, cluster.Init(t.Context(), s.places))
	before, err := open(t, s.places).Insert(t.Context(), ticket.New("A").Key(keyOf(1, 2, 0)))
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44), before)
	s.distribute(t, 1)
	require.NoError(t, cluster.Init(t.Context(), s.places), "nothing is left to do")
	c := working(t, s.places)
	registered(t, c)
	require.Empty(t, c.Check(t.Context()))
	after, err := c.Insert(t.Context(), ticket.New("B").Key(keyOf(1, 2, 1)))
	require.NoError(t, err)
	require.Equal(t, fsm.ID(1<<44|1<<34|1), after)
	_, err = c.Signal(t.Context(), before, paid.With(1))
	require.NoError(t, err)
	result, err := ticket.Wait(within(t), c, before)
	require.NoError(t, err)
	require.Equal(t, "A paid", result)

	// A place that has drawn its own ids is no other place.
	used := newOnCitus(t, 2, 2)
	plain, err := engine.New(engine.Config{Pool: used.places[1].Pool, Schema: "place_1"})
	require.NoError(t, err)
	_, err = plain.Insert(t.Context(), echoes.New(""))
	require.NoError(t, err)
	require.ErrorIs(t, cluster.Init(t.Context(), used.places), cluster.ErrPlaces)
}
