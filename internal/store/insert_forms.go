package store

import "strings"

// An insertion has several texts, so that it costs nothing that none of its specs needs.

// forms are the texts of an insertion: for specs with keys and for others, and where some spec has
// a retention of its own.
type forms struct{ keyed, keyless, keyedRetained, keylessRetained *statement }

// formsOf returns forms. parameter is the number of the one for retentions.
func formsOf(name, keyed, keyless string, parameter int) forms {
	return forms{named(name, keyed), named(name, keyless, "keyless"), named(name, retaining(keyed, parameter), "retained"),
		named(name, retaining(keyless, parameter), "keyless retained")}
}

// of returns the text for specs, and its arguments.
func (f *forms) of(c *specs, args ...any) (text *statement, all []any) {
	if c.keyed {
		return c.retain(f.keyed, f.keyedRetained, args...)
	}
	return c.retain(f.keyless, f.keylessRetained, args...)
}

// keyless returns the text of an insertion for specs none of which has a key. With ON CONFLICT
// Postgres takes a lock for every row, and writes one record more to its log, though only rows with
// keys can conflict; and for the order of the keys it copies and sorts them. Without it rows are
// inserted in input order, in which nobody can wait for them.
func keyless(text string) string { return strings.Replace(text, forKeys, "", 1) }

// unread returns the text of an insertion whose rows are not read back.
func unread(text string) string { return strings.TrimSuffix(text, returning) }

var (
	insertForms      = formsOf("insert", insertSQL, keyless(insertSQL), 17)
	insertLinedForms = formsOf("insert lined", insertLinedSQL, keyless(insertLinedSQL), 18)
	spawnForms       = formsOf("spawn", spawnSQL, unread(keyless(spawnSQL)), 21)
	spawnLinedForms  = formsOf("spawn lined", spawnLinedSQL, unread(keyless(spawnLinedSQL)), 22)
)

// alike returns a column, only its first element if all are alike.
func alike[T comparable](column []T) []T {
	for i := range column {
		if column[i] != column[0] {
			return column
		}
	}
	return column[:min(1, len(column))]
}

// some returns a column, or nil if it has no values.
func some[T any](column []*T) []*T {
	for _, v := range column {
		if v != nil {
			return column
		}
	}
	return nil
}
