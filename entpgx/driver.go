package entpgx

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTimeout bounds a ROLLBACK, which has to run although the caller's context may have ended.
const rollbackTimeout = 5 * time.Second

// Driver is ent's [dialect.Driver] over a pool ([New]) or inside a transaction ([Within]). Over a
// pool it is safe for concurrent use; inside a transaction it is not. The zero value is not usable.
type Driver struct {
	queries
	pool  *pgxpool.Pool // nil inside a transaction
	tx    pgx.Tx        // nil over a pool
	after *[]func()     // of AfterCommit; nil: none yet
}

var _ dialect.Driver = (*Driver)(nil)

// New returns a driver over the host's pool. Close does not close the pool.
func New(pool *pgxpool.Pool) *Driver {
	d := &Driver{queries: queries{db: pool}, pool: pool}
	if textOnly(pool.Config().ConnConfig.DefaultQueryExecMode) {
		d.db = pooled{pool}
	}
	return d
}

// Within returns a driver inside a transaction of the caller's, who also ends it, and then calls
// Committed. Transactions that the driver begins are savepoints.
func Within(tx pgx.Tx) *Driver { return within(tx, nil) }

// Within returns a driver like [Within] does, with everything that surrounds d.
func (d *Driver) Within(tx pgx.Tx) *Driver { return within(tx, d.around) }

func within(tx pgx.Tx, around Around) *Driver {
	d := &Driver{queries: queries{db: inTx{tx}, around: around}, tx: tx}
	d.native = Native{tx, d}
	return d
}

// Pool returns the host's pool; nil for a driver made by Within.
func (d *Driver) Pool() *pgxpool.Pool { return d.pool }

// Dialect returns [dialect.Postgres].
func (d *Driver) Dialect() string { return dialect.Postgres }

// Close does nothing: the pool or the transaction belongs to its maker.
func (d *Driver) Close() error { return nil }

// Dial opens a connection outside of the pool but with its configuration and hooks, for work that
// must neither wait for a free connection nor take one from the others. The caller closes it. A
// driver made by Within returns an error.
func (d *Driver) Dial(ctx context.Context) (*pgx.Conn, error) {
	if d.pool == nil {
		return nil, errors.New("dial a connection: the driver stands on a transaction, not on a pool")
	}
	config := d.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, fmt.Errorf("dial a connection: the pool's BeforeConnect: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("dial a connection: %w", err)
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			return nil, errors.Join(fmt.Errorf("dial a connection: the pool's AfterConnect: %w", err), conn.Close(ctx))
		}
	}
	return conn, nil
}

// Tx begins a transaction with the server's defaults; see BeginTx.
func (d *Driver) Tx(ctx context.Context) (dialect.Tx, error) {
	if a, ok := ctx.Value(adoptionKey{}).(*adoption); ok && !a.done {
		a.done = true
		return d.adopt(ctx, a.tx), nil
	}
	return d.BeginTx(ctx, nil)
}

// isolationLevels maps levels to Postgres' levels, whose repeatable read is snapshot isolation.
var isolationLevels = map[stdsql.IsolationLevel]pgx.TxIsoLevel{
	stdsql.LevelDefault:         "",
	stdsql.LevelReadUncommitted: pgx.ReadUncommitted,
	stdsql.LevelReadCommitted:   pgx.ReadCommitted,
	stdsql.LevelRepeatableRead:  pgx.RepeatableRead,
	stdsql.LevelSnapshot:        pgx.RepeatableRead,
	stdsql.LevelSerializable:    pgx.Serializable,
}

// BeginTx begins a transaction; nil options are the server's defaults. As in database/sql, ctx
// bounds the transaction up to its end: a Commit after ctx ended fails and commits nothing, while
// Rollback always runs. Inside a transaction (Within) it sets a savepoint, which takes no options.
func (d *Driver) BeginTx(ctx context.Context, options *entsql.TxOptions) (dialect.Tx, error) {
	if options == nil {
		options = &entsql.TxOptions{}
	}
	level, ok := isolationLevels[options.Isolation]
	if !ok {
		return nil, fmt.Errorf("begin a transaction: Postgres has no isolation level %q", options.Isolation)
	}
	var tx pgx.Tx
	err := d.Surround(ctx, func(ctx context.Context) (err error) {
		tx, err = d.begin(ctx, level, options.ReadOnly)
		return err
	}, Stmt{Name: "begin", SQL: "BEGIN"})
	if err != nil {
		return nil, fmt.Errorf("begin a transaction: %w", err)
	}
	undo := d.native.Outer.undo()
	return &Tx{
		queries: queries{db: inTx{tx}, around: d.around, native: Native{tx, d.native.Outer}},
		tx:      tx,
		commit:  func() error { return d.Surround(ctx, tx.Commit, Stmt{Name: "commit", SQL: "COMMIT"}) },
		rollback: func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			err := d.Surround(ctx, tx.Rollback, Stmt{Name: "rollback", SQL: "ROLLBACK"})
			if !errors.Is(err, pgx.ErrTxClosed) {
				undo()
			}
			return err
		},
	}, nil
}

