package cluster_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// onePool makes places on one pool, each a schema.
func onePool(t *testing.T, n int) (*pgxpool.Pool, []cluster.Place) {
	t.Helper()
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "places" })
	other := pgtest.Pool(t, url) // what migrates and looks
	places := make([]cluster.Place, n)
	for i := range places {
		places[i] = cluster.Place{Pool: pool, Schema: fmt.Sprint("p", i)}
		_, err := migrate.Migrator{Pool: other, Schema: places[i].Schema}.Up(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, cluster.Init(t.Context(), places))
	return other, places
}

// echo runs an instance at a place.
func echo(t *testing.T, c *cluster.Cluster, place, n int) {
	t.Helper()
	id, err := c.Insert(within(t), echoes.New("hello").Key(keyOf(place, c.Places(), n)))
	require.NoError(t, err)
	_, err = echoes.Wait(within(t), c, id)
	require.NoError(t, err)
}

// Places of one pool share what they do while idle. One that comes late joins them; one that is
// stopped, or paused, does not hold up the others.
func TestPlacesOfOnePool(t *testing.T) {
	t.Parallel()
	if pgtest.IsDistributed() {
		t.Skip("places that Citus distributes share their polls only")
	}
	pool, places := onePool(t, 4)
	_, err := pool.Exec(t.Context(), `ALTER SCHEMA p3 RENAME TO later`)
	require.NoError(t, err)
	c := working(t, places, impatient)
	require.Len(t, c.Pending(), 1)
	outside := func() (n int) { // connections with a liveness lock
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(DISTINCT a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
			WHERE a.datname = current_database() AND a.application_name = 'places' AND l.locktype = 'advisory' AND l.mode = 'ShareLock'`).Scan(&n))
		return n
	}
	locks := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
			WHERE a.datname = current_database() AND a.application_name = 'places' AND l.locktype = 'advisory' AND l.mode = 'ShareLock'`).Scan(&n))
		return n
	}
	for place := range 3 {
		echo(t, c, place, 0)
	}
	until(t, func() bool { return locks() == 3 && outside() == 1 })
	_, err = pool.Exec(t.Context(), `ALTER SCHEMA later RENAME TO p3`)
	require.NoError(t, err)
	until(t, func() bool { return len(c.Pending()) == 0 })
	echo(t, c, 3, 0)
	until(t, func() bool { return locks() == 4 && outside() == 1 })

	_, err = c.Engine(1).Admin().PauseQueue(t.Context(), "default")
	require.NoError(t, err)
	require.NoError(t, c.Engine(2).Stop(context.Background()))
	until(t, func() bool { return locks() == 3 && outside() == 1 })
	echo(t, c, 0, 1)
	echo(t, c, 3, 1)
	_, err = c.Engine(1).Admin().ResumeQueue(t.Context(), "default")
	require.NoError(t, err)
	echo(t, c, 1, 1)
	require.NoError(t, c.Stop(t.Context()))
	until(t, func() bool { return locks() == 0 })
}

// A company is the cluster's to give.
func TestNewRefusesACompany(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Database(t))
	company := engine.NewCompany(pool)
	_, err := cluster.New(cluster.Config{Places: []cluster.Place{{Pool: pool}}, Engine: engine.Config{Company: company}})
	require.ErrorContains(t, err, "Company")
	_, err = engine.New(engine.Config{Pool: pgtest.Pool(t, pgtest.Database(t)), Company: company})
	require.ErrorContains(t, err, "Company: it was made of another pool")
}
