package hosts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/internal/tier"
)

// opaque wraps a driver and its transactions, as a host's tracing may: nothing but the methods of
// ent's interfaces is to be seen.
type opaque struct{ dialect.Driver }

type opaqueTx struct{ dialect.Tx }

func (o opaque) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := o.Driver.Tx(ctx)
	return opaqueTx{tx}, err
}

// wary is opaque, and its transactions pass no query on whose context has ended.
type wary struct{ opaque }

type waryTx struct{ opaqueTx }

func (w wary) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := w.Driver.Tx(ctx)
	return waryTx{opaqueTx{tx}}, err
}

func (w waryTx) Query(ctx context.Context, query string, args, v any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.opaqueTx.Query(ctx, query, args, v)
}

// borrowed is a driver in a transaction of the host: its own commits do nothing.
type borrowed struct{ dialect.Driver }

func (b borrowed) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(b), nil }

// wrappers are what a host may put around a driver.
var wrappers = map[string]func(dialect.Driver) dialect.Driver{
	"plain":          func(d dialect.Driver) dialect.Driver { return d },
	"debug":          quietly,
	"opaque":         func(d dialect.Driver) dialect.Driver { return opaque{d} },
	"debug, opaque":  func(d dialect.Driver) dialect.Driver { return quietly(opaque{d}) },
	"twice":          func(d dialect.Driver) dialect.Driver { return quietly(quietly(d)) },
	"opaque, opaque": func(d dialect.Driver) dialect.Driver { return opaque{opaque{d}} },
	"wary":           func(d dialect.Driver) dialect.Driver { return wary{opaque{d}} },
}

func quietly(d dialect.Driver) dialect.Driver {
	return dialect.DebugWithContext(d, func(context.Context, ...any) {})
}

// outermost is a transaction of a host whose client commits inside of it.
type outermost struct {
	client           *ent.Client
	commit, rollback func() error
	wakes            bool // whether the commit wakes the engine
}

// outers begin one.
var outers = map[string]func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost{
	"pgx": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[pgx.Tx](t)(s.pool.Begin(t.Context()))
		driver := entpgx.Within(tx)
		return outermost{ent.NewClient(ent.Driver(wrap(driver))), func() error {
			err := tx.Commit(t.Context())
			driver.Committed()
			return err
		}, func() error { return tx.Rollback(t.Context()) }, true}
	},
	"a savepoint of pgx": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[pgx.Tx](t)(s.pool.Begin(t.Context()))
		savepoint := must[pgx.Tx](t)(tx.Begin(t.Context()))
		driver := entpgx.New(s.pool).Within(savepoint)
		return outermost{ent.NewClient(ent.Driver(wrap(driver))), func() error {
			err := errors.Join(savepoint.Commit(t.Context()), tx.Commit(t.Context()))
			driver.Committed()
			return err
		}, func() error { return errors.Join(savepoint.Commit(t.Context()), tx.Rollback(t.Context())) }, true}
	},
	"Within, on entpgx": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		native := must[pgx.Tx](t)(s.pool.Begin(t.Context()))
		tx := must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entpgx.New(s.pool)))).Within(t.Context(), native))
		return outermost{tx.Client(), tx.Commit, tx.Rollback, true}
	},
	"Within, on database/sql": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		native := must[pgx.Tx](t)(s.pool.Begin(t.Context()))
		tx := must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entsql.OpenDB(dialect.Postgres, s.db("pq"))))).Within(t.Context(), native))
		return outermost{tx.Client(), tx.Commit, tx.Rollback, true}
	},
	"Within a savepoint, on entpgx": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		native := must[pgx.Tx](t)(s.pool.Begin(t.Context()))
		savepoint := must[pgx.Tx](t)(native.Begin(t.Context()))
		tx := must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entpgx.New(s.pool)))).Within(t.Context(), savepoint))
		return outermost{tx.Client(), func() error {
			if err := tx.Commit(); !errors.Is(err, entpgx.ErrNotOutermost) {
				return fmt.Errorf("the savepoint was committed: %w", err)
			}
			return tx.CommitBy(t.Context(), func(ctx context.Context) error {
				return errors.Join(savepoint.Commit(ctx), native.Commit(ctx))
			})
		}, func() error { return errors.Join(savepoint.Commit(t.Context()), native.Rollback(t.Context())) }, true}
	},
	"database/sql, borrowed": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[*sql.Tx](t)(s.db("pgx").BeginTx(t.Context(), nil))
		driver := borrowed{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}
		return outermost{ent.NewClient(ent.Driver(wrap(driver))), tx.Commit, tx.Rollback, false}
	},
	"lib/pq, borrowed": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[*sql.Tx](t)(s.db("pq").BeginTx(t.Context(), nil))
		driver := borrowed{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}
		return outermost{ent.NewClient(ent.Driver(wrap(driver))), tx.Commit, tx.Rollback, false}
	},
	"a client's, in debug mode": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entsql.OpenDB(dialect.Postgres, s.db("pq")))), ent.Log(func(...any) {})).Tx(t.Context()))
		return outermost{tx.Client().Debug(), tx.Commit, tx.Rollback, true}
	},
	"a client's, on entpgx in debug mode": func(t *testing.T, s *shop, wrap func(dialect.Driver) dialect.Driver) outermost {
		t.Helper()
		tx := must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entpgx.New(s.pool))), ent.Log(func(...any) {})).Tx(t.Context()))
		return outermost{tx.Client().Debug(), tx.Commit, tx.Rollback, true}
	},
}

