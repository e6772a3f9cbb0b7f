package hosts

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/integration/hosts/machine"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

// The tests name what the machine declares as follows.
type cart = machine.Cart

var checkout, paid = machine.Checkout, machine.Paid

// shop is a host: a database, the engine on it, and its own ent client.
type shop struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	eng  *engine.Engine
	// first is the first step of a checkout, where a test needs another than to wait for the payment.
	first     atomic.Pointer[step]
	cancelled atomic.Int64 // as Hooks.Cancel is told
}

type step func(context.Context, *fsm.Visit[cart, int64]) (fsm.Outcome, error)

func newShop(t *testing.T) *shop {
	t.Helper()
	url := pgtest.Migrated(t)
	s := &shop{t: t, url: url, pool: pgtest.Pool(t, url)}
	def := checkout.Define(
		fsm.Step("start", func(ctx context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
			if first := s.first.Load(); first != nil {
				return (*first)(ctx, v)
			}
			return v.Await("settle", v.State, paid), nil
		}),
		fsm.Step("settle", func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
			cents, _, err := paid.First(v)
			if err == nil && cents < v.State.Cents {
				return v.Fail(errors.New("too little")), nil
			}
			return v.Done(cents), err
		}))
	eng, err := engine.New(engine.Config{Pool: s.pool, Machines: []fsm.Definition{def}, Logger: slog.New(slog.DiscardHandler),
		Hooks: []engine.Hooks{{Cancel: func(_ context.Context, e engine.CancelEvent) { s.cancelled.Add(int64(e.Cancelled)) }}},
		// Polls find nothing in this time, so an instance runs only if it was nudged.
		Queues: map[string]engine.Queue{"default": {PollMin: time.Hour}}})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.Background())) })
	s.eng = eng
	require.NoError(t, s.client(s.db("pgx")).Schema.Create(t.Context()))
	return s
}

// drivers are drivers of database/sql that a host may use.
var drivers = map[string]func(s *shop) *sql.DB{
	"pgx": func(s *shop) *sql.DB { return stdlib.OpenDBFromPool(s.pool) },
	"pq": func(s *shop) *sql.DB {
		connector, err := pq.NewConnector(s.url)
		require.NoError(s.t, err)
		return sql.OpenDB(connector)
	},
	"pq with binary parameters": func(s *shop) *sql.DB {
		connector, err := pq.NewConnector(s.url + "&binary_parameters=yes")
		require.NoError(s.t, err)
		return sql.OpenDB(connector)
	},
}

func (s *shop) db(driver string) *sql.DB {
	s.t.Helper()
	db := drivers[driver](s)
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *shop) client(db *sql.DB) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))
}

// transaction is a transaction of the host, of any driver.
type transaction interface {
	engine.SQLTx
	Rollback() error
}

// onEachHost runs a test in the transactions of every driver, plain and of an ent client.
func onEachHost(t *testing.T, test func(t *testing.T, s *shop, begin func() transaction)) {
	t.Helper()
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			db := s.db(driver)
			test(t, s, func() transaction {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				return tx
			})
		})
		t.Run("ent on "+driver, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			client := s.client(s.db(driver))
			test(t, s, func() transaction {
				tx, err := client.Tx(t.Context())
				require.NoError(t, err)
				return tx
			})
		})
	}
}

func (s *shop) count(table string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := steady.Context(t)
	t.Cleanup(cancel)
	return ctx
}

