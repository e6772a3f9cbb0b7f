package entpgx_test

import (
	"context"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

// wrapped is a driver of a host, of which only ent's interface is to be seen. Its transactions may
// get another context than the caller's.
type wrapped struct {
	dialect.Driver
	context func(context.Context) context.Context
}

func (w wrapped) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := w.Driver.Tx(w.context(ctx))
	if err != nil {
		return nil, err
	}
	return unknown{tx}, nil
}

// hosted is a transaction of a host's own type.
type hosted struct{ pgx.Tx }

// frank is one that says that its commit is the outermost.
type frank struct{ pgx.Tx }

func (frank) Outermost() bool { return true }

// inWidePools runs the test once per exec mode, on a pool of several connections.
func inWidePools(t *testing.T, test func(t *testing.T, driver *entpgx.Driver)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newDriver(t, item, mode, func(config *pgxpool.Config) { config.MaxConns = 6 }))
		})
	}
}

// An adopted transaction commits only if that is the outermost commit, and rolls back in any case.
func TestAdopt(t *testing.T) {
	inWidePools(t, func(t *testing.T, driver *entpgx.Driver) {
		pool := driver.Pool()
		ctx := t.Context()
		conn, err := pool.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		begins := map[string]struct {
			begin     func() (pgx.Tx, error)
			outermost bool
		}{
			"a pool's":       {func() (pgx.Tx, error) { return pool.Begin(ctx) }, true},
			"a connection's": {func() (pgx.Tx, error) { return conn.Conn().Begin(ctx) }, true},
			"a frank host's": {func() (pgx.Tx, error) { tx, err := pool.Begin(ctx); return frank{tx}, err }, true},
			"a host's":       {func() (pgx.Tx, error) { tx, err := pool.Begin(ctx); return hosted{tx}, err }, false},
		}
		for of, c := range begins {
			for _, savepoint := range []bool{false, true} {
				outer, err := c.begin()
				require.NoError(t, err, of)
				defer outer.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test fails
				tx := outer
				if savepoint {
					tx, err = outer.Begin(ctx)
					require.NoError(t, err, of)
				}
				before := count(t, entpgx.New(pool))
				adopted, err := entpgx.Adopt(ctx, entpgx.New(pool), tx)
				require.NoError(t, err)
				_, err = insert(ctx, adopted, plain(uuid.New()))
				require.NoError(t, err)
				if c.outermost && !savepoint {
					require.NoError(t, adopted.Commit(), of)
					require.Equal(t, before+1, count(t, entpgx.New(pool)))
					continue
				}
				require.ErrorIs(t, adopted.Commit(), entpgx.ErrNotOutermost, of)
				require.Equal(t, 1+before, count(t, adopted), "%s: it goes on", of)
				require.NoError(t, adopted.Rollback())
				require.NoError(t, ended(outer, savepoint))
				require.Equal(t, before, count(t, entpgx.New(pool)), of)
			}
		}
		_, err = entpgx.Adopt(ctx, entpgx.New(pool), nil)
		require.ErrorContains(t, err, "it is nil")
	})
}

// ended commits what is left of a transaction.
func ended(outer pgx.Tx, left bool) error {
	if !left {
		return nil
	}
	return outer.Commit(context.Background())
}

// A driver's Around, its debug mode and its wrappers also surround the transaction that it adopts,
// and no other one is begun.
func TestAdoptKeepsWhatSurroundsTheDriver(t *testing.T) {
	inWidePools(t, func(t *testing.T, driver *entpgx.Driver) {
		pool := driver.Pool()
		ctx := t.Context()
		seen, logged := 0, 0
		bare := entpgx.New(pool).Around(func(ctx context.Context, _ []entpgx.Stmt, send func(context.Context) error) error {
			seen++
			return send(ctx)
		})
		debug := func(d dialect.Driver) dialect.Driver {
			return dialect.DebugWithContext(d, func(context.Context, ...any) { logged++ })
		}
		same := func(ctx context.Context) context.Context { return ctx }
		other := func(context.Context) context.Context { return context.Background() }
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		for name, c := range map[string]struct {
			driver       dialect.Driver
			seen, logged bool
		}{
			"itself":                    {bare, true, false},
			"debug":                     {debug(bare), true, true},
			"wrapped":                   {wrapped{bare, same}, true, false},
			"debug, wrapped":            {debug(wrapped{bare, same}), true, true},
			"wrapped, debug":            {wrapped{debug(bare), same}, true, true},
			"with another context":      {wrapped{bare, other}, false, false},
			"debug, another context":    {debug(wrapped{bare, other}), false, true},
			"database/sql":              {entsql.OpenDB(dialect.Postgres, db), false, false},
			"debug, database/sql":       {debug(entsql.OpenDB(dialect.Postgres, db)), false, true},
			"wrapped, database/sql":     {wrapped{entsql.OpenDB(dialect.Postgres, db), same}, false, false},
			"no driver":                 {nil, false, false},
			"a driver in a transaction": {entpgx.Within(nil), false, false},
		} {
			t.Run(name, func(t *testing.T) {
				tx, err := pool.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test fails
				acquired := pool.Stat().AcquiredConns()
				adopted, err := entpgx.Adopt(ctx, c.driver, tx)
				require.NoError(t, err)
				require.Equal(t, acquired, pool.Stat().AcquiredConns(), "no other transaction is left open")
				seen, logged = 0, 0
				_, err = insert(ctx, adopted, plain(uuid.New()))
				require.NoError(t, err)
				native, ok := entpgx.NativeOf(adopted)
				require.True(t, ok)
				require.Equal(t, entpgx.Native{Tx: tx}, native)
				require.NoError(t, adopted.Commit())
				require.Equal(t, []bool{c.seen, c.logged}, []bool{seen > 0, logged > 0})
			})
		}
	})
}
