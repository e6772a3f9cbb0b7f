package hosts

import (
	"database/sql"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The kit also looks inside the transactions of drivers other than pgx.
func TestTheKitSeesWhatAnotherDriverInserts(t *testing.T) {
	t.Parallel()
	kit := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t)})
	connector, err := pq.NewConnector(kit.URL())
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = kit.Engine.WithSQL(tx).Insert(t.Context(), checkout.New(cart{Order: 42}).Key("order:42"))
	require.NoError(t, err)
	found := durabletest.RequireInserted(t, kit.WithSQL(tx), checkout, func(i fsm.Instance[cart, int64]) bool { return i.State.Order == 42 })
	require.Equal(t, fsm.Key("order:42"), found.Key)
	durabletest.RequireNotInserted(t, kit, checkout, nil)
}
