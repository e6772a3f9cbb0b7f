package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	require.NoError(t, ledger(t.Context(), t.Output(), &run.Database{Pool: pool, Schema: "gendurable"}))
}
