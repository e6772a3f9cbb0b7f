package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// hostTx is a transaction of a host: the engine inside it, and what the host does with it itself.
type hostTx struct {
	*engine.Tx
	exec             func(sql string) error
	text             func(sql string) (string, error)
	commit, rollback func() error
}

// hosts are the ways to begin one. Those that need another module are tested in integration/hosts.
var hosts = map[string]func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, level sql.IsolationLevel) hostTx{
	"pgx": func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, level sql.IsolationLevel) hostTx {
		t.Helper()
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(strings.ToLower(level.String()))})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return hostTx{
			Tx:     e.WithPgx(tx),
			exec:   func(sql string) error { _, err := tx.Exec(t.Context(), sql); return err },
			text:   func(sql string) (s string, err error) { err = tx.QueryRow(t.Context(), sql).Scan(&s); return s, err },
			commit: func() error { return tx.Commit(t.Context()) }, rollback: func() error { return tx.Rollback(t.Context()) },
		}
	},
	"database/sql": func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, level sql.IsolationLevel) hostTx {
		t.Helper()
		db := stdlib.OpenDBFromPool(pool)
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = tx.Rollback()
			_ = db.Close()
		})
		return hostTx{
			Tx:   e.WithSQL(tx),
			exec: func(sql string) error { _, err := tx.ExecContext(t.Context(), sql); return err },
			text: func(sql string) (s string, err error) {
				err = tx.QueryRowContext(t.Context(), sql).Scan(&s)
				return s, err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
}

// entDrivers are drivers of ent over a pool, with functions that close them.
var entDrivers = map[string]func(pool *pgxpool.Pool) (dialect.Driver, func()){
	"ent over database/sql": func(pool *pgxpool.Pool) (dialect.Driver, func()) {
		db := stdlib.OpenDBFromPool(pool)
		return entsql.OpenDB(dialect.Postgres, db), func() { _ = db.Close() }
	},
	"ent over pgx": func(pool *pgxpool.Pool) (dialect.Driver, func()) { return entpgx.New(pool), func() {} },
	"ent over pgx, wrapped": func(pool *pgxpool.Pool) (dialect.Driver, func()) {
		return dialect.DebugWithContext(entpgx.New(pool), func(context.Context, ...any) {}), func() {}
	},
}

func init() { //nolint:gochecknoinits // the table above is read by the one below
	for name, open := range entDrivers {
		hosts[name] = func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, level sql.IsolationLevel) hostTx {
			t.Helper()
			driver, done := open(pool)
			tx, err := driver.(interface {
				BeginTx(ctx context.Context, options *entsql.TxOptions) (dialect.Tx, error)
			}).BeginTx(t.Context(), &entsql.TxOptions{Isolation: level})
			require.NoError(t, err)
			t.Cleanup(func() {
				_ = tx.Rollback()
				done()
			})
			return hostTx{
				Tx:   e.WithEnt(tx),
				exec: func(sql string) error { return tx.Exec(t.Context(), sql, []any{}, nil) },
				text: func(sql string) (string, error) {
					rows := &entsql.Rows{}
					if err := tx.Query(t.Context(), sql, []any{}, rows); err != nil {
						return "", err
					}
					defer rows.Close()
					return entsql.ScanString(rows)
				},
				commit: tx.Commit, rollback: tx.Rollback,
			}
		}
	}
}

// onEachHost runs a test in every kind of transaction, each on a separate engine.
func onEachHost(t *testing.T, change func(*engine.Config), test func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx)) {
	t.Helper()
	t.Parallel()
	for name, begin := range hosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.Migrated(t))
			e := open(t, pool, change)
			test(t, e, pool, func(level ...sql.IsolationLevel) hostTx {
				return begin(t, e, pool, append(level, sql.LevelReadCommitted)[0])
			})
		})
	}
}

func plainly(*engine.Config) {}

func number(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n), sql)
	return n
}

const (
	countInstances = `SELECT count(*) FROM gendurable.gen_durable`
	countSignals   = `SELECT count(*) FROM gendurable.signals`
)

