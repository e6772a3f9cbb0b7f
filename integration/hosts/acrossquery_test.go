package hosts

import (
	"context"
	"errors"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/invoice"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/integration/hosts/ent/parcel"
)

// waiting inserts orders 1 to n whose instances do not run, each of its priority.
func (s *shop) waiting(client *ent.Client, priorities ...int) (ids []fsm.ID) {
	s.t.Helper()
	for i, p := range priorities {
		o, err := creation(client.Order, int64(i+1)).SaveWith(s.t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			return specOf(o).Priority(p).After(time.Hour)
		})
		require.NoError(s.t, err)
		ids = append(ids, *o.InstanceID)
	}
	return ids
}

// A query of entities leads to a query of their instances, which is one statement.
func TestFromEntitiesToTheirInstances(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		ids := s.waiting(client, 3, 1, 2)
		require.NoError(t, creation(client.Order, 4).Exec(t.Context()))
		require.NoError(t, client.Order.UpdateOneID(2).SetCustomer("bob").Exec(t.Context()))
		of := func(q *ent.OrderQuery, preds ...func(*sql.Selector)) []fsm.ID {
			t.Helper()
			instances := q.QueryInstance(s.eng).Order(instance.ByID())
			for _, p := range preds {
				instances.Where(p)
			}
			found, err := instances.IDs(t.Context())
			require.NoError(t, err)
			n, err := instances.Count(t.Context())
			require.NoError(t, err)
			require.Len(t, found, n)
			return found
		}
		require.Equal(t, ids, of(client.Order.Query()))
		require.Equal(t, []fsm.ID{ids[0], ids[2]}, of(client.Order.Query().Where(order.Customer("ada"))))
		require.Equal(t, []fsm.ID{ids[2]}, of(client.Order.Query().Where(order.Customer("ada")), instance.PriorityLT(3)))
		require.Equal(t, []fsm.ID{ids[1], ids[2]}, of(client.Order.Query().Order(order.ByID()).Offset(1).Limit(2)))
		require.Equal(t, []fsm.ID{ids[1], ids[2]}, of(client.Order.Query().Where(order.HasInstanceWith(s.eng, instance.PriorityIn(1, 2)))))
		require.Equal(t, []fsm.ID{ids[0]}, of(client.Order.Query().Order(order.ByInstanceField(s.eng, instance.FieldPriority, sql.OrderDesc())).Limit(1)))
		require.Empty(t, of(client.Order.Query().Where(order.ID(4))))
		require.Equal(t, ids, of(client.Order.Query().Select(order.FieldCents).Unique(true)))

		// It is of the query as it was, and of its client's transaction.
		q := client.Order.Query()
		before := q.QueryInstance(s.eng)
		q.Where(order.ID(1))
		n, err := before.Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, n)
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = creation(tx.Order, 5).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).After(time.Hour) })
		require.NoError(t, err)
		n, err = tx.Order.Query().QueryInstance(s.eng).Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.NoError(t, tx.Rollback())
	})
}

