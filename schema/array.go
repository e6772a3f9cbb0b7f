package schema

import (
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gendurable/gendurable/fsm"
)

// Names is a text[] column: the signal names that an instance awaits. Nil is NULL.
//
// It is a separate type, since neither ent nor database/sql knows arrays. It reads and writes the
// text form of Postgres, which every driver and every exec mode of pgx leaves unchanged.
type Names []string

// Scan reads the text form of a one-dimensional array. A NULL element becomes "".
func (n *Names) Scan(src any) error {
	elements, err := parseArray(src)
	if err != nil {
		return fmt.Errorf("scan text[]: %w", err)
	}
	*n = elements
	return nil
}

// Value returns the text form of the array. A name that Postgres would refuse fails the statement
// before it is sent.
func (n Names) Value() (driver.Value, error) {
	if n == nil {
		return nil, nil
	}
	for _, name := range n {
		if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("%.80q is not a text that Postgres takes", name)
		}
	}
	return formatArray(n), nil
}

// Statuses is a durable_status[] column: the statuses in which a correlation key is occupied. Nil
// is written as the empty array, since the column is not nullable.
type Statuses []fsm.Status

// Scan reads the text form of a one-dimensional array. A NULL element becomes "".
func (s *Statuses) Scan(src any) error {
	elements, err := parseArray(src)
	if err != nil {
		return fmt.Errorf("scan durable_status[]: %w", err)
	}
	*s = make(Statuses, len(elements))
	for i, element := range elements {
		(*s)[i] = fsm.Status(element)
	}
	return nil
}

// Value returns the text form of the array.
func (s Statuses) Value() (driver.Value, error) {
	elements := make([]string, len(s))
	for i, status := range s {
		elements[i] = string(status)
	}
	return formatArray(elements), nil
}

// Micros is a bigint[] column: durations in microseconds. Nil is NULL. A negative element stands
// for none, and so does a NULL element.
type Micros []int64

// Scan reads the text form of a one-dimensional array.
func (m *Micros) Scan(src any) error {
	elements, err := parseArray(src)
	if err != nil {
		return fmt.Errorf("scan bigint[]: %w", err)
	}
	if elements == nil {
		*m = nil
		return nil
	}
	*m = make(Micros, len(elements))
	for i, element := range elements {
		(*m)[i] = -1
		if element == "" {
			continue
		}
		if (*m)[i], err = strconv.ParseInt(element, 10, 64); err != nil {
			return fmt.Errorf("scan bigint[]: %w", err)
		}
	}
	return nil
}

// Value returns the text form of the array.
func (m Micros) Value() (driver.Value, error) {
	if m == nil {
		return nil, nil
	}
	elements := make([]string, len(m))
	for i, n := range m {
		elements[i] = strconv.FormatInt(n, 10)
	}
	return formatArray(elements), nil
}

var arrayEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// formatArray quotes every element, so that elements like "NULL" and "" stay strings.
func formatArray(elements []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, element := range elements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = arrayEscaper.WriteString(&b, element) // a Builder does not fail
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

func parseArray(src any) ([]string, error) {
	var text string
	switch v := src.(type) {
	case nil:
		return nil, nil
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return nil, fmt.Errorf("unexpected source type %T", src)
	}
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return nil, fmt.Errorf("not a one-dimensional array: %q", text)
	}
	rest := text[1 : len(text)-1]
	elements := []string{}
	for rest != "" {
		element, tail, err := parseElement(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, text)
		}
		elements = append(elements, element)
		rest = tail
	}
	return elements, nil
}

// parseElement splits off the first element, and drops the comma behind it.
func parseElement(text string) (element, rest string, err error) {
	switch text[0] {
	case '{':
		return "", "", fmt.Errorf("nested array")
	case '"':
		return parseQuoted(text[1:])
	}
	element, rest, _ = strings.Cut(text, ",")
	if strings.EqualFold(element, "NULL") {
		element = ""
	}
	return element, rest, nil
}

func parseQuoted(text string) (element, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), strings.TrimPrefix(text[i+1:], ","), nil
		case '\\':
			i++
			if i == len(text) {
				return "", "", fmt.Errorf("cut off after a backslash")
			}
		}
		b.WriteByte(text[i])
	}
	return "", "", fmt.Errorf("unclosed quote")
}

// Rounds is a bigint[] column: rounds of children. Nil is NULL.
type Rounds []int64

// Scan reads the text form of a one-dimensional array.
func (r *Rounds) Scan(src any) error { return (*Micros)(r).Scan(src) }

// Value returns the text form of the array.
func (r Rounds) Value() (driver.Value, error) { return Micros(r).Value() }