// Every verb: nothing to be seen before the commit or after a rollback, everything after the
// commit.
func TestTxIsTheHosts(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		occupant, err := e.Insert(t.Context(), ticket.New("old").Key("old"))
		require.NoError(t, err)
		for _, end := range []string{"rollback", "commit"} {
			tx := begin()
			id, err := tx.Insert(t.Context(), ticket.New("1").Key("new"))
			require.NoError(t, err)
			many, err := tx.InsertMany(t.Context(), []fsm.Spec{echoes.New("2"), echoes.New("3").Key("old"), echoes.New("4").Key("four"), echoes.New("5").Key("four")})
			require.NoError(t, err)
			require.Equal(t, []bool{false, true, false, true}, []bool{many[0].Duplicate, many[1].Duplicate, many[2].Duplicate, many[3].Duplicate})
			require.Equal(t, occupant, many[1].ID)
			require.Equal(t, many[2].ID, many[3].ID)
			plain, err := tx.InsertMany(t.Context(), []fsm.Spec{echoes.New("6"), echoes.New("7").After(time.Hour).Priority(3)})
			require.NoError(t, err)
			require.Less(t, plain[0].ID, plain[1].ID)
			got, err := tx.GetOrInsert(t.Context(), ticket.New("8").Key("new"))
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: id, Duplicate: true}, got)
			for _, to := range []fsm.Target{occupant, fsm.Key("old"), fsm.Key("new")} {
				d, err := tx.Signal(t.Context(), to, paid.With(1).DedupKey(fmt.Sprint(to)))
				require.NoError(t, err)
				require.False(t, d.Duplicate)
				d, err = tx.Signal(t.Context(), to, paid.With(1).DedupKey(fmt.Sprint(to)))
				require.NoError(t, err)
				require.True(t, d.Duplicate)
			}
			sent, err := tx.SignalOrInsert(t.Context(), ticket.New("9").Key("old"), paid.With(2))
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: occupant, Duplicate: true}, sent)
			fresh, err := tx.SignalOrInsert(t.Context(), ticket.New("10").Key("ten"), paid.With(3))
			require.NoError(t, err)
			require.False(t, fresh.Duplicate)
			sent, err = tx.SignalOrInsert(t.Context(), ticket.New("11").Key("ten"), paid.With(4))
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: fresh.ID, Duplicate: true}, sent)

			require.Equal(t, 1, number(t, pool, countInstances), "not committed yet")
			require.Zero(t, number(t, pool, countSignals))
			if end == "rollback" {
				require.NoError(t, tx.rollback())
				require.Equal(t, 1, number(t, pool, countInstances))
				require.Zero(t, number(t, pool, countSignals))
				continue
			}
			require.NoError(t, tx.commit())
			require.Equal(t, 7, number(t, pool, countInstances))
			require.Equal(t, 6, number(t, pool, countSignals))
			i, err := e.Get(t.Context(), plain[1].ID)
			require.NoError(t, err)
			require.Equal(t, 3, i.Priority)
			require.WithinDuration(t, time.Now().Add(time.Hour), i.EligibleAt, time.Minute)
		}
	})
}

// What no driver may mangle: arrays travel as text through database/sql.
func TestTxCarriesAnyText(t *testing.T) {
	nasty := []string{`"`, `\`, `{}`, `,`, `NULL`, ` `, "'", "\n", `\"`, "é漢😀", `a"b\c{d}e,f'g`, `\\N`, "%s", "$1"}
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		at := time.Date(2031, 2, 3, 4, 5, 6, 789_012_000, time.FixedZone("", 3*3600))
		var specs []fsm.Spec
		for _, s := range nasty {
			specs = append(specs, echoes.New(s).Key(fsm.Key(s)).PartitionKey(s).Queue(s).Step(s).At(at))
		}
		tx := begin()
		in, err := tx.InsertMany(t.Context(), specs)
		require.NoError(t, err)
		for i, s := range nasty {
			_, err := tx.Signal(t.Context(), in[i].ID, fsm.DeclareSignal[string](s).With(s).DedupKey(s))
			require.NoError(t, err)
		}
		require.NoError(t, tx.commit())
		for i, s := range nasty {
			got, err := echoes.Get(t.Context(), e, fsm.Key(s))
			require.NoError(t, err)
			require.Equal(t, in[i].ID, got.ID)
			require.Equal(t, []string{s, s, s, s}, []string{got.State, got.PartitionKey, got.Queue, got.Step})
			require.True(t, got.EligibleAt.Equal(at), got.EligibleAt)
			var name, payload, key string
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT name, payload #>> '{}', dedup_key FROM gendurable.signals WHERE target_id = $1`,
				int64(got.ID)).Scan(&name, &payload, &key))
			require.Equal(t, []string{s, s, s}, []string{name, payload, key})
		}
	})
}

