package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	durableent "github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// clients are the drivers of ent that a host's client may run on.
var clients = map[string]func(s *shop) dialect.Driver{
	"pgx":    func(s *shop) dialect.Driver { return entsql.OpenDB(dialect.Postgres, s.db("pgx")) },
	"pq":     func(s *shop) dialect.Driver { return entsql.OpenDB(dialect.Postgres, s.db("pq")) },
	"entpgx": func(s *shop) dialect.Driver { return entpgx.New(s.pool) },
	"entpgx, wrapped": func(s *shop) dialect.Driver {
		return dialect.DebugWithContext(entpgx.New(s.pool), func(context.Context, ...any) {})
	},
	"pgx, in a schema of its own": func(s *shop) dialect.Driver {
		_, err := s.pool.Exec(s.t.Context(), `CREATE SCHEMA shop`)
		require.NoError(s.t, err)
		config, err := pgx.ParseConfig(s.url)
		require.NoError(s.t, err)
		config.RuntimeParams["search_path"] = "shop"
		db := stdlib.OpenDB(*config)
		s.t.Cleanup(func() { _ = db.Close() })
		driver := entsql.OpenDB(dialect.Postgres, db)
		require.NoError(s.t, ent.NewClient(ent.Driver(driver)).Schema.Create(s.t.Context()))
		return driver
	},
}

func onEachClient(t *testing.T, test func(t *testing.T, s *shop, driver dialect.Driver)) {
	t.Helper()
	t.Parallel()
	for name, open := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			test(t, s, open(s))
		})
	}
}

// The guide's code, from end to end.
func TestOrders(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		var ids []fsm.ID
		for range 2 {
			o, err := place(t.Context(), client, s.eng, "ada", 100)
			require.NoError(t, err)
			s.reaches(*o.InstanceID, fsm.StatusAwaitingSignal)
			ids = append(ids, *o.InstanceID)
		}
		page, err := unpaid(t.Context(), client, s.eng, "ada")
		require.NoError(t, err)
		require.Len(t, page, 2)
		require.Equal(t, "settle", page[1].Instance.Step)
		require.NoError(t, payWithTip(t.Context(), client, s.eng, page[0].ID, 10))
		result, err := checkout.Wait(within(t), s.eng, ids[0])
		require.NoError(t, err)
		require.EqualValues(t, 110, result)
		require.NoError(t, withdraw(t.Context(), client, s.eng, page[1].ID))
		s.reaches(ids[1], fsm.StatusFailed)
		page, err = unpaid(t.Context(), client, s.eng, "ada")
		require.NoError(t, err)
		require.Empty(t, page)
	})
}

func specOf(o *ent.Order) fsm.Spec {
	return checkout.New(cart{Order: o.ID, Cents: o.Cents}).Key(orderKey(o.ID))
}

func creation(client *ent.OrderClient, id int64) *ent.OrderCreate {
	return client.Create().SetID(id).SetCustomer("ada").SetCents(100)
}

func (s *shop) instances() int { return s.count("gendurable.gen_durable") }

func counted(t *testing.T, client *ent.Client) int {
	t.Helper()
	n, err := client.Order.Query().Count(t.Context())
	require.NoError(t, err)
	return n
}

// reaches waits until an instance has a status.
func (s *shop) reaches(id fsm.ID, want fsm.Status) {
	s.t.Helper()
	steady.Eventually(s.t, func() bool {
		i, err := s.eng.Get(s.t.Context(), id)
		return err == nil && i.Status == want
	})
}

