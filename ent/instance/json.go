// Package instance has the predicates and orders of instances. This file is written by hand.
package instance

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/schema"
)

// These are predicates on what the JSON columns hold. A value is passed as JSON and a path as an
// array, never as text of the statement, and a value of another type than is asked for matches
// nothing instead of failing the query. So they serve any driver and any document.

// LabelsContain selects instances that have all of these labels. It has an index.
func LabelsContain(labels map[string]string) predicate.Instance {
	if labels == nil {
		labels = map[string]string{}
	}
	return contains(FieldLabels, labels)
}

// HasLabel selects instances that have a label of this value. It has an index.
func HasLabel(name, value string) predicate.Instance {
	return LabelsContain(map[string]string{name: value})
}

// StateContains selects instances whose state, as the codec has encoded it, contains a document in
// the sense of jsonb's @> operator: an object that has at least these members, at any depth.
func StateContains(value any) predicate.Instance { return contains(FieldState, value) }

// ResultContains is [StateContains] for the result, which only done instances have.
func ResultContains(value any) predicate.Instance { return contains(FieldResult, value) }

func contains(column string, value any) predicate.Instance {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.Ident(s.C(column)).WriteString(" @> ").Arg(document{value}).WriteString("::jsonb")
		}))
	}
}

// document is a value that a statement takes as JSON. A value that has no JSON form fails the
// statement.
type document struct{ of any }

// Value returns the JSON form.
func (d document) Value() (driver.Value, error) {
	text, err := json.Marshal(d.of)
	if err != nil {
		return nil, fmt.Errorf("a predicate's value: %w", err)
	}
	return string(text), nil
}

// JSONPath is a place in a JSON document, for comparisons of the value there. They hold only where
// the value is of the same JSON type as the given one. None of them has an index.
type JSONPath struct {
	column string
	path   schema.Names
}

// StateAt returns a place in the state, by the names of members, and by indexes of arrays as text.
// Without a path it is the whole state.
//
//	instance.StateAt("customer", "country").EQ("NL")
func StateAt(path ...string) JSONPath { return JSONPath{FieldState, append(schema.Names{}, path...)} }

// ResultAt is [StateAt] for the result, which only done instances have.
func ResultAt(path ...string) JSONPath { return JSONPath{FieldResult, append(schema.Names{}, path...)} }

// Exists selects instances that have a value there, also null.
func (p JSONPath) Exists() predicate.Instance {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			p.write(b, s)
			b.WriteString(" IS NOT NULL")
		}))
	}
}

// EQ selects instances whose value there is this one, as jsonb compares: 1 is 1.0.
func (p JSONPath) EQ(value any) predicate.Instance { return p.compare("=", value) }

// NEQ selects instances that have another value of the same type there.
func (p JSONPath) NEQ(value any) predicate.Instance { return p.compare("<>", value) }

// GT selects instances whose value there is greater.
func (p JSONPath) GT(value any) predicate.Instance { return p.compare(">", value) }

// GTE selects instances whose value there is not less.
func (p JSONPath) GTE(value any) predicate.Instance { return p.compare(">=", value) }

// LT selects instances whose value there is less.
func (p JSONPath) LT(value any) predicate.Instance { return p.compare("<", value) }

// LTE selects instances whose value there is not greater.
func (p JSONPath) LTE(value any) predicate.Instance { return p.compare("<=", value) }

func (p JSONPath) compare(operator string, value any) predicate.Instance {
	return func(s *sql.Selector) {
		// jsonb orders values of different types, too: any boolean is greater than any number.
		s.Where(sql.P(func(b *sql.Builder) {
			b.WriteByte('(')
			p.write(b, s)
			b.WriteString(" " + operator + " ").Arg(document{value}).WriteString("::jsonb AND jsonb_typeof(")
			p.write(b, s)
			b.WriteString(") = jsonb_typeof(").Arg(document{value}).WriteString("::jsonb))")
		}))
	}
}

func (p JSONPath) write(b *sql.Builder, s *sql.Selector) {
	b.Ident(s.C(p.column)).WriteString(" #> ").Arg(p.path).WriteString("::text[]")
}
