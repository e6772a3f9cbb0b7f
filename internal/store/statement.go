package store

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// statement is one text that the store can send. The store sends nothing else, and named is the
// only maker of statements, so the list of them is complete by construction: TestStatements holds
// each to its file in testdata/sql, has Postgres prepare it, and `make sql` prints it.
type statement struct {
	name string // as errors have it
	form string // tells texts of one name apart; "": the plain one
	text string
}

// statements has all statements of the program, in no particular order.
var statements []*statement

// named makes a statement of a text, in which {s} is the engine's schema. It is for declarations of
// the package alone: a text that is made later is on no list. Its 300 calls would each be a copy of
// it, 160 kB in every host.
//
//go:noinline
func named(name, text string, form ...string) *statement {
	s := &statement{name: name, form: strings.Join(form, " "), text: text}
	statements = append(statements, s)
	return s
}

// stmt arranges a statement for the pipeline. It renders each text once. Its 240 copies would take
// another 40 kB.
//
//go:noinline
func (s *Store) stmt(of *statement, read func(pgx.Rows) error, args ...any) entpgx.Stmt {
	return entpgx.Stmt{Name: of.name, SQL: s.rendered.Load().text(of), Args: args, Read: read}
}
