package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Batches is a tracer of pgx that is called with each batch before pgx prepares it. It may change
// the statements: so a test shows that it notices a broken one.
type Batches func(queries []*pgx.QueuedQuery)

var _ pgx.BatchTracer = Batches(nil)

// TraceBatchStart implements [pgx.BatchTracer].
func (b Batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	b(data.Batch.QueuedQueries)
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (Batches) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements [pgx.BatchTracer].
func (Batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceQueryStart implements [pgx.QueryTracer], which pgx demands of a tracer.
func (Batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (Batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
