package engine

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/entpgx"
)

// Ent returns the generated client on the engine's schema, for queries. It refuses mutations, which
// would bypass the fences, with an ErrReadOnly that names the verb to use. Codec decodes the states
// and results of its rows.
func (e *Engine) Ent() *ent.Client { return e.queries }

func queries(db *entpgx.Driver, schema string) *ent.Client {
	// ent leaves a quoted name as it is, and guesses what any other one means: ALL is a modifier to
	// it, f(x) a function.
	schema = pgx.Identifier{schema}.Sanitize()
	client := ent.NewClient(
		ent.Driver(readOnly{db}),
		ent.AlternateSchema(ent.SchemaConfig{Instance: schema, Signal: schema, PausedQueue: schema, Worker: schema, Schedule: schema}),
	)
	client.Use(refuse)
	return client
}

// HasInstance returns a predicate for queries of the host's own ent client: it selects rows whose
// column holds the id of an instance that all of the given predicates accept; without any, of an
// instance that exists.
//
//	failed := eng.HasInstance(order.FieldInstanceID, instance.StatusEQ(fsm.StatusFailed))
//	client.Order.Query().Where(order.Customer("ada"), failed)
//
// The client has to be on the engine's database.
func (e *Engine) HasInstance(column string, all ...predicate.Instance) func(*entsql.Selector) {
	return func(s *entsql.Selector) {
		s.Where(entsql.In(s.C(column), e.instances(s, instance.FieldID, all)))
	}
}

// HasOccupant is like HasInstance, for rows without such a column: it selects rows whose id, behind
// a prefix, is the correlation key that an accepted instance occupies. Prefix "order:" and id 42
// make the key "order:42".
func (e *Engine) HasOccupant(prefix, column string, all ...predicate.Instance) func(*entsql.Selector) {
	return func(s *entsql.Selector) {
		s.Where(entsql.P(func(b *entsql.Builder) {
			b.WriteByte('(').Arg(prefix).WriteString("::text || ").Ident(s.C(column)).WriteString(") IN ")
			b.Wrap(func(b *entsql.Builder) { b.Join(e.instances(s, instance.FieldCorrelationGuard, all)) })
		}))
	}
}

// instances selects one column of the instances that all predicates accept.
func (e *Engine) instances(within *entsql.Selector, column string, all []predicate.Instance) *entsql.Selector {
	builder := entsql.Dialect(within.Dialect())
	table := builder.Table(instance.Table).Schema(pgx.Identifier{e.config.Schema}.Sanitize()).As("gendurable_instance")
	found := builder.Select(table.C(column)).From(table)
	found.WithContext(within.Context())
	for _, accepts := range all {
		accepts(found)
	}
	return found
}

// instead names the verb to use, by the mutation that was tried.
var instead = map[string]string{
	"create " + ent.TypeInstance: "Engine.Insert inserts instances",
	"create " + ent.TypeSignal:   "Engine.Signal sends signals",
	ent.TypeInstance:             "instances change by their steps' outcomes, and end by the engine's GC",
	ent.TypeSignal:               "signals are consumed by outcomes",
	ent.TypeSchedule:             "Config.Schedules declares schedules, and Admin has the verbs on them",
	"create " + ent.TypeSchedule: "Config.Schedules declares schedules",
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

// readOnly is the last line behind the hook. No query of ent is a statement without a result, and
// its transactions are read-only to Postgres.
type readOnly struct{ *entpgx.Driver }

var _ dialect.Driver = readOnly{}

// Exec returns ErrReadOnly.
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
