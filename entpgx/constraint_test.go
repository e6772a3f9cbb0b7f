package entpgx

import (
	"errors"
	"testing"

	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestConstraintErrorsInAnyLanguage(t *testing.T) {
	t.Parallel()
	for code, is := range map[string]func(error) bool{
		"23503": sqlgraph.IsForeignKeyConstraintError,
		"23505": sqlgraph.IsUniqueConstraintError,
		"23514": sqlgraph.IsCheckConstraintError,
	} {
		reported := &pgconn.PgError{Severity: "FEHLER", Code: code, Message: "verletzt eine Bedingung"}
		require.False(t, is(reported))
		err := constraint(reported)
		require.True(t, is(err), err)
		require.ErrorIs(t, err, reported)
		require.ErrorContains(t, err, "verletzt eine Bedingung")
	}
	other := errors.New("other")
	require.Equal(t, other, constraint(other))
	deadlock := &pgconn.PgError{Code: "40P01"}
	require.Equal(t, error(deadlock), constraint(deadlock))
}
