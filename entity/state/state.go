// Package state has predicates and orders of entities by the fields of their instances' states.
// Package entity/extension generates code that makes them of a machine's state type. An example is
// order.InstanceState(eng).Cents.GT(500).
//
// They compare what a state decodes to. A field that the JSON lacks, or that is null, counts as the
// zero value, as in Go. Names in the JSON have to be written as the state's type has them: Go reads
// them in any case, and would see more. They accept instances of the machine in the versions that
// its declaration reads (fsm.Version, fsm.StateSince), and of no other. Entities without an
// instance are not accepted, not even by NEQ.
//
// Each query fails with an [ErrSealed] if the engine's codec does not store the field as JSON.
// Do not go back from a codec that seals to none: fields of states that it sealed count as missing.
//
// No index serves these predicates. They are for queries whose other predicates leave few entities.
// Give an instance a label for what you look for among many.
package state

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/schema"
)

// ErrSealed is returned by a query when the engine's codec does not store the field of a state as
// its JSON, for example since it encrypts. Give the instance a label, or the entity a field.
var ErrSealed = errors.New("gendurable: the codec does not store the field as JSON")

// Source says which states a field is of.
type Source struct {
	eng             *engine.Engine
	column, machine string
	since, version  int
}

// Of returns the source of the states of instances that a column points at. It reads the versions
// from since to version; since 0 is version.
func Of(eng *engine.Engine, column, machine string, since, version int) Source {
	return Source{eng, column, machine, cmp.Or(since, version), version}
}

// field is a field of a state without its types.
type field struct {
	Source
	path   schema.Names
	json   string // the type of its JSON
	zero   any
	stored func() error // an ErrSealed, or nil
	times  bool         // it is compared as a time
}

// fieldOf describes a field. sample is a value that its JSON has, whatever the field's tag says.
func fieldOf[S, T any](of Source, set func(*S, T), sample T, path []string) field {
	var zero T
	return field{Source: of, path: path, zero: zero, stored: func() error {
		codec := of.eng.Codec()
		if codec == (fsm.JSON{}) {
			return nil
		}
		var state S
		set(&state, sample)
		return storedAt(codec, &state, sample, path)
	}}
}

// storedAt checks that a codec stores a value of a state as JSON, at its path.
func storedAt(codec fsm.Codec, state, value any, path []string) error {
	want, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode a value of state field %q: %w", path, err)
	}
	raw, err := codec.Encode(state)
	if err != nil {
		return fmt.Errorf("encode a state with field %q: %w", path, err)
	}
	for _, name := range path {
		members := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &members) != nil || members[name] == nil {
			return fmt.Errorf("state field %q: %w", path, ErrSealed)
		}
		raw = members[name]
	}
	if !same(raw, want) {
		return fmt.Errorf("state field %q: %w", path, ErrSealed)
	}
	return nil
}

// same reports whether two JSON texts are one value.
func same(a, b json.RawMessage) bool {
	decoded := func(raw json.RawMessage) (v any) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return errors.ErrUnsupported
		}
		return v
	}
	return reflect.DeepEqual(decoded(a), decoded(b))
}

// where returns the predicate that the instance of an entity is read, and accepted.
func (f field) where(accepts func(*sql.Builder, *sql.Selector)) func(*sql.Selector) {
	return func(s *sql.Selector) {
		if err := f.stored(); err != nil {
			query.Refuse(s, err)
			return
		}
		f.eng.HasInstance(f.column, func(i *sql.Selector) {
			i.Where(sql.P(func(b *sql.Builder) {
				f.read(b, i)
				b.WriteString(" AND ")
				accepts(b, i)
			}))
		})(s)
	}
}

// by returns the order by the field.
func (f field) by(options []sql.OrderTermOption) func(*sql.Selector) {
	return f.eng.ByInstanceExpr(f.column, func(b *sql.Builder, i *sql.Selector) {
		if err := f.stored(); err != nil {
			b.Arg(query.NoValue(err)).WriteString("::text")
			return
		}
		b.WriteString("CASE WHEN ")
		f.read(b, i)
		b.WriteString(" THEN ")
		f.value(b, i)
		b.WriteString(" END")
	}, options...)
}

// read writes that an instance's state is read, and that the field is of its type.
func (f field) read(b *sql.Builder, i *sql.Selector) {
	b.Ident(i.C(instance.FieldMachine)).WriteString(" = ").Arg(f.machine).
		WriteString(" AND ").Ident(i.C(instance.FieldVersion)).WriteString(" BETWEEN ").Arg(f.since).WriteString(" AND ").Arg(f.version).
		WriteString(" AND jsonb_typeof(")
	f.document(b, i)
	b.WriteString(") = ").Arg(f.json).WriteString("::text")
}

// value writes the field's value, as it is compared.
func (f field) value(b *sql.Builder, i *sql.Selector) {
	if !f.times {
		f.document(b, i)
		return
	}
	b.WriteString("CASE WHEN ")
	f.text(b, i)
	b.WriteString(" ~ ").Arg(timestamps).WriteString("::text THEN ")
	f.text(b, i)
	b.WriteString("::timestamptz END")
}

// text writes the field's value as a text.
func (f field) text(b *sql.Builder, i *sql.Selector) {
	b.WriteString("(")
	f.document(b, i)
	b.WriteString(" #>> '{}')")
}

// document writes the field's value as jsonb: the zero value if it is missing or null.
func (f field) document(b *sql.Builder, i *sql.Selector) {
	b.WriteString("COALESCE(NULLIF(").Ident(i.C(instance.FieldState)).WriteString(" #> ").Arg(f.path).
		WriteString("::text[], 'null'::jsonb), ").Arg(document{f.zero}).WriteString("::jsonb)")
}

// document is an argument as JSON. One that has no JSON form fails the statement.
type document struct{ of any }

// Value returns the JSON form.
func (d document) Value() (driver.Value, error) {
	text, err := json.Marshal(d.of)
	if err != nil {
		return nil, fmt.Errorf("a predicate's value: %w", err)
	}
	return string(text), nil
}

// timestamps matches the times that encoding/json writes and Postgres takes, so that a cast of a
// match does not fail.
const timestamps = `^(?!0000)(` +
	`[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|` +
	`[0-9]{4}-(0[13-9]|1[0-2])-(29|30)|` +
	`[0-9]{4}-(0[13578]|1[02])-31|` +
	`([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29` +
	`)T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-](0[0-9]|1[0-5]):[0-5][0-9])$`