// together reports whether a tier tries a wrapper with a driver: all with one of the drivers, and
// some with each, in the proof all with each.
func together(all bool, by string) bool {
	return all || tier.Long() || by == "plain" || by == "debug, opaque"
}

// onPgx reports whether a client stands on pgx itself, without database/sql.
func onPgx(of string) bool {
	return of == "pgx" || of == "a savepoint of pgx" || strings.Contains(of, "entpgx")
}

// Nothing of a transaction is told before the outermost commit, by any driver below any wrapper: no
// step is interrupted, and no scheduler claims in vain. The outermost commit tells all of it.
func TestNothingIsToldBeforeTheOutermostCommit(t *testing.T) {
	t.Parallel()
	for of, begin := range outers {
		for by, wrap := range wrappers {
			if !together(of == "pgx", by) {
				continue
			}
			t.Run(of+", "+by, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				client := s.client(s.db("pgx"))
				for i, end := range []string{"rollback", "commit"} {
					id := int64(2*i + 1)
					started, release, ended := s.running()
					o, err := creation(client.Order, id).SaveWith(t.Context(), s.eng, specOf)
					require.NoError(t, err)
					require.Equal(t, *o.InstanceID, <-started)

					outer := begin(t, s, wrap)
					t.Cleanup(func() { _ = outer.rollback() })
					told := s.cancelled.Load()
					require.NoError(t, outer.client.Order.DeleteOneID(id).ExecWith(t.Context(), s.eng))
					fresh, err := creation(outer.client.Order, id+1).SaveWith(t.Context(), s.eng, specOf)
					require.NoError(t, err)
					require.Equal(t, told, s.cancelled.Load(), "told before the commit")
					if end == "rollback" {
						require.NoError(t, outer.rollback())
						release()
						require.NoError(t, <-ended, "interrupted by what was rolled back")
						s.reaches(*o.InstanceID, fsm.StatusDone)
						require.Equal(t, told, s.cancelled.Load())
						continue
					}
					require.Empty(t, ended, "interrupted before the commit")
					require.NoError(t, outer.commit())
					// Below a wary wrapper on pgx the engine leaves it to the polls.
					if outer.wakes && (by != "wary" || !onPgx(of)) {
						require.ErrorIs(t, <-ended, fsm.ErrCancelled)
						require.Equal(t, told+1, s.cancelled.Load())
						require.Equal(t, *fresh.InstanceID, <-started, "the commit wakes the scheduler")
					}
					release()
				}
			})
		}
	}
}

