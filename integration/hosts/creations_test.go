package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/parcel"
	"github.com/gendurable/gendurable/integration/hosts/ent/shipment"
	"github.com/gendurable/gendurable/internal/steady"
)

func parcelKey(number string) fsm.Key { return fsm.Key("parcel:" + number) }

func specOfParcel(p *ent.Parcel) fsm.Spec {
	return checkout.New(cart{Order: int64(p.ID), Cents: p.Cents}).Key(parcelKey(p.Number))
}

func specOfShipment(s *ent.Shipment) fsm.Spec {
	return checkout.New(cart{}).Key(fsm.Key("shipment:" + s.ID.String()))
}

// parcels returns a builder for each number.
func parcels(c *ent.Client, numbers ...string) *ent.ParcelCreateBulk {
	return c.Parcel.MapCreateBulk(numbers, func(b *ent.ParcelCreate, i int) { b.SetNumber(numbers[i]) })
}

// hold checks that so many entities are there, each with another instance, and that there
// are no more instances.
func (s *shop) hold(table string, want int) {
	s.t.Helper()
	require.Equal(s.t, []int{want, want, want}, []int{s.count(table), s.instances(),
		s.count(table + ` e JOIN gendurable.gen_durable i ON i.id = e.instance_id`)})
}

// An entity that requires an instance is created by no call that brings none.
func TestRequired(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		table := "shipments"
		if strings.Contains(t.Name(), "schema") {
			table = "shop.shipments"
		}
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		plainly := map[string]func(c *ent.ShipmentClient) error{
			"save": func(c *ent.ShipmentClient) error {
				_, err := c.Create().SetNumber("1").Save(t.Context())
				return err
			},
			"exec": func(c *ent.ShipmentClient) error { return c.Create().SetNumber("1").Exec(t.Context()) },
			"many": func(c *ent.ShipmentClient) error {
				return c.CreateBulk(c.Create().SetNumber("1"), c.Create().SetNumber("2")).Exec(t.Context())
			},
			"one of many": func(c *ent.ShipmentClient) error {
				return c.CreateBulk(c.Create().SetNumber("1").SetInstanceID(1), c.Create().SetNumber("2")).Exec(t.Context())
			},
			"upsert": func(c *ent.ShipmentClient) error {
				_, err := c.Create().SetNumber("1").OnConflictColumns(shipment.FieldNumber).UpdateNewValues().ID(t.Context())
				return err
			},
			"upsert of many": func(c *ent.ShipmentClient) error {
				return c.CreateBulk(c.Create().SetNumber("1")).OnConflict(entsql.DoNothing()).Exec(t.Context())
			},
		}
		for name, create := range plainly {
			for _, c := range []*ent.ShipmentClient{client.Shipment, tx.Shipment} {
				err := create(c)
				require.True(t, ent.IsValidationError(err), "%s: %v", name, err)
				invalid, _ := errors.AsType[*ent.ValidationError](err)
				require.Equal(t, shipment.FieldInstanceID, invalid.Name)
				require.ErrorContains(t, err, "create by SaveWith")
			}
		}
		require.NoError(t, tx.Rollback())
		s.hold(table, 0)
		_, err = client.Shipment.Create().SaveWith(t.Context(), s.eng, specOfShipment)
		require.ErrorContains(t, err, `missing required field "Shipment.number"`, "ent's checks hold as well")

		// The builder that was refused can be used as it should have been.
		b := client.Shipment.Create().SetNumber("1")
		require.True(t, ent.IsValidationError(b.Exec(t.Context())))
		first, err := b.SaveWith(t.Context(), s.eng, specOfShipment)
		require.NoError(t, err)
		s.reaches(*first.InstanceID, fsm.StatusAwaitingSignal)
		require.True(t, ent.IsValidationError(b.SetNumber("2").SetID(uuid.New()).Exec(t.Context())), "only SaveWith passes")
		s.hold(table, 1)

		// The host may bring an instance itself, also by a hook: the guard comes behind all hooks.
		tx, err = client.Tx(t.Context())
		require.NoError(t, err)
		id, err := tx.Durable(s.eng).Insert(t.Context(), checkout.New(cart{}))
		require.NoError(t, err)
		require.NoError(t, tx.Shipment.Create().SetNumber("3").SetInstanceID(id).Exec(t.Context()))
		require.NoError(t, tx.Commit())
		hooked := ent.NewClient(ent.Driver(driver))
		hooked.Shipment.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				id, err := s.eng.Insert(ctx, checkout.New(cart{}))
				if err == nil {
					err = m.SetField(shipment.FieldInstanceID, id)
				}
				if err != nil {
					return nil, err
				}
				return next.Mutate(ctx, m)
			})
		})
		require.NoError(t, hooked.Shipment.Create().SetNumber("4").Exec(t.Context()))
		require.NoError(t, hooked.Shipment.CreateBulk(hooked.Shipment.Create().SetNumber("5"), hooked.Shipment.Create().SetNumber("6")).Exec(t.Context()))
		s.hold(table, 5)

		// Updates are no creations.
		require.NoError(t, client.Shipment.UpdateOneID(first.ID).SetNumber("7").Exec(t.Context()))
	})
}

