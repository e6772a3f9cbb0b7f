package cluster_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// bounds returns what the sequence of a place's ids may give.
func (s *servers) bounds(t *testing.T, place int) (first, last int64) {
	t.Helper()
	row := s.pools[place].QueryRow(t.Context(), "SELECT seqmin, seqmax FROM pg_sequence WHERE seqrelid = 'gendurable.gen_durable_id_seq'::regclass")
	require.NoError(t, row.Scan(&first, &last))
	return first, last
}

// exec runs a statement at a place, also while it is cut off.
func (s *servers) exec(t *testing.T, place int, sql string) {
	t.Helper()
	_, err := pgtest.Pool(t, s.urls[place]).Exec(t.Context(), sql)
	require.NoError(t, err)
}

// notStarted requires that neither Start nor a verb of a client goes past a wrong record.
func notStarted(t *testing.T, places []cluster.Place, place int, want error, text string) {
	t.Helper()
	c := open(t, places, works)
	err := c.Start(t.Context())
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, text)
	require.Equal(t, place, cluster.PlaceErrors(err)[0].Place)
	require.Equal(t, engine.StateCreated, c.State())
	for i := range c.Places() {
		require.Equal(t, engine.StateCreated, c.Engine(i).State(), "nothing has been started")
	}
	_, err = c.Insert(within(t), echoes.New("").Key(keyOf(place, len(places), 0)))
	require.ErrorIs(t, err, want)
	require.Equal(t, place, placeError(t, err).Place)
}

func TestInitGivesEachPlaceItsIDs(t *testing.T) {
	t.Parallel()
	s := newServers(t, 3)
	notStarted(t, s.places, 0, cluster.ErrUninitialised, "not initialised")
	for range 2 { // again, it changes nothing
		require.NoError(t, cluster.Init(t.Context(), s.places))
		for place, want := range [][2]int64{{1, 1<<44 - 1}, {1 << 44, 2<<44 - 1}, {2 << 44, 3<<44 - 1}} {
			first, last := s.bounds(t, place)
			require.Equal(t, want, [2]int64{first, last})
		}
		c := open(t, s.places)
		for place := range 3 {
			_, err := c.GetOrInsert(t.Context(), ticket.New("").Key(keyOf(place, 3, 0)))
			require.NoError(t, err)
		}
	}
	got, err := open(t, s.places).Get(t.Context(), fsm.ID(2<<44))
	require.NoError(t, err)
	require.Equal(t, keyOf(2, 3, 0), got.Key)
	// Postgres gives no id of another place.
	s.exec(t, 0, "SELECT setval('gendurable.gen_durable_id_seq', 17592186044415)")
	_, err = open(t, s.places).Insert(t.Context(), echoes.New("").Key(keyOf(0, 3, 1)))
	require.ErrorContains(t, err, "2200H")
}

func TestInitsSideBySideAgree(t *testing.T) {
	t.Parallel()
	s := newServers(t, 3)
	over := make(chan error, 4)
	for range cap(over) {
		go func() { over <- cluster.Init(t.Context(), s.places) }()
	}
	for range cap(over) {
		require.NoError(t, <-over)
	}
	require.NoError(t, cluster.Init(t.Context(), s.places))
}

// A plain engine's schema becomes place 0, with its instances.
func TestAPlainSchemaBecomesPlaceZero(t *testing.T) {
	t.Parallel()
	s := newServers(t, 2)
	plain, err := engine.New(engine.Config{Pool: s.pools[0]})
	require.NoError(t, err)
	stay := keyOf(0, 2, 0)
	id, err := plain.Insert(t.Context(), ticket.New("old").Key(stay))
	require.NoError(t, err)
	keyless, err := plain.Insert(t.Context(), ticket.New("old"))
	require.NoError(t, err)
	stray, err := plain.Insert(t.Context(), ticket.New("old").Key(keyOf(1, 2, 0)))
	require.NoError(t, err)
	partition, err := plain.Insert(t.Context(), ticket.New("old").PartitionKey(string(keyOf(1, 2, 0))))
	require.NoError(t, err)

	err = cluster.Init(t.Context(), s.places)
	require.ErrorIs(t, err, cluster.ErrStrays)
	require.ErrorContains(t, err, "2 live instances by their keys, 0 schedules")
	_, last := s.bounds(t, 0)
	require.EqualValues(t, math.MaxInt64, last, "nothing was changed")
	for _, i := range []fsm.ID{stray, partition} {
		_, err = plain.Admin().Cancel(t.Context(), i)
		require.NoError(t, err)
	}
	require.NoError(t, cluster.Init(t.Context(), s.places))
	c := working(t, s.places)
	for _, target := range []fsm.Target{stay, keyless} {
		_, err = c.Signal(t.Context(), target, paid.With(1))
		require.NoError(t, err)
	}
	result, err := ticket.Wait(within(t), c, id)
	require.NoError(t, err)
	require.Equal(t, "old paid", result)
	next, err := c.Insert(t.Context(), ticket.New("new").Key(keyOf(0, 2, 1)))
	require.NoError(t, err)
	require.Equal(t, partition+1, next)
}

func TestInitRefusesSchedulesOfOtherPlaces(t *testing.T) {
	t.Parallel()
	s := newServers(t, 2)
	elsewhere := string(keyOf(1, 2, 0))
	plain, err := engine.New(engine.Config{Pool: s.pools[0], Schedules: []engine.Schedule{engine.Every(elsewhere, time.Hour, echoes.New(""))}})
	require.NoError(t, err)
	require.NoError(t, plain.Start(t.Context()))
	require.NoError(t, plain.Stop(t.Context()))
	err = cluster.Init(t.Context(), s.places)
	require.ErrorIs(t, err, cluster.ErrStrays)
	require.ErrorContains(t, err, "1 schedules by their names")
}

