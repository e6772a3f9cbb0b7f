package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/entpgx"
)

// A proxy that pools transactions gives each transaction of a client to whichever session with
// Postgres is free. Prepared statements and advisory locks outlive a transaction, and are then in
// another session than the one that looks for them. No error says so: the first come and go, and
// the second are granted to everybody. So Start looks, where the Config relies on either.

const (
	// poolerRounds is how often two connections are compared. On a proxy with nothing else to do the
	// first round shows the exchange; the traffic of others can hide it, but hardly so many times.
	poolerRounds = 8
	// poolerPatience bounds the wait for a second session: a proxy that has only one to give never
	// gives another.
	poolerPatience = 10 * time.Second
)

// checkPooler returns an ErrPooler if the connections lead through a proxy that pools transactions,
// and the Config cannot work so.
func (e *Engine) checkPooler(ctx context.Context) error {
	mode := e.config.Pool.Config().ConnConfig.DefaultQueryExecMode
	named, unnamed := mode == pgx.QueryExecModeCacheStatement, mode == pgx.QueryExecModeDescribeExec
	locks := e.worker != nil && e.config.PartitionLock == LockAdvisory
	if !named && !unnamed && !locks {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, poolerPatience)
	defer cancel()
	found, err := e.pooler(limited, named)
	switch {
	case err == nil:
	case limited.Err() != nil && ctx.Err() == nil:
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot tell whether the proxy before Postgres pools transactions: it has no second session to give")
		return nil
	default:
		return fmt.Errorf("ask Postgres whether a proxy stands before it: %w", err)
	}
	return e.poolerFaults(found)
}

// poolerFaults returns the fields of the Config that a proxy makes wrong, in an ErrPooler.
func (e *Engine) poolerFaults(found pooler) error {
	mode := e.config.Pool.Config().ConnConfig.DefaultQueryExecMode
	named, unnamed := mode == pgx.QueryExecModeCacheStatement, mode == pgx.QueryExecModeDescribeExec
	locks := e.worker != nil && e.config.PartitionLock == LockAdvisory
	var f faults
	if found.transactions && (unnamed || named && !found.statements) {
		f.add("Pool", "pgx in mode %q relies on prepared statements: set ConnConfig.DefaultQueryExecMode to pgx.QueryExecModeExec, or let the "+
			"proxy keep them (PgBouncer 1.21 with max_prepared_statements, for pgx.QueryExecModeCacheStatement)", mode.String())
	}
	if found.transactions && locks {
		f.add("PartitionLock", "advisory locks need a session, which the proxy does not give: set engine.LockLease")
	}
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrPooler, errors.Join(f...))
}

// pooler describes the program between a client and Postgres.
type pooler struct {
	transactions bool // it pools transactions
	statements   bool // it keeps named statements all the same; only looked for if asked
}

// pooler asks one session for the process that serves it. Without a proxy that is the process which
// was named when the connection began. A proxy that may exchange it names a process that it made
// up, since it handles cancellations. Only then pooler takes a second look.
func (e *Engine) pooler(ctx context.Context, named bool) (pooler, error) {
	conn, err := e.config.Pool.Acquire(ctx)
	if err != nil {
		return pooler{}, err
	}
	defer conn.Release()
	p := prober{e.config.Driver}
	a := conn.Conn().PgConn()
	serving, err := p.backend(ctx, a, "")
	if err != nil || serving == a.PID() {
		return pooler{}, err
	}
	other, err := p.db.Dial(ctx)
	if err != nil {
		return pooler{}, err
	}
	defer other.Close(context.WithoutCancel(ctx))
	b := other.PgConn()
	var found pooler
	for range poolerRounds {
		if found.transactions, err = p.exchanges(ctx, a, b, serving); err != nil || found.transactions {
			break
		}
	}
	if err == nil && found.transactions && named {
		found.statements, err = p.keeps(ctx, a, b)
	}
	return found, err
}