// Interceptors that narrow the host's queries, or refuse them, count for the instances too; so does
// a way across an edge.
func TestInterceptorsNarrowTheInstances(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	ids := s.waiting(client, 1, 2)
	require.NoError(t, client.Order.UpdateOneID(2).SetCustomer("bob").Exec(t.Context()))
	client.Order.Intercept(ent.TraverseFunc(func(_ context.Context, q ent.Query) error {
		q.(*ent.OrderQuery).Where(order.Customer("bob"))
		return nil
	}))
	instances := client.Order.Query().QueryInstance(s.eng)
	for range 2 {
		found, err := instances.Clone().IDs(t.Context())
		require.NoError(t, err)
		require.Equal(t, ids[1:], found)
	}
	refused := errors.New("not allowed")
	client.Order.Intercept(ent.TraverseFunc(func(context.Context, ent.Query) error { return refused }))
	_, err := client.Order.Query().QueryInstance(s.eng).Exist(t.Context())
	require.ErrorIs(t, err, refused)
	_, err = client.Order.Query().QueryInstance(s.eng).All(t.Context())
	require.ErrorIs(t, err, refused)

	drive(client, s.eng)
	holder, err := client.Parcel.Create().SetNumber("1").Save(t.Context())
	require.NoError(t, err)
	held, err := client.Parcel.Create().SetNumber("2").SetHolder(holder).Save(t.Context())
	require.NoError(t, err)
	id, err := client.Parcel.Query().Where(parcel.Number("1")).QueryHolds().QueryInstance(s.eng).OnlyID(t.Context())
	require.NoError(t, err)
	require.Equal(t, *held.InstanceID, id)
	id, err = holder.QueryHolds().Order(parcel.ByID()).Limit(1).QueryInstance(s.eng).OnlyID(t.Context())
	require.NoError(t, err)
	require.Equal(t, *held.InstanceID, id)
	ordered, err := holder.QueryHolds().Order(parcel.ByInstanceField(s.eng, instance.FieldPriority)).Unique(false).Only(t.Context())
	require.NoError(t, err)
	require.Equal(t, held.ID, ordered.ID)

	// Across an edge ent finds each entity once, and a limit counts these.
	another, err := client.Parcel.Create().SetNumber("3").Save(t.Context())
	require.NoError(t, err)
	for number, by := range map[string]*ent.Parcel{"4": holder, "5": holder, "6": another} {
		require.NoError(t, client.Parcel.Create().SetNumber(number).SetHolder(by).Exec(t.Context()))
	}
	holders := client.Parcel.Query().QueryHolder().Order(parcel.ByID())
	for limit, want := range [][]fsm.ID{{}, {*holder.InstanceID}, {*holder.InstanceID, *another.InstanceID}} {
		if limit == 0 {
			continue
		}
		found, err := holders.Clone().Limit(limit).QueryInstance(s.eng).Order(instance.ByID()).IDs(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, want, found)
	}
	found, err := holders.Clone().QueryInstance(s.eng).IDs(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 2)
	first, err := client.Parcel.Query().Unique(true).Order(parcel.ByNumber()).Limit(1).QueryInstance(s.eng).OnlyID(t.Context())
	require.NoError(t, err)
	require.Equal(t, *holder.InstanceID, first)
	n, err := client.Invoice.Query().Where(invoice.Cents(1)).QueryInstance(s.eng).Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// Entities come in the order of a field of their instances, those without one last.
func TestOrderByTheInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		ids := s.waiting(client, 3, 1, 2)
		require.NoError(t, creation(client.Order, 4).Exec(t.Context()))
		_, err := s.eng.Admin().Cancel(t.Context(), ids[2])
		require.NoError(t, err)
		for _, c := range []struct {
			field   string
			options []sql.OrderTermOption
			want    []int64
		}{
			{instance.FieldPriority, nil, []int64{2, 3, 1, 4}},
			{instance.FieldPriority, []sql.OrderTermOption{sql.OrderDesc()}, []int64{1, 3, 2, 4}},
			{instance.FieldPriority, []sql.OrderTermOption{sql.OrderDesc(), sql.OrderNullsFirst()}, []int64{4, 1, 3, 2}},
			{instance.FieldFinishedAt, nil, []int64{3, 1, 2, 4}},
			{instance.FieldInsertedAt, []sql.OrderTermOption{sql.OrderDesc()}, []int64{3, 2, 1, 4}},
		} {
			found, err := client.Order.Query().Order(order.ByInstanceField(s.eng, c.field, c.options...), order.ByID()).IDs(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, found, c.field)
		}
		locked := client.Order.Query().Where(func(s *sql.Selector) { s.ForUpdate() }).Order(order.ByInstanceField(s.eng, instance.FieldPriority))
		first, err := locked.FirstID(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, first)
		page, err := client.Order.Query().Order(order.ByInstanceField(s.eng, instance.FieldPriority)).WithInstance(s.eng).Limit(2).All(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int16{1, 2}, []int16{page[0].Instance.Priority, page[1].Instance.Priority})

		_, err = client.Order.Query().Order(order.ByInstanceField(s.eng, "customer")).All(t.Context())
		require.ErrorContains(t, err, `it has no field "customer"`)
		_, err = client.Order.Query().Order(order.ByInstanceField(s.eng, "customer")).IDs(t.Context())
		require.ErrorContains(t, err, `it has no field "customer"`)
		_, err = client.Order.Query().Order(order.ByInstanceField(s.eng, instance.FieldStep, sql.OrderSelectAs("step"))).All(t.Context())
		require.ErrorContains(t, err, "it takes no OrderSelected")
	})
}

// An error of a predicate on the instance reaches the host's query.
func TestErrorsOfPredicatesAcross(t *testing.T) {
	onEachClient(t, errorsAcross)
}

func errorsAcross(t *testing.T, s *shop, driver dialect.Driver) {
	client := ent.NewClient(ent.Driver(driver))
	refused := errors.New("not allowed")
	client.Parcel.Intercept(ent.TraverseFunc(func(context.Context, ent.Query) error { return refused }))
	instances := client.Parcel.Query().QueryInstance(s.eng)
	_, err := instances.All(t.Context())
	require.ErrorIs(t, err, refused)
	_, err = instances.Clone().IDs(t.Context())
	require.ErrorIs(t, err, refused)
	_, err = instances.Clone().Count(t.Context())
	require.ErrorIs(t, err, refused)
	_, err = client.Order.Query().Where(order.HasInstanceWith(s.eng, func(s *sql.Selector) { s.AddError(refused) })).All(t.Context())
	require.ErrorContains(t, err, "not allowed")
	_, err = client.Order.Query().Where(order.HasInstanceWith(s.eng, func(s *sql.Selector) { s.AddError(refused) })).IDs(t.Context())
	require.ErrorContains(t, err, "not allowed")
}