// Every creation of an entity makes its instance, once the program has said which.
func TestOnCreate(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver), ent.Log(func(...any) {}))
		table := "parcels"
		if strings.Contains(t.Name(), "schema") {
			table = "shop.parcels"
		}
		for _, create := range []func() error{
			func() error { return client.Parcel.Create().SetNumber("1").Exec(t.Context()) },
			func() error { return parcels(client, "1", "2").Exec(t.Context()) },
			func() error {
				return client.Parcel.Create().SetNumber("1").OnConflictColumns(parcel.FieldNumber).Ignore().Exec(t.Context())
			},
		} {
			err := create()
			require.True(t, ent.IsValidationError(err), "%v", err)
			require.ErrorContains(t, err, "call OnCreate of its client before the first creation")
		}
		early, err := client.Tx(t.Context()) // what is registered later holds for it, too
		require.NoError(t, err)
		client.Parcel.OnCreate(nil, specOfParcel)
		require.ErrorContains(t, client.Parcel.Create().SetNumber("1").Exec(t.Context()), "the engine is nil")
		client.Parcel.OnCreate(s.eng, nil)
		require.ErrorContains(t, client.Parcel.Create().SetNumber("1").Exec(t.Context()), "returns the spec is nil")
		s.hold(table, 0)
		drive(client, s.eng)

		want := 0
		saved := func(p *ent.Parcel, err error) {
			t.Helper()
			require.NoError(t, err)
			want++
			s.reaches(*p.InstanceID, fsm.StatusAwaitingSignal) // the commit nudged
			i, err := checkout.Get(t.Context(), s.eng, parcelKey(p.Number))
			require.NoError(t, err)
			require.Equal(t, cart{Order: int64(p.ID), Cents: 100}, i.State)
			require.Equal(t, *p.InstanceID, i.ID)
			s.hold(table, want)
		}
		saved(client.Parcel.Create().SetNumber("save").Save(t.Context()))
		require.NoError(t, client.Parcel.Create().SetNumber("exec").Exec(t.Context()))
		saved(client.Parcel.Query().Where(parcel.Number("exec")).Only(t.Context()))
		saved(client.Debug().Parcel.Create().SetNumber("debug").Save(t.Context()))
		m := client.Parcel.Create().SetNumber("mutate").Mutation()
		v, err := client.Mutate(t.Context(), m)
		require.NoError(t, err)
		saved(v.(*ent.Parcel), nil)
		many, err := parcels(client, "a", "b", "c").Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, []string{many[0].Number, many[1].Number, many[2].Number})
		for _, p := range many {
			i, err := checkout.Get(t.Context(), s.eng, parcelKey(p.Number))
			require.NoError(t, err)
			require.Equal(t, *p.InstanceID, i.ID, "each points at its own")
			require.EqualValues(t, p.ID, i.State.Order)
			s.reaches(i.ID, fsm.StatusAwaitingSignal)
		}
		_, err = many[0].Update().SetCents(1).Save(t.Context())
		require.NoError(t, err, "it is bound to the client, not to a transaction that has ended")
		want = 7
		s.hold(table, want)

		// In the host's transaction they take effect with its commit.
		require.NoError(t, early.Parcel.Create().SetNumber("rolled back").Exec(t.Context()))
		require.NoError(t, parcels(early.Client(), "x", "y").Exec(t.Context()))
		require.NoError(t, early.Rollback())
		s.hold(table, want)
		tx, err := client.Tx(t.Context())
		require.NoError(t, err)
		p, err := tx.Parcel.Create().SetNumber("committed").Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, s.instances())
		require.NoError(t, tx.Commit())
		saved(p, nil)

		// With one that it is given, it gets no other; SaveWith gives one, which may be another.
		id, err := s.eng.Insert(t.Context(), checkout.New(cart{}))
		require.NoError(t, err)
		given, err := client.Parcel.CreateBulk(client.Parcel.Create().SetNumber("given").SetInstanceID(id), client.Parcel.Create().SetNumber("beside")).Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, *given[0].InstanceID)
		p, err = client.Parcel.Create().SetNumber("with").SaveWith(t.Context(), s.eng, func(p *ent.Parcel) fsm.Spec { return specOfParcel(p).Key("with") })
		require.NoError(t, err)
		i, err := s.eng.Get(t.Context(), fsm.Key("with"))
		require.NoError(t, err)
		require.Equal(t, i.ID, *p.InstanceID)
		s.hold(table, want+3)

		// With edges, of which ent writes some after the entity.
		holder, err := client.Parcel.Create().SetNumber("holder").AddHolds(many...).Save(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, must[int](t)(holder.QueryHolds().Count(t.Context())))
		s.hold(table, want+4)
	})
}

