package entpgx_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

type (
	label string
	rank  int16
)

// TestSafeArguments tests the list in the package's documentation: each value that goes in as
// $1::type comes out the same in all modes.
func TestSafeArguments(t *testing.T) {
	t.Parallel()
	const null = "<null>"
	id := uuid.MustParse("fd708e17-19f8-4918-a057-9988f537ab67")
	native := pgtype.UUID{Bytes: id, Valid: true}
	at := time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.UTC)
	cases := []struct {
		as   string
		in   any
		want string
	}{
		{"bigint", 7, "7"},
		{"smallint", rank(3), "3"},
		{"bigint", new(int64(7)), "7"},
		{"bigint", (*int64)(nil), null},
		{"double precision", 1.5, "1.5"},
		{"boolean", true, "true"},
		{"text", `a'"\b`, `a'"\b`},
		{"text", label("x"), "x"},
		{"text", (*string)(nil), null},
		{"text", nil, null},
		{"timestamptz", at, "2024-02-29 12:30:15.123456+00"},
		{"timestamptz", (*time.Time)(nil), null},

		{"bigint[]", []int64{1, -2}, "{1,-2}"},
		{"bigint[]", []int64{}, "{}"},
		{"bigint[]", []int64(nil), null},
		{"bigint[]", []*int64{new(int64(1)), nil}, "{1,NULL}"},
		{"bigint[]", []*int64(nil), null},
		{"bigint[]", []int{1}, "{1}"},
		{"integer[]", []int32{1, 2}, "{1,2}"},
		{"integer[]", []*int32{nil}, "{NULL}"},
		{"smallint[]", []int16{1, 2}, "{1,2}"},
		{"smallint[]", []*int16{nil, new(int16(4))}, "{NULL,4}"},
		{"boolean[]", []bool{true, false}, "{t,f}"},
		{"boolean[]", []*bool{nil}, "{NULL}"},
		{"double precision[]", []float64{1.5}, "{1.5}"},
		{"text[]", []string{`a"b`, "NULL", "", "{,}", `\`, "'"}, `{"a\"b","NULL","","{,}","\\",'}`},
		{"text[]", []string(nil), null},
		{"text[]", []*string{new("a"), nil, new("")}, `{a,NULL,""}`},
		{"timestamptz[]", []time.Time{at}, `{"2024-02-29 12:30:15.123456+00"}`},
		{"timestamptz[]", []*time.Time{nil}, "{NULL}"},

		{"uuid", id, id.String()},
		{"uuid", &id, id.String()},
		{"uuid", (*uuid.UUID)(nil), null},
		{"uuid", native, id.String()},
		{"uuid", pgtype.UUID{}, null},
		{"uuid", id.String(), id.String()},
		{"uuid[]", []pgtype.UUID{native, {}}, "{" + id.String() + ",NULL}"},
		{"text[]::uuid[]", []*string{new(id.String()), nil}, "{" + id.String() + ",NULL}"},

		{"jsonb", `{"a": "'\\"}`, `{"a": "'\\"}`},
		{"jsonb", json.RawMessage(`{"a": 1}`), `{"a": 1}`},
		{"jsonb", json.RawMessage(nil), null},
		{"text[]::jsonb[]", []*string{new(`{"a": 1}`), nil}, `{"{\"a\": 1}",NULL}`},
		{"text[]::jsonb[]", []string{`"'\\"`}, `{"\"'\\\\\""}`},

		{"mood", "happy", "happy"},
		{"mood", label("happy"), "happy"},
		{"text[]::mood[]", []string{"happy", "sad"}, "{happy,sad}"},
		{"bytea", []byte{0, 255}, `\x00ff`},
	}
	inModes(t, `CREATE TYPE mood AS ENUM ('happy', 'sad')`, func(t *testing.T, driver *entpgx.Driver) {
		for _, c := range cases {
			var got string
			err := driver.Pipeline(t.Context(), entpgx.Stmt{
				Name: c.as,
				SQL:  "SELECT coalesce(($1::" + c.as + ")::text, '" + null + "')",
				Args: []any{c.in},
				Read: func(rows pgx.Rows) (err error) {
					got, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
					return err
				},
			})
			require.NoError(t, err, "%T as %s", c.in, c.as)
			require.Equal(t, c.want, got, "%T as %s", c.in, c.as)
		}
	})
}

func TestResultsScanAlike(t *testing.T) {
	t.Parallel()
	type row struct {
		Number    int64
		Small     int16
		Missing   *string
		Texts     []string
		Numbers   []*int64
		ID        uuid.UUID
		RawID     [16]byte
		NativeID  pgtype.UUID
		At        time.Time
		Never     *time.Time
		Document  json.RawMessage
		Bytes     []byte
		Mood      label
		Moods     []string
		Documents []string
	}
	id := uuid.MustParse("fd708e17-19f8-4918-a057-9988f537ab67")
	want := row{
		Number: 1 << 40, Small: -3, Texts: []string{"a,b", ""}, Numbers: []*int64{new(int64(1)), nil},
		ID: id, RawID: id, NativeID: pgtype.UUID{Bytes: id, Valid: true},
		At:       time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.UTC),
		Document: json.RawMessage(`{"a": 1}`), Bytes: []byte(`{"a": 1}`),
		Mood: "happy", Moods: []string{"happy", "sad"}, Documents: []string{`{"a": 1}`},
	}
	inModes(t, `CREATE TYPE mood AS ENUM ('happy', 'sad')`, func(t *testing.T, driver *entpgx.Driver) {
		var got row
		err := driver.Pipeline(t.Context(), entpgx.Stmt{
			Name: "row",
			SQL: `SELECT 1099511627776::bigint, -3::smallint, NULL::text, '{"a,b",""}'::text[], '{1,NULL}'::bigint[],
				$1::uuid, $1::uuid, $1::uuid, '2024-02-29 12:30:15.123456+00'::timestamptz, NULL::timestamptz,
				'{"a": 1}'::jsonb, '{"a": 1}'::jsonb, 'happy'::mood::text, '{happy,sad}'::mood[]::text[],
				ARRAY['{"a": 1}'::jsonb]::text[]`,
			Args: []any{id},
			Read: func(rows pgx.Rows) (err error) {
				got, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
				return err
			},
		})
		require.NoError(t, err)
		got.At = got.At.UTC()
		require.Equal(t, want, got)
	})
}
