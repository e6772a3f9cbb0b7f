package entpgx_test

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

const item = `CREATE TYPE mood AS ENUM ('happy', 'sad');
	CREATE TABLE item (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid uuid NOT NULL UNIQUE, mood mood NOT NULL,
		size integer CHECK (size > 0), document jsonb, tags text[], changed timestamptz NOT NULL DEFAULT '2024-02-29 12:00Z',
		parent bigint REFERENCES item)`

// builder makes statements as ent's generated code does.
var builder = entsql.Dialect(dialect.Postgres)

// insert inserts an item the way ent does, and returns its id.
func insert(ctx context.Context, on dialect.ExecQuerier, set func(*entsql.InsertBuilder)) (int64, error) {
	statement := builder.Insert("item").Returning("id")
	set(statement)
	query, args := statement.Query()
	var found entsql.Rows
	if err := on.Query(ctx, query, args, &found); err != nil {
		return 0, err
	}
	defer found.Close()
	return entsql.ScanInt64(found)
}

func plain(uid uuid.UUID) func(*entsql.InsertBuilder) {
	return func(b *entsql.InsertBuilder) { b.Columns("uid", "mood").Values(uid, "sad") }
}

func count(t *testing.T, on dialect.ExecQuerier) int {
	t.Helper()
	query, args := builder.Select("count(*)").From(entsql.Table("item")).Query()
	var found entsql.Rows
	require.NoError(t, on.Query(t.Context(), query, args, &found))
	defer found.Close()
	n, err := entsql.ScanInt(found)
	require.NoError(t, err)
	return n
}

func TestRowsInAndOut(t *testing.T) {
	t.Parallel()
	inModes(t, item, func(t *testing.T, driver *entpgx.Driver) {
		require.Equal(t, dialect.Postgres, driver.Dialect())
		uid := uuid.New()
		full, err := insert(t.Context(), driver, func(b *entsql.InsertBuilder) {
			b.Columns("uid", "mood", "size", "document", "tags").
				Values(uid, "happy", 3, json.RawMessage(`{"a": 1}`), []string{"x", "y,z"})
		})
		require.NoError(t, err)
		_, err = insert(t.Context(), driver, plain(uuid.New()))
		require.NoError(t, err)

		query, args := builder.Select("id", "uid", "mood", "size", "document", "tags", "changed", "parent").
			From(entsql.Table("item")).Where(entsql.In("mood", "happy", "sad")).OrderBy("id").Query()
		var found entsql.Rows
		require.NoError(t, driver.Query(t.Context(), query, args, &found))
		columns, err := found.Columns()
		require.NoError(t, err)
		require.Equal(t, []string{"id", "uid", "mood", "size", "document", "tags", "changed", "parent"}, columns)

		// ent's generated code scans into these types.
		var id, size, parent stdsql.NullInt64
		var gotUID uuid.UUID
		var mood, tags stdsql.NullString
		var document []byte
		var changed stdsql.NullTime
		into := []any{&id, &gotUID, &mood, &size, &document, &tags, &changed, &parent}
		require.True(t, found.Next())
		require.NoError(t, found.Scan(into...))
		require.Equal(t, full, id.Int64)
		require.Equal(t, uid, gotUID)
		require.Equal(t, "happy", mood.String)
		require.EqualValues(t, 3, size.Int64)
		require.JSONEq(t, `{"a": 1}`, string(document))
		require.Equal(t, `{x,"y,z"}`, tags.String)
		require.True(t, changed.Time.Equal(time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)))
		require.False(t, parent.Valid)
		require.True(t, found.Next())
		require.NoError(t, found.Scan(into...))
		require.False(t, size.Valid)
		require.Nil(t, document)
		require.False(t, found.Next())
		require.NoError(t, found.Err())
		require.False(t, found.NextResultSet())
		require.NoError(t, found.Close())

		query, args = builder.Update("item").Set("size", 9).Query()
		var result entsql.Result
		require.NoError(t, driver.Exec(t.Context(), query, args, &result))
		affected, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 2, affected)
		_, err = result.LastInsertId()
		require.Error(t, err)
	})
}

// ent reads the columns of a result after its connection, for want of rows, has gone back to the
// pool and on to the next user.
func TestColumnsOfAnEmptyResult(t *testing.T) {
	t.Parallel()
	inModes(t, item, func(t *testing.T, driver *entpgx.Driver) {
		query := func(columns ...string) entsql.Rows {
			var found entsql.Rows
			text, args := builder.Select(columns...).From(entsql.Table("item")).Query()
			require.NoError(t, driver.Query(t.Context(), text, args, &found))
			return found
		}
		first := query("id", "uid")
		second := query("mood", "size")
		for _, of := range []struct {
			found entsql.Rows
			want  []string
		}{{first, []string{"id", "uid"}}, {second, []string{"mood", "size"}}} {
			got, err := of.found.Columns()
			require.NoError(t, err)
			require.Equal(t, of.want, got)
			require.False(t, of.found.Next())
			require.NoError(t, of.found.Close())
		}
	})
}

