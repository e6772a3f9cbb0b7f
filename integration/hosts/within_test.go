package hosts

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
)

// watched is what a client's hooks and interceptors were told, in order.
type watched struct {
	mu    sync.Mutex
	lines []string
}

func (w *watched) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// taken returns the lines since the last call.
func (w *watched) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// watch gives a client an interceptor of orders, and a hook that adds to the transaction of a
// creation: a visit before its commit, and a look at the database by another client after it.
func (s *shop) watch(t *testing.T, client *ent.Client) *watched {
	t.Helper()
	w, beside := &watched{}, s.client(s.db("pgx"))
	client.Order.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier {
		return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
			w.note("query")
			return next.Query(ctx, q)
		})
	}))
	client.Order.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			w.note(m.Op().String())
			tx, err := m.(*ent.OrderMutation).Tx()
			if err != nil || !m.Op().Is(ent.OpCreate) {
				return next.Mutate(ctx, m)
			}
			tx.OnCommit(func(next ent.Committer) ent.Committer {
				return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
					if err := tx.Visit.Create().SetPage("before the commit").Exec(ctx); err != nil {
						return err
					}
					n, err := beside.Visit.Query().Count(ctx)
					if err != nil || n != 0 {
						return errors.Join(errors.New("to be seen before the commit"), err)
					}
					if err := next.Commit(ctx, tx); err != nil {
						w.note("undone")
						return err
					}
					if n, err := beside.Visit.Query().Count(ctx); err != nil || n != 1 {
						w.note("not to be seen after the commit")
					}
					w.note("committed")
					return nil
				})
			})
			tx.OnRollback(func(next ent.Rollbacker) ent.Rollbacker {
				return ent.RollbackFunc(func(ctx context.Context, tx *ent.Tx) error {
					w.note("rolled back")
					return next.Rollback(ctx, tx)
				})
			})
			return next.Mutate(ctx, m)
		})
	})
	return w
}

// A client in a transaction of pgx has its own hooks and interceptors, and ends the transaction.
func TestWithin(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		if strings.Contains(t.Name(), "schema_of_its_own") {
			return // the pool has another search_path than this client
		}
		client := ent.NewClient(ent.Driver(driver))
		w := s.watch(t, client)
		for _, end := range []string{"rollback", "commit"} {
			native, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer native.Rollback(context.Background()) //nolint:errcheck // it has ended
			tx, err := client.Within(t.Context(), native)
			require.NoError(t, err)
			placed, err := creation(tx.Order, 1).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			var n int
			require.NoError(t, native.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&n))
			require.Equal(t, 1, n, "it is the same transaction")
			require.Equal(t, 1, counted(t, tx.Client()))
			require.Zero(t, s.instances(), "to be seen before the commit")
			require.Equal(t, []string{"OpCreate", "query"}, w.taken())
			if end == "rollback" {
				require.NoError(t, tx.Rollback())
				require.Equal(t, []string{"rolled back"}, w.taken())
				require.Zero(t, s.instances()+s.count("orders")+s.count("visits"))
				continue
			}
			require.NoError(t, tx.Commit())
			require.Equal(t, []string{"committed"}, w.taken())
			s.reaches(*placed.InstanceID, fsm.StatusAwaitingSignal) // the commit has woken the engine
		}

		started, err := client.Tx(t.Context())
		require.NoError(t, err)
		defer started.Rollback() //nolint:errcheck // it wrote nothing
		for _, c := range []*ent.Client{started.Client(), started.Client().Debug()} {
			_, err = c.Within(t.Context(), nil)
			require.ErrorIs(t, err, ent.ErrTxStarted)
		}
		_, err = client.Within(t.Context(), nil)
		require.ErrorContains(t, err, "it is nil")
	})
}

// A savepoint of pgx is only released: the hooks run around the outermost one, and after a
// rollback to the savepoint not at all.
func TestWithinASavepoint(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := ent.NewClient(ent.Driver(entpgx.New(s.pool)))
	w := s.watch(t, client)
	native, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer native.Rollback(context.Background()) //nolint:errcheck // it has ended
	for _, id := range []int64{1, 2} {
		savepoint, err := native.Begin(t.Context())
		require.NoError(t, err)
		tx, err := client.Within(t.Context(), savepoint)
		require.NoError(t, err)
		placed, err := creation(tx.Order, id).SaveWith(t.Context(), s.eng, specOf)
		require.NoError(t, err)
		require.Equal(t, []string{"OpCreate"}, w.taken())
		if id == 1 {
			require.NoError(t, tx.Rollback())
			require.Equal(t, []string{"rolled back"}, w.taken())
			continue
		}
		require.NoError(t, tx.CommitBy(t.Context(), func(ctx context.Context) error {
			require.NoError(t, savepoint.Commit(ctx))
			require.Zero(t, s.instances())
			return native.Commit(ctx)
		}))
		require.Equal(t, []string{"committed"}, w.taken())
		s.reaches(*placed.InstanceID, fsm.StatusAwaitingSignal)
	}
	require.Equal(t, []int{1, 1, 1}, []int{s.instances(), s.count("orders"), s.count("visits")})
}

