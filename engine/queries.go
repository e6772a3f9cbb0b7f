package engine

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/entpgx"
)

// Ent is the generated client on the engine's schema, for queries. It refuses mutations with ErrReadOnly, which names the verb to use: they
// would go past the fences. Its rows' states and results decode with Codec.
func (e *Engine) Ent() *ent.Client { return e.queries }

func queries(db *entpgx.Driver, schema string) *ent.Client {
	// ent leaves a quoted name as it is, and guesses what any other one means: ALL is a modifier to it, f(x) a function.
	schema = pgx.Identifier{schema}.Sanitize()
	client := ent.NewClient(
		ent.Driver(readOnly{db}),
		ent.AlternateSchema(ent.SchemaConfig{Instance: schema, Signal: schema}),
	)
	client.Use(refuse)
	return client
}

// instead names the verb to use, by what was tried.
var instead = map[string]string{
	"create " + ent.TypeInstance: "Engine.Insert inserts instances",
	"create " + ent.TypeSignal:   "Engine.Signal sends signals",
	ent.TypeInstance:             "instances change by their steps' outcomes, and end by the engine's GC",
	ent.TypeSignal:               "signals are consumed by outcomes",
}

func refuse(ent.Mutator) ent.Mutator {
	return ent.MutateFunc(func(_ context.Context, m ent.Mutation) (ent.Value, error) {
		verb := instead[m.Type()]
		if m.Op().Is(ent.OpCreate) {
			verb = instead["create "+m.Type()]
		}
		return nil, fmt.Errorf("%w: %s", ErrReadOnly, verb)
	})
}

// readOnly is the last line behind the hook: no query of ent is a statement without a result, and transactions are read-only to Postgres.
type readOnly struct{ *entpgx.Driver }

var _ dialect.Driver = readOnly{}

// Exec refuses.
func (readOnly) Exec(context.Context, string, any, any) error { return ErrReadOnly }

// Tx begins a read-only transaction.
func (r readOnly) Tx(ctx context.Context) (dialect.Tx, error) { return r.BeginTx(ctx, nil) }

// BeginTx begins a read-only transaction, e.g. of repeatable read for queries that must agree.
func (r readOnly) BeginTx(ctx context.Context, options *entsql.TxOptions) (dialect.Tx, error) {
	var o entsql.TxOptions
	if options != nil {
		o = *options
	}
	o.ReadOnly = true
	return r.Driver.BeginTx(ctx, &o)
}