// Whatever the engine itself says leaves the transaction usable.
func TestTxSurvivesTheEnginesErrors(t *testing.T) {
	change := func(c *engine.Config) { c.Limits = engine.Limits{Inbox: 1, PayloadBytes: 100} }
	onEachHost(t, change, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		id, err := e.Insert(t.Context(), ticket.New("A1").Key("seat"))
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, correlation_key, correlation_scope)
			VALUES ('m', 's', 'done', now(), 'kept', '{runnable,executing,awaiting_signal,awaiting_children,done}')`)
		require.NoError(t, err)
		tx := begin()
		require.NoError(t, tx.exec(`CREATE TABLE hosts_own (id int)`))

		_, err = tx.Insert(t.Context(), ticket.New("x").Key("seat"))
		taken, ok := errors.AsType[*engine.DuplicateError](err)
		require.True(t, ok, err)
		require.Equal(t, id, taken.Occupant)
		for _, wrong := range []fsm.Spec{
			ticket.New("x").Key(""), ticket.New("x").Key("\x00"), ticket.New("x").Queue(""), ticket.New(strings.Repeat("x", 100)), {},
		} {
			_, err := tx.Insert(t.Context(), wrong)
			require.ErrorAs(t, err, new(*engine.InsertError))
			_, err = tx.InsertMany(t.Context(), []fsm.Spec{ticket.New("x"), wrong})
			bad, ok := errors.AsType[*engine.InsertError](err)
			require.True(t, ok)
			require.Equal(t, 1, bad.Index)
			_, err = tx.GetOrInsert(t.Context(), wrong)
			require.ErrorAs(t, err, new(*engine.InsertError))
			_, err = tx.SignalOrInsert(t.Context(), wrong, paid.With(1))
			require.ErrorAs(t, err, new(*engine.InsertError))
		}
		for _, nobody := range []fsm.Target{nil, fsm.ID(0), fsm.ID(1 << 40), fsm.Key(""), fsm.Key("nobody's"), fsm.Key("kept")} {
			_, err := tx.Signal(t.Context(), nobody, paid.With(1))
			require.ErrorIs(t, err, engine.ErrNoTarget, "%v", nobody)
		}
		_, err = tx.SignalOrInsert(t.Context(), ticket.New("x").Key("kept"), paid.With(1))
		require.ErrorIs(t, err, engine.ErrNoTarget)
		require.ErrorIs(t, err, engine.ErrDuplicate)
		_, err = tx.Signal(t.Context(), id, fsm.DeclareSignal[string]("s").With(strings.Repeat("x", 100)))
		require.ErrorIs(t, err, engine.ErrTooLarge)
		_, err = tx.Signal(t.Context(), id, fsm.DeclareSignal[string]("").With(""))
		require.ErrorAs(t, err, new(*fsm.MessageError))
		_, err = tx.Signal(t.Context(), id, paid.With(1))
		require.NoError(t, err)
		_, err = tx.Signal(t.Context(), id, paid.With(2))
		require.ErrorIs(t, err, engine.ErrInboxFull)
		_, err = tx.SignalOrInsert(t.Context(), ticket.New("x").Key("seat"), paid.With(2))
		require.ErrorIs(t, err, engine.ErrInboxFull)

		require.NoError(t, tx.commit())
		require.Zero(t, number(t, pool, `SELECT count(*) FROM hosts_own`))
		require.Equal(t, 1, number(t, pool, countSignals))
		require.Equal(t, 2, number(t, pool, countInstances))
	})
}

// What only Postgres can refuse has aborted the transaction, as after any statement of the host; a
// savepoint saves it.
func TestTxIsAbortedByPostgres(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, _ *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		_, err := pool.Exec(t.Context(), `ALTER TABLE gendurable.gen_durable ADD CHECK (priority < 100)`)
		require.NoError(t, err)
		refuse := func(tx hostTx) {
			_, err := tx.Insert(t.Context(), echoes.New("x").Priority(100))
			refused, ok := errors.AsType[*pgconn.PgError](err)
			require.True(t, ok, err)
			require.Equal(t, "23514", refused.Code)
			require.ErrorContains(t, err, "in your transaction")
		}
		tx := begin()
		refuse(tx)
		_, err = tx.Insert(t.Context(), echoes.New("x"))
		require.ErrorContains(t, err, "25P02")
		require.NoError(t, tx.rollback())

		tx = begin()
		require.NoError(t, tx.exec(`SAVEPOINT before`))
		refuse(tx)
		require.NoError(t, tx.exec(`ROLLBACK TO before`))
		_, err = tx.Insert(t.Context(), echoes.New("x"))
		require.NoError(t, err)
		require.NoError(t, tx.commit())
		require.Equal(t, 1, number(t, pool, countInstances))
	})
}

// T92: the search_path is the host's, with tables of the same names in it; and every setting is as
// it was.
func TestTxLeavesSettingsAlone(t *testing.T) {
	const settings = `SELECT string_agg(name || '=' || setting, E'\n' ORDER BY name) || coalesce(current_setting('gendurable.target', true), '') FROM pg_settings`
	onEachHost(t, plainly, func(t *testing.T, _ *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		_, err := pool.Exec(t.Context(), `CREATE TABLE gen_durable (id bigint); CREATE TABLE signals (id bigint); CREATE TYPE durable_status AS ENUM ('x');
			CREATE SEQUENCE gen_durable_id_seq START 77`)
		require.NoError(t, err)
		for _, path := range []string{`''`, `public`, `pg_temp`, `"no such schema"`} {
			tx := begin()
			require.NoError(t, tx.exec(`SET LOCAL search_path = `+path+`; SET LOCAL lock_timeout = 1234; SET LOCAL statement_timeout = 56789`))
			before, err := tx.text(settings)
			require.NoError(t, err)
			id, err := tx.Insert(t.Context(), ticket.New("x").Key(fsm.Key(path)))
			require.NoError(t, err)
			_, err = tx.Signal(t.Context(), id, paid.With(1))
			require.NoError(t, err)
			_, err = tx.Signal(t.Context(), fsm.Key("nobody's"), paid.With(1))
			require.ErrorIs(t, err, engine.ErrNoTarget)
			_, err = tx.SignalOrInsert(t.Context(), ticket.New("x").Key(fsm.Key("or "+path)), paid.With(1))
			require.NoError(t, err)
			after, err := tx.text(settings)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoError(t, tx.commit())
		}
		require.Equal(t, 8, number(t, pool, countInstances))
		require.Equal(t, 8, number(t, pool, countSignals))
	})
}

// Under a stricter isolation the verbs work, and what they cannot serialize is the host's to
// repeat.
func TestTxUnderStricterIsolation(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		for n, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			key := fsm.Key(fmt.Sprint("k", n))
			id, err := e.Insert(t.Context(), ticket.New("x").Key(key))
			require.NoError(t, err)
			for attempt := range 2 {
				tx := begin(level)
				_, err := tx.text(`SELECT count(*)::text FROM gendurable.gen_durable`) // the snapshot
				require.NoError(t, err)
				if attempt == 0 {
					_, err := pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET priority = 1 WHERE id = $1`, int64(id))
					require.NoError(t, err)
					_, err = tx.Signal(t.Context(), key, paid.With(1))
					require.ErrorContains(t, err, "40001")
					require.NoError(t, tx.rollback())
					continue
				}
				_, err = tx.Signal(t.Context(), key, paid.With(1))
				require.NoError(t, err)
				_, err = tx.SignalOrInsert(t.Context(), ticket.New("x").Key(key+" or"), paid.With(1))
				require.NoError(t, err)
				require.NoError(t, tx.commit())
			}
		}
		require.Equal(t, 4, number(t, pool, countSignals))
	})
}

