package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/pager"
	"github.com/gendurable/gendurable/integration/hosts/ent/ticket"
)

// priced is the signal of an updated ticket; none of one without a price.
func priced(t *ent.Ticket) fsm.Message {
	if t.Cents == 13 {
		return fsm.Message{}
	}
	return paid.With(t.Cents)
}

// tickets saves tickets with their instances, which wait for the payment.
func (s *shop) tickets(client *ent.Client, numbers ...int) []*ent.Ticket {
	s.t.Helper()
	all, err := client.Ticket.MapCreateBulk(numbers, func(b *ent.TicketCreate, i int) { b.SetNumber(numbers[i]) }).
		SaveWith(s.t.Context(), s.eng, func(*ent.Ticket) fsm.Spec { return checkout.New(cart{}) })
	require.NoError(s.t, err)
	for _, t := range all {
		s.reaches(*t.InstanceID, fsm.StatusAwaitingSignal)
	}
	return all
}

// paysOut requires that the instance of a ticket ends with the price that it was told.
func (s *shop) paysOut(t *ent.Ticket, want int64) {
	s.t.Helper()
	got, err := checkout.Wait(within(s.t), s.eng, *t.InstanceID)
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

// waitsOn requires that nothing was sent to the instance of a ticket.
func (s *shop) waitsOn(t *ent.Ticket) {
	s.t.Helper()
	i, err := s.eng.Get(s.t.Context(), *t.InstanceID)
	require.NoError(s.t, err)
	require.Equal(s.t, fsm.StatusAwaitingSignal, i.Status)
}

// An update of a named field signals the instance in the same transaction, whatever way it comes.
func TestOnUpdate(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver), ent.Log(func(...any) {}))
		all := s.tickets(client, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		id := func(n int) *ent.TicketUpdateOne { return client.Ticket.UpdateOneID(all[n].ID) }
		for _, update := range []interface {
			Exec(ctx context.Context) error
		}{
			id(0).SetCents(1), id(0).AddCents(1), id(0).ClearSeat(), client.Ticket.Update().SetSeat("A"),
		} {
			err := update.Exec(ctx)
			require.True(t, ent.IsValidationError(err), "%v", err)
			require.ErrorContains(t, err, "call OnUpdate of its client before the first update")
		}
		require.NoError(t, id(0).SetGate("north").Exec(ctx), "another field signals nothing")
		client.Ticket.OnUpdate(nil, priced)
		require.ErrorContains(t, id(0).SetCents(1).Exec(ctx), "the engine is nil")
		client.Ticket.OnUpdate(s.eng, nil)
		require.ErrorContains(t, id(0).SetCents(1).Exec(ctx), "returns the message is nil")
		client.Ticket.OnUpdate(s.eng, priced)
		require.NoError(t, client.Ticket.Update().SetGate("south").Exec(ctx))
		require.NoError(t, id(0).SetCents(13).Exec(ctx), "a zero message is not sent")
		s.waitsOn(all[0])

		updated, err := id(0).AddCents(7).Save(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 20, updated.Cents)
		s.paysOut(all[0], 20)
		require.NoError(t, updated.Update().SetCents(21).Exec(ctx), "its instance has ended, and it is bound to the client")
		require.NoError(t, client.Debug().Ticket.UpdateOneID(all[1].ID).SetCents(30).Exec(ctx))
		s.paysOut(all[1], 30)
		// What it sets decides what matches: all that matched are signalled, with their new values.
		n, err := client.Ticket.Update().Where(ticket.NumberIn(2, 3, 100), ticket.CentsEQ(0)).SetCents(40).SetSeat("B").Save(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		s.paysOut(all[2], 40)
		s.paysOut(all[3], 40)
		require.Zero(t, must[int](t)(client.Ticket.Update().Where(ticket.Number(100)).SetCents(1).Save(ctx)))
		require.True(t, ent.IsNotFound(client.Ticket.UpdateOneID(4711).SetCents(1).Exec(ctx)))
		require.NoError(t, id(4).ClearSeat().Select(ticket.FieldNumber).Exec(ctx))
		s.paysOut(all[4], 0)

		// In the host's transaction it takes effect with its commit.
		for _, commits := range []bool{false, true} {
			tx, err := client.Tx(ctx)
			require.NoError(t, err)
			require.NoError(t, tx.Ticket.UpdateOneID(all[5].ID).SetCents(50).Exec(ctx))
			require.NoError(t, tx.Ticket.Update().Where(ticket.Number(6)).SetCents(60).Exec(ctx))
			if !commits {
				require.NoError(t, tx.Rollback())
				s.waitsOn(all[5])
				s.waitsOn(all[6])
				continue
			}
			require.NoError(t, tx.Commit())
			s.paysOut(all[5], 50)
			s.paysOut(all[6], 60)
		}

		// Hooks see one update, and may set the field or refuse.
		var seen []string
		client.Ticket.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				tickets := m.(*ent.TicketMutation)
				seen = append(seen, m.Op().String())
				switch gate, _ := tickets.Gate(); gate {
				case "vip":
					tickets.SetCents(70)
				case "closed":
					return nil, errHook
				}
				return next.Mutate(ctx, m)
			})
		})
		require.NoError(t, id(7).SetGate("vip").Exec(ctx))
		s.paysOut(all[7], 70)
		require.ErrorIs(t, id(8).SetGate("closed").SetCents(80).Exec(ctx), errHook)
		s.waitsOn(all[8])
		require.Equal(t, []string{"OpUpdateOne", "OpUpdateOne"}, seen)

		// Without an instance the ticket is updated alone.
		require.NoError(t, client.Ticket.Create().SetNumber(50).Exec(ctx))
		require.NoError(t, client.Ticket.Update().Where(ticket.NumberIn(9, 50)).SetCents(90).Exec(ctx))
		s.paysOut(all[9], 90)

		// An error of the host's function, or of its message, undoes the update; a transaction goes on.
		client.Ticket.OnUpdate(s.eng, func(*ent.Ticket) fsm.Message { return fsm.DeclareSignal[int](strings.Repeat("x", 600)).With(1) })
		tx, err := client.Tx(ctx)
		require.NoError(t, err)
		for _, c := range []*ent.Client{client, tx.Client()} {
			for _, update := range []interface {
				Exec(ctx context.Context) error
			}{
				c.Ticket.UpdateOneID(all[8].ID).SetCents(81), c.Ticket.Update().Where(ticket.Number(8)).SetCents(81),
			} {
				err := update.Exec(ctx)
				wrong, ok := errors.AsType[*engine.SignalError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, "name", wrong.Field)
				require.Zero(t, must[*ent.Ticket](t)(c.Ticket.Get(ctx, all[8].ID)).Cents)
			}
		}
		require.NoError(t, tx.Ticket.UpdateOneID(all[8].ID).SetGate("east").Exec(ctx))
		require.NoError(t, tx.Commit())
		s.waitsOn(all[8])
	})
}

