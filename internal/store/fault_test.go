package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/store"
)

// T30: each class of SQLSTATE has one meaning for every sender of a statement.
var faults = []struct {
	fault store.Fault
	codes map[string]string
}{
	{store.FaultTransient, map[string]string{
		"08000": "connection_exception", "08003": "connection_does_not_exist", "08006": "connection_failure", "08P01": "protocol_violation",
		"25006": "read_only_sql_transaction, a standby", "25P02": "in_failed_sql_transaction", "25P03": "idle_in_transaction_session_timeout",
		"26000": "prepared statement does not exist, behind a proxy",
		"40001": "serialization_failure", "40003": "statement_completion_unknown", "40P01": "deadlock_detected",
		"53000": "insufficient_resources", "53100": "disk_full", "53200": "out_of_memory", "53300": "too_many_connections",
		"55000": "object_not_in_prerequisite_state", "55006": "object_in_use", "55P03": "lock_not_available",
		"57014": "query_canceled, a statement timeout", "57P01": "admin_shutdown", "57P02": "crash_shutdown", "57P03": "cannot_connect_now",
		"58030": "io_error", "XX000": "internal_error",
	}},
	{store.FaultData, map[string]string{
		"22001": "string_data_right_truncation", "22003": "numeric_value_out_of_range", "22008": "datetime_field_overflow",
		"22021": "character_not_in_repertoire", "22P02": "invalid_text_representation", "22P05": "untranslatable_character",
		"23502": "not_null_violation", "23503": "foreign_key_violation", "23505": "unique_violation", "23514": "check_violation",
		"54000": "program_limit_exceeded",
		"P0001": "raise_exception", "38000": "external_routine_exception", "0A000": "feature_not_supported", "44000": "with_check_option_violation",
		"27000": "triggered_data_change_violation", "MY001": "a trigger's own", "XX001": "data_corrupted", "XX002": "index_corrupted",
	}},
	{store.FaultConfig, map[string]string{
		"28000": "invalid_authorization", "28P01": "invalid_password", "3D000": "no such database", "3F000": "no such schema",
		"42501": "insufficient_privilege", "42703": "undefined_column", "42704": "undefined_object", "42P01": "undefined_table",
		"0LP01": "invalid_grant_operation", "0P000": "invalid_role",
	}},
}

func TestSessionsThatAreOver(t *testing.T) {
	t.Parallel()
	over := func(code string) bool {
		return store.IsSessionOver(fmt.Errorf("look: %w", &pgconn.PgError{Code: code}))
	}
	for _, code := range []string{"57P01", "57P05", "08006", "25P03"} {
		require.True(t, over(code), code)
	}
	for _, code := range []string{"55P03", "57014", "25006", "42P01", "53300"} {
		require.False(t, over(code), code)
	}
	require.True(t, store.IsSessionOver(io.ErrUnexpectedEOF))
	require.False(t, store.IsSessionOver(context.DeadlineExceeded))
	require.False(t, store.IsSessionOver(nil))
	_, err := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/none?sslmode=disable&connect_timeout=5")
	require.Error(t, err)
	require.False(t, store.IsSessionOver(err), "nobody answers")
}

func TestClassifyServerErrors(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		for code, name := range f.codes {
			err := error(&pgconn.PgError{Severity: "ERROR", Code: code, Message: name})
			require.Equal(t, f.fault, store.Classify(err), "%s %s", code, name)
			require.Equal(t, f.fault, store.Classify(fmt.Errorf("commit: %w", &entpgx.StmtError{Name: "commit", Sent: true, Err: err})), "%s %s", code, name)
			require.Equal(t, code == "23505", store.IsUniqueViolation(err))
			require.Equal(t, code == "55P03", store.IsLockTimeout(err))
			require.Equal(t, code == "25006", store.IsReadOnly(err))
		}
	}
}

// MayNeverPass tells errors that one entry may cause at each try from those that no entry causes.
func TestWhatMayNeverPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"55P03": true, "57014": true, "53200": true, "XX000": true, "42883": true, "42501": true, "3F000": true, "55000": true, "58030": true,
		"40P01": true, "40001": true, "08006": false, "57P01": false, "25006": false, "53300": false, "28P01": false, "26000": false,
	} {
		require.Equal(t, want, store.MayNeverPass(&pgconn.PgError{Code: code}), code)
	}
	require.False(t, store.MayNeverPass(io.EOF))
}

// A plan that was cached before a migration is no fault of the data, whatever the language of the
// server's messages.
func TestClassifyAChangedPlan(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.FaultTransient, store.Classify(&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}))
}

func TestClassifyOtherErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want store.Fault
	}{
		{nil, store.FaultNone},
		{context.Canceled, store.FaultCancelled},
		{fmt.Errorf("acquire: %w", context.DeadlineExceeded), store.FaultCancelled},
		{io.EOF, store.FaultTransient},
		{&entpgx.StmtError{Sent: true, Err: io.ErrUnexpectedEOF}, store.FaultTransient},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, store.FaultTransient},
		{pgconn.ErrConnClosed, store.FaultTransient},
		{fmt.Errorf("unmarshal field labels: %w", json.Unmarshal([]byte(`{"a": 1}`), &map[string]string{})), store.FaultData},
		{fmt.Errorf("read: %w", json.Unmarshal([]byte(`{`), &map[string]string{})), store.FaultData},
		{second(strconv.Atoi("x")), store.FaultData},
		{second(time.Parse(time.RFC3339, "x")), store.FaultData},
	} {
		require.Equal(t, c.want, store.Classify(c.err), "%v", c.err)
	}
	// The server's report outranks the context's end, since what it reports has happened.
	both := errors.Join(context.Canceled, &pgconn.PgError{Code: "23505"})
	require.Equal(t, store.FaultData, store.Classify(both))
}

func second[T any](_ T, err error) error { return err }

// A step's own function may return a nil report in an error that is not nil.
func TestClassifyANilReport(t *testing.T) {
	t.Parallel()
	for _, err := range []error{(*pgconn.PgError)(nil), fmt.Errorf("book: %w", (*pgconn.PgError)(nil))} {
		require.Equal(t, store.FaultTransient, store.Classify(err))
		require.False(t, store.MayPass(err))
		require.False(t, store.MayNeverPass(err))
		require.False(t, store.IsReadOnly(err))
		require.False(t, store.IsUniqueViolation(err))
	}
}

func TestFaultsHaveNames(t *testing.T) {
	t.Parallel()
	for fault, name := range map[store.Fault]string{store.FaultNone: "none", store.FaultTransient: "transient", store.FaultData: "data",
		store.FaultConfig: "configuration", store.FaultCancelled: "cancelled"} {
		require.Equal(t, name, fault.String())
	}
}

// The error of a commit reports that the batch may have been applied only if the answer to COMMIT
// is missing.
func TestUnknown(t *testing.T) {
	t.Parallel()
	server := &pgconn.PgError{Severity: "ERROR", Code: "40P01"}
	for err, want := range map[error]bool{
		error(&entpgx.StmtError{Sent: false, Err: io.EOF}):                        false,
		error(&entpgx.StmtError{Sent: true, Err: io.EOF}):                         true,
		error(&entpgx.StmtError{Sent: true, Err: server}):                         false,
		error(&entpgx.StmtError{Sent: true, Err: &pgconn.PgError{Code: "08006"}}): true,
		errors.New("of somebody else"):                                            false,
	} {
		require.Equal(t, want, store.Unknown(fmt.Errorf("commit: %w", err)), "%v", err)
	}
}
