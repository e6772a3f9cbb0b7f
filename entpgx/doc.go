// Package entpgx runs ent natively on pgx:
//
//	client := ent.NewClient(ent.Driver(entpgx.New(pool)))
//
// [Driver] is ent's dialect.Driver over a pgxpool, without
// database/sql in between. Hot statements written by hand go through the same driver and the same
// pool as a [Driver.Pipeline]. [Driver.Around] surrounds all of them. The package imports pgx and
// ent only.
//
// What ent does with its own driver works: transactions, savepoints inside a transaction of pgx
// ([Within]), plain statements (the feature sql/execquery), migrations (Schema.Create), in every
// exec mode of pgx. One thing does not: session variables of a context (sql.WithVar), which ent
// keeps from other drivers. Set them in a transaction, by set_config.
//
// # Statements for every exec mode
//
// A host's pool may use any of pgx's exec modes. In cache_statement, cache_describe and
// describe_exec the server reports the types of the parameters. In exec and simple_protocol
// (connection poolers) it does not, and pgx goes by the Go type alone. A statement works in all
// modes if it casts each parameter whose type the context leaves open ($1::bigint, not $1 + 1), and
// if its arguments are of these types:
//
//   - integers, float64, bool, string, time.Time, named types of those, and pointers to them (nil
//     is NULL), but not time.Duration, which is an interval and never a number
//   - slices of int, int16, int32, int64, float64, bool, string, time.Time, or of pointers to those
//     (nil elements are NULL, a nil slice is NULL, an empty one '{}'); never slices of named types
//   - uuid.UUID, *uuid.UUID, pgtype.UUID, []pgtype.UUID, or the text form as string or []string;
//     never [16]byte, [][16]byte or []uuid.UUID
//   - JSON as string or json.RawMessage, several as []string for $1::text[]::jsonb[]; never []byte,
//     which is bytea, or a map or struct
//   - enums as string, several as []string for $1::text[]::name[]
//   - []byte for bytea
//
// In all modes, and whatever DateStyle a role has set, results scan alike into pointers to those
// types; arrays of an enum need ::text[], and enums ::text.
package entpgx
