package migrations

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// DefaultSchema is the Postgres schema of an engine that does not set one.
	DefaultSchema = "gendurable"

	// Empty is the version before the first migration.
	Empty = "0"

	// RevisionTable is the name that Atlas gives to the table of applied files.
	RevisionTable = "atlas_schema_revisions"
)

// State says how a schema compares with the version that this program needs.
type State string

// The states of a schema.
const (
	StateMissing State = "missing" // nothing has been migrated there
	StateOlder   State = "older"   // migrations are pending, or one was interrupted
	StateCurrent State = "current" // exactly the needed version
	StateNewer   State = "newer"   // a newer program has migrated it

	// StateUnreleased means that a version from before the first release has made the schema. Its
	// migrations are other files, and none leads from one to the other.
	StateUnreleased State = "unreleased"
)

// Status says how far a schema is migrated.
type Status struct {
	Schema  string   `json:"schema"`
	State   State    `json:"state"`
	Current string   `json:"current"` // the newest version that is completely applied; Empty if none is
	Latest  string   `json:"latest"`  // the version that this program needs
	Pending []string `json:"pending"` // the versions that a migration would apply, in order; nil if unreleased
}

// SchemaError is returned when an engine cannot work with the version of its schema.
type SchemaError struct {
	Schema  string
	State   State  // never StateCurrent
	Current string // the version found; Empty if none
	Latest  string // the version that this program needs
}

// Error names the versions and ends with the remedy.
func (e *SchemaError) Error() string {
	switch e.State {
	case StateNewer:
		return fmt.Sprintf("schema %q is newer than this program: it has version %s, the program knows up to %s; %s",
			e.Schema, e.Current, e.Latest, e.Remedy())
	case StateUnreleased:
		return fmt.Sprintf("schema %q has version %s, of a program from before the first release, and no migration leads on from there; %s",
			e.Schema, e.Current, e.Remedy())
	case StateOlder:
		return fmt.Sprintf("schema %q is older than this program: it has version %s, the program needs %s; %s",
			e.Schema, e.Current, e.Latest, e.Remedy())
	default:
		return fmt.Sprintf("schema %q is missing: the program needs version %s; %s", e.Schema, e.Latest, e.Remedy())
	}
}

// Remedy returns what to run: each of the three ways of a migration does the same.
func (e *SchemaError) Remedy() string {
	switch e.State { //nolint:exhaustive // the others are migrated
	case StateNewer:
		return "run the newer program, or go back with its migrate.Migrator.To(ctx, \"" + e.Latest + "\")"
	case StateUnreleased:
		return "drain it: insert nothing any more, and let the program that made it end what is there; then give this program a new schema " +
			"(Config.Schema), run " + command() + " migrate up --schema with its name, and drop the old one"
	}
	schema := ""
	if e.Schema != DefaultSchema {
		schema = fmt.Sprintf(" --schema %q", e.Schema)
	}
	cli := command()
	return "run " + cli + " migrate up" + schema + ", or " + cli + " migrate dir" + schema +
		" and atlas migrate apply --env gendurable, with DATABASE_URL set, or call migrate.Migrator.Up"
}

// command runs the command line tool of the release that this program is built with, from wherever
// its modules come. A program that is built within the repository names the tool alone.
func command() string {
	const module = "github.com/gendurable/gendurable"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module && m.Replace == nil && strings.HasPrefix(m.Version, "v") {
				return "go run " + module + "/cmd/gendurable@" + m.Version
			}
		}
	}
	return "gendurable"
}

// Querier runs the queries of [Check]: a pool, a connection or a transaction of pgx.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check returns nil if the schema ("": DefaultSchema) has exactly the version that this program
// needs. Otherwise it returns a *[SchemaError], or the error that kept it from reading. It only
// reads, takes no lock, and needs only the right to select from the revision table.
func Check(ctx context.Context, db Querier, schema string) error {
	schema = cmp.Or(schema, DefaultSchema)
	status, err := read(ctx, db, schema)
	if err != nil {
		return fmt.Errorf("check schema %q: %w", schema, err)
	}
	if status.State == StateCurrent {
		return nil
	}
	return &SchemaError{Schema: schema, State: status.State, Current: status.Current, Latest: status.Latest}
}

// ReadStatus reads how far the schema ("": DefaultSchema) is migrated. Like [Check] it only reads,
// and works while a migration runs.
func ReadStatus(ctx context.Context, db Querier, schema string) (Status, error) {
	schema = cmp.Or(schema, DefaultSchema)
	status, err := read(ctx, db, schema)
	if err != nil {
		return Status{}, fmt.Errorf("read the migration status of schema %q: %w", schema, err)
	}
	return status, nil
}

func read(ctx context.Context, db Querier, schema string) (Status, error) {
	status := Status{Schema: schema, State: StateMissing, Current: Empty, Latest: Latest(), Pending: Versions()}
	table := pgx.Identifier{schema, RevisionTable}.Sanitize()
	var exists bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", table).Scan(&exists); err != nil {
		return Status{}, fmt.Errorf("look for the revision table: %w", err)
	}
	if !exists {
		return status, nil
	}
	var oldest, begun string
	err := db.QueryRow(ctx, `SELECT coalesce(max(version COLLATE "C") FILTER (WHERE applied = total), $1::text),
		coalesce(min(version COLLATE "C"), $1::text), coalesce(max(version COLLATE "C"), $1::text)
		FROM `+table+` WHERE version NOT LIKE '.%'`, Empty).Scan(&status.Current, &oldest, &begun)
	if err != nil {
		return Status{}, fmt.Errorf("read the revision table: %w", err)
	}
	status.Pending = nil
	if begun != Empty && oldest < Versions()[0] {
		status.State, status.Current = StateUnreleased, begun
		return status, nil
	}
	for _, version := range Versions() {
		if version > status.Current {
			status.Pending = append(status.Pending, version)
		}
	}
	switch {
	case begun > status.Latest:
		status.State, status.Current = StateNewer, begun
	case begun == Empty:
		status.State = StateMissing
	case len(status.Pending) > 0:
		status.State = StateOlder
	default:
		status.State = StateCurrent
	}
	return status, nil
}