// After the commit a Nudge runs what was written, though the queue polls once an hour.
func TestTxNudges(t *testing.T) {
	onEachHost(t, rarely, func(t *testing.T, e *engine.Engine, _ *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
		tx := begin()
		id, err := tx.Insert(t.Context(), ticket.New("A1"))
		require.NoError(t, err)
		require.NoError(t, tx.commit())
		tx.Nudge()
		parked(t, e, id)
		tx = begin()
		_, err = tx.Signal(t.Context(), id, paid.With(1))
		require.NoError(t, err)
		fresh, err := tx.SignalOrInsert(t.Context(), ticket.New("A2").Key("seat"), paid.With(1))
		require.NoError(t, err)
		require.NoError(t, tx.commit())
		tx.Nudge()
		for _, id := range []fsm.ID{id, fresh.ID} {
			_, err := ticket.Wait(within(t), e, id)
			require.NoError(t, err)
		}
	})
}

// T86: a transaction held open delays the instances that it signalled and the keys that it
// inserted, and no others.
func TestAnOpenTxDelaysItsTargetsOnly(t *testing.T) {
	change := func(c *engine.Config) {
		rarely(c)
		c.Queues = map[string]engine.Queue{"default": {}}
	}
	onEachHost(t, change, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
		var tickets []fsm.Spec
		for n := range 100 {
			tickets = append(tickets, ticket.New("x").Key(fsm.Key(fmt.Sprint("seat ", n))))
		}
		in, err := e.InsertMany(t.Context(), tickets)
		require.NoError(t, err)
		target := in[0].ID
		for _, one := range in {
			parked(t, e, one.ID)
		}

		tx := begin()
		_, err = tx.Signal(t.Context(), target, paid.With(1))
		require.NoError(t, err)
		mine, err := tx.Insert(t.Context(), echoes.New("mine").Key("mine").After(time.Hour)) // its key stays taken
		require.NoError(t, err)
		_, err = tx.SignalOrInsert(t.Context(), ticket.New("mine").Key("mine too"), paid.With(1))
		require.NoError(t, err)

		// All others are signalled, run and end meanwhile, and others are inserted.
		for _, one := range in[1:] {
			_, err := e.Signal(t.Context(), one.ID, paid.With(1))
			require.NoError(t, err)
		}
		others, err := e.InsertMany(t.Context(), []fsm.Spec{echoes.New("x"), echoes.New("y").Key("other")})
		require.NoError(t, err)
		for _, one := range append(in[1:], others...) {
			_, err := e.Wait(within(t), one.ID)
			require.NoError(t, err)
		}
		i, err := e.Get(t.Context(), target)
		require.NoError(t, err)
		require.Equal(t, fsm.StatusAwaitingSignal, i.Status)

		// An insert of the same key waits, and then finds it taken.
		found := make(chan engine.Inserted, 1)
		go func() {
			in, err := e.GetOrInsert(context.Background(), echoes.New("theirs").Key("mine"))
			if err == nil {
				found <- in
			}
		}()
		require.Eventually(t, func() bool {
			return number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
		}, testPatience, testGlance)
		require.NoError(t, tx.commit())
		tx.Nudge()
		require.Equal(t, engine.Inserted{ID: mine, Duplicate: true}, <-found)
		_, err = ticket.Wait(within(t), e, target)
		require.NoError(t, err)
	})
}