// One call saves an order with its instance. The commit wakes the scheduler: nothing polls here.
func TestSaveWith(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		var seen *ent.Order
		placed, err := creation(client.Order, 7).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			seen = o
			return specOf(o)
		})
		require.NoError(t, err)
		require.Equal(t, []any{int64(7), int64(100)}, []any{seen.ID, seen.Cents})
		s.reaches(*placed.InstanceID, fsm.StatusAwaitingSignal)
		// What it returns is bound to the client, not to a transaction that has ended.
		renamed, err := placed.Update().SetCustomer("bob").Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, placed.InstanceID, renamed.InstanceID)
		i, err := placed.QueryInstance(s.eng).Only(t.Context())
		require.NoError(t, err)
		require.Equal(t, []any{"settle", fsm.StatusAwaitingSignal, "checkout"}, []any{i.Step, i.Status, i.Machine})
		require.Equal(t, []string{"paid"}, []string(i.Awaits))
		causes, err := placed.WhyInstance(t.Context(), s.eng)
		require.NoError(t, err)
		require.Equal(t, engine.CauseSignals, causes[0].Kind)
		got, err := client.Order.Query().Where(order.InstanceID(i.ID)).Only(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 7, got.ID)

		// In the host's transaction it takes effect with the commit.
		for _, end := range []string{"rollback", "commit"} {
			tx, err := client.Tx(t.Context())
			require.NoError(t, err)
			placed, err := creation(tx.Order, 8).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			i, err := placed.QueryInstance(s.eng).Only(t.Context())
			require.NoError(t, err, "the transaction sees what it wrote")
			require.Equal(t, fsm.StatusRunnable, i.Status)
			require.Equal(t, 1, s.instances(), "to be seen before the commit")
			if end == "rollback" {
				require.NoError(t, tx.Rollback())
				require.Equal(t, []int{1, 1}, []int{s.instances(), counted(t, client)})
				continue
			}
			d, err := tx.Durable(s.eng).Signal(t.Context(), *placed.InstanceID, paid.With(100))
			require.NoError(t, err)
			require.Equal(t, i.ID, d.To)
			require.NoError(t, tx.Commit())
			_, err = checkout.Wait(within(t), s.eng, *placed.InstanceID)
			require.NoError(t, err)
		}
	})
}

// The key that a machine declares is made of the id that the database gave.
func TestSaveWithADeclaredKey(t *testing.T) {
	declared := fsm.Declare[cart, int64]("checkout", fsm.KeyBy(func(c cart) fsm.Key { return orderKey(c.Order) }))
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		o, err := client.Order.Create().SetCustomer("ada").SetCents(100).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			return declared.New(cart{Order: o.ID, Cents: o.Cents})
		})
		require.NoError(t, err)
		got, err := s.eng.Get(t.Context(), orderKey(o.ID))
		require.NoError(t, err)
		require.Equal(t, *o.InstanceID, got.ID)
		_, err = client.Order.Create().SetCustomer("ada").SetCents(100).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec {
			return declared.New(cart{Order: o.ID})
		})
		require.ErrorIs(t, err, engine.ErrDuplicate)
		_, err = client.Order.Create().SetCustomer("ada").SetCents(100).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			return declared.New(cart{Order: o.ID}).Key("another")
		})
		require.ErrorAs(t, err, new(*fsm.KeyError))
		require.Equal(t, []int{1, 1}, []int{s.instances(), counted(t, client)})
	})
}

// After any failure on the way, there is neither the order nor its instance.
func TestSaveWithSavesBothOrNeither(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		_, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		unchanged := func() {
			t.Helper()
			require.Equal(t, []int{1, 1}, []int{s.instances(), counted(t, client)})
		}

		_, err = creation(client.Order, 1).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).Key("other") })
		require.True(t, ent.IsConstraintError(err), "the order is there already: %v", err)
		unchanged()
		_, err = creation(client.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return checkout.New(cart{}).Key(orderKey(1)) })
		require.ErrorIs(t, err, engine.ErrDuplicate, "the instance is there already")
		unchanged()
		_, err = creation(client.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return fsm.Declare[cart, int64]("refund").New(cart{}) })
		require.True(t, ent.IsValidationError(err))
		require.ErrorContains(t, err, `driven by machine "checkout", not by "refund"`)
		unchanged()
		_, err = creation(client.Order, 2).SetInstanceID(5).SaveWith(t.Context(), s.eng, specOf)
		require.ErrorContains(t, err, "has an instance already")
		unchanged()
		_, err = creation(client.Order, 2).SaveWith(t.Context(), nil, specOf)
		require.ErrorContains(t, err, "the engine is nil")
		require.Panics(t, func() {
			_, _ = creation(client.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { panic("in the host's function") })
		})
		unchanged()

		// The connection breaks in between, or right before the commit.
		end := func() {
			_, err := s.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'`)
			require.NoError(t, err)
		}
		_, err = creation(client.Order, 2).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { end(); return specOf(o) })
		require.Error(t, err)
		unchanged()
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		_, err = creation(tx.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		end()
		require.Error(t, tx.Commit())
		unchanged()

		// The builder that failed can be used again.
		again := creation(client.Order, 2)
		_, err = again.SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return checkout.New(cart{}).Key(orderKey(1)) })
		require.ErrorIs(t, err, engine.ErrDuplicate)
		_, err = again.SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
	})
}