// A step's own transaction is one of the host's client: its hooks write into it before the commit,
// and learn of the commit once the outcome counts.
func TestClientInTx(t *testing.T) {
	t.Parallel()
	errStep := errors.New("the step refuses")
	for of, open := range clients {
		if of == "pgx, in a schema of its own" {
			continue // the pool has another search_path
		}
		for name, c := range map[string]struct {
			own    func(ctx context.Context, tx *ent.Tx, v *fsm.Visit[cart, int64]) (fsm.Outcome, error)
			want   []string
			status fsm.Status
			says   string
		}{
			"done": {func(_ context.Context, _ *ent.Tx, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				return v.Done(7), nil
			}, []string{"OpCreate", "query", "committed"}, fsm.StatusDone, ""},
			"an error": {func(context.Context, *ent.Tx, *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				return nil, errStep
			}, []string{"OpCreate", "query", "rolled back"}, fsm.StatusFailed, errStep.Error()},
			"a panic": {func(context.Context, *ent.Tx, *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				panic("in the host's function")
			}, []string{"OpCreate", "query", "rolled back"}, fsm.StatusFailed, "in the host's function"},
			"Commit": {func(_ context.Context, tx *ent.Tx, _ *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				return nil, tx.Commit()
			}, []string{"OpCreate", "query", "undone", "rolled back"}, fsm.StatusFailed, "the engine ends a step's own transaction"},
			"a deferred constraint": {func(ctx context.Context, tx *ent.Tx, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				return v.Done(7), tx.Order.Update().SetCustomer("twice").Exec(ctx)
			}, []string{"OpCreate", "query", "OpUpdate", "undone", "rolled back"}, fsm.StatusFailed, "duplicate key"},
		} {
			t.Run(of+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				_, err := s.pool.Exec(t.Context(), `CREATE TABLE twice (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
					CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO twice VALUES (1), (1); RETURN NULL; END $$;
					CREATE TRIGGER twice AFTER UPDATE ON orders FOR EACH ROW WHEN (NEW.customer = 'twice') EXECUTE FUNCTION twice()`)
				require.NoError(t, err)
				client := ent.NewClient(ent.Driver(open(s)))
				w := s.watch(t, client)
				first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
					return client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
						if err := creation(tx.Order, 1).Exec(ctx); err != nil {
							return nil, err
						}
						if n, err := tx.Order.Query().Count(ctx); err != nil || n != 1 {
							return nil, errors.Join(err, errors.New("the transaction does not see its order"))
						}
						if n := s.count("orders"); n != 0 {
							return nil, errors.New("to be seen before the commit")
						}
						if _, err := tx.Durable(engine.FromContext(ctx)).Insert(ctx, checkout.New(cart{}).Queue("nobody's")); err != nil {
							return nil, err
						}
						return c.own(ctx, tx, v)
					}), nil
				})
				s.first.Store(&first)
				id, err := s.eng.Insert(t.Context(), checkout.New(cart{Cents: 7}))
				require.NoError(t, err)
				_, err = checkout.Wait(within(t), s.eng, id)
				if c.says != "" {
					require.ErrorContains(t, err, c.says)
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, s.eng.Stop(context.Background())) // after which all hooks have run
				require.Equal(t, c.want, w.taken())
				n := map[bool]int{true: 1, false: 0}[c.status == fsm.StatusDone]
				require.Equal(t, []int{n, n, 1 + n}, []int{s.count("orders"), s.count("visits"), s.instances()})
			})
		}
	}
}

// The step of the guide, and a function that is nil.
func TestSettle(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pq"))
	first := step(settle(client))
	s.first.Store(&first)
	o, err := place(t.Context(), client, s.eng, "ada", 100)
	require.NoError(t, err)
	result, err := checkout.Wait(within(t), s.eng, *o.InstanceID)
	require.NoError(t, err)
	require.EqualValues(t, 100, result)
	o, err = client.Order.Get(t.Context(), o.ID)
	require.NoError(t, err)
	require.Zero(t, o.Cents)

	nothing := step(func(context.Context, *fsm.Visit[cart, int64]) (fsm.Outcome, error) { return client.InTx(nil), nil })
	s.first.Store(&nothing)
	o, err = place(t.Context(), client, s.eng, "ada", 100)
	require.NoError(t, err)
	_, err = checkout.Wait(within(t), s.eng, *o.InstanceID)
	require.ErrorContains(t, err, "InTx got a nil function")
}

// In a savepoint of a step, the hooks run around the engine's commit, if it is not rolled back to.
func TestWithinASavepointOfAStep(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := ent.NewClient(ent.Driver(entpgx.New(s.pool)))
	w := s.watch(t, client)
	first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			for _, id := range []int64{1, 2} {
				err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
					own, err := client.Within(ctx, savepoint)
					if err != nil {
						return err
					}
					if err := creation(own.Order, id).Exec(ctx); err != nil {
						return err
					}
					if id == 1 {
						return errHook
					}
					return nil
				})
				if err != nil && !errors.Is(err, errHook) {
					return nil, err
				}
			}
			return v.Done(1), nil
		}), nil
	})
	s.first.Store(&first)
	id, err := s.eng.Insert(t.Context(), checkout.New(cart{}))
	require.NoError(t, err)
	_, err = checkout.Wait(within(t), s.eng, id)
	require.NoError(t, err)
	require.NoError(t, s.eng.Stop(context.Background()))
	require.Equal(t, []string{"OpCreate", "OpCreate", "committed"}, w.taken())
	require.Equal(t, []int{1, 1}, []int{s.count("orders"), s.count("visits")})
}