// After any failure there is neither an entity nor an instance, and a transaction of the host goes
// on.
func TestOnCreateCreatesBothOrNeither(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		table := "parcels"
		if strings.Contains(t.Name(), "schema") {
			table = "shop.parcels"
		}
		var seen []string
		client.Parcel.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				created := m.(*ent.ParcelMutation)
				number, _ := created.Number()
				if number == "denied" {
					return nil, errors.New("not allowed")
				}
				_, err := created.Tx()
				seen = append(seen, fmt.Sprint(m.Op(), " ", number, " ", err))
				v, err := next.Mutate(ctx, m)
				if err == nil && number == "nests" {
					err = created.Client().Parcel.Create().SetNumber("nested").Exec(ctx)
				}
				if err == nil && number == "late" {
					err = errHook
				}
				return v, err
			})
		})
		client.Parcel.OnCreate(s.eng, func(p *ent.Parcel) fsm.Spec {
			switch p.Number {
			case "other":
				return fsm.Declare[cart, int64]("refund").New(cart{})
			case "taken":
				return specOfParcel(p).Key(parcelKey("there"))
			case "panics":
				panic("in the host's function")
			}
			return specOfParcel(p)
		})
		require.NoError(t, client.Parcel.Create().SetNumber("there").Exec(t.Context()))
		require.Equal(t, []string{"OpCreate there <nil>"}, seen, "hooks see one creation, in a transaction")
		for number, want := range map[string]string{
			"there":  "violates unique constraint",
			"denied": "not allowed", "late": errHook.Error(), "other": "driven by machine", "taken": "holds \"parcel:there\"",
		} {
			tx, err := client.Tx(t.Context())
			require.NoError(t, err)
			for _, c := range []*ent.Client{client, tx.Client()} {
				require.ErrorContains(t, c.Parcel.Create().SetNumber(number).Exec(t.Context()), want)
				err := parcels(c, "good", number).Exec(t.Context())
				require.ErrorContains(t, err, want)
				require.Equal(t, number == "taken", errors.Is(err, engine.ErrDuplicate))
			}
			require.NoError(t, tx.Parcel.Create().SetNumber("beside "+number).Exec(t.Context()), "the transaction goes on")
			require.NoError(t, tx.Rollback())
			s.hold(table, 1)
		}
		require.Panics(t, func() { _ = parcels(client, "good", "panics").Exec(t.Context()) })
		s.hold(table, 1)

		// What a hook creates along is in the same transaction, in any depth.
		again := client.Parcel.Create().SetNumber("nests")
		require.NoError(t, again.Exec(t.Context()))
		s.hold(table, 3)
		require.Error(t, again.Exec(t.Context()), "it is there")
		s.hold(table, 3)
		b := parcels(client, "good", "late")
		require.ErrorIs(t, b.Exec(t.Context()), errHook)
		_, err := b.Save(t.Context())
		require.ErrorIs(t, err, errHook, "a builder that failed fails the same way again: it is in no transaction that has ended")
	})
}

