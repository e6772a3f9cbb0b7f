package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
)

// Ent returns the generated client on the engine's schema, for queries. It has no method that
// writes, since a write would bypass the fences: Insert, Signal and Admin have the verbs. Its
// transactions are read-only to Postgres. Codec decodes the states and results of its rows.
//
// Each call returns a new client, and the engine's own reads use none of them. An interceptor holds
// for the returned client only: keep that client, and use it for each query. The next call returns
// one without the interceptor.
func (e *Engine) Ent() *ent.Client { return queries(e.config.Driver, e.config.Schema) }

// EntOn is like [Engine.Ent], through another driver on the same database, for example a host's
// transaction: the client sees what the transaction has written.
func (e *Engine) EntOn(driver dialect.Driver) *ent.Client { return queries(driver, e.config.Schema) }

func queries(db dialect.Driver, schema string) *ent.Client {
	return ent.NewClient(
		ent.Driver(readOnly{db}),
		ent.AlternateSchema(query.Tables(schema)),
	)
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
		s.Where(e.exists(s, all, func(b *entsql.Builder, i *entsql.SelectTable) {
			b.Ident(i.C(instance.FieldID)).WriteString(" = ").Ident(s.C(column))
		}))
	}
}

// HasOccupant is like HasInstance, for rows without such a column: it selects rows whose id, behind
// a prefix, is the correlation key that an accepted instance occupies. Prefix "order:" and id 42
// make the key "order:42".
func (e *Engine) HasOccupant(prefix, column string, all ...predicate.Instance) func(*entsql.Selector) {
	return func(s *entsql.Selector) {
		s.Where(e.exists(s, all, func(b *entsql.Builder, i *entsql.SelectTable) {
			b.Ident(i.C(instance.FieldCorrelationGuard)).WriteString(" = ").Arg(prefix).WriteString("::text || ").Ident(s.C(column))
		}))
	}
}

// ByInstance returns an order for queries of the host's own ent client: by a field of the instance
// whose id a column holds, as in ByInstance(order.FieldInstanceID, instance.FieldUpdatedAt).
// Rows without an instance, and those whose instance has no value there, come last, in either
// direction; with OrderNullsFirst they come first. No index serves the order: it is for queries
// whose predicates leave few rows. It takes no option that selects the value. A query across an
// edge needs Unique(false) with it: Postgres orders distinct rows by selected values only.
func (e *Engine) ByInstance(column, field string, options ...entsql.OrderTermOption) func(*entsql.Selector) {
	return func(s *entsql.Selector) {
		if !instance.ValidColumn(field) {
			query.Refuse(s, fmt.Errorf("order by the instance: it has no field %q: want a constant of package instance", field))
			return
		}
		e.ByInstanceExpr(column, func(b *entsql.Builder, i *entsql.Selector) { b.Ident(i.C(field)) }, options...)(s)
	}
}

// ByInstanceExpr is [Engine.ByInstance] for an expression, which a function writes for a selector
// of instances. A value of NULL counts as none.
func (e *Engine) ByInstanceExpr(column string, value func(*entsql.Builder, *entsql.Selector), options ...entsql.OrderTermOption) func(*entsql.Selector) {
	return func(s *entsql.Selector) {
		o := entsql.NewOrderTermOptions(options...)
		if o.Selected || o.As != "" {
			query.Refuse(s, errors.New("order by the instance: it takes no OrderSelected and no OrderAs: load the instances with the rows"))
			return
		}
		found, table := e.from(s)
		found.Where(entsql.P(func(b *entsql.Builder) { b.Ident(table.C(instance.FieldID)).WriteString(" = ").Ident(s.C(column)) }))
		found.SelectExpr(entsql.ExprFunc(func(b *entsql.Builder) { value(b, found) }))
		direction := " ASC"
		if o.Desc {
			direction = " DESC"
		}
		nulls := " NULLS LAST"
		if o.NullsFirst {
			nulls = " NULLS FIRST"
		}
		// It is a subquery of one row each, not a join: a query for update may have no outer join.
		s.OrderExpr(entsql.ExprFunc(func(b *entsql.Builder) {
			b.Wrap(func(b *entsql.Builder) { b.Join(found) }).WriteString(direction + nulls)
		}))
	}
}