func TestConstraintErrors(t *testing.T) {
	t.Parallel()
	inModes(t, item, func(t *testing.T, driver *entpgx.Driver) {
		taken := uuid.New()
		_, err := insert(t.Context(), driver, plain(taken))
		require.NoError(t, err)

		_, err = insert(t.Context(), driver, plain(taken))
		require.True(t, sqlgraph.IsUniqueConstraintError(err), err)
		_, err = insert(t.Context(), driver, func(b *entsql.InsertBuilder) { b.Columns("uid", "mood", "size").Values(uuid.New(), "sad", 0) })
		require.True(t, sqlgraph.IsCheckConstraintError(err), err)
		err = driver.Exec(t.Context(), "UPDATE item SET parent = $1::bigint", []any{int64(99)}, nil)
		require.True(t, sqlgraph.IsForeignKeyConstraintError(err), err)
		var reported *pgconn.PgError
		require.ErrorAs(t, err, &reported)
		require.Equal(t, "23503", reported.Code)

		err = driver.Exec(t.Context(), "UPDATE item SET mood = NULL", []any{}, nil)
		require.Error(t, err)
		require.False(t, sqlgraph.IsConstraintError(err), "ent does not count a missing value")
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	inModes(t, item, func(t *testing.T, driver *entpgx.Driver) {
		tx, err := driver.Tx(t.Context())
		require.NoError(t, err)
		_, err = insert(t.Context(), tx, plain(uuid.New()))
		require.NoError(t, err)
		require.Zero(t, count(t, driver))
		require.NoError(t, tx.Rollback())
		require.Zero(t, count(t, driver))

		tx, err = driver.Tx(t.Context())
		require.NoError(t, err)
		_, err = insert(t.Context(), tx, plain(uuid.New()))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, count(t, driver))
		require.ErrorIs(t, tx.Rollback(), pgx.ErrTxClosed)
	})
}

func TestTransactionOptions(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, item, pgx.QueryExecModeCacheStatement)
	for level, want := range map[stdsql.IsolationLevel]string{
		stdsql.LevelDefault:        "read committed",
		stdsql.LevelRepeatableRead: "repeatable read",
		stdsql.LevelSnapshot:       "repeatable read",
		stdsql.LevelSerializable:   "serializable",
	} {
		tx, err := driver.BeginTx(t.Context(), &entsql.TxOptions{Isolation: level, ReadOnly: true})
		require.NoError(t, err)
		var got string
		require.NoError(t, tx.(*entpgx.Tx).Pgx().QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&got))
		require.Equal(t, want, got)
		_, err = insert(t.Context(), tx, plain(uuid.New()))
		require.ErrorContains(t, err, "25006")
		require.NoError(t, tx.Rollback())
	}
	_, err := driver.BeginTx(t.Context(), &entsql.TxOptions{Isolation: stdsql.LevelLinearizable})
	require.ErrorContains(t, err, "Linearizable")
}

func TestContextOfATransaction(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, item, pgx.QueryExecModeCacheStatement)
	ctx, cancel := context.WithCancel(t.Context())
	commit, err := driver.Tx(ctx)
	require.NoError(t, err)
	_, err = insert(ctx, commit, plain(uuid.New()))
	require.NoError(t, err)
	rollback, err := driver.Tx(ctx)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, commit.Commit(), context.Canceled)
	require.NoError(t, rollback.Rollback())
	require.Zero(t, count(t, driver))
}

func TestWithin(t *testing.T) {
	t.Parallel()
	inModes(t, item, func(t *testing.T, driver *entpgx.Driver) {
		require.NoError(t, driver.Close())
		require.NoError(t, driver.Pool().Ping(t.Context()), "Close closed the host's pool")

		outer, err := driver.Pool().Begin(t.Context())
		require.NoError(t, err)
		within := entpgx.Within(outer)
		require.Nil(t, within.Pool())
		_, err = insert(t.Context(), within, plain(uuid.New()))
		require.NoError(t, err)

		savepoint, err := within.Tx(t.Context())
		require.NoError(t, err)
		_, err = insert(t.Context(), savepoint, plain(uuid.New()))
		require.NoError(t, err)
		require.Equal(t, 2, count(t, within))
		require.NoError(t, savepoint.Rollback())
		require.Equal(t, 1, count(t, within))

		_, err = within.BeginTx(t.Context(), &entsql.TxOptions{ReadOnly: true})
		require.ErrorContains(t, err, "savepoint")
		require.NoError(t, within.Close())
		require.NoError(t, outer.Commit(t.Context()))
		require.Equal(t, 1, count(t, driver))
	})
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, item, pgx.QueryExecModeCacheStatement)
	require.ErrorContains(t, driver.Query(t.Context(), "SELECT 1", []any{}, nil), "want *sql.Rows")
	require.ErrorContains(t, driver.Query(t.Context(), "SELECT 1", "x", &entsql.Rows{}), "want []any")
	require.ErrorContains(t, driver.Exec(t.Context(), "SELECT 1", "x", nil), "want []any")
	require.ErrorContains(t, driver.Exec(t.Context(), "SELECT 1", []any{}, 1), "want *sql.Result")
}
