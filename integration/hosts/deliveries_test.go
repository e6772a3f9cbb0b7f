package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/deliveries"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/delivery"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

// packing is the work of the tests.
type packing struct{ packed atomic.Int64 }

func (p *packing) AtPacked(context.Context, int64, string) (deliveries.Status, error) {
	p.packed.Add(1)
	return delivery.StatusOutForDelivery, nil
}

// depot is a kit with deliveries whose columns were written before there was a machine.
type depot struct {
	*durabletest.Kit
	client *ent.Client
	work   packing
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{}
	lazy := &laterDriver{}
	d.client = ent.NewClient(ent.Driver(lazy))
	d.Kit = durabletest.New(t, durabletest.Config{
		DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{deliveries.Definition(d.client, &d.work)}, MaxConns: 8,
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			db := stdlib.OpenDBFromPool(pool)
			defer db.Close()
			return ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db))).Schema.Create(ctx)
		},
	})
	lazy.Driver = entpgx.New(d.Pool)
	return d
}

// laterDriver is set once there is a pool, which the machines of the kit come before.
type laterDriver struct{ dialect.Driver }

// before creates deliveries without instances, n of each status.
func (d *depot) before(t *testing.T, n int) {
	t.Helper()
	var all []*ent.DeliveryCreate
	for range n {
		for _, status := range []delivery.Status{
			delivery.StatusPending, delivery.StatusPacked, delivery.StatusOutForDelivery,
			delivery.StatusDelivered, delivery.StatusCancelled, delivery.StatusArchived,
		} {
			all = append(all, d.client.Delivery.Create().SetAddress("1 High Street").SetStatus(status))
		}
	}
	require.NoError(t, d.client.Delivery.CreateBulk(all...).Exec(t.Context()))
}

// count returns how many rows have an instance that stands at the step of their status, and how
// many instances there are.
func (d *depot) count(t *testing.T) (right, instances int) {
	t.Helper()
	rows, err := d.client.Delivery.Query().WithInstance(d.Engine).All(t.Context())
	require.NoError(t, err)
	for _, row := range rows {
		if row.Instance != nil {
			require.Equal(t, string(row.Status), row.Instance.Step)
			require.Equal(t, deliveries.Key(row.ID), fsm.Key(*row.Instance.CorrelationKey))
			right++
		}
	}
	instances, err = d.Engine.Ent().Instance.Query().Count(t.Context())
	require.NoError(t, err)
	return right, instances
}

// Each open row gets one instance, at the step of its status, however often and from wherever Adopt
// runs. More rows than a page are there.
func TestAdopt(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	const each = 220
	d.before(t, each)
	var given atomic.Int64
	errs := make(chan error, 2)
	for range cap(errs) {
		go func() {
			n, err := deliveries.Adopt(t.Context(), d.client, d.Engine)
			given.Add(int64(n))
			errs <- err
		}()
	}
	require.NoError(t, errors.Join(<-errs, <-errs))
	require.EqualValues(t, 3*each, given.Load())
	right, instances := d.count(t)
	require.Equal(t, []int{3 * each, 3 * each}, []int{right, instances})

	again, err := deliveries.Adopt(t.Context(), d.client, d.Engine)
	require.NoError(t, err)
	require.Zero(t, again)
	_, instances = d.count(t)
	require.Equal(t, 3*each, instances)
}

