package interleave

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// mutant is a known-broken form of the engine's statements.
type mutant struct {
	name   string
	change func(session string, queries []*pgx.QueuedQuery)
}

// mutator applies a mutant to what a session sends: pgx shows each batch to its tracer before it is prepared.
type mutator struct {
	*mutant
	session string
}

func (m *mutator) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	m.change(m.session, data.Batch.QueuedQueries)
	return ctx
}

func (*mutator) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*mutator) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (*mutator) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*mutator) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