func (d *Driver) begin(ctx context.Context, level pgx.TxIsoLevel, readOnly bool) (pgx.Tx, error) {
	if d.tx != nil {
		if level != "" || readOnly {
			return nil, errors.New("a savepoint takes no isolation level and no access mode")
		}
		return d.tx.Begin(ctx)
	}
	options := pgx.TxOptions{IsoLevel: level}
	if readOnly {
		options.AccessMode = pgx.ReadOnly
	}
	return d.pool.BeginTx(ctx, options)
}

// Tx is a transaction or a savepoint that a [Driver] began.
type Tx struct {
	queries
	tx               pgx.Tx
	commit, rollback func() error
}

var _ dialect.Tx = (*Tx)(nil)

// Pgx returns the native transaction, for statements beside ent's.
func (t *Tx) Pgx() pgx.Tx { return t.tx }

// Commit commits. If the connection or the context ends meanwhile, it is unknown whether the
// server did commit.
func (t *Tx) Commit() error { return t.commit() }

// Rollback rolls back. After a Commit it returns [pgx.ErrTxClosed].
func (t *Tx) Rollback() error { return t.rollback() }

// queries implements [dialect.ExecQuerier] on anything that runs statements.
type queries struct {
	db     runner
	around Around // nil: nothing
	native Native // of a transaction
}

type runner interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Exec runs a statement. args is a []any; v is nil, or a *sql.Result that receives the number of
// affected rows.
func (q queries) Exec(ctx context.Context, query string, args, v any) error {
	arguments, err := list(args)
	if err != nil {
		return err
	}
	switch v.(type) {
	case nil, *entsql.Result:
	default:
		return fmt.Errorf("run a statement: the result is a %T, want *sql.Result", v)
	}
	tag, err := q.exec(ctx, query, arguments)
	if err != nil {
		return constraint(err)
	}
	if result, ok := v.(*entsql.Result); ok {
		*result = affected(tag.RowsAffected())
	}
	return nil
}

func (q queries) exec(ctx context.Context, query string, args []any) (tag pgconn.CommandTag, err error) {
	if q.around == nil {
		return q.db.Exec(ctx, query, args...)
	}
	err = q.around(ctx, []Stmt{{SQL: query, Args: args}}, func(ctx context.Context) (err error) {
		tag, err = q.db.Exec(ctx, query, args...)
		return err
	})
	return tag, err
}

// Query runs a query. args is a []any; v is a *sql.Rows of ent, which the caller closes.
func (q queries) Query(ctx context.Context, query string, args, v any) error {
	target, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("run a query: the result is a %T, want *sql.Rows", v)
	}
	if q.asked(ctx) {
		return errAsked
	}
	arguments, err := list(args)
	if err != nil {
		return err
	}
	peeked, err := q.query(ctx, query, arguments)
	if err != nil {
		return constraint(err)
	}
	if ofBuilder(query) {
		target.ColumnScanner = peeked
		return nil
	}
	standard, err := peeked.standard() //nolint:rowserrcheck // ent reads them
	if err != nil {
		return err
	}
	target.ColumnScanner = standard
	return nil
}

// query runs a query and reads its first row. ent reads the columns before that. So an error of the
// server, such as a constraint that an INSERT … RETURNING violates, has to be returned here.
func (q queries) query(ctx context.Context, query string, args []any) (peeked *rows, err error) {
	args = append([]any{textButTimes}, args...)
	send := func(ctx context.Context) error {
		found, err := q.db.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		peeked = peek(found)
		if err := found.Err(); !peeked.first && err != nil {
			return err
		}
		return nil
	}
	if q.around == nil {
		return peeked, send(ctx)
	}
	err = q.around(ctx, []Stmt{{SQL: query, Args: args[1:]}}, send)
	return peeked, err
}

// list returns the arguments in the form in which ent passes them.
func list(args any) ([]any, error) {
	arguments, ok := args.([]any)
	if !ok && args != nil {
		return nil, fmt.Errorf("run a statement: the arguments are a %T, want []any", args)
	}
	return arguments, nil
}

// affected is the number of rows that a statement affected.
type affected int64

// LastInsertId always fails: Postgres reports ids through RETURNING.
func (affected) LastInsertId() (int64, error) {
	return 0, errors.New("postgres has no last insert id; use RETURNING")
}

// RowsAffected returns the number of rows; it never fails.
func (a affected) RowsAffected() (int64, error) { return int64(a), nil }