// A field of JSON also counts where something is appended to it.
func TestOnUpdateOfJSON(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver))
		client.Ticket.OnUpdate(s.eng, func(t *ent.Ticket) fsm.Message { return paid.With(int64(len(t.Tags))) })
		all := s.tickets(client, 0, 1, 2, 3, 4)
		many := func(n int) *ent.TicketUpdate { return client.Ticket.Update().Where(ticket.Number(n)) }
		require.NoError(t, all[0].Update().SetTags([]string{"a", "b"}).Exec(ctx))
		s.paysOut(all[0], 2)
		require.NoError(t, all[1].Update().AppendTags([]string{"a"}).Exec(ctx))
		s.paysOut(all[1], 1)
		require.NoError(t, many(2).SetTags([]string{"a", "b", "c"}).Exec(ctx))
		s.paysOut(all[2], 3)
		require.NoError(t, many(3).AppendTags([]string{"a", "b"}).Exec(ctx))
		s.paysOut(all[3], 2)
		require.NoError(t, many(4).ClearTags().Exec(ctx))
		s.paysOut(all[4], 0)
	})
}

// Where the schema says so, an entity is updated only while its instance is live.
func TestUpdateNeedsLive(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver))
		client.Pass.OnCreate(s.eng, func(*ent.Pass) fsm.Spec { return checkout.New(cart{}) })
		client.Pass.OnUpdate(s.eng, func(p *ent.Pass) fsm.Message { return paid.With(p.Cents) })
		p, err := client.Pass.Create().Save(ctx)
		require.NoError(t, err)
		s.reaches(*p.InstanceID, fsm.StatusAwaitingSignal)
		require.NoError(t, p.Update().SetCents(5).Exec(ctx))
		got, err := checkout.Wait(within(t), s.eng, *p.InstanceID)
		require.NoError(t, err)
		require.EqualValues(t, 5, got)
		require.ErrorIs(t, p.Update().SetCents(6).Exec(ctx), engine.ErrNoTarget)
		require.ErrorIs(t, client.Pass.Update().SetCents(6).Exec(ctx), engine.ErrNoTarget)
		require.NoError(t, p.Update().ClearInstanceID().Exec(ctx))
		err = p.Update().SetCents(6).Exec(ctx)
		require.ErrorIs(t, err, engine.ErrNoTarget)
		require.ErrorContains(t, err, fmt.Sprintf("Pass %d has no instance to signal", p.ID))
		require.EqualValues(t, 5, must[*ent.Pass](t)(client.Pass.Get(ctx, p.ID)).Cents)
	})
}

