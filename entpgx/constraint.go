package entpgx

import (
	"errors"

	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/jackc/pgx/v5/pgconn"
)

// violations maps SQLSTATEs to the words by which ent recognises a violated constraint.
var violations = map[string]string{
	"23503": "violates foreign key constraint",
	"23505": "violates unique constraint",
	"23514": "violates check constraint",
}

// constraint makes ent.IsConstraintError hold for violated constraints: ent looks for English
// words, but a server reports in the language of its lc_messages.
func constraint(err error) error {
	var reported *pgconn.PgError
	if !errors.As(err, &reported) || sqlgraph.IsConstraintError(err) {
		return err
	}
	if words, ok := violations[reported.Code]; ok {
		return &constraintError{words: words, err: err}
	}
	return err
}

type constraintError struct {
	words string
	err   error
}

func (e *constraintError) Error() string { return e.words + ": " + e.err.Error() }

func (e *constraintError) Unwrap() error { return e.err }
