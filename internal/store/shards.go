package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Citus may distribute the engine's schema. Its tables are then shells on every node, and the rows
// are in one shard for each, a plain table beside its shell on the worker that owns the schema.
// The store names the shards, so that its statements, their plans and their locks are as on plain
// Postgres (decision D69, docs/citus.md). Package citus makes such a schema, and in it two
// functions:
//
//   - gen_durable_enter begins each transaction. It takes the lock that a move of the schema takes
//     against writers, and then looks, in a later statement, whether the shards are here. So either
//     the move waits for the transaction, or the transaction finds that the schema has gone, and
//     fails as on a server that takes no writes. It leaves the epoch in a setting of the
//     transaction. The epoch grows with each move.
//   - gen_durable_draw draws from a sequence, behind the epoch. Each worker draws from a separate
//     range, so that the bare number may fall with a move. The setting is there only within a
//     transaction that has entered: whatever else draws fails.
//
// So a text has slots for the differences: see slot. On plain Postgres it is what it would be
// without all this.

// rendering turns the texts of statements into SQL for the place where the schema is.
type rendering struct {
	quoted string
	shards map[string]string // table → its shard; nil on plain Postgres
	texts  sync.Map          // *statement → SQL
}

func (r *rendering) distributed() bool { return r.shards != nil }

// text returns the SQL of a statement. Nothing else changes a text.
func (r *rendering) text(of *statement) string {
	sql, ok := r.texts.Load(of)
	if !ok {
		sql, _ = r.texts.LoadOrStore(of, r.resolve(of.text))
	}
	return sql.(string) //nolint:forcetypeassert // only strings are stored
}

// slot matches what a text leaves open, since it depends on where the schema is:
//
//	{s}.name      a table, function, sequence or type of the schema; of a table, its shard
//	{s}           the schema
//	{instances}   the table of instances, as its bare name or that of its shard
//	{next id}     draws an id of gen_durable
//	{next token}  draws a claim's token
//	{untimed}     ends the settings with which each transaction begins: see untimed
//	{settled}     begins the look whether a worker has its liveness lock: see settledText
//	{lane front}  a number that has a name, as have others of numbers
var slot = regexp.MustCompile(`\{([a-z]+(?: [a-z]+)?)\}(?:\.([a-z_]+))?`)

// resolve fills the slots of a text, for plain Postgres or for shards. It panics at one that it
// does not know, which no text has, as TestStatements shows.
func (r *rendering) resolve(text string) string {
	return slot.ReplaceAllStringFunc(text, func(found string) string {
		of := slot.FindStringSubmatch(found)
		switch shards := r.distributed(); of[1] {
		case "instances":
			return either(shards, r.shards["gen_durable"], `gen_durable`)
		case "next id":
			return r.resolve(either(shards, `{s}.gen_durable_draw('{s}.gen_durable_id_draw')`, `nextval('{s}.gen_durable_id_seq')`))
		case "next token":
			return r.resolve(either(shards, `{s}.gen_durable_draw('{s}.gen_durable_token')`, `nextval('{s}.gen_durable_token')`))
		case "untimed":
			return r.resolve(either(shards, `CASE WHEN `+enterText+` THEN `+untimed+` END`, untimed))
		case "settled":
			return r.resolve(when(shards, settledText))
		case "s":
		default:
			number, known := numbers[of[1]]
			if !known {
				return found // no statement has one: TestStatements reads them all
			}
			return strconv.Itoa(number)
		}
		name := of[2]
		if name == "" {
			return r.quoted
		}
		if shard := r.shards[name]; shard != "" {
			name = shard
		}
		return r.quoted + "." + name
	})
}

// untimed switches off a role's limit on whole transactions, which exists since Postgres 17.
// Setting another value would not restart a clock that already runs. statement_timeout bounds the
// transaction instead. In a distributed schema, the settings of each transaction enter it there:
// they set their statement_timeout before.
const untimed = `CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
  THEN set_config('transaction_timeout', '0', true) END`

const (
	enterText = `{s}.gen_durable_enter()`
	// settledText says whether the schema has been here for so long that each worker that lives has
	// connected to this node. Before, its liveness lock may be missing here.
	settledText = `(SELECT h.since < pg_catalog.clock_timestamp() - interval '5 minutes' FROM {s}.gen_durable_home h) AND `
)

// Within fills the slots of a text for a plain schema. It is for the command line tool, whose own
// statements have them, too.
func Within(schema, text string) string {
	return (&rendering{quoted: pgx.Identifier{schema}.Sanitize()}).resolve(text)
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
	return append([]entpgx.Stmt{s.stmt(enterSQL, nil)}, stmts...)
}

var enterSQL = named("enter", `SELECT `+enterText)

var (
	citusSQL = named("citus", `SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL`)
	// shardsSQL reads the shards of a distributed schema. A shard is named after its table, which
	// Citus shortens only if it is longer than any of ours. $1 schema
	shardsSQL = named("shards", `SELECT c.relname::text, d.shardid FROM pg_catalog.pg_dist_shard d JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text`)
)

// Locate finds out whether Citus distributes the schema, and enters it. Before, the store takes the
// schema for a plain one. An error that IsReadOnly says that another node has the schema.
func (s *Store) Locate(ctx context.Context) error {
	if err := s.find(ctx, s.db.Pipeline); err != nil || !s.rendered.Load().distributed() {
		return err
	}
	if err := s.transaction(ctx, slowLock); err != nil {
		return fmt.Errorf("enter the distributed schema %q: %w", s.schema, err)
	}
	return nil
}