// An update is not done without its signal: a full inbox refuses the update of all entities.
func TestAFullInboxRefusesAnUpdate(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver))
		narrow, err := engine.New(engine.Config{Pool: s.pool, Limits: engine.Limits{Inbox: 1}})
		require.NoError(t, err)
		client.Ticket.OnUpdate(narrow, priced)
		all := s.tickets(client, 0, 1, 2)
		_, err = s.eng.Signal(ctx, *all[1].InstanceID, fsm.DeclareSignal[int]("other").With(1))
		require.NoError(t, err)

		require.ErrorIs(t, client.Ticket.Update().SetCents(5).Exec(ctx), engine.ErrInboxFull)
		require.ErrorIs(t, all[1].Update().SetCents(5).Exec(ctx), engine.ErrInboxFull)
		for _, one := range all {
			require.Zero(t, must[*ent.Ticket](t)(client.Ticket.Get(ctx, one.ID)).Cents)
			s.waitsOn(one)
		}
		client.Ticket.OnUpdate(s.eng, priced) // whose inboxes have room
		require.NoError(t, client.Ticket.Update().SetCents(5).Exec(ctx))
		s.paysOut(all[0], 5)
		s.paysOut(all[1], 5)
		s.paysOut(all[2], 5)
	})
}

// ent does not tell which rows an upsert has changed. So one that would change a field is refused.
func TestUpsertsDoNotUpdate(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver))
		client.Ticket.OnUpdate(s.eng, priced)
		there := s.tickets(client, 1)[0]
		one := func() *ent.TicketCreate { return client.Ticket.Create().SetNumber(1).SetCents(5).SetGate("west") }
		for _, refused := range []interface {
			Exec(ctx context.Context) error
		}{
			one().OnConflictColumns(ticket.FieldNumber).UpdateNewValues(),
			one().OnConflictColumns(ticket.FieldNumber).Ignore().SetCents(7),
			one().OnConflict(entsql.ConflictColumns(ticket.FieldNumber), entsql.ResolveWithNewValues()),
			one().OnConflictColumns(ticket.FieldNumber).Update(func(u *ent.TicketUpsert) { u.ClearSeat() }),
			client.Ticket.CreateBulk(one(), one().SetNumber(2)).OnConflictColumns(ticket.FieldNumber).UpdateNewValues(),
			one().OnConflictColumns(ticket.FieldNumber).Update(func(u *ent.TicketUpsert) { u.AddCents(1) }),
			one().OnConflictColumns(ticket.FieldNumber).Update(func(u *ent.TicketUpsert) { u.UpdateSeat() }),
			one().OnConflict(entsql.ConflictColumns(ticket.FieldNumber), entsql.ResolveWith(func(u *entsql.UpdateSet) {
				u.SetIgnore(ticket.FieldGate).Set(ticket.FieldCents, entsql.Expr(`"tickets"."cents" + 1`))
			})),
			one().OnConflict(entsql.ConflictColumns(ticket.FieldNumber), entsql.ResolveWith(func(u *entsql.UpdateSet) {
				u.Set(ticket.FieldCents, entsql.Expr(`"tickets"."cents"+1`)).SetIgnore(ticket.FieldGate)
			})),
		} {
			err := refused.Exec(ctx)
			require.True(t, ent.IsValidationError(err), "%v", err)
			require.ErrorContains(t, err, "an upsert may not change a field of OnUpdate")
		}
		_, err := one().OnConflictColumns(ticket.FieldNumber).UpdateNewValues().SaveWith(ctx, s.eng, func(*ent.Ticket) fsm.Spec { return checkout.New(cart{}) })
		require.ErrorContains(t, err, "an upsert may not change a field of OnUpdate")
		require.NoError(t, one().OnConflictColumns(ticket.FieldNumber).Ignore().Exec(ctx))
		require.NoError(t, one().OnConflictColumns(ticket.FieldNumber).Update(func(u *ent.TicketUpsert) { u.SetGate("west") }).Exec(ctx))
		require.NoError(t, client.Ticket.CreateBulk(one(), one().SetNumber(3)).OnConflict(entsql.DoNothing()).Exec(ctx))
		now := must[*ent.Ticket](t)(client.Ticket.Get(ctx, there.ID))
		require.Equal(t, []any{int64(0), "west"}, []any{now.Cents, now.Gate})
		s.waitsOn(there)
	})
}

