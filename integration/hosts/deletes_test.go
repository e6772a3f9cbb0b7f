package hosts

import (
	"context"
	"errors"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/invoice"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/integration/hosts/ent/visit"
	"github.com/gendurable/gendurable/internal/steady"
)

// kept is an entity of some type, as the tests of deletes see it.
type kept struct {
	instance *fsm.ID
	exec     func() error // deletes it plainly
	execWith func() error // nil where the schema leaves the instance alone
	exists   func() bool
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// entities create an entity of each policy, without an instance where spec is nil.
var entities = map[string]func(t *testing.T, s *shop, c *ent.Client, spec *fsm.Spec) kept{
	"cancel": func(t *testing.T, s *shop, c *ent.Client, spec *fsm.Spec) kept {
		t.Helper()
		b := c.Order.Create().SetCustomer("ada").SetCents(1)
		var o *ent.Order
		if spec == nil {
			o = must[*ent.Order](t)(b.Save(t.Context()))
		} else {
			o = must[*ent.Order](t)(b.SaveWith(t.Context(), s.eng, func(*ent.Order) fsm.Spec { return *spec }))
		}
		return kept{o.InstanceID,
			func() error { return c.Order.DeleteOne(o).Exec(t.Context()) },
			func() error { return c.Order.DeleteOne(o).ExecWith(t.Context(), s.eng) },
			func() bool { return must[bool](t)(c.Order.Query().Where(order.ID(o.ID)).Exist(t.Context())) }}
	},
	"refuse": func(t *testing.T, s *shop, c *ent.Client, spec *fsm.Spec) kept {
		t.Helper()
		b := c.Invoice.Create().SetCents(1)
		var i *ent.Invoice
		if spec == nil {
			i = must[*ent.Invoice](t)(b.Save(t.Context()))
		} else {
			i = must[*ent.Invoice](t)(b.SaveWith(t.Context(), s.eng, func(*ent.Invoice) fsm.Spec { return *spec }))
		}
		return kept{i.InstanceID,
			func() error { return c.Invoice.DeleteOne(i).Exec(t.Context()) },
			func() error { return c.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng) },
			func() bool { return must[bool](t)(c.Invoice.Query().Where(invoice.ID(i.ID)).Exist(t.Context())) }}
	},
	"leave": func(t *testing.T, s *shop, c *ent.Client, spec *fsm.Spec) kept {
		t.Helper()
		b := c.Visit.Create().SetPage("/")
		var v *ent.Visit
		if spec == nil {
			v = must[*ent.Visit](t)(b.Save(t.Context()))
		} else {
			v = must[*ent.Visit](t)(b.SaveWith(t.Context(), s.eng, func(*ent.Visit) fsm.Spec { return *spec }))
		}
		return kept{v.InstanceID,
			func() error { return c.Visit.DeleteOne(v).Exec(t.Context()) },
			nil,
			func() bool { return must[bool](t)(c.Visit.Query().Where(visit.ID(v.ID)).Exist(t.Context())) }}
	},
}

