package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestFetchAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	require.NoError(t, fetchAll(t.Context(), t.Output(), &run.Database{Pool: pool, Schema: "gendurable"}))
	var attempts []int
	require.NoError(t, pool.QueryRow(t.Context(), `select array_agg(attempt order by id) from gendurable.gen_durable`).Scan(&attempts))
	require.Equal(t, []int{3, 0}, attempts)
}
