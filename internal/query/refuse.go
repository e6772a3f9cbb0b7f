package query

import (
	"database/sql/driver"

	"entgo.io/ent/dialect/sql"
)

// Refuse makes a query fail with an error that errors.Is finds, by an argument that has no value.
// ent looks at a selector's own errors in some methods only, and keeps their texts.
func Refuse(s *sql.Selector, err error) {
	s.Where(sql.P(func(b *sql.Builder) { b.Arg(NoValue(err)).WriteString("::boolean") }))
}

// NoValue is an argument by which a statement fails with this error.
func NoValue(err error) driver.Valuer { return noValue{err} }

type noValue struct{ err error }

// Value returns the error.
func (n noValue) Value() (driver.Value, error) { return nil, n.err }
