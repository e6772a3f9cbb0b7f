package hosts

import (
	"context"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
)

var errHook = errors.New("the host's hook fails behind the mutation")

// failing makes each mutation of orders fail after it has been executed.
func failing(next ent.Mutator) ent.Mutator {
	return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		if _, err := next.Mutate(ctx, m); err != nil {
			return nil, err
		}
		return nil, errHook
	})
}

// behind calls f when order id has been created, and fails if f does.
func behind(id int64, f func(context.Context) error) ent.Hook {
	return func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			v, err := next.Mutate(ctx, m)
			if created, ok := m.(*ent.OrderMutation); err == nil && ok && m.Op().Is(ent.OpCreate) {
				if of, _ := created.ID(); of == id {
					err = f(ctx)
				}
			}
			return v, err
		})
	}
}

// fails are calls that fail in a client's transaction, at different places. Order 1 is there, and
// its step runs; order 2 is to be created, and order 3 is deleted only by these calls.
var fails = map[string]func(t *testing.T, s *shop, c *ent.Client) error{
	"the spec is a duplicate": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return checkout.New(cart{}).Key(orderKey(1)) })
		return err
	},
	"a spec of many is a duplicate": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := c.Order.CreateBulk(creation(c.Order, 2), creation(c.Order, 4)).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			return checkout.New(cart{}).Key(orderKey(o.ID - 1))
		})
		return err
	},
	"the spec of an upsert is a duplicate": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 3).OnConflictColumns(order.FieldID).Ignore().SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec {
			return checkout.New(cart{}).Key(orderKey(1))
		})
		return err
	},
	"the spec is another machine's": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return fsm.Declare[cart, int64]("refund").New(cart{}) })
		return err
	},
	"the spec is invalid": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return checkout.New(cart{}).Priority(1 << 40) })
		return err
	},
	"the spec panics": func(t *testing.T, s *shop, c *ent.Client) (err error) {
		defer func() { err = errors.New(recover().(string)) }()
		_, err = creation(c.Order, 2).SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { panic("in the host's function") })
		return err
	},
	"the entity has an instance": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 2).SetInstanceID(77).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"Postgres refuses the entity": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 1).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"Postgres refuses the instance": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).Priority(100) })
		return err
	},
	"a hook fails behind the creation": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(failing)
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"a hook fails behind the delete": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(failing)
		return c.Order.DeleteOneID(1).ExecWith(t.Context(), s.eng)
	},
	"a hook fails behind the delete of many": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(failing)
		_, err := c.Order.Delete().ExecWith(t.Context(), s.eng)
		return err
	},
	"Postgres refuses the delete": func(t *testing.T, s *shop, c *ent.Client) error {
		return c.Order.DeleteOneID(3).ExecWith(t.Context(), s.eng)
	},
	"a hook's own call fails": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(behind(2, func(ctx context.Context) error {
			_, err := creation(c.Order, 4).SaveWith(ctx, s.eng, func(*ent.Order) fsm.Spec { return fsm.Declare[cart, int64]("refund").New(cart{}) })
			return err
		}))
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"a hook fails, and its own call did not": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(behind(2, func(ctx context.Context) error {
			return errors.Join(c.Order.DeleteOneID(1).ExecWith(ctx, s.eng), errHook)
		}))
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"a hook fails, and the transaction's verb did not": func(t *testing.T, s *shop, c *ent.Client) error {
		c.Order.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				o, err := c.Order.Get(ctx, 1)
				if err != nil {
					return nil, err
				}
				tx, err := m.(*ent.OrderMutation).Tx()
				if err != nil {
					return nil, err
				}
				_, err = tx.Durable(s.eng).Cancel(ctx, []fsm.ID{*o.InstanceID})
				return nil, errors.Join(err, errHook)
			})
		})
		_, err := creation(c.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		return err
	},
	"an instance is live": func(t *testing.T, s *shop, c *ent.Client) error {
		_, err := c.Invoice.Delete().ExecWith(t.Context(), s.eng)
		return err
	},
}

// A call that fails leaves nothing of it in a client's transaction that goes on, and the commit
// tells nothing of it.
func TestACallThatFailsLeavesNothingBehind(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		_, err := s.pool.Exec(t.Context(), `ALTER TABLE gendurable.gen_durable ADD CHECK (priority < 100)`)
		require.NoError(t, err)
		client := ent.NewClient(ent.Driver(driver))
		started, release, ended := s.running()
		first, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		require.Equal(t, *first.InstanceID, <-started)
		require.NoError(t, creation(client.Order, 3).Exec(t.Context()))
		_, err = s.pool.Exec(t.Context(), `DO $$ DECLARE place text; BEGIN
			FOR place IN SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'orders' AND relkind = 'r' LOOP
				EXECUTE format('CREATE TABLE %1$I.lines (orders bigint REFERENCES %1$I.orders)', place);
				EXECUTE format('INSERT INTO %1$I.lines SELECT id FROM %1$I.orders WHERE id = 3', place);
			END LOOP;
		END $$`)
		require.NoError(t, err)
		_, err = client.Invoice.Create().SetCents(1).SetInstanceID(*first.InstanceID).Save(t.Context())
		require.NoError(t, err)

		for name, fail := range fails {
			tx, err := ent.NewClient(ent.Driver(driver)).Tx(t.Context())
			require.NoError(t, err, name)
			err = fail(t, s, tx.Client())
			require.Error(t, err, name)
			if strings.HasPrefix(name, "a hook fails, ") {
				require.ErrorIs(t, err, errHook, name)
			}
			_, err = tx.Invoice.Create().SetCents(2).Save(t.Context())
			require.NoError(t, err, "%s: the transaction goes on", name)
			require.NoError(t, tx.Commit(), name)
			ids, err := client.Order.Query().Order(order.ByID()).IDs(t.Context())
			require.NoError(t, err)
			require.Equal(t, []int64{1, 3}, ids, name)
			require.Equal(t, 1, s.instances(), name)
			require.Zero(t, s.cancelled.Load(), name)
		}
		n, err := client.Invoice.Query().Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1+len(fails), n)
		release()
		require.NoError(t, <-ended, "interrupted by what was rolled back")
		s.reaches(*first.InstanceID, fsm.StatusDone)
	})
}

// A call that fails leaves no savepoint open: each would cost the transaction a subtransaction.
func TestACallThatFailsLeavesNoSavepoint(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		tx, err := ent.NewClient(ent.Driver(driver)).Tx(t.Context())
		require.NoError(t, err)
		defer tx.Rollback() //nolint:errcheck // it leaves nothing
		for _, name := range []string{"the spec is another machine's", "a hook's own call fails"} {
			require.Error(t, fails[name](t, s, tx.Client()), name)
		}
		_, err = tx.ExecContext(t.Context(), "RELEASE SAVEPOINT gendurable_entity")
		require.ErrorContains(t, err, "does not exist")
	})
}

// The error says so if a hook has deleted what SaveWith creates.
func TestSaveWithAndAHookThatDeletes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	client.Order.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			v, err := next.Mutate(ctx, m)
			if o, ok := v.(*ent.Order); ok && err == nil && m.Op().Is(ent.OpCreate) {
				_, err = m.(*ent.OrderMutation).Client().Order.Delete().Where(order.ID(o.ID)).ExecWith(ctx, s.eng)
			}
			return v, err
		})
	})
	_, err := creation(client.Order, 2).SaveWith(t.Context(), s.eng, specOf)
	require.True(t, ent.IsValidationError(err), "%v", err)
	require.ErrorContains(t, err, "a hook has deleted it")
	require.Zero(t, s.instances())
}
