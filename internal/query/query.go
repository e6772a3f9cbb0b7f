package query

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// Reader reads the engine's tables. It is safe for concurrent use.
type Reader struct {
	store  *store.Store
	schema string // quoted

	compose sync.Once
	made    composer // compose makes it
}

// composer has a Reader's clients of ent, and the columns that their queries select.
type composer struct {
	client  *ent.Client
	bitmaps *ent.Client // for queries by the index of labels
	columns string      // of whole
	outline string      // the same without documents
}

// New returns a reader of a store's tables. It does not touch the database.
func New(s *store.Store) *Reader { return &Reader{store: s, schema: Quoted(s.Schema())} }

// composer makes clients and columns for the first query, not with the Reader: a host that starts
// an engine and reads nothing then links none of ent's builders.
func (r *Reader) composer() *composer {
	r.compose.Do(func() {
		tables := ent.AlternateSchema(Tables(r.store.Schema()))
		columns := sql.Dialect(dialect.Postgres).Table(instance.Table).Schema(r.schema).Columns(store.Columns...)
		outline := slices.Clone(columns)
		for i, field := range store.Columns {
			if field == instance.FieldState || field == instance.FieldResult || field == instance.FieldProgress {
				outline[i] = "NULL::jsonb"
			}
		}
		r.made = composer{
			client:  ent.NewClient(ent.Driver(r.store.Queries(false)), tables),
			bitmaps: ent.NewClient(ent.Driver(r.store.Queries(true)), tables),
			columns: strings.Join(columns, ", "),
			outline: strings.Join(outline, ", "),
		}
	})
	return &r.made
}

// Quoted returns a schema's name as ent's builder leaves it alone. It guesses what any name without
// quotes means: ALL is a modifier to it, f(x) a function.
func Quoted(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// Tables says to a client of package ent that all tables are in a schema.
func Tables(schema string) ent.SchemaConfig {
	schema = Quoted(schema)
	return ent.SchemaConfig{Instance: schema, Signal: schema, PausedQueue: schema, Worker: schema, Schedule: schema, Gate: schema, GateKey: schema,
		Transition: schema, Definition: schema, Window: schema, KeptSignal: schema, NodeEdge: schema}
}

// whole selects the columns of store.Columns, and then what more writes. Their text is made once.
func (r *Reader) whole(more ...func(b *sql.Builder)) predicate.Instance {
	return r.selects(false, more...)
}

// selects is whole, or leaves out documents, which Postgres then need not read.
func (r *Reader) selects(outline bool, more ...func(b *sql.Builder)) predicate.Instance {
	made := r.composer()
	columns := made.columns
	if outline {
		columns = made.outline
	}
	return func(s *sql.Selector) {
		s.SelectExpr(sql.ExprFunc(func(b *sql.Builder) {
			b.WriteString(columns)
			for _, write := range more {
				b.Comma()
				write(b)
			}
		}))
	}
}

// scan reads the columns of whole. It looks into no document but the labels: foreign SQL may have
// put something else there than the engine would, and one row must not keep a page from being
// read.
func scan(rows pgx.Rows, more ...any) (i fsm.RawInstance, err error) {
	var state, result, labels, progress []byte
	var failure, lastError, correlation, partition *string
	var finished, deadline *time.Time
	err = rows.Scan(append([]any{&i.ID, &i.Machine, &i.Version, &i.Step, &i.Queue, &i.Priority, &i.Status, &state, &result, &i.Attempt,
		&i.Crashes, &i.Visit, &failure, &lastError, &correlation, &partition, &i.Paused, &i.EligibleAt, &i.InsertedAt, &finished, &deadline,
		&labels, &progress}, more...)...)
	i.State, i.Result, i.Progress, i.Labels = state, result, progress, own[fsm.Texts](labels)
	i.Failure, i.LastError = fsm.Failure(value(failure)), value(lastError)
	i.Key, i.PartitionKey = fsm.Key(value(correlation)), value(partition)
	i.FinishedAt, i.Deadline = value(finished), value(deadline)
	return i, err
}

func value[T any](of *T) (v T) {
	if of != nil {
		v = *of
	}
	return v
}

// send sends a query, and reads its rows.
func send(ctx context.Context, q *ent.InstanceQuery, read func(pgx.Rows) error) error {
	var none []struct{}
	return q.Select(instance.FieldID).Scan(entpgx.Reading(ctx, read), &none)
}

// instances reads whole instances into a list.
func instances(into *[]fsm.RawInstance) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			i, err := scan(rows)
			if err != nil {
				return err
			}
			*into = append(*into, i)
		}
		return rows.Err()
	}
}

// own decodes JSON that the engine wrote, and ignores what foreign SQL has put there.
func own[T any](text []byte) (v T) {
	if len(text) > 0 && json.Unmarshal(text, &v) != nil {
		var none T
		return none
	}
	return v
}

// at selects the instance at an address. A key goes by the guard, which holds it only while the
// instance occupies it.
func at(of store.Address) predicate.Instance {
	if of.Key != "" {
		return instance.CorrelationGuard(of.Key)
	}
	return instance.ID(fsm.ID(of.ID))
}

// Get reads an instance. It returns store.ErrNotFound if no instance has that address.
func (r *Reader) Get(ctx context.Context, of store.Address) (i fsm.RawInstance, err error) {
	var found []fsm.RawInstance
	err = send(ctx, r.composer().client.Instance.Query().Where(at(of), r.whole()), instances(&found))
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return i, fmt.Errorf("get %s: %w", of, err)
	}
	return found[0], nil
}

// GetMany reads instances in order of ids. It leaves out ids of instances that do not exist.
func (r *Reader) GetMany(ctx context.Context, ids []int64) ([]fsm.RawInstance, error) {
	found := []fsm.RawInstance{} // hosts serve it as JSON
	if err := r.store.Instances(ctx, ids, instances(&found)); err != nil {
		return nil, fmt.Errorf("get %d instances: %w", len(ids), err)
	}
	return found, nil
}

// Errors reads the newest errors of an instance's attempts, the oldest first. It returns
// store.ErrNotFound if no instance has that address. It leaves out entries that it cannot read,
// since the engine has not written them.
func (r *Reader) Errors(ctx context.Context, of store.Address) (list []fsm.AttemptError, err error) {
	var texts [][]byte
	err = send(ctx, r.composer().client.Instance.Query().Where(at(of), errorsOnly), func(rows pgx.Rows) error {
		texts, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		return err
	})
	if err == nil && len(texts) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read the errors of %s: %w", of, err)
	}
	return ErrorsIn(texts[0]), nil
}

// ErrorsIn returns the errors that a value of the column errors has.
func ErrorsIn(text []byte) (list []fsm.AttemptError) {
	for _, one := range own[[]json.RawMessage](text) {
		if e := own[stored](one); e.Kind != "" {
			list = append(list, fsm.AttemptError(e))
		}
	}
	return list
}

func errorsOnly(s *sql.Selector) { s.Select(s.C(instance.FieldErrors)) }

// stored is an fsm.AttemptError in the form of the column errors.
type stored struct {
	At      time.Time       `json:"at"`
	Step    string          `json:"step"`
	Visit   int64           `json:"visit"`
	Attempt int             `json:"attempt"`
	Kind    fsm.AttemptKind `json:"kind"`
	Message string          `json:"error"`
	Worker  string          `json:"worker"`
	Times   int             `json:"times"`
}