// An order that is there already keeps its instance: SaveWith makes no second one.
func TestSaveWithOrphansNoInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		placed, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		refused := func(client *ent.Client, b *ent.OrderCreate, message string) {
			t.Helper()
			_, err := b.SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).Key("another") })
			require.True(t, ent.IsValidationError(err), "%v", err)
			require.ErrorContains(t, err, message)
			require.Equal(t, []int{1, 1}, []int{s.instances(), counted(t, client)})
			found, err := client.Order.Get(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, placed.InstanceID, found.InstanceID)
		}
		for _, conflict := range []func(*ent.OrderCreate){
			func(b *ent.OrderCreate) { b.OnConflictColumns(order.FieldID).UpdateNewValues() },
			func(b *ent.OrderCreate) { b.OnConflictColumns(order.FieldID).Ignore() },
		} {
			b := creation(client.Order, 1)
			conflict(b)
			kept, err := b.SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).Key("another") })
			require.NoError(t, err)
			require.Equal(t, placed.InstanceID, kept.InstanceID)
			require.Equal(t, []int{1, 1}, []int{s.instances(), counted(t, client)})
		}
		// A hook may return what is there already, with its instance or without that column.
		for _, fields := range [][]string{order.Columns, {order.FieldID}} {
			hooked := ent.NewClient(ent.Driver(driver))
			hooked.Order.Use(func(ent.Mutator) ent.Mutator {
				return ent.MutateFunc(func(ctx context.Context, _ ent.Mutation) (ent.Value, error) {
					return client.Order.Query().Select(fields...).Only(ctx)
				})
			})
			refused(client, creation(hooked.Order, 2), "Order has an instance already")
		}
	})
}

// The update of the column is part of the creation: the host's hooks see one mutation.
func TestHooksSeeOneCreation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	var seen []string
	client.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			seen = append(seen, m.Op().String()+" "+m.Type())
			if o, ok := m.(*ent.OrderMutation); ok { // it sees the transaction
				_, err := o.Tx()
				seen = append(seen, fmt.Sprint(err))
			}
			return next.Mutate(ctx, m)
		})
	})
	_, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
	require.NoError(t, err)
	require.Equal(t, []string{"OpCreate Order", "<nil>"}, seen)
	require.NoError(t, client.Order.DeleteOneID(1).ExecWith(t.Context(), s.eng))
	require.Equal(t, []string{"OpDeleteOne Order", "<nil>"}, seen[2:])

	// A hook that refuses a delete comes before anything happens to the instance.
	placed, err := creation(client.Order, 2).SaveWith(t.Context(), s.eng, specOf)
	require.NoError(t, err)
	client.Order.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			if m.Op().Is(ent.OpDelete | ent.OpDeleteOne) {
				return nil, errors.New("not allowed")
			}
			return next.Mutate(ctx, m)
		})
	})
	tx, err := client.Tx(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, tx.Order.DeleteOneID(2).ExecWith(t.Context(), s.eng), "not allowed")
	require.NoError(t, tx.Commit())
	s.reaches(*placed.InstanceID, fsm.StatusAwaitingSignal)
}

// counting counts the statements that pass through a driver.
type counting struct {
	dialect.Driver
	n *atomic.Int64
}

func (c counting) Query(ctx context.Context, query string, args, v any) error {
	c.n.Add(1)
	return c.Driver.Query(ctx, query, args, v)
}

func (c counting) Exec(ctx context.Context, query string, args, v any) error {
	c.n.Add(1)
	return c.Driver.Exec(ctx, query, args, v)
}

