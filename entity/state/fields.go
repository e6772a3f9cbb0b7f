package state

import (
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"
)

// Func is the type of a predicate or an order of a host's client.
type Func interface{ ~func(*sql.Selector) }

// Number is a type of numbers.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Ordered is a field of numbers, times or texts. P is the type of predicates, O of orders, T of
// values. Numbers are compared exactly, times to the microsecond, and texts in the order of the
// database.
type Ordered[P, O Func, T any] struct{ f field }

// NewNumber returns the field of numbers at a path of the state. The function sets it.
func NewNumber[P, O Func, S any, T Number](of Source, set func(*S, T), path ...string) Ordered[P, O, T] {
	f := fieldOf(of, set, 1, path)
	f.json = "number"
	return Ordered[P, O, T]{f}
}

// NewTime returns the field of times at a path of the state. The function sets it.
func NewTime[P, O Func, S any](of Source, set func(*S, time.Time), path ...string) Ordered[P, O, time.Time] {
	f := fieldOf(of, set, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), path)
	f.json, f.times = "string", true
	return Ordered[P, O, time.Time]{f}
}

// EQ accepts entities whose state has this value.
func (o Ordered[P, O, T]) EQ(value T) P { return o.compare(" = ", value) }

// NEQ accepts entities whose state has another value.
func (o Ordered[P, O, T]) NEQ(value T) P { return o.compare(" <> ", value) }

// GT accepts entities whose state has a greater value.
func (o Ordered[P, O, T]) GT(value T) P { return o.compare(" > ", value) }

// GTE accepts entities whose state has this value or a greater one.
func (o Ordered[P, O, T]) GTE(value T) P { return o.compare(" >= ", value) }

// LT accepts entities whose state has a smaller value.
func (o Ordered[P, O, T]) LT(value T) P { return o.compare(" < ", value) }

// LTE accepts entities whose state has this value or a smaller one.
func (o Ordered[P, O, T]) LTE(value T) P { return o.compare(" <= ", value) }

// In accepts entities whose state has one of these values.
func (o Ordered[P, O, T]) In(values ...T) P { return P(o.f.among("", list(values))) }

// NotIn accepts entities whose state has none of these values.
func (o Ordered[P, O, T]) NotIn(values ...T) P { return P(o.f.among("NOT ", list(values))) }

// By orders entities by the field. Those without an instance, or whose state is not read, come
// last: see engine.Engine.ByInstance.
func (o Ordered[P, O, T]) By(options ...sql.OrderTermOption) O { return O(o.f.by(options)) }

func (o Ordered[P, O, T]) compare(operator string, value T) P { return P(o.f.compare(operator, value)) }

// Text is a field of texts. The database decides which letters are upper and lower case.
type Text[P, O Func, T ~string] struct{ Ordered[P, O, T] }

// NewText returns the field of texts at a path of the state. The function sets it.
func NewText[P, O Func, S any, T ~string](of Source, set func(*S, T), path ...string) Text[P, O, T] {
	f := fieldOf(of, set, "a", path)
	f.json = "string"
	return Text[P, O, T]{Ordered[P, O, T]{f}}
}

// Contains accepts entities whose state has a text with this part.
func (t Text[P, O, T]) Contains(part string) P { return t.matches("strpos(", ", ", ") > 0", part) }

// ContainsFold is Contains in upper or lower case.
func (t Text[P, O, T]) ContainsFold(part string) P {
	return t.matches("strpos(lower(", "), lower(", ")) > 0", part)
}

// EqualFold is EQ in upper or lower case.
func (t Text[P, O, T]) EqualFold(value string) P {
	return t.matches("lower(", ") = lower(", ")", value)
}

// HasPrefix accepts entities whose state has a text that begins so.
func (t Text[P, O, T]) HasPrefix(part string) P { return t.matches("starts_with(", ", ", ")", part) }

// HasSuffix accepts entities whose state has a text that ends so.
func (t Text[P, O, T]) HasSuffix(part string) P {
	return t.matches("starts_with(reverse(", "), reverse(", "))", part)
}

// matches writes the field's text and another one between parts of an expression.
func (t Text[P, O, T]) matches(before, between, after, value string) P {
	return P(t.f.where(func(b *sql.Builder, i *sql.Selector) {
		b.WriteString(before)
		t.f.text(b, i)
		b.WriteString(between).Arg(value).WriteString("::text" + after)
	}))
}

// Bool is a field of booleans.
type Bool[P, O Func, T ~bool] struct{ f field }

// NewBool returns the field of booleans at a path of the state. The function sets it.
func NewBool[P, O Func, S any, T ~bool](of Source, set func(*S, T), path ...string) Bool[P, O, T] {
	f := fieldOf(of, set, true, path)
	f.json = "boolean"
	return Bool[P, O, T]{f}
}

// EQ accepts entities whose state has this value.
func (o Bool[P, O, T]) EQ(value T) P { return P(o.f.compare(" = ", value)) }

// NEQ accepts entities whose state has the other value.
func (o Bool[P, O, T]) NEQ(value T) P { return P(o.f.compare(" <> ", value)) }

// By orders entities by the field, false first: see [Ordered.By].
func (o Bool[P, O, T]) By(options ...sql.OrderTermOption) O { return O(o.f.by(options)) }

func (f field) compare(operator string, value any) func(*sql.Selector) {
	return f.where(func(b *sql.Builder, i *sql.Selector) {
		f.value(b, i)
		b.WriteString(operator)
		if f.times {
			b.Arg(stamp(value)).WriteString("::timestamptz")
			return
		}
		b.Arg(document{value}).WriteString("::jsonb")
	})
}

// among writes that the field has one of the values of a slice, or that it does not.
func (f field) among(not string, values []any) func(*sql.Selector) {
	return f.where(func(b *sql.Builder, i *sql.Selector) {
		b.WriteString(not)
		if f.times {
			var all []string
			for _, one := range values {
				all = append(all, stamp(one))
			}
			f.value(b, i)
			b.WriteString(" = ANY(").Arg("{" + strings.Join(all, ",") + "}").WriteString("::timestamptz[])")
			return
		}
		b.Arg(document{values}).WriteString("::jsonb @> ")
		f.value(b, i)
	})
}

func stamp(value any) string {
	return value.(time.Time).UTC().Format(time.RFC3339Nano) //nolint:forcetypeassert // NewTime makes the fields of times
}

// list returns values one by one: encoding/json writes a slice of small numbers as a text.
func list[T any](values []T) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}
