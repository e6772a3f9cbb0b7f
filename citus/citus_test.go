package citus_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// TestMigrationsApplyToADistributedSchema distributes a schema that has only the base, with a row,
// and brings it up to date through the coordinator: see the rules in docs/citus.md.
func TestMigrationsApplyToADistributedSchema(t *testing.T) {
	t.Parallel()
	nodes := pgtest.Citus(t)
	name := pgclone.Name()
	require.NoError(t, nodes.Join(t.Context(), name))
	pool := pgtest.Pool(t, nodes.Coordinator.URL(name))
	m := migrate.Migrator{Pool: pool}
	_, err := m.To(t.Context(), migrations.Versions()[0])
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue) VALUES ('m', 'start', 'q')`)
	require.NoError(t, err)
	distribute(t, pool)

	_, err = m.Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, migrations.Check(t.Context(), pool, ""))
	distribute(t, pool) // again: it changes nothing

	// Old rows and new ones are on the shards, and drawn behind the epoch.
	_, port, err := citus.Owner(t.Context(), pool, migrations.DefaultSchema)
	require.NoError(t, err)
	for _, node := range nodes.Workers {
		if node.Port() != int(port) {
			continue
		}
		owner := pgtest.Pool(t, node.URL(name), func(c *pgxpool.Config) { c.MaxConns = 1 })
		var shard string
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT 'gendurable.gen_durable_' || shardid FROM pg_dist_shard
			WHERE logicalrelid = 'gendurable.gen_durable'::regclass`).Scan(&shard))
		tx, err := owner.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test has failed
		insert := `INSERT INTO ` + shard + ` (fsm, step, queue) VALUES ('m', 'start', 'q') RETURNING id`
		// Postgres inlines what draws: to call a function for each id would make inserts dearer.
		var plan []map[string]map[string]any
		require.NoError(t, tx.QueryRow(t.Context(), `EXPLAIN (VERBOSE, FORMAT JSON) SELECT gendurable.gen_durable_draw('gendurable.gen_durable_id_draw')`).Scan(&plan))
		require.Contains(t, fmt.Sprint(plan[0]["Plan"]["Output"]), `gendurable.gen_durable_number`)
		require.NotContains(t, fmt.Sprint(plan[0]["Plan"]["Output"]), `gen_durable_draw(`)
		point, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = point.Exec(t.Context(), insert)
		require.Error(t, err, "nothing is drawn by a transaction that has not entered")
		require.NoError(t, point.Rollback(t.Context()))
		_, err = tx.Exec(t.Context(), `SELECT gendurable.gen_durable_enter()`)
		require.NoError(t, err)
		var id int64
		require.NoError(t, tx.QueryRow(t.Context(), insert).Scan(&id))
		require.EqualValues(t, 1<<34|1, id, "beyond all that was drawn before")
		require.NoError(t, tx.Commit(t.Context()))
		var rows int
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT count(*) FROM `+shard).Scan(&rows))
		require.Equal(t, 2, rows)
	}
}

func distribute(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, citus.Distribute(t.Context(), conn.Conn(), migrations.DefaultSchema))
}

// TestWhatCannotMoveOnCitus has each reason, and that a schema is on its node.
func TestWhatCannotMoveOnCitus(t *testing.T) {
	t.Parallel()
	d := pgtest.Distribute(t)
	meta, owner := pgtest.Pool(t, d.Nodes[0]), pgtest.Pool(t, d.Nodes[d.Owner])
	host, port, err := citus.Owner(t.Context(), meta, "gendurable")
	require.NoError(t, err)
	other := pgtest.Pool(t, d.Nodes[3-d.Owner]).Config().ConnConfig
	plain := pgtest.Pool(t, pgtest.Database(t))

	require.NoError(t, citus.Move(t.Context(), meta, "gendurable", host, port, citus.MoveOptions{}), "it is there")
	require.ErrorIs(t, citus.Move(t.Context(), meta, "gendurable", host, 1, citus.MoveOptions{}), citus.ErrNode)
	coordinator := meta.Config().ConnConfig.Port
	require.ErrorIs(t, citus.Move(t.Context(), meta, "gendurable", host, coordinator, citus.MoveOptions{}), citus.ErrNode, "it has no shards")
	require.ErrorIs(t, citus.Move(t.Context(), owner, "gendurable", other.Host, other.Port, citus.MoveOptions{}), citus.ErrCoordinator)
	for _, not := range []*pgxpool.Pool{plain, meta} {
		require.ErrorIs(t, citus.Move(t.Context(), not, "public", host, port, citus.MoveOptions{}), citus.ErrNotDistributed)
	}
	_, err = meta.Exec(t.Context(), `UPDATE gendurable.gen_durable_home SET place = 0, epoch = 1023`)
	require.NoError(t, err)
	err = citus.Move(t.Context(), meta, "gendurable", other.Host, other.Port, citus.MoveOptions{})
	require.ErrorIs(t, err, citus.ErrEpochs)
	require.ErrorContains(t, err, "1023")
}