// A page of entities takes one query for all of their instances, whatever their number.
func TestWithInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		statements := &atomic.Int64{}
		client := ent.NewClient(ent.Driver(counting{driver, statements}))
		for id := range int64(20) {
			_, err := creation(client.Order, id).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
		}
		require.NoError(t, creation(client.Order, 20).Exec(t.Context())) // has none
		gone, err := client.Order.Get(t.Context(), 3)
		require.NoError(t, err)
		_, err = s.pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE id = $1`, *gone.InstanceID)
		require.NoError(t, err)

		page := func(want int, q *ent.OrderQuery) []*ent.Order {
			t.Helper()
			statements.Store(0)
			found, err := q.All(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, want, statements.Load())
			return found
		}
		all := client.Order.Query().Order(order.ByID()).WithInstance(s.eng)
		for _, q := range []*ent.OrderQuery{all.Clone(), all} {
			found := page(2, q)
			require.Len(t, found, 21)
			for _, o := range found {
				i, err := o.InstanceOrErr()
				switch o.ID {
				case 3: // the engine's GC has deleted the instance
					require.NotNil(t, o.InstanceID)
					require.True(t, ent.IsNotFound(err))
				case 20:
					require.Nil(t, o.InstanceID)
					require.True(t, ent.IsNotFound(err))
				default:
					require.NoError(t, err)
					require.Equal(t, *o.InstanceID, i.ID)
					state, err := checkout.DecodeState(s.eng.Codec(), i.State)
					require.NoError(t, err)
					require.Equal(t, o.ID, state.Order)
				}
			}
		}
		page(1, client.Order.Query().Where(order.ID(20)).WithInstance(s.eng))
		lean := page(2, client.Order.Query().WithInstance(s.eng, func(q *durableent.InstanceQuery) { q.Select(instance.FieldStatus, instance.FieldStep) }))
		require.NotEmpty(t, lean[0].Instance.Status)
		require.Empty(t, lean[0].Instance.State)
		plain := page(1, client.Order.Query().Limit(1))
		_, err = plain[0].InstanceOrErr()
		require.True(t, ent.IsNotLoaded(err))

		// Columns that are selected lack the one that points at the instance: it is added.
		some, err := client.Order.Query().Where(order.ID(5)).WithInstance(s.eng).Select(order.FieldID).All(t.Context())
		require.NoError(t, err)
		require.NotNil(t, some[0].Instance)
		first, err := client.Order.Query().Order(order.ByID()).WithInstance(s.eng).First(t.Context())
		require.NoError(t, err)
		require.NotNil(t, first.Instance)
		only, err := client.Order.Query().Where(order.ID(5)).WithInstance(s.eng).Only(t.Context())
		require.NoError(t, err)
		require.NotNil(t, only.Instance)
		statements.Store(0)
		n, err := client.Order.Query().WithInstance(s.eng).Count(t.Context())
		require.NoError(t, err)
		ids, err := client.Order.Query().WithInstance(s.eng).IDs(t.Context())
		require.NoError(t, err)
		var customers []string
		require.NoError(t, client.Order.Query().WithInstance(s.eng).Select(order.FieldCustomer).Scan(t.Context(), &customers))
		require.Equal(t, []int{21, 21, 21, 3}, []int{n, len(ids), len(customers), int(statements.Load())})

		// Below another entity.
		ledger, err := client.Ledger.Create().Save(t.Context())
		require.NoError(t, err)
		for range 3 {
			_, err := client.Invoice.Create().SetCents(1).SetLedger(ledger).SaveWith(t.Context(), s.eng, func(i *ent.Invoice) fsm.Spec {
				return checkout.New(cart{}).Key(fsm.Key(i.ID.String()))
			})
			require.NoError(t, err)
		}
		statements.Store(0)
		ledger, err = client.Ledger.Query().WithInvoices(func(q *ent.InvoiceQuery) { q.WithInstance(s.eng) }).Only(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, statements.Load())
		for _, i := range ledger.Edges.Invoices {
			require.Equal(t, i.ID.String(), *i.Instance.CorrelationKey)
		}
	})
}

// The queries of a client have its interceptors in one array: what one of them adds must not come
// to another.
func TestWithInstanceBesideInterceptors(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		for range 3 { // an array of four
			client.Order.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier { return next }))
		}
		_, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		lean := client.Order.Query().WithInstance(s.eng, func(q *durableent.InstanceQuery) { q.Select(instance.FieldStep) })
		whole := client.Order.Query().WithInstance(s.eng)
		for q, want := range map[*ent.OrderQuery]bool{lean: false, whole: true} {
			o, err := q.Only(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, o.Instance.State != nil)
		}
	})
}

// A page may be larger than Postgres takes parameters.
func TestWithInstanceOfManyEntities(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	all := []string{"pq", "pgx", "entpgx"}
	_, err := s.pool.Exec(t.Context(), `INSERT INTO orders (id, customer, cents, instance_id) SELECT n, 'ada', n, 1000000 + n FROM generate_series(1, 70000) n`)
	require.NoError(t, err)
	for _, name := range tier.Pick([]string{"pq"}, all) {
		found, err := ent.NewClient(ent.Driver(clients[name](s))).Order.Query().WithInstance(s.eng).All(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 70_000)
	}
}

func TestHasInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		for id := range int64(4) {
			_, err := creation(client.Order, id).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
		}
		require.NoError(t, creation(client.Order, 4).Exec(t.Context()))
		for id, cents := range map[int64]int64{1: 1, 2: 100} { // too little, and in full
			_, err := s.eng.Signal(t.Context(), orderKey(id), paid.With(cents))
			require.NoError(t, err)
			o, err := client.Order.Get(t.Context(), id)
			require.NoError(t, err)
			_, err = s.eng.Wait(within(t), *o.InstanceID)
			require.NoError(t, err)
		}
		ids := func(q *ent.OrderQuery) []int64 {
			t.Helper()
			found, err := q.Order(order.ByID()).IDs(t.Context())
			require.NoError(t, err)
			return found
		}
		failed := order.HasInstanceWith(s.eng, instance.StatusEQ(fsm.StatusFailed), instance.Failure(fsm.FailureDecided))
		require.Equal(t, []int64{1}, ids(client.Order.Query().Where(failed)))
		require.Equal(t, []int64{0, 2, 3, 4}, ids(client.Order.Query().Where(order.Not(failed))))
		require.Equal(t, []int64{1, 2}, ids(client.Order.Query().Where(order.Or(failed, order.HasInstanceWith(s.eng, instance.StatusEQ(fsm.StatusDone))))))
		require.Equal(t, []int64{0, 1, 2, 3}, ids(client.Order.Query().Where(order.HasInstance(s.eng))))
		// It also selects what is updated and deleted.
		n, err := client.Order.Update().Where(failed).SetCustomer("eve").Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = client.Order.Delete().Where(failed).ExecWith(t.Context(), s.eng)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// onEdges are the predicates on the edges of an instance, and what they select of the orders of
// [TestHasInstanceAcrossEdges]: 1 has a child, 2 has a signal in its inbox, 3 has neither.
var onEdges = map[string]struct {
	accepts predicate.Instance
	want    []int64
}{
	"HasChildren":     {instance.HasChildren(), []int64{1}},
	"HasChildrenWith": {instance.HasChildrenWith(instance.HasParentWith(instance.HasChildren())), []int64{1}},
	"HasParent":       {instance.Not(instance.HasParent()), []int64{1, 2, 3}},
	"HasParentWith":   {instance.Not(instance.HasParentWith(instance.HasChildren())), []int64{1, 2, 3}},
	"HasSignals":      {instance.HasSignals(), []int64{2}},
	"HasSignalsWith": {instance.Or(
		instance.HasChildrenWith(instance.Not(instance.HasSignals())),
		instance.HasSignalsWith(signal.Name("paid"), signal.HasTarget(), signal.HasTargetWith(instance.HasSignals())),
	), []int64{1, 2}},
}

// Predicates on the engine's edges name the engine's tables in the host's client.
func TestHasInstanceAcrossEdges(t *testing.T) {
	names := regexp.MustCompile(`func (Has\w+)\(`)
	source, err := os.ReadFile("../../ent/instance/where.go")
	require.NoError(t, err)
	for _, found := range names.FindAllStringSubmatch(string(source), -1) {
		require.Contains(t, onEdges, found[1], "the test has to try it")
	}
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
			if v.State.Order == 1 {
				return v.ScheduleChildren("settle", v.State, checkout.New(cart{})), nil
			}
			return v.Await("settle", v.State, paid), nil
		})
		s.first.Store(&first)
		for id := range int64(3) {
			o, err := creation(client.Order, id+1).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).After(time.Hour) })
			require.NoError(t, err)
			if id == 0 {
				_, err = s.eng.Admin().RunNow(t.Context(), *o.InstanceID)
				require.NoError(t, err)
				s.reaches(*o.InstanceID, fsm.StatusAwaitingChildren)
			}
		}
		_, err := s.eng.Signal(t.Context(), orderKey(2), paid.With(1))
		require.NoError(t, err)
		for name, p := range onEdges {
			for way, where := range map[string]func(*entsql.Selector){
				"instance": order.HasInstanceWith(s.eng, p.accepts),
				"occupant": s.eng.HasOccupant("order:", order.FieldID, p.accepts),
			} {
				ids, err := client.Order.Query().Where(where).Order(order.ByID()).IDs(t.Context())
				require.NoError(t, err, "%s, %s", name, way)
				require.Equal(t, p.want, ids, "%s, %s", name, way)
				n, err := client.Order.Update().Where(where).SetCustomer("eve").Save(t.Context())
				require.NoError(t, err, "%s, %s", name, way)
				require.Len(t, p.want, n)
				page, err := client.Order.Query().WithInstance(s.eng, func(q *durableent.InstanceQuery) { q.Where(p.accepts) }).Order(order.ByID()).All(t.Context())
				require.NoError(t, err)
				for _, o := range page {
					require.Equal(t, slices.Contains(p.want, o.ID), o.Instance != nil, "%s, %s", name, way)
				}
			}
		}
	})
}

// explaining explains each query instead of running it.
type explaining struct {
	dialect.Driver
	t    *testing.T
	pool *pgxpool.Pool
	plan *string
}

func (e explaining) Query(ctx context.Context, query string, args, v any) error {
	rows, err := e.pool.Query(ctx, "EXPLAIN "+query, args.([]any)...)
	require.NoError(e.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(e.t, err)
	*e.plan = strings.Join(lines, "\n")
	return e.Driver.Query(ctx, query, args, v)
}

// Among many entities and instances, Postgres begins with the side that is selective, and finds the
// other by its index.
func TestPlansAcrossEntitiesAndInstances(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	many := tier.Pick(20_000, 60_000)
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO gendurable.gen_durable (fsm, step, status, state, finished_at, failure, correlation_key, correlation_scope)
		SELECT 'checkout', 'start', CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'done' END::gendurable.durable_status, '{}',
			now() - n * interval '1 s', CASE WHEN n % 10 = 0 THEN 'decided' END, 'order:' || n,
			'{runnable,executing,awaiting_signal,awaiting_children,done,failed}'
		FROM generate_series(1, `+strconv.Itoa(many)+`) n;
		INSERT INTO orders (customer, cents, instance_id)
		SELECT 'customer ' || g.id % `+strconv.Itoa(many/10)+`, 1, g.id FROM gendurable.gen_durable g;
		ANALYZE orders; ANALYZE gendurable.gen_durable`)
	require.NoError(t, err)
	var plan string
	client := ent.NewClient(ent.Driver(explaining{entpgx.New(s.pool), t, s.pool, &plan}))
	indexed := func(want string) {
		t.Helper()
		require.NotContains(t, plan, "Seq Scan")
		require.Contains(t, plan, want)
	}
	stopped := order.HasInstanceWith(s.eng, instance.StatusEQ(fsm.StatusFailed), instance.Failure(fsm.FailureDecided))
	_, err = client.Order.Query().Where(order.Customer("customer 1000"), stopped).All(t.Context())
	require.NoError(t, err)
	indexed("Index Scan using gen_durable_failed")
	_, err = client.Order.Query().Where(order.HasInstanceWith(s.eng, instance.CorrelationGuard("order:5"))).All(t.Context())
	require.NoError(t, err)
	indexed("orders_instance_id_key")
	_, err = client.Order.Query().Where(order.HasInstanceWith(s.eng, instance.FinishedAtGT(time.Now().Add(-30*time.Second)))).All(t.Context())
	require.NoError(t, err)
	indexed("orders_instance_id_key")
	_, err = client.Order.Query().Where(order.CustomerIn("customer 1", "customer 2")).WithInstance(s.eng).All(t.Context())
	require.NoError(t, err)
	indexed("gen_durable_pkey") // of the query for the instances
}

// The host's migrations get one column with its index, and nothing of the engine's.
func TestWhatTheMixinAddsToTheHostsTables(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rows, err := s.pool.Query(t.Context(), `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '%instance_id%' ORDER BY 1`)
	require.NoError(t, err)
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, indexes, 10)
	for _, i := range indexes {
		require.Contains(t, i, "UNIQUE INDEX")
	}
	require.Zero(t, s.count(`pg_constraint WHERE contype = 'f' AND confrelid = 'gendurable.gen_durable'::regclass AND connamespace = 'public'::regnamespace`))
	var ddl strings.Builder
	require.NoError(t, ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, s.db("pgx")))).Schema.WriteTo(t.Context(), &ddl))
	require.NotContains(t, ddl.String(), "gen_durable", "the second migration has nothing to do")
}