// Every verb works in every kind of transaction: its effect is there after a commit, and not after
// a rollback.
func TestVerbsInAHostsTransaction(t *testing.T) {
	onEachHost(t, func(t *testing.T, s *shop, begin func() transaction) {
		at := time.Date(2031, 2, 3, 4, 5, 6, 789_012_000, time.UTC)
		for _, end := range []string{"rollback", "commit"} {
			host := begin()
			_, err := host.ExecContext(t.Context(), `SET LOCAL search_path = ''`)
			require.NoError(t, err)
			tx := s.eng.WithSQL(host)
			id, err := tx.Insert(t.Context(), checkout.New(cart{Order: 1, Cents: 100}).Key(`a"b\c,{d}'é`).PartitionKey(`\`).Priority(-3))
			require.NoError(t, err)
			many, err := tx.InsertMany(t.Context(), []fsm.Spec{checkout.New(cart{Order: 2, Cents: 200}), checkout.New(cart{Order: 3, Cents: 300}).Key("NULL").At(at), checkout.New(cart{Order: 4, Cents: 400}).After(time.Hour)})
			require.NoError(t, err)
			got, err := tx.GetOrInsert(t.Context(), checkout.New(cart{Order: 5, Cents: 500}).Key("NULL"))
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: many[1].ID, Duplicate: true}, got)
			_, err = tx.Insert(t.Context(), checkout.New(cart{Order: 5, Cents: 500}).Key("NULL"))
			require.ErrorIs(t, err, engine.ErrDuplicate)
			d, err := tx.Signal(t.Context(), fsm.Key(`a"b\c,{d}'é`), paid.With(100).DedupKey("once"))
			require.NoError(t, err)
			require.Equal(t, engine.Delivery{To: id}, d)
			d, err = tx.Signal(t.Context(), id, paid.With(100).DedupKey("once"))
			require.NoError(t, err)
			require.True(t, d.Duplicate)
			_, err = tx.Signal(t.Context(), fsm.Key("nobody's"), paid.With(1))
			require.ErrorIs(t, err, engine.ErrNoTarget)
			sent, err := tx.SignalOrInsert(t.Context(), checkout.New(cart{Order: 6, Cents: 600}).Key("six"), paid.With(600))
			require.NoError(t, err)
			require.False(t, sent.Duplicate)
			again, err := tx.SignalOrInsert(t.Context(), checkout.New(cart{Order: 6, Cents: 600}).Key("six"), paid.With(600).DedupKey("again"))
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: sent.ID, Duplicate: true}, again)
			require.Zero(t, s.count("gendurable.gen_durable"), "to be seen before the commit")
			if end == "rollback" {
				require.NoError(t, host.Rollback())
				require.Zero(t, s.count("gendurable.gen_durable"))
				require.Zero(t, s.count("gendurable.signals"))
				continue
			}
			require.NoError(t, host.Commit())
			tx.Nudge()
			for of, want := range map[fsm.ID]int64{id: 100, sent.ID: 600} {
				result, err := checkout.Wait(within(t), s.eng, of)
				require.NoError(t, err)
				require.Equal(t, want, result)
			}
			i, err := checkout.Get(t.Context(), s.eng, fsm.Key("NULL"))
			require.NoError(t, err)
			require.True(t, i.EligibleAt.Equal(at))
			require.Equal(t, cart{Order: 3, Cents: 300}, i.State)
			i, err = checkout.Get(t.Context(), s.eng, id)
			require.NoError(t, err)
			require.Equal(t, []any{`\`, -3}, []any{i.PartitionKey, i.Priority})
		}
	})
}

// A transaction that Postgres has aborted is the host's to roll back.
func TestAHostsTransactionAbortedByPostgres(t *testing.T) {
	onEachHost(t, func(t *testing.T, s *shop, begin func() transaction) {
		_, err := s.pool.Exec(t.Context(), `ALTER TABLE gendurable.gen_durable ADD CHECK (priority < 100)`)
		require.NoError(t, err)
		host := begin()
		tx := s.eng.WithSQL(host)
		_, err = tx.Insert(t.Context(), checkout.New(cart{}).Priority(100))
		require.ErrorContains(t, err, "check constraint")
		_, err = tx.Insert(t.Context(), checkout.New(cart{}))
		require.ErrorContains(t, err, "aborted")
		require.NoError(t, host.Rollback())
		require.Zero(t, s.count("gendurable.gen_durable"))
	})
}

// placeByHand does what SaveWith does, for a client without the extension: it inserts an order and
// its instance in one transaction, with a hook that nudges once both are committed.
func placeByHand(ctx context.Context, client *ent.Client, eng *engine.Engine, id int64, customer string, cents int64) (*ent.Order, error) {
	tx, err := client.Tx(ctx)
	if err != nil {
		return nil, err
	}
	durable := eng.WithSQL(tx)
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			err := next.Commit(ctx, tx)
			if err == nil {
				durable.Nudge()
			}
			return err
		})
	})
	placed, err := tx.Order.Create().SetID(id).SetCustomer(customer).SetCents(cents).Save(ctx)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	instance, err := durable.Insert(ctx, checkout.New(cart{Order: id, Cents: cents}).Key(orderKey(id)))
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	placed, err = placed.Update().SetInstanceID(instance).Save(ctx)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return placed, tx.Commit()
}

// An entity points at its instance, and queries go across both, typed on both sides.
func TestEntitiesPointAtTheirInstances(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			client := s.client(s.db(driver))
			for id, customer := range []string{"ada", "ada", "bob", "bob"} {
				placed, err := placeByHand(t.Context(), client, s.eng, int64(id), customer, 100)
				require.NoError(t, err)
				require.NotNil(t, placed.InstanceID)
			}
			_, err := placeByHand(t.Context(), client, s.eng, 3, "eve", 100)
			require.True(t, ent.IsConstraintError(err))
			require.Equal(t, 4, s.count("gendurable.gen_durable"), "an order that is refused takes its instance along")

			// The hook has nudged: the instances park, and run when they are paid. Order 1 is paid too
			// little, order 2 in full.
			for id, cents := range map[int64]int64{1: 1, 2: 100} {
				_, err := s.eng.Signal(t.Context(), orderKey(id), paid.With(cents))
				require.NoError(t, err)
				o, err := client.Order.Get(t.Context(), id)
				require.NoError(t, err)
				_, err = s.eng.Wait(within(t), *o.InstanceID)
				require.NoError(t, err)
			}
			steady.Eventually(t, func() bool {
				n, err := s.eng.Ent().Instance.Query().Where(instance.StatusEQ(fsm.StatusAwaitingSignal)).Count(t.Context())
				return err == nil && n == 2
			})

			ids := func(q *ent.OrderQuery) []int64 {
				t.Helper()
				found, err := q.Order(order.ByID()).IDs(t.Context())
				require.NoError(t, err)
				return found
			}
			failed := s.eng.HasInstance(order.FieldInstanceID, instance.StatusEQ(fsm.StatusFailed), instance.Failure(fsm.FailureDecided))
			require.Equal(t, []int64{1}, ids(client.Order.Query().Where(failed)))
			require.Empty(t, ids(client.Order.Query().Where(failed, order.Customer("bob"))))
			require.Equal(t, []int64{0, 2, 3}, ids(client.Order.Query().Where(order.Not(failed))))
			require.Equal(t, []int64{1, 2}, ids(client.Order.Query().Where(order.CentsGTE(100),
				s.eng.HasInstance(order.FieldInstanceID, instance.StatusIn(fsm.StatusDone, fsm.StatusFailed)))))
			require.Equal(t, []int64{0, 3}, ids(client.Order.Query().Where(s.eng.HasOccupant("order:", order.FieldID))))
			require.Equal(t, []int64{1, 2}, ids(client.Order.Query().Where(order.Not(s.eng.HasOccupant("order:", order.FieldID)))))
			require.Equal(t, []int64{3}, ids(client.Order.Query().Where(order.Customer("bob"),
				s.eng.HasOccupant("order:", order.FieldID, instance.StatusEQ(fsm.StatusAwaitingSignal)))))

			// A page of orders with their instances takes two queries, one per client.
			page, err := client.Order.Query().Where(order.Customer("ada")).Order(order.ByID()).All(t.Context())
			require.NoError(t, err)
			var pointed []fsm.ID
			for _, o := range page {
				pointed = append(pointed, *o.InstanceID)
			}
			rows, err := s.eng.Ent().Instance.Query().Where(instance.IDIn(pointed...)).Order(instance.ByID()).All(t.Context())
			require.NoError(t, err)
			require.Len(t, rows, 2)
			state, err := checkout.DecodeState(s.eng.Codec(), rows[1].State)
			require.NoError(t, err)
			require.Equal(t, cart{Order: 1, Cents: 100}, state)

			// The engine's GC leaves the order alone.
			_, err = s.pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE status = 'done'`)
			require.NoError(t, err)
			require.Equal(t, []int64{0, 1, 3}, ids(client.Order.Query().Where(s.eng.HasInstance(order.FieldInstanceID))))
		})
	}
}

// A host whose ent client runs on pgx itself, through entpgx, shares the native transaction.
func TestAHostsEntClientOnEntpgx(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, commit := range []bool{false, true} {
		tx, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		client := ent.NewClient(ent.Driver(entpgx.Within(tx)))
		durable := s.eng.WithPgx(tx)
		id, err := durable.Insert(t.Context(), checkout.New(cart{Order: 7, Cents: 1}))
		require.NoError(t, err)
		require.NoError(t, client.Order.Create().SetID(7).SetCustomer("ada").SetCents(1).SetInstanceID(id).Exec(t.Context()))
		if !commit {
			require.NoError(t, tx.Rollback(t.Context()))
			require.Zero(t, s.count("orders"))
			continue
		}
		require.NoError(t, tx.Commit(t.Context()))
		durable.Nudge()
		require.Equal(t, 1, s.count("orders"))
		_, err = s.eng.Signal(t.Context(), id, paid.With(1))
		require.NoError(t, err)
		_, err = checkout.Wait(within(t), s.eng, id)
		require.NoError(t, err)
	}
	client := s.client(s.db("pgx"))
	require.NoError(t, placeWithin(t.Context(), client, s.pool, s.eng, "bob", 1))
	placed, err := client.Order.Query().Where(order.Customer("bob")).Only(t.Context())
	require.NoError(t, err)
	s.reaches(*placed.InstanceID, fsm.StatusAwaitingSignal)
}