// An upsert with new values changes the columns that it inserts: a field is set, or has a default,
// or a hook may set it. A condition on a field does not change it.
func TestUpsertsOfOtherFields(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		ctx := t.Context()
		client := ent.NewClient(ent.Driver(driver))
		client.Pager.OnUpdate(s.eng, func(*ent.Pager) fsm.Message { return paid.With(1) })
		id := client.Pager.Create().SetNumber(1).SetTags([]string{"a"}).SaveX(ctx).ID
		one := func(c *ent.Client) *ent.PagerCreate { return c.Pager.Create().SetNumber(1).SetGate("west") }
		require.NoError(t, one(client).OnConflictColumns(pager.FieldNumber).UpdateNewValues().Exec(ctx))
		require.NoError(t, client.Pager.CreateBulk(one(client), one(client).SetNumber(2)).OnConflictColumns(pager.FieldNumber).UpdateNewValues().Exec(ctx))
		require.NoError(t, one(client).SetTags([]string{"b"}).OnConflict(entsql.ConflictColumns(pager.FieldNumber), entsql.ResolveWithIgnore(),
			entsql.UpdateWhere(entsql.NotNull(pager.FieldTags))).Exec(ctx))
		hooked := ent.NewClient(ent.Driver(driver))
		hooked.Pager.Use(func(next ent.Mutator) ent.Mutator { return next })
		for _, refused := range []interface {
			Exec(ctx context.Context) error
		}{
			one(client).SetTags([]string{"b"}).OnConflictColumns(pager.FieldNumber).UpdateNewValues(),
			client.Pager.CreateBulk(one(client), one(client).SetNumber(2).SetTags([]string{"b"})).OnConflictColumns(pager.FieldNumber).UpdateNewValues(),
			one(hooked).OnConflictColumns(pager.FieldNumber).UpdateNewValues(),
		} {
			require.ErrorContains(t, refused.Exec(ctx), "an upsert may not change a field of OnUpdate")
		}
		now := must[*ent.Pager](t)(client.Pager.Get(ctx, id))
		require.Equal(t, "west", now.Gate)
		require.Equal(t, []string{"a"}, now.Tags)
	})
}

