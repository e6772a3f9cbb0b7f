package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Start repeats a check whose session has ended, and one whose statement the server has cancelled:
// a role's statement_timeout may be shorter than a busy machine takes for the smallest statement.
func TestStartRepeatsWhatPasses(t *testing.T) {
	t.Parallel()
	for code, tries := range map[string]int{
		"57014": startSessions, // query_canceled
		"57P05": startSessions, // idle_session_timeout
		"42501": 1,             // insufficient_privilege
		"40001": 1,             // serialization_failure: a check writes nothing
	} {
		fault, tried := fmt.Errorf("read: %w", &pgconn.PgError{Code: code}), 0
		require.ErrorIs(t, (&Engine{}).onASession(t.Context(), func(context.Context) error { tried++; return fault }), fault)
		require.Equal(t, tries, tried, code)
	}
	tried := 0
	require.NoError(t, (&Engine{}).onASession(t.Context(), func(context.Context) error {
		if tried++; tried < startSessions {
			return &pgconn.PgError{Code: "57014"}
		}
		return nil
	}))
}