// An upsert makes an instance for each entity that has none, and no second one.
func TestUpsertsWithInstances(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		table := "parcels"
		if strings.Contains(t.Name(), "schema") {
			table = "shop.parcels"
		}
		upsert := func(c *ent.Client, number string) *ent.ParcelUpsertOne {
			return c.Parcel.Create().SetNumber(number).SetCents(200).OnConflictColumns(parcel.FieldNumber)
		}
		first, err := upsert(client, "1").UpdateNewValues().SaveWith(t.Context(), s.eng, specOfParcel)
		require.NoError(t, err)
		s.hold(table, 1)
		for cents, u := range map[int64]*ent.ParcelUpsertOne{
			200: upsert(client, "1").UpdateNewValues(),
			300: upsert(client, "1").Update(func(u *ent.ParcelUpsert) { u.SetCents(300) }),
		} {
			got, err := u.SaveWith(t.Context(), s.eng, specOfParcel)
			require.NoError(t, err)
			require.Equal(t, []any{first.ID, first.InstanceID, cents}, []any{got.ID, got.InstanceID, got.Cents})
			s.hold(table, 1)
		}
		require.NoError(t, client.Parcel.UpdateOneID(first.ID).SetCents(7).Exec(t.Context()))
		got, err := upsert(client, "1").Ignore().SaveWith(t.Context(), s.eng, specOfParcel)
		require.NoError(t, err)
		require.Equal(t, []any{first.InstanceID, int64(7)}, []any{got.InstanceID, got.Cents}, "it is what the database has")

		// Some are there, one of them without an instance.
		_, err = client.Parcel.UpdateOneID(first.ID).Save(t.Context())
		require.NoError(t, err)
		second, err := upsert(client, "2").Ignore().SaveWith(t.Context(), s.eng, specOfParcel)
		require.NoError(t, err)
		require.NoError(t, client.Parcel.UpdateOneID(second.ID).ClearInstanceID().SetCents(9).Exec(t.Context()))
		_, err = s.pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE id = $1`, *second.InstanceID)
		require.NoError(t, err)
		var asked []string
		many, err := parcels(client, "3", "1", "2").OnConflictColumns(parcel.FieldNumber).Ignore().SaveWith(t.Context(), s.eng, func(p *ent.Parcel) fsm.Spec {
			asked = append(asked, fmt.Sprint(p.Number, " ", p.Cents))
			return specOfParcel(p)
		})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"2 9", "3 100"}, asked, "those that have none, as the database has them")
		require.Equal(t, []string{"3", "1", "2"}, []string{many[0].Number, many[1].Number, many[2].Number})
		require.Equal(t, first.InstanceID, many[1].InstanceID)
		s.hold(table, 3)
		_, err = many[2].Update().SetCents(1).Save(t.Context())
		require.NoError(t, err)

		// The same by plain calls, once OnCreate says which instance.
		drive(client, s.eng)
		id, err := upsert(client, "1").UpdateNewValues().ID(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.ID, id)
		require.NoError(t, upsert(client, "4").Ignore().Exec(t.Context()))
		require.NoError(t, parcels(client, "1", "5").OnConflictColumns(parcel.FieldNumber).UpdateNewValues().Exec(t.Context()))
		require.NoError(t, client.Parcel.Create().SetNumber("6").OnConflict(entsql.DoNothing()).Exec(t.Context()))
		require.NoError(t, parcels(client, "7", "8").OnConflict(entsql.DoNothing()).Exec(t.Context()))
		s.hold(table, 8)

		// No upsert names the instance.
		for _, refused := range []interface {
			Exec(ctx context.Context) error
		}{
			upsert(client, "1").ClearInstanceID(),
			upsert(client, "1").SetInstanceID(500),
			client.Parcel.Create().SetNumber("1").SetInstanceID(500).OnConflictColumns(parcel.FieldNumber).UpdateNewValues(),
			client.Parcel.Create().SetNumber("9").SetInstanceID(500).OnConflict(entsql.DoNothing()),
			client.Parcel.CreateBulk(client.Parcel.Create().SetNumber("9").SetInstanceID(500), client.Parcel.Create().SetNumber("1")).
				OnConflictColumns(parcel.FieldNumber).UpdateNewValues(),
		} {
			err := refused.Exec(t.Context())
			require.True(t, ent.IsValidationError(err), "%v", err)
			require.ErrorContains(t, err, "does not set parcel.FieldInstanceID")
			s.hold(table, 8)
		}
		// ent does not tell which of many were there already, if it is to do nothing about them.
		err = parcels(client, "9", "1", "10").OnConflict(entsql.DoNothing()).Exec(t.Context())
		require.True(t, ent.IsValidationError(err), "%v", err)
		require.ErrorContains(t, err, "did not tell the id")
		require.Error(t, client.Parcel.Create().SetNumber("1").OnConflict(entsql.DoNothing()).Exec(t.Context()), "so ent itself says")
		_, err = client.Parcel.Create().SetNumber("1").OnConflict().SaveWith(t.Context(), s.eng, specOfParcel)
		require.ErrorContains(t, err, "missing options")
		_, err = client.Parcel.CreateBulk(client.Parcel.Create().SetNumber("1")).OnConflict().SaveWith(t.Context(), s.eng, specOfParcel)
		require.ErrorContains(t, err, "missing options")
		astray := client.Parcel.Create().SetNumber("1")
		astray.OnConflict(entsql.DoNothing())
		_, err = client.Parcel.CreateBulk(astray).SaveWith(t.Context(), s.eng, specOfParcel)
		require.ErrorContains(t, err, "OnConflict was set for builder 0")
		s.hold(table, 8)
	})
}

// SaveWith of many saves all with their instances, or none. Its builders can be used again.
func TestSaveWithOfMany(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		many := client.Order.CreateBulk(creation(client.Order, 1), creation(client.Order, 2), creation(client.Order, 3))
		both := func(want int) {
			t.Helper()
			require.Equal(t, []int{want, want}, []int{s.instances(), counted(t, client)})
		}
		for want, spec := range map[string]func(*ent.Order) fsm.Spec{
			"the instance of entity 2 of 3: gendurable: window taken": func(o *ent.Order) fsm.Spec { return specOf(o).Throttle("order", time.Hour) },
			"the instance of entity 2 of 3: gendurable: key occupied": func(o *ent.Order) fsm.Spec { return specOf(o).Key("order") },
			`driven by machine "checkout", not by "refund"`: func(o *ent.Order) fsm.Spec {
				if o.ID < 3 {
					return specOf(o)
				}
				return fsm.Declare[cart, int64]("refund").New(cart{})
			},
		} {
			_, err := many.SaveWith(t.Context(), s.eng, spec)
			require.ErrorContains(t, err, want)
			both(0)
		}
		_, err := many.SaveWith(t.Context(), nil, specOf)
		require.ErrorContains(t, err, "the engine is nil")
		_, err = client.Order.MapCreateBulk(5, func(*ent.OrderCreate, int) {}).SaveWith(t.Context(), s.eng, specOf)
		require.ErrorContains(t, err, "wrong type int")
		none, err := client.Order.CreateBulk().SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = client.Order.CreateBulk(creation(client.Order, 4), creation(client.Order, 5).SetInstanceID(500)).SaveWith(t.Context(), s.eng, specOf)
		require.ErrorContains(t, err, "has an instance already")
		both(0)

		placed, err := many.SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		both(3)
		for i, o := range placed {
			require.EqualValues(t, i+1, o.ID)
			got, err := s.eng.Get(t.Context(), orderKey(o.ID))
			require.NoError(t, err)
			require.Equal(t, got.ID, *o.InstanceID)
			s.reaches(got.ID, fsm.StatusAwaitingSignal)
			require.NoError(t, o.Update().SetCents(1).Exec(t.Context()))
		}
		require.NoError(t, client.Order.CreateBulk(creation(client.Order, 4), creation(client.Order, 5)).Exec(t.Context()), "without an option, a plain creation makes no instance")
		require.Equal(t, 3, s.instances())
	})
}

// The ids of shipments are made before they are sent, so a conflict on the number finds another id.
func TestUpsertsOfEntitiesWithAnIDOfTheirOwn(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		table := "shipments"
		if strings.Contains(t.Name(), "schema") {
			table = "shop.shipments"
		}
		upsert := func() *ent.ShipmentUpsertOne {
			return client.Shipment.Create().SetNumber("1").OnConflictColumns(shipment.FieldNumber).Ignore()
		}
		first, err := upsert().SaveWith(t.Context(), s.eng, specOfShipment)
		require.NoError(t, err)
		again, err := upsert().SaveWith(t.Context(), s.eng, specOfShipment)
		require.NoError(t, err)
		require.Equal(t, []any{first.ID, first.InstanceID}, []any{again.ID, again.InstanceID})
		s.hold(table, 1)
		_, err = client.Shipment.CreateBulk(client.Shipment.Create().SetNumber("2"), client.Shipment.Create().SetNumber("1")).
			OnConflictColumns(shipment.FieldNumber).Ignore().SaveWith(t.Context(), s.eng, specOfShipment)
		require.True(t, ent.IsValidationError(err), "%v", err)
		require.ErrorContains(t, err, "upsert it by its id, or alone")
		s.hold(table, 1)
		_, err = client.Shipment.CreateBulk(client.Shipment.Create().SetNumber("2"), client.Shipment.Create().SetID(first.ID).SetNumber("3")).
			OnConflictColumns(shipment.FieldID).UpdateNewValues().SaveWith(t.Context(), s.eng, specOfShipment)
		require.NoError(t, err)
		s.hold(table, 2)
	})
}

// Of two upserts of the same parcel at once, the second waits, and keeps the first one's instance.
func TestUpsertsAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := ent.NewClient(ent.Driver(entpgx.New(s.pool)))
	drive(client, s.eng)
	tx, err := client.Tx(t.Context())
	require.NoError(t, err)
	upsert := func(c *ent.Client) (int, error) {
		return c.Parcel.Create().SetNumber("1").OnConflictColumns(parcel.FieldNumber).UpdateNewValues().ID(t.Context())
	}
	_, err = upsert(tx.Client())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { _, err := upsert(client); done <- err }()
	s.waits()
	require.NoError(t, tx.Commit())
	require.NoError(t, <-done)
	s.hold("parcels", 1)
}

// In a transaction of pgx, and in a step's own, the instance is inserted in that transaction.
func TestOnCreateInAnothersTransaction(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		if strings.Contains(t.Name(), "schema") {
			t.Skip("a transaction of the pool does not see that schema")
		}
		drive(client, s.eng)
		for _, commit := range []bool{false, true} {
			native, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			tx, err := client.Within(t.Context(), native)
			require.NoError(t, err)
			p, err := tx.Parcel.Create().SetNumber("within").Save(t.Context())
			require.NoError(t, err)
			require.NoError(t, parcels(tx.Client(), "a", "b").Exec(t.Context()))
			s.hold("parcels", 0)
			if !commit {
				require.NoError(t, native.Rollback(t.Context()))
				continue
			}
			require.NoError(t, tx.Commit())
			s.hold("parcels", 3)
			s.reaches(*p.InstanceID, fsm.StatusAwaitingSignal)
		}
		for number, fails := range map[string]bool{"undone": true, "done": false} {
			first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				if v.State.Cents != 0 { // the parcel's
					return v.Await("settle", v.State, paid), nil
				}
				return client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
					if err := tx.Parcel.Create().SetNumber(number).Exec(ctx); err != nil {
						return nil, err
					}
					if fails {
						return nil, errHook
					}
					return v.Done(1), nil
				}), nil
			})
			s.first.Store(&first)
			id, err := s.eng.Insert(t.Context(), checkout.New(cart{}))
			require.NoError(t, err)
			if fails {
				steady.Eventually(t, func() bool {
					i, err := s.eng.Get(t.Context(), id)
					return err == nil && i.LastError != ""
				})
				require.Zero(t, must[int](t)(client.Parcel.Query().Where(parcel.Number(number)).Count(t.Context())))
				continue
			}
			_, err = checkout.Wait(within(t), s.eng, id)
			require.NoError(t, err)
			p, err := client.Parcel.Query().Where(parcel.Number(number)).Only(t.Context())
			require.NoError(t, err)
			s.reaches(*p.InstanceID, fsm.StatusAwaitingSignal)
		}
	})
}

// logged notes the statements of a driver and its transactions, by their first words.
type logged struct {
	dialect.Driver
	log *sent
}

type sent struct {
	mu    sync.Mutex
	lines []string
}

type loggedTx struct {
	dialect.Tx
	log *sent
}

func (l *sent) note(query string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := strings.Fields(query)
	l.lines = append(l.lines, strings.Join(words[:min(3, len(words))], " "))
}

func (l *sent) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l logged) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := l.Driver.Tx(ctx)
	return loggedTx{tx, l.log}, err
}

func (l loggedTx) Query(ctx context.Context, query string, args, v any) error {
	switch {
	case query == "SELECT 1": // by which the engine asks whether the transaction has ended
	case strings.HasPrefix(query, "SELECT EXISTS"), strings.HasPrefix(query, "SELECT r.name, r.queue"): // by which it learns of gates, once in a while
	default:
		l.log.note(query)
	}
	return l.Tx.Query(ctx, query, args, v)
}

func (l loggedTx) Exec(ctx context.Context, query string, args, v any) error {
	l.log.note(query)
	return l.Tx.Exec(ctx, query, args, v)
}

// A creation of many takes as many statements as one of two; the column is written for 1,000 at a
// time.
func TestStatementsOfACreation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	log := &sent{}
	client := ent.NewClient(ent.Driver(logged{entpgx.New(s.pool), log}))
	client.Parcel.OnCreate(s.eng, func(p *ent.Parcel) fsm.Spec { return checkout.New(cart{}) })
	numbers := func(n int, prefix string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	of := func(exec interface {
		Exec(ctx context.Context) error
	}) []string {
		log.taken()
		require.NoError(t, exec.Exec(t.Context()))
		return log.taken()
	}
	one := of(client.Parcel.Create().SetNumber("one"))
	require.Equal(t, []string{`INSERT INTO "parcels"`, "WITH c AS", `UPDATE "parcels" SET`}, one)
	two, many := of(parcels(client, numbers(2, "a")...)), of(parcels(client, numbers(1000, "b")...))
	require.Equal(t, one, two)
	require.Equal(t, two, many)
	more := of(parcels(client, numbers(1001, "c")...))
	require.Equal(t, append(many, `UPDATE "parcels" SET`), more)
	again := of(parcels(client, numbers(1001, "c")...).OnConflictColumns(parcel.FieldNumber).Ignore())
	require.Equal(t, []string{`INSERT INTO "parcels"`, `SELECT "parcels"."id", "parcels"."instance_id",`}, again, "they have one")
	s.hold("parcels", 2004)
}