// An instance that has the key of a row is the row's.
func TestAdoptFindsInstances(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	row, err := d.client.Delivery.Create().SetAddress("1 High Street").Save(t.Context())
	require.NoError(t, err)
	id, err := d.Engine.Insert(t.Context(), deliveries.New(row))
	require.NoError(t, err)
	n, err := deliveries.Adopt(t.Context(), d.client, d.Engine)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	row, err = d.client.Delivery.Get(t.Context(), row.ID)
	require.NoError(t, err)
	require.Equal(t, id, *row.InstanceID)

	// An instance of another machine that has the key is not.
	row, err = d.client.Delivery.Create().SetAddress("2 High Street").Save(t.Context())
	require.NoError(t, err)
	other, err := d.Engine.Insert(t.Context(), fsm.Declare[int, int]("courier").New(1).Key(deliveries.Key(row.ID)))
	require.NoError(t, err)
	_, err = deliveries.Adopt(t.Context(), d.client, d.Engine)
	require.ErrorContains(t, err, fmt.Sprintf("delivery %d: instance %d of machine courier has the key %s", row.ID, other, deliveries.Key(row.ID)))
	row, err = d.client.Delivery.Get(t.Context(), row.ID)
	require.NoError(t, err)
	require.Nil(t, row.InstanceID)
}

// Adopt waits for a transaction that changes a status, and begins at the new status.
func TestAdoptBesideWriters(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	row, err := d.client.Delivery.Create().SetAddress("1 High Street").Save(t.Context())
	require.NoError(t, err)
	tx, err := d.client.Tx(t.Context())
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, pack(t.Context(), tx.Client(), d.Engine, row.ID))
	adopted := make(chan error, 1)
	go func() {
		n, err := deliveries.Adopt(t.Context(), d.client, d.Engine)
		if n != 1 {
			err = errors.Join(err, fmt.Errorf("adopted %d", n))
		}
		adopted <- err
	}()
	steady.Eventually(t, func() bool {
		var waiting int
		err := d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		require.NoError(t, err)
		return waiting > 0
	})
	require.NoError(t, tx.Commit())
	require.NoError(t, <-adopted)
	right, _ := d.count(t)
	require.Equal(t, 1, right)
	require.NoError(t, d.at(t, row.ID, delivery.StatusPacked))
	durabletest.RequireDrain(t, d.Kit)
	require.EqualValues(t, 1, d.work.packed.Load())
	require.NoError(t, d.at(t, row.ID, delivery.StatusOutForDelivery))
}

// at reports a row that has another status.
func (d *depot) at(t *testing.T, id int64, want delivery.Status) error {
	t.Helper()
	row, err := d.client.Delivery.Get(t.Context(), id)
	if err == nil && row.Status != want {
		err = fmt.Errorf("delivery %d is %s, not %s", id, row.Status, want)
	}
	return err
}

// The column follows the machine, by the same writer before the machine and with it.
func TestTheColumnFollows(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.before(t, 1)
	old, err := d.client.Delivery.Query().Where(delivery.StatusEQ(delivery.StatusPending)).Only(t.Context())
	require.NoError(t, err)
	require.NoError(t, pack(t.Context(), d.client, d.Engine, old.ID))
	require.NoError(t, d.at(t, old.ID, delivery.StatusPacked))
	_, instances := d.count(t)
	require.Zero(t, instances)

	row, err := send(t.Context(), d.client, d.Engine, "2 High Street")
	require.NoError(t, err)
	durabletest.RequireDrain(t, d.Kit)
	durabletest.RequireParked(t, d.Kit, *row.InstanceID, "pending:packed", "pending:cancelled")
	require.NoError(t, d.at(t, row.ID, delivery.StatusPending))
	require.NoError(t, pack(t.Context(), d.client, d.Engine, row.ID))
	durabletest.RequireDrain(t, d.Kit)
	require.NoError(t, d.at(t, row.ID, delivery.StatusOutForDelivery))
	_, err = d.Engine.Signal(t.Context(), deliveries.Key(row.ID), deliveries.OutForDeliveryToDelivered.With(fsm.None{}))
	require.NoError(t, err)
	durabletest.RequireDrain(t, d.Kit)
	require.NoError(t, d.at(t, row.ID, delivery.StatusDelivered))
	durabletest.RequireDone(t, d.Kit, deliveries.Machine, *row.InstanceID)
	require.ErrorIs(t, pack(t.Context(), d.client, d.Engine, row.ID), engine.ErrNoTarget)
}