func TestPlacesAreThoseThatWereRecorded(t *testing.T) {
	t.Parallel()
	s := initialised(t, 3)
	p := s.places
	notStarted(t, []cluster.Place{p[0], p[2], p[1]}, 1, cluster.ErrPlaces, "it was recorded as place 2, and is given as place 1")
	notStarted(t, p[:2], 0, cluster.ErrPlaces, "it is place 0 of 3, and there are 2")
	notStarted(t, append(slices.Clone(p), cluster.Place{Pool: s.pools[0], Schema: "new"}), 0, cluster.ErrPlaces, "of 3, and there are 4")
	require.ErrorIs(t, cluster.Init(t.Context(), []cluster.Place{p[0], p[2], p[1]}), cluster.ErrPlaces)
	require.ErrorIs(t, cluster.Init(t.Context(), p[:2]), cluster.ErrPlaces)

	other := initialised(t, 3)
	err := cluster.Init(t.Context(), []cluster.Place{p[0], other.places[1], p[2]})
	require.ErrorIs(t, err, cluster.ErrPlaces)
	require.ErrorContains(t, err, "it is of cluster")
}

func TestIDsOfAnotherPlaceAreRefused(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	s.exec(t, 1, `INSERT INTO gendurable.gen_durable (id, fsm, step) OVERRIDING SYSTEM VALUE VALUES (5, 'echo', 'start')`)
	notStarted(t, s.places, 1, cluster.ErrPlaces, "it holds ids from 5 to 5, and the ids of place 1 are 17592186044416 to 35184372088831")
	s.exec(t, 1, `DELETE FROM gendurable.gen_durable`)
	require.NoError(t, cluster.Init(t.Context(), s.places))
	s.exec(t, 1, `ALTER SEQUENCE gendurable.gen_durable_id_seq MAXVALUE 35184372088832`)
	notStarted(t, s.places, 1, cluster.ErrPlaces, "its sequence gives ids from 17592186044416 to 35184372088832")
	s.exec(t, 1, `ALTER SEQUENCE gendurable.gen_durable_id_seq MAXVALUE 35184372088831`)
	working(t, s.places)

	used := newServers(t, 2) // a plain engine has used what is to be place 1
	used.exec(t, 1, `INSERT INTO gendurable.gen_durable (fsm, step) VALUES ('echo', 'start')`)
	require.ErrorIs(t, cluster.Init(t.Context(), used.places), cluster.ErrPlaces)
}

// Places of two clusters are not one, whichever of them is seen first.
func TestPlacesOfTwoClustersAreRefused(t *testing.T) {
	t.Parallel()
	s, other := initialised(t, 3), initialised(t, 3)
	mixed := []cluster.Place{s.places[0], other.places[1], s.places[2]}
	c := open(t, mixed, works)
	err := c.Start(t.Context())
	require.ErrorIs(t, err, cluster.ErrPlaces)
	require.ErrorContains(t, err, "it is of cluster")
	for i := range c.Places() {
		require.Equal(t, engine.StateCreated, c.Engine(i).State(), "nothing has been started")
	}
	client := open(t, mixed)
	_, err = client.Insert(t.Context(), ticket.New("").Key(keyOf(0, 3, 0)))
	require.NoError(t, err)
	_, err = client.Insert(t.Context(), ticket.New("").Key(keyOf(1, 3, 0)))
	require.ErrorIs(t, err, cluster.ErrPlaces)
	require.Equal(t, 1, placeError(t, err).Place)
	_, err = client.Insert(t.Context(), ticket.New("").Key(keyOf(2, 3, 0)))
	require.NoError(t, err)
}

// A dump without comments has lost the record, and Init writes it again.
func TestInitRecordsAgain(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	id, err := open(t, s.places).Insert(t.Context(), ticket.New("").Key(keyOf(1, 2, 0)))
	require.NoError(t, err)
	s.exec(t, 1, `COMMENT ON SEQUENCE gendurable.gen_durable_id_seq IS NULL`)
	notStarted(t, s.places, 1, cluster.ErrUninitialised, "not initialised")
	require.NoError(t, cluster.Init(t.Context(), s.places))
	_, err = working(t, s.places).Get(t.Context(), id)
	require.NoError(t, err)
	next, err := open(t, s.places).Insert(t.Context(), ticket.New("").Key(keyOf(1, 2, 1)))
	require.NoError(t, err)
	require.Equal(t, id+1, next)
}

func TestSchemasThatCannotBePlaces(t *testing.T) {
	t.Parallel()
	s := initialised(t, 2)
	missing := []cluster.Place{s.places[0], {Pool: s.pools[1], Schema: "none"}}
	require.ErrorIs(t, cluster.Init(t.Context(), missing), engine.ErrSchema)
	_, err := open(t, missing).Insert(context.Background(), echoes.New("").Key(keyOf(1, 2, 0)))
	require.ErrorIs(t, err, engine.ErrSchema, "it does not wait for somebody who migrates")
	require.Error(t, cluster.Init(t.Context(), nil))
	pool := pgtest.Pool(t, pgtest.Database(t))
	require.ErrorIs(t, cluster.Init(t.Context(), []cluster.Place{{Pool: pool}}), engine.ErrSchema)
}