// asking sends statements by the pool, or on a connection.
type asking func(ctx context.Context, stmts ...entpgx.Stmt) error

// find finds the schema's shards, if Citus distributes it.
func (s *Store) find(ctx context.Context, ask asking) error {
	var citus bool
	err := ask(ctx, s.stmt(citusSQL, readOne(&citus)))
	if err != nil {
		return fmt.Errorf("look for Citus: %w", err)
	}
	if !citus {
		return nil
	}
	shards := map[string]string{}
	var table string
	var id int64
	err = ask(ctx, s.stmt(shardsSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&table, &id}, func() error {
			shards[table] = table + "_" + strconv.FormatInt(id, 10)
			return nil
		})
		return err
	}, s.schema))
	if err != nil {
		return fmt.Errorf("look for the shards of schema %q: %w", s.schema, err)
	}
	if len(shards) > 0 {
		s.rendered.Store(&rendering{quoted: s.quoted, shards: shards})
	}
	return nil
}

// DistributedError says that Citus distributes the schema, which the store has only now found out,
// since the engine was not started: its statement meant a plain schema. Sent again, it is one for
// the shards.
type DistributedError struct {
	Schema string
	Err    error // what Postgres said to the statement for a plain schema
}

func (e *DistributedError) Error() string {
	return fmt.Sprintf("Citus distributes schema %q, which the engine has learned only now: repeat the transaction: %v", e.Schema, e.Err)
}

// Unwrap returns the error of Postgres.
func (e *DistributedError) Unwrap() error { return e.Err }

// ErrElsewhere says that another node of Citus has the schema.
var ErrElsewhere = errors.New("gendurable: another node of Citus has the schema: lead the pool to that node")

// elsewhereError is an ErrElsewhere.
type elsewhereError struct{ error }

func (e elsewhereError) Unwrap() []error { return []error{ErrElsewhere, e.error} }
func (e elsewhereError) Error() string   { return ErrElsewhere.Error() + ": " + e.error.Error() }

// placed deals with an error that may come from where the schema is. Connections to a node that no
// longer has a distributed schema are given up, so that the pool's BeforeConnect can find the new
// owner (citus.Follow). A store that was not located, and whose statement Citus refuses,
// looks for the shards by ask, and returns a [DistributedError] if there are any.
func (s *Store) placed(ctx context.Context, err error, ask asking) error {
	pool := s.db.Pool()
	r := s.rendered.Load()
	switch {
	case err == nil || pool == nil:
	case r.distributed():
		if r.hasMoved(err) {
			pool.Reset()
		}
		if r.elsewhere(err) {
			return elsewhereError{err}
		}
	case isOfCitus(err):
		// The caller's transaction may have the pool's only connection.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if s.find(ctx, ask) == nil && s.rendered.Load().distributed() {
			return &DistributedError{Schema: s.schema, Err: err}
		}
	}
	return err
}

// pipeline is [entpgx.Driver.Pipeline].
func (s *Store) pipeline(ctx context.Context, stmts ...entpgx.Stmt) error {
	err := s.db.Pipeline(ctx, stmts...)
	if s.yields(err) {
		err = s.db.Pipeline(ctx, stmts...)
	}
	return s.placed(ctx, err, s.db.Pipeline)
}

// pipelineOn is [entpgx.Driver.PipelineOn]. What it has to find out then, it asks on the same
// connection: callers that have all connections of the pool would wait for one another.
func (s *Store) pipelineOn(ctx context.Context, conn *pgx.Conn, stmts ...entpgx.Stmt) error {
	err := s.placed(ctx, s.db.PipelineOn(ctx, conn, stmts...), func(ctx context.Context, stmts ...entpgx.Stmt) error {
		return s.db.PipelineOn(ctx, conn, stmts...)
	})
	if err != nil && s.rendered.Load().hasMoved(err) {
		_ = conn.Close(context.WithoutCancel(ctx)) // nothing is lost with it
	}
	return err
}

// elsewhere reports whether an error says that a distributed schema is not on the node, or no
// longer: it does not let the transaction enter, or has no such shard.
func (r *rendering) elsewhere(err error) bool {
	pg := reported(err)
	switch {
	case pg == nil || !r.distributed():
		return false
	case pg.Code == codeReadOnly:
		return strings.HasPrefix(pg.Message, "gendurable: ") // a standby says it in other words
	case pg.Code == codeUndefinedTable:
		for _, shard := range r.shards { // a trigger of the host's may miss a table of its own
			if strings.Contains(pg.Message, shard) {
				return true
			}
		}
	}
	return false
}

// hasMoved reports whether other connections may lead to where a distributed schema is.
func (r *rendering) hasMoved(err error) bool {
	return r.elsewhere(err) || r.distributed() && hasCode(err, codeReadOnly)
}

// isOfCitus reports whether an error may be what Citus says to a statement for a plain schema: it
// does not plan it, or there is nothing to draw from, or no epoch to draw behind.
func isOfCitus(err error) bool {
	return hasCode(err, codeUnsupported) || hasCode(err, codeUndefinedTable) || hasCode(err, codeUndefinedObject)
}

// codeUndefinedObject is the SQLSTATE of a setting that is not there: the epoch, of a transaction
// that has not entered.
const codeUndefinedObject = "42704"

// codeUndefinedTable is the SQLSTATE of a shard that is not on the node: Citus has dropped it some
// time after a move.
const codeUndefinedTable = "42P01"

var shardSuffix = regexp.MustCompile(`_\d+$`)

// unsharded returns the name that an index or a constraint of a shard has in the schema.
func unsharded(name string) string { return shardSuffix.ReplaceAllString(name, "") }