// In a transaction of pgx it commits with that. A step's own transaction signals other instances,
// but not the one whose step it is.
func TestOnUpdateInAnothersTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx := t.Context()
	client := ent.NewClient(ent.Driver(entpgx.New(s.pool)))
	follow(client, s.eng)
	all := s.tickets(client, 1, 2)
	native, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	tx, err := client.Within(ctx, native)
	require.NoError(t, err)
	require.NoError(t, tx.Ticket.Update().Where(ticket.Number(1)).SetCents(5).Exec(ctx))
	s.waitsOn(all[0])
	require.NoError(t, tx.Commit())
	s.paysOut(all[0], 5)

	own := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
		return client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
			return v.Await("settle", v.State, paid), tx.Ticket.Update().Where(ticket.NumberIn(2, 3)).SetCents(6).Exec(ctx)
		}), nil
	})
	s.first.Store(&own)
	mine, err := client.Ticket.Create().SetNumber(3).SaveWith(ctx, s.eng, func(*ent.Ticket) fsm.Spec { return checkout.New(cart{}) })
	require.NoError(t, err)
	s.paysOut(all[1], 6)
	s.reaches(*mine.InstanceID, fsm.StatusAwaitingSignal)
	require.EqualValues(t, 6, must[*ent.Ticket](t)(client.Ticket.Get(ctx, mine.ID)).Cents)
	require.Zero(t, s.count("gendurable.signals"))
}

// An update of many takes three statements, and three more for each 1,000 instances. Over 10,000
// entities are refused.
func TestStatementsOfAnUpdate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx := t.Context()
	log := &sent{}
	client := ent.NewClient(ent.Driver(logged{entpgx.New(s.pool), log}))
	client.Ticket.OnUpdate(s.eng, priced)
	numbers := make([]int, 1001)
	for i := range numbers {
		numbers[i] = i
	}
	_, err := client.Ticket.MapCreateBulk(numbers, func(b *ent.TicketCreate, i int) { b.SetNumber(i) }).
		SaveWith(ctx, s.eng, func(*ent.Ticket) fsm.Spec { return checkout.New(cart{}).Queue("nobody") })
	require.NoError(t, err)
	of := func(below int) []string {
		log.taken()
		require.NoError(t, client.Ticket.Update().Where(ticket.NumberLT(below)).AddCents(1).Exec(ctx))
		return log.taken()
	}
	three := []string{"WITH m AS", "WITH m AS", "WITH c AS"}
	two := of(2)
	require.Equal(t, append([]string{`SELECT "tickets"."id" FROM`, `UPDATE "tickets" SET`, `SELECT "tickets"."id", "tickets"."instance_id",`}, three...), two)
	require.Equal(t, two, of(1000))
	require.Equal(t, append(two, three...), of(1001))
	require.Equal(t, 2+1000+1001, s.count("gendurable.signals"))

	_, err = s.pool.Exec(ctx, `INSERT INTO tickets (number, cents) SELECT n, 0 FROM generate_series(2000, 12000) n`)
	require.NoError(t, err)
	err = client.Ticket.Update().Where(ticket.NumberGTE(2000)).SetCents(1).Exec(ctx)
	require.True(t, ent.IsValidationError(err), "%v", err)
	require.ErrorContains(t, err, "over 10000 entities to update and signal in one transaction: update them in parts")
	require.Equal(t, 10_000, must[int](t)(client.Ticket.Update().Where(ticket.NumberGT(2000)).SetCents(1).Save(ctx)))
}
