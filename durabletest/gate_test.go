package durabletest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Drain and Step heed gates as production does.
func TestDrainHeedsGates(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	admin := kit.Engine.Admin()
	set := func(places int) {
		_, err := admin.SetGate(t.Context(), engine.Gate{Name: "shops", Label: "shop", Places: places, Closed: places == 0})
		require.NoError(t, err)
	}
	set(0)
	held, free := insert(t, kit, checkout.New(order{}).Label("shop", "north")), insert(t, kit, checkout.New(order{}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, free)
	status := func() fsm.Status {
		i, err := kit.Engine.Get(t.Context(), held)
		require.NoError(t, err)
		return i.Status
	}
	require.Equal(t, fsm.StatusRunnable, status())
	_, err := kit.Step(t.Context(), held)
	require.ErrorIs(t, err, durabletest.ErrNotRunnable)
	set(1)
	_, err = kit.Step(t.Context(), held)
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, held)
	later := insert(t, kit, checkout.New(order{}).Label("shop", "north"))
	set(0)
	durabletest.RequireDrain(t, kit)
	_, err = admin.DropGate(t.Context(), "shops")
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, later)
}

// A claim that was cut off has a gate locked, and waits for the rest of its statements. Drain frees
// the gate, as processes do.
func TestDrainFreesAGateOfWhoIsCutOff(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	_, err := kit.Engine.Admin().SetGate(t.Context(), engine.Gate{Name: "shops", Label: "shop", Places: 1})
	require.NoError(t, err)
	id := insert(t, kit, checkout.New(order{}).Label("shop", "north"))
	conn, err := pgx.ConnectConfig(t.Context(), kit.Pool.Config().ConnConfig.Copy())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	p := conn.PgConn().StartPipeline(t.Context())
	p.SendQueryParams(`BEGIN`, nil, nil, nil, nil)
	p.SendQueryParams(`SELECT pg_advisory_xact_lock(hashtextextended('gendurable gate shops of gendurable', 0))`, nil, nil, nil, nil)
	p.SendFlushRequest()
	require.NoError(t, p.Flush())
	for range 2 {
		got, err := p.GetResults()
		require.NoError(t, err)
		_, err = got.(*pgconn.ResultReader).Close()
		require.NoError(t, err)
	}
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, id)
}

// Locked instances behind no gate, however urgent, keep Drain from none that is in line.
func TestDrainGoesOnBesideLockedInstances(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	_, err := kit.Engine.Admin().SetGate(t.Context(), engine.Gate{Name: "shops", Label: "shop", Places: 3})
	require.NoError(t, err)
	for range 3 {
		insert(t, kit, checkout.New(order{}).Priority(-1))
	}
	tx, err := kit.Pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `SELECT FROM gendurable.gen_durable FOR UPDATE`)
	require.NoError(t, err)
	var ids []fsm.ID
	for range 3 {
		ids = append(ids, insert(t, kit, checkout.New(order{}).Label("shop", "north")))
	}
	durabletest.RequireDrain(t, kit)
	for _, id := range ids {
		durabletest.RequireParked(t, kit, id)
	}
}
