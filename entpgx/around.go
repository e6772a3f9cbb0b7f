package entpgx

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Around surrounds what a driver sends, e.g. to trace or count it. It calls send once, with ctx or
// a context made from it, and returns send's error as it is: the driver's users decide by it what
// to do next. It must not change stmts, nor call their Read. It may be called from several
// goroutines at a time.
//
// For a query of ent, send returns with the first row. Statements of ent have no Name.
type Around func(ctx context.Context, stmts []Stmt, send func(context.Context) error) error

// Around returns a driver on the same pool or transaction that calls f around everything it sends:
// the statements of each pipeline together, each other statement, BEGIN, COMMIT and ROLLBACK
// alone. f surrounds the functions that surround d already. The Tracer of pgx, set in the pool's
// configuration, sees the same as messages on a connection, and also what the host itself sends on
// that pool.
func (d *Driver) Around(f Around) *Driver {
	if d.tx != nil && d.after == nil {
		d.after = new([]func()) // one for both
	}
	outer := *d
	if inner := d.around; inner != nil {
		outer.around = func(ctx context.Context, stmts []Stmt, send func(context.Context) error) error {
			return f(ctx, stmts, func(ctx context.Context) error { return inner(ctx, stmts, send) })
		}
		return &outer
	}
	outer.around = f
	return &outer
}

// Surround calls send within what surrounds the driver: for statements that go another way than
// through its methods.
func (q queries) Surround(ctx context.Context, send func(context.Context) error, stmts ...Stmt) error {
	if q.around == nil {
		return send(ctx)
	}
	return q.around(ctx, stmts, send)
}

// QueryRow is a query of one row, as a pool and a transaction of pgx have it.
func (d *Driver) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	row := func(ctx context.Context) pgx.Row {
		if d.tx != nil {
			return d.tx.QueryRow(ctx, sql, args...)
		}
		return d.pool.QueryRow(ctx, sql, args...)
	}
	if d.around == nil {
		return row(ctx)
	}
	return scan(func(dest ...any) error {
		return d.around(ctx, []Stmt{{SQL: sql, Args: args}}, func(ctx context.Context) error { return row(ctx).Scan(dest...) })
	})
}

// scan is a row that is asked for when it is scanned.
type scan func(dest ...any) error

// Scan sends the query, and scans its row.
func (s scan) Scan(dest ...any) error { return s(dest...) }
