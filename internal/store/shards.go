package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Citus may distribute the engine's schema. Its tables are then shells on every node, and the rows
// are in one shard for each, a plain table beside its shell on the worker that owns the schema. The
// store names the shards, so that its statements, their plans and their locks are those of plain
// Postgres (decision D69, docs/citus.md). Package internal/citus makes such a schema, and in it two
// functions:
//
//   - gen_durable_enter begins each transaction. It takes the lock that a move of the schema takes
//     against writers, and then looks, in a later statement, whether the shards are here. So either
//     the move waits for the transaction, or the transaction finds that the schema has gone, and
//     fails as on a server that takes no writes. It leaves the epoch in a setting of the
//     transaction. The epoch grows with each move.
//   - gen_durable_draw draws from a sequence, behind the epoch. Each worker draws from a range of
//     its own, so that the bare number may fall with a move. The setting is there only within a
//     transaction that has entered: whatever else draws fails.
//
// On plain Postgres each text is what it would be without all this.

// rendering turns the texts of statements into SQL for the place where the schema is.
type rendering struct {
	quoted string
	shards map[string]string // table → its shard; nil on plain Postgres
	texts  sync.Map          // statement's text → SQL
}

func (r *rendering) distributed() bool { return r.shards != nil }

// text returns the SQL of a statement.
func (r *rendering) text(text string) string {
	sql, ok := r.texts.Load(text)
	if !ok {
		sql, _ = r.texts.LoadOrStore(text, strings.ReplaceAll(r.onShards(text), "{s}", r.quoted))
	}
	return sql.(string) //nolint:forcetypeassert // only strings are stored
}

// sharded matches what may be a table of the schema.
var sharded = regexp.MustCompile(`\{s\}\.([a-z_]+)`)

const (
	enterSQL = `{s}.gen_durable_enter()`
	// settledSQL says whether the schema has been here for so long that each worker that lives has
	// connected to this node. Before, its liveness lock may be missing here.
	settledSQL = `(SELECT h.since < pg_catalog.clock_timestamp() - interval '5 minutes' FROM {s}.gen_durable_home h) AND `
)

// onShards makes a text name the shards of a distributed schema. The settings that begin each
// transaction enter the schema: all of them end with untimed, and set their lock_timeout before.
func (r *rendering) onShards(text string) string {
	if !r.distributed() {
		return text
	}
	text = strings.ReplaceAll(text, untimed, `CASE WHEN `+enterSQL+` THEN `+untimed+` END`)
	text = strings.ReplaceAll(text, `pg_try_advisory_xact_lock(hashtextextended('gendurable ' ||`,
		settledSQL+`pg_try_advisory_xact_lock(hashtextextended('gendurable ' ||`)
	text = strings.ReplaceAll(text, `nextval('{s}.`, `{s}.gen_durable_draw('{s}.`)
	text = strings.ReplaceAll(text, `to_regclass($1::text || 'gen_durable')`, `to_regclass($1::text || '`+r.shards["gen_durable"]+`')`)
	return sharded.ReplaceAllStringFunc(text, func(name string) string {
		if shard := r.shards[strings.TrimPrefix(name, "{s}.")]; shard != "" {
			return "{s}." + shard
		}
		return name
	})
}

// query makes a query of ent name the shards. It qualifies each table, and each column by its
// table, with the schema.
func (r *rendering) query(text string) string {
	for table, shard := range r.shards {
		text = strings.ReplaceAll(text, r.quoted+`."`+table+`"`, r.quoted+`."`+shard+`"`)
	}
	return text
}

// entered puts the entrance in front of statements of a transaction that another began, without the
// store's settings.
func (s *Store) entered(stmts []entpgx.Stmt) []entpgx.Stmt {
	if !s.rendered.Load().distributed() {
		return stmts
	}
	return append([]entpgx.Stmt{s.stmt("enter", `SELECT `+enterSQL, nil)}, stmts...)
}

const (
	citusSQL = `SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL`
	// shardsSQL reads the shards of a distributed schema. A shard is named after its table, which
	// Citus shortens only if it is longer than any of ours. $1 schema
	shardsSQL = `SELECT c.relname::text, d.shardid FROM pg_catalog.pg_dist_shard d JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text`
)

// Locate finds out whether Citus distributes the schema, and enters it. Before, the store takes the
// schema for a plain one. An error that IsReadOnly says that another node has the schema.
func (s *Store) Locate(ctx context.Context) error {
	var citus bool
	err := s.pipeline(ctx, s.stmt("citus", citusSQL, readOne(&citus)))
	if err != nil {
		return fmt.Errorf("look for Citus: %w", err)
	}
	if !citus {
		return nil
	}
	shards := map[string]string{}
	var table string
	var id int64
	err = s.pipeline(ctx, s.stmt("shards", shardsSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&table, &id}, func() error {
			shards[table] = table + "_" + strconv.FormatInt(id, 10)
			return nil
		})
		return err
	}, s.schema))
	if err != nil {
		return fmt.Errorf("look for the shards of schema %q: %w", s.schema, err)
	}
	if len(shards) == 0 {
		return nil
	}
	s.rendered.Store(&rendering{quoted: s.quoted, shards: shards})
	if err := s.transaction(ctx, slowLock); err != nil {
		return fmt.Errorf("enter the distributed schema %q: %w", s.schema, err)
	}
	return nil
}

// pipeline is [entpgx.Driver.Pipeline].
func (s *Store) pipeline(ctx context.Context, stmts ...entpgx.Stmt) error {
	err := s.db.Pipeline(ctx, stmts...)
	if err != nil && s.hasMoved(err) {
		s.db.Pool().Reset()
	}
	return err
}

// pipelineOn is [entpgx.Driver.PipelineOn].
func (s *Store) pipelineOn(ctx context.Context, conn *pgx.Conn, stmts ...entpgx.Stmt) error {
	err := s.db.PipelineOn(ctx, conn, stmts...)
	if err != nil && s.hasMoved(err) {
		s.db.Pool().Reset()
		_ = conn.Close(context.WithoutCancel(ctx)) // nothing is lost with it
	}
	return err
}

// hasMoved reports whether an error says that a distributed schema is no longer on the node: it
// does not let the transaction enter, or has dropped the shards. Connections to it are given up, so
// that the pool's BeforeConnect can find the new owner (internal/citus.Follow).
func (s *Store) hasMoved(err error) bool {
	return s.rendered.Load().distributed() && (hasCode(err, codeReadOnly) || hasCode(err, codeUndefinedTable))
}

// codeUndefinedTable is the SQLSTATE of a shard that Citus has dropped some time after a move.
const codeUndefinedTable = "42P01"

var shardSuffix = regexp.MustCompile(`_\d+$`)

// unsharded returns the name that an index or a constraint of a shard has in the schema.
func unsharded(name string) string { return shardSuffix.ReplaceAllString(name, "") }