// A commit that is the outermost is told at once, below each wrapper that lets it be known.
func TestACommitIsToldThroughWrappers(t *testing.T) {
	t.Parallel()
	for of, open := range clients {
		for by, wrap := range wrappers {
			if !together(of == "entpgx", by) || by == "wary" && strings.Contains(of, "entpgx") {
				continue
			}
			t.Run(of+", "+by, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				client := ent.NewClient(ent.Driver(wrap(open(s))))
				started, release, ended := s.running()
				defer release()
				o, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
				require.NoError(t, err)
				require.Equal(t, *o.InstanceID, <-started)
				tx, err := client.Tx(t.Context())
				require.NoError(t, err)
				require.NoError(t, tx.Order.DeleteOneID(1).ExecWith(t.Context(), s.eng))
				require.Empty(t, ended)
				require.NoError(t, tx.Commit())
				require.ErrorIs(t, <-ended, fsm.ErrCancelled)
			})
		}
	}
}

// A step's own transaction is the same below each wrapper that passes on the question for it: the
// step may delete its own entity, and nothing of it is told before its outcome counts.
func TestAStepsOwnTransactionThroughWrappers(t *testing.T) {
	t.Parallel()
	clientsOf := map[string]func(s *shop, tx pgx.Tx) *ent.Client{
		"debug mode": func(_ *shop, tx pgx.Tx) *ent.Client {
			return ent.NewClient(ent.Driver(entpgx.Within(tx)), ent.Log(func(...any) {})).Debug()
		},
	}
	for by, wrap := range wrappers {
		if by == "wary" {
			continue // the engine does not know the step
		}
		clientsOf[by] = func(_ *shop, tx pgx.Tx) *ent.Client { return ent.NewClient(ent.Driver(wrap(entpgx.Within(tx)))) }
		clientsOf["Within, "+by] = func(s *shop, tx pgx.Tx) *ent.Client {
			return must[*ent.Tx](t)(ent.NewClient(ent.Driver(wrap(entpgx.New(s.pool)))).Within(t.Context(), tx)).Client()
		}
	}
	for by, inside := range clientsOf {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			client := s.client(s.db("pgx"))
			started, release, ended := s.running()
			other, err := creation(client.Order, 9).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			require.Equal(t, *other.InstanceID, <-started)

			first := step(func(_ context.Context, v *fsm.Visit[cart, int64]) (fsm.Outcome, error) {
				if v.State.Order != 1 {
					return v.Done(v.State.Order), nil
				}
				return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
					eng, own := engine.FromContext(ctx), inside(s, tx)
					for _, id := range []int64{1, 9} {
						if err := own.Order.DeleteOneID(id).ExecWith(ctx, eng); err != nil {
							return nil, err
						}
					}
					if _, err := creation(own.Order, 2).SaveWith(ctx, eng, specOf); err != nil {
						return nil, err
					}
					if s.cancelled.Load() != 0 || len(ended) != 0 {
						return nil, errors.New("told before the outcome")
					}
					return v.Done(1), nil
				}), nil
			})
			s.first.Store(&first)
			o, err := creation(client.Order, 1).SaveWith(t.Context(), s.eng, specOf)
			require.NoError(t, err)
			_, err = checkout.Wait(within(t), s.eng, *o.InstanceID)
			require.NoError(t, err)
			release()
			s.reaches(*other.InstanceID, fsm.StatusFailed)
			next, err := client.Order.Query().Only(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, next.ID)
			_, err = checkout.Wait(within(t), s.eng, *next.InstanceID) // the engine has nudged
			require.NoError(t, err)
		})
	}
}