// InstanceIn accepts the instances of these ids. It is instance.IDIn with one parameter for all of
// them: Postgres takes no more than 65,535.
func InstanceIn(ids ...fsm.ID) predicate.Instance {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatInt(int64(id), 10)
	}
	return func(s *entsql.Selector) {
		s.Where(entsql.P(func(b *entsql.Builder) {
			b.Ident(s.C(instance.FieldID)).WriteString(" = ANY(").Arg("{" + strings.Join(list, ",") + "}").WriteString("::bigint[])")
		}))
	}
}

// InstancesOf accepts the instances whose ids a query of the host's own ent client selects. A
// client that package entity/extension generates calls it.
func InstancesOf(ids func(context.Context) (*entsql.Selector, error)) predicate.Instance {
	return func(s *entsql.Selector) {
		found, err := ids(s.Context())
		if err == nil {
			err = found.Err()
		}
		if err != nil {
			query.Refuse(s, err)
			return
		}
		s.Where(entsql.In(s.C(instance.FieldID), found))
	}
}

// exists is the predicate that an instance belongs to a row and that all predicates accept it. It
// is an EXISTS, not an IN, so that its negation accepts rows whose column is NULL, and is an
// anti-join.
func (e *Engine) exists(row *entsql.Selector, all []predicate.Instance, belongs func(*entsql.Builder, *entsql.SelectTable)) *entsql.Predicate {
	found, table := e.from(row)
	found.Select(table.C(instance.FieldID))
	found.Where(entsql.P(func(b *entsql.Builder) { belongs(b, table) }))
	for _, accepts := range all {
		accepts(found)
	}
	if err := found.Err(); err != nil {
		query.Refuse(row, err) // ent looks at the outer one only
	}
	return entsql.Exists(found)
}

// from returns a selector of instances for a query of rows, and its table.
func (e *Engine) from(row *entsql.Selector) (*entsql.Selector, *entsql.SelectTable) {
	builder := entsql.Dialect(row.Dialect())
	table := builder.Table(instance.Table).Schema(query.Quoted(e.config.Schema)).As("gendurable_instance")
	found := builder.Select().From(table)
	// A predicate on an edge finds its table by the engine's schemas. The host's client has others.
	return found.WithContext(ent.WithSchemas(row.Context(), query.Tables(e.config.Schema))), table
}

// Raw returns a row of the ent client as the engine's reads return instances. Machine.StateOf and
// Machine.ResultOf decode it. Fields that the query did not select are zero.
func Raw(row *ent.Instance) fsm.RawInstance {
	return fsm.RawInstance{
		ID: row.ID, Machine: row.Machine, Version: row.Version, Step: row.Step, Queue: row.Queue, Priority: int(row.Priority),
		Status: row.Status, State: row.State, Result: row.Result, Attempt: int(row.Attempt), Crashes: int(row.Crashes), Visit: row.Visit,
		Failure: row.Failure, LastError: deref(row.LastError), Key: fsm.Key(deref(row.CorrelationKey)), PartitionKey: deref(row.PartitionKey),
		Paused: row.Paused, EligibleAt: row.EligibleAt, InsertedAt: row.InsertedAt, FinishedAt: deref(row.FinishedAt),
		Deadline: deref(row.Deadline), Labels: row.Labels, Progress: row.Progress,
	}
}

func deref[T any](of *T) (v T) {
	if of != nil {
		v = *of
	}
	return v
}

// readOnly is the second wall, behind a client that has no builder that writes: Postgres refuses
// what a predicate of the host's would write in a transaction, and no statement without a result
// passes.
type readOnly struct{ dialect.Driver }

var _ dialect.Driver = readOnly{}

var errReadOnly = errors.New("gendurable: the ent client only reads")

// Exec refuses: no query of ent is a statement without a result.
func (readOnly) Exec(context.Context, string, any, any) error { return errReadOnly }

// Tx begins a read-only transaction.
func (r readOnly) Tx(ctx context.Context) (dialect.Tx, error) { return r.BeginTx(ctx, nil) }

// BeginTx begins a read-only transaction, e.g. of repeatable read for queries that must agree.
func (r readOnly) BeginTx(ctx context.Context, options *entsql.TxOptions) (dialect.Tx, error) {
	var o entsql.TxOptions
	if options != nil {
		o = *options
	}
	o.ReadOnly = true
	begin, ok := r.Driver.(interface {
		BeginTx(ctx context.Context, options *entsql.TxOptions) (dialect.Tx, error)
	})
	if !ok {
		return nil, fmt.Errorf("begin a read-only transaction: a %T has no BeginTx", r.Driver)
	}
	return begin.BeginTx(ctx, &o)
}
