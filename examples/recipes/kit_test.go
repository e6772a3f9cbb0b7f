package recipes

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// kitWith runs machines by hand, beside tables of the test's own.
func kitWith(t *testing.T, tables string, machines ...fsm.Definition) *durabletest.Kit {
	t.Helper()
	return durabletest.New(t, durabletest.Config{
		DatabaseURL: pgtest.URL(t), Machines: machines,
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, tables)
			return err
		},
	})
}

// insert inserts one instance.
func insert(t *testing.T, kit *durabletest.Kit, spec fsm.Spec) fsm.ID {
	t.Helper()
	id, err := kit.Engine.Insert(t.Context(), spec)
	require.NoError(t, err)
	return id
}

// count is the one number that a statement returns.
func count(t *testing.T, kit *durabletest.Kit, sql string) (n int) {
	t.Helper()
	require.NoError(t, kit.Pool.QueryRow(t.Context(), sql).Scan(&n), sql)
	return n
}
