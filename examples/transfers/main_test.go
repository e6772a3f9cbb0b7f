package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	require.NoError(t, transfer(t.Context(), t.Output(), &run.Database{Pool: pool, Schema: "gendurable"}))
	_, err := pool.Exec(t.Context(), `update account set balance = balance + 1 where id = 1`)
	require.NoError(t, err)
	require.Error(t, (&bank{db: pool}).verify(t.Context(), t.Output()))
}