func TestDeleteSaysWhatBecomesOfTheInstance(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		spec := checkout.New(cart{Cents: 1})
		for policy, create := range entities {
			for _, state := range []string{"live", "ended", "gone", "none"} {
				e := create(t, s, client, map[bool]*fsm.Spec{false: &spec}[state == "none"])
				switch state {
				case "live":
					s.reaches(*e.instance, fsm.StatusAwaitingSignal)
				case "ended", "gone":
					must[engine.Delivery](t)(s.eng.Signal(t.Context(), *e.instance, paid.With(1)))
					s.reaches(*e.instance, fsm.StatusDone)
				}
				if state == "gone" {
					_, err := s.pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE id = $1`, *e.instance)
					require.NoError(t, err)
				}
				if policy == "leave" {
					require.NoError(t, e.exec())
				} else {
					require.True(t, ent.IsValidationError(e.exec()), "it has to go through the engine")
					require.True(t, e.exists())
					err := e.execWith()
					if policy == "refuse" && state == "live" {
						live, ok := errors.AsType[*engine.LiveError](err)
						require.True(t, ok, "%v", err)
						require.ErrorIs(t, err, engine.ErrLive)
						require.Equal(t, &engine.LiveError{ID: *e.instance, Status: fsm.StatusAwaitingSignal, Live: 1}, live)
						require.True(t, e.exists())
						s.reaches(*e.instance, fsm.StatusAwaitingSignal)
						continue
					}
					require.NoError(t, err, "%s, %s", policy, state)
					require.True(t, ent.IsNotFound(e.execWith()), "it is gone")
				}
				require.False(t, e.exists(), "%s, %s", policy, state)
				if state != "live" && state != "ended" {
					continue
				}
				i, err := s.eng.Get(t.Context(), *e.instance)
				require.NoError(t, err)
				switch {
				case state == "ended":
					require.Equal(t, fsm.StatusDone, i.Status)
				case policy == "cancel":
					require.Equal(t, []any{fsm.StatusFailed, fsm.FailureCancelled, "cancelled: its Order was deleted"}, []any{i.Status, i.Failure, i.LastError})
				default:
					require.Equal(t, fsm.StatusAwaitingSignal, i.Status)
				}
			}
		}
	})
}

// A delete of many deals with all of their instances and those below them, or deletes none.
func TestDeleteOfMany(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
			if v.State.Order == 0 { // a child
				return v.Await("settle", v.State, paid), nil
			}
			return v.ScheduleChildren("settle", v.State, checkout.New(cart{}), checkout.New(cart{})), nil
		})
		s.first.Store(&first)
		for id := range int64(3) {
			o, err := creation(client.Order, id+1).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			s.reaches(*o.InstanceID, fsm.StatusAwaitingChildren)
		}
		require.NoError(t, client.Order.UpdateOneID(2).SetInstanceID(999_999).Exec(t.Context())) // gone
		steady.Eventually(t, func() bool {
			return s.count(`gendurable.gen_durable WHERE status = 'awaiting_signal'`) == 6
		})

		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		n, err := tx.Order.Delete().Where(order.IDGTE(2)).ExecWith(t.Context(), s.eng)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.NoError(t, tx.Rollback())
		require.Zero(t, s.count(`gendurable.gen_durable WHERE status = 'failed'`))
		n, err = client.Order.Delete().Where(order.IDGTE(2)).ExecWith(t.Context(), s.eng)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 3, s.count(`gendurable.gen_durable WHERE status = 'failed' AND failure = 'cancelled'`))
		n, err = client.Order.Delete().Where(order.ID(77)).ExecWith(t.Context(), s.eng)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestDeleteIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	_, err := s.pool.Exec(t.Context(), `INSERT INTO orders (id, customer, cents) SELECT n, 'ada', n FROM generate_series(1, $1::int) n`, engine.MaxDelete+1)
	require.NoError(t, err)
	_, err = client.Order.Delete().ExecWith(t.Context(), s.eng)
	require.True(t, ent.IsValidationError(err))
	require.ErrorContains(t, err, "over 10000 entities")
	n, err := client.Order.Delete().Where(order.IDGT(1)).ExecWith(t.Context(), s.eng)
	require.NoError(t, err)
	require.Equal(t, engine.MaxDelete, n)
}

// waits waits until a session waits for a lock.
func (s *shop) waits() {
	s.t.Helper()
	steady.Eventually(s.t, func() bool {
		return s.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
}

// running makes the next checkouts stand in their first step until they are released; each says how
// its context ended.
func (s *shop) running() (started chan fsm.ID, release func(), ended chan error) {
	gate := make(chan struct{})
	started, ended = make(chan fsm.ID, 1), make(chan error, 1)
	first := step(func(ctx context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
		started <- v.ID
		select {
		case <-gate:
		case <-ctx.Done():
		}
		ended <- context.Cause(ctx)
		return v.Done(1), nil
	})
	s.first.Store(&first)
	return started, func() { close(gate) }, ended
}

// A delete that cancels, and a claim or an outcome of the instance: whichever commits first
// decides.
func TestDeleteThatCancelsBesideClaimAndOutcome(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		// Delete first, open; a claim passes the row by; the delete commits. An engine's first claim
		// comes some time after its start, so the instance becomes due only under the delete.
		o, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec {
			return specOf(o).After(5 * time.Second)
		})
		require.NoError(t, err)
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() }) // else a failure waits for the connection
		require.NoError(t, tx.Order.DeleteOneID(1).ExecWith(t.Context(), s.eng))
		steady.Eventually(t, func() bool {
			return s.count(`gendurable.gen_durable WHERE status = 'runnable' AND eligible_at <= clock_timestamp()`) == 1
		})
		beside, err := creation(client.Order, 2).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		s.reaches(*beside.InstanceID, fsm.StatusAwaitingSignal) // so a claim has looked at both
		i, err := s.eng.Get(t.Context(), *o.InstanceID)
		require.NoError(t, err)
		require.Equal(t, fsm.StatusRunnable, i.Status)
		require.NoError(t, tx.Commit())
		i, err = s.eng.Get(t.Context(), *o.InstanceID)
		require.NoError(t, err)
		require.Equal(t, []any{fsm.StatusFailed, fsm.FailureCancelled, int64(0)}, []any{i.Status, i.Failure, i.Visit})

		// Claim first: its step is told at the commit, and its outcome does not count.
		started, _, ended := s.running()
		o, err = creation(client.Order, 3).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		require.Equal(t, *o.InstanceID, <-started)
		require.NoError(t, client.Order.DeleteOneID(3).ExecWith(t.Context(), s.eng))
		require.ErrorIs(t, <-ended, fsm.ErrCancelled)
		_, err = checkout.Wait(within(t), s.eng, *o.InstanceID)
		failed, ok := errors.AsType[*fsm.FailedError](err)
		require.True(t, ok)
		require.Equal(t, fsm.FailureCancelled, failed.Failure)

		// Delete first, open; the step returns; its outcome waits, and counts after a rollback only.
		for id, commit := range map[int64]bool{4: true, 5: false} {
			started, release, ended := s.running()
			o, err = creation(client.Order, id).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			<-started
			tx, err := client.Tx(t.Context())
			require.NoError(t, err)
			require.NoError(t, tx.Order.DeleteOneID(id).ExecWith(t.Context(), s.eng))
			release()
			require.NoError(t, <-ended)
			s.waits() // the outcome, for the row
			if !commit {
				require.NoError(t, tx.Rollback())
				s.reaches(*o.InstanceID, fsm.StatusDone)
				require.NoError(t, client.Order.DeleteOneID(id).ExecWith(t.Context(), s.eng))
				continue
			}
			require.NoError(t, tx.Commit())
			s.reaches(*o.InstanceID, fsm.StatusFailed)
		}
		require.Equal(t, 1, counted(t, client))
	})
}

// A delete that refuses, and verbs that make the instance live or end it.
func TestDeleteThatRefusesBesideOutcomeAndRetry(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	create := func(spec fsm.Spec) *ent.Invoice {
		return must[*ent.Invoice](t)(client.Invoice.Create().SetCents(1).SaveWith(t.Context(), s.eng, func(*ent.Invoice) fsm.Spec { return spec }))
	}

	// The step runs: refused. It ends: deleted.
	started, release, _ := s.running()
	i := create(checkout.New(cart{}))
	<-started
	require.ErrorIs(t, client.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng), engine.ErrLive)
	release()
	s.reaches(*i.InstanceID, fsm.StatusDone)
	require.NoError(t, client.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng))

	// An end that is not committed yet: the delete waits, and sees it.
	stop := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
		return v.Await("settle", v.State, paid), nil
	})
	s.first.Store(&stop)
	i = create(checkout.New(cart{}))
	s.reaches(*i.InstanceID, fsm.StatusAwaitingSignal)
	other, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `UPDATE gendurable.gen_durable SET status = 'failed', failure = 'decided', finished_at = now() WHERE id = $1`, *i.InstanceID)
	require.NoError(t, err)
	deleted := make(chan error, 1)
	go func() { deleted <- client.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng) }()
	s.waits()
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, <-deleted)

	// A Retry while the delete is open waits for it. A delete while the retried step runs is refused.
	for _, commit := range []bool{false, true} {
		started, release, _ := s.running()
		i = create(checkout.New(cart{}).After(time.Hour))
		_, err = s.eng.Admin().Cancel(t.Context(), *i.InstanceID)
		require.NoError(t, err)
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng))
		retried := make(chan error, 1)
		go func() {
			_, err := s.eng.Admin().Retry(t.Context(), *i.InstanceID)
			retried <- err
		}()
		s.waits()
		if commit {
			require.NoError(t, tx.Commit())
			require.NoError(t, <-retried)
			require.Equal(t, *i.InstanceID, <-started)
			release()
			continue
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-retried)
		require.Equal(t, *i.InstanceID, <-started)
		require.ErrorIs(t, client.Invoice.DeleteOne(i).ExecWith(t.Context(), s.eng), engine.ErrLive)
		release()
		s.reaches(*i.InstanceID, fsm.StatusDone)
	}
}

// A step may delete its own entity in the transaction of its outcome, whatever the policy, and
// start another one; both take effect with the outcome.
func TestAStepDeletesAndCreatesEntities(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	tries := 0
	first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
		if v.State.Order != 1 {
			return v.Done(v.State.Order), nil
		}
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			eng, own := engine.FromContext(ctx), ent.NewClient(ent.Driver(entpgx.Within(tx)))
			if _, err := creation(own.Order, 2).SaveWith(ctx, eng, specOf); err != nil {
				return nil, err
			}
			if err := own.Order.DeleteOneID(1).ExecWith(ctx, eng); err != nil {
				return nil, err
			}
			if _, err := own.Invoice.Delete().ExecWith(ctx, eng); err != nil {
				return nil, err
			}
			if tries++; tries == 1 {
				return nil, errors.New("undo it all")
			}
			return v.Done(1), nil
		}), nil
	})
	s.first.Store(&first)
	o, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, func(o *ent.Order) fsm.Spec { return specOf(o).After(time.Hour) })
	require.NoError(t, err)
	_, err = client.Invoice.Create().SetCents(1).SetInstanceID(*o.InstanceID).Save(t.Context())
	require.NoError(t, err)
	_, err = s.eng.Admin().RunNow(t.Context(), *o.InstanceID)
	require.NoError(t, err)
	_, err = checkout.Wait(within(t), s.eng, *o.InstanceID)
	require.Error(t, err, "the error undid it, and failed the instance")
	require.Equal(t, []int{1, 1}, []int{counted(t, client), s.count("invoices")})
	_, err = s.eng.Admin().Retry(t.Context(), *o.InstanceID)
	require.NoError(t, err)
	_, err = checkout.Wait(within(t), s.eng, *o.InstanceID)
	require.NoError(t, err)
	require.Zero(t, s.count("invoices"))
	next, err := client.Order.Query().Only(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, next.ID)
	got, err := checkout.Wait(within(t), s.eng, *next.InstanceID) // the engine has nudged
	require.NoError(t, err)
	require.EqualValues(t, 2, got)
}