// prober asks connections by the simple protocol, which needs nothing that a proxy might lose, and
// tells what surrounds the driver of it.
type prober struct{ db *entpgx.Driver }

// lookForProxy is the name of its statements.
const lookForProxy = "look for a proxy"

// exchanges reports whether b is served by the session that a had between two of a's transactions,
// or a by another one than it ever had, first. It asks the first of them first: with b in its only
// session, a proxy would let a wait. A proxy that gives its sessions in turns may give a the same
// one twice in a call, but not in the next one.
func (p prober) exchanges(ctx context.Context, a, b *pgconn.PgConn, first uint32) (bool, error) {
	before, err := p.backend(ctx, a, "")
	if err != nil || before != first {
		return err == nil, err
	}
	held, err := p.backend(ctx, b, beginIdle)
	if err != nil {
		return false, err
	}
	after := held
	if held != before {
		after, err = p.backend(ctx, a, "")
	}
	return after != before || held == before, errors.Join(err, p.simple(ctx, b, "ROLLBACK"))
}

// keeps reports whether a named statement can be used wherever a transaction lands. It stops at
// the first sign that it cannot: a session that does not know what its client has prepared, or
// knows what another client has prepared. Each round has a new name, since a statement that an
// earlier round left in some sessions would look like one that is kept.
func (p prober) keeps(ctx context.Context, a, b *pgconn.PgConn) (bool, error) {
	for range poolerRounds {
		err := p.keepsOne(ctx, a, b, "gendurable_"+rand.Text())
		if losesStatements(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// losesStatements reports whether an error says that a session does not know what its client has
// prepared, or knows what another client has.
func losesStatements(err error) bool {
	var reported *pgconn.PgError
	return errors.As(err, &reported) && (reported.Code == "26000" || reported.Code == "42P05")
}

func (p prober) keepsOne(ctx context.Context, a, b *pgconn.PgConn, name string) error {
	const select1 = "SELECT 1"
	if _, err := a.Prepare(ctx, name, select1, nil); err != nil {
		return err
	}
	// Nothing stays behind, as far as the proxy lets this reach what it closes.
	defer func() { _ = errors.Join(a.Deallocate(ctx, name), b.Deallocate(ctx, name)) }()
	run := func() error {
		return p.db.Surround(ctx, func(ctx context.Context) error { return a.ExecPrepared(ctx, name, nil, nil, nil).Read().Err },
			entpgx.Stmt{Name: lookForProxy, SQL: select1})
	}
	if err := errors.Join(run(), run()); err != nil { // twice: sessions may be given out in turns
		return err
	}
	if err := p.simple(ctx, b, beginIdle); err != nil {
		return err
	}
	_, err := b.Prepare(ctx, name, select1, nil)
	if err := errors.Join(err, p.simple(ctx, b, "ROLLBACK")); err != nil {
		return err
	}
	return run()
}

// beginIdle opens a transaction that may wait for the other connection, whatever the role's limits
// are.
const beginIdle = `BEGIN; SET LOCAL idle_in_transaction_session_timeout = '60s';
	SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'; `

// backend returns the process of Postgres that serves a connection, after some other statements.
func (p prober) backend(ctx context.Context, conn *pgconn.PgConn, after string) (pid uint32, err error) {
	sql := after + "SELECT pg_backend_pid()"
	err = p.db.Surround(ctx, func(ctx context.Context) error {
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return err
		}
		last := results[len(results)-1]
		if len(last.Rows) != 1 {
			return errors.New("pg_backend_pid() has no row")
		}
		parsed, err := strconv.ParseUint(string(last.Rows[0][0]), 10, 32)
		pid = uint32(parsed)
		return err
	}, entpgx.Stmt{Name: lookForProxy, SQL: sql})
	return pid, err
}

func (p prober) simple(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	return p.db.Surround(ctx, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, sql).ReadAll()
		return err
	}, entpgx.Stmt{Name: lookForProxy, SQL: sql})
}