func TestTxOfNothing(t *testing.T) {
	t.Parallel()
	e := open(t, nowhere(t, 2))
	for _, tx := range []*engine.Tx{e.WithPgx(nil), e.WithSQL(nil)} {
		_, err := tx.Insert(t.Context(), echoes.New("x"))
		require.ErrorContains(t, err, "transaction is nil")
		_, err = tx.Signal(t.Context(), fsm.ID(1), paid.With(1))
		require.ErrorContains(t, err, "transaction is nil")
		_, err = tx.SignalOrInsert(t.Context(), echoes.New("x").Key("k"), paid.With(1))
		require.ErrorContains(t, err, "transaction is nil")
	}
}

// A verb in a transaction that has ended writes nothing, not even in whatever its connection does
// now.
func TestTxThatHasEnded(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, _ *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		tx := begin()
		require.NoError(t, tx.commit())
		_, err := tx.Insert(t.Context(), echoes.New("x").Key("k"))
		require.Error(t, err)
		_, err = tx.Signal(t.Context(), fsm.ID(1), paid.With(1))
		require.Error(t, err)
		require.Zero(t, number(t, pool, countInstances))
	})
}

// T10: two transactions of hosts that signal the same targets in opposite orders. Postgres ends one
// of them, which is told, and whose signals are gone with it; the other's are delivered.
func TestTxsThatSignalInOppositeOrders(t *testing.T) {
	onEachHost(t, plainly, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		targets := make([]fsm.ID, 2)
		for n := range targets {
			var err error
			targets[n], err = e.Insert(t.Context(), ticket.New("x"))
			require.NoError(t, err)
		}
		ends := make(chan error)
		txs := []hostTx{begin(), begin()}
		for n, tx := range txs {
			require.NoError(t, tx.exec(`SET LOCAL deadlock_timeout = '10ms'`))
			_, err := tx.Signal(t.Context(), targets[n], paid.With(n))
			require.NoError(t, err)
		}
		for n, tx := range txs {
			go func() {
				_, err := tx.Signal(context.Background(), targets[1-n], paid.With(n))
				if err == nil {
					err = tx.commit()
				} else {
					_ = tx.rollback()
				}
				ends <- err
			}()
		}
		failed := errors.Join(<-ends, <-ends)
		pg, ok := errors.AsType[*pgconn.PgError](failed)
		require.True(t, ok, "%v", failed)
		require.Equal(t, "40P01", pg.Code)
		require.Equal(t, 2, number(t, pool, countSignals))
	})
}
