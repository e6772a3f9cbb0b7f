package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// scopeText turns fsm.Scope into the statuses in which a key is occupied. Only these five scopes
// exist (§7).
const scopeText = `CASE WHEN r.key IS NULL THEN '{}'::{s}.durable_status[] ELSE CASE coalesce(r.scope, ($10::smallint[])[1])
    WHEN 0 THEN '{runnable,executing,awaiting_signal,awaiting_children}'::{s}.durable_status[]
    WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children,done}'::{s}.durable_status[]
    WHEN 2 THEN '{runnable,executing,awaiting_signal,awaiting_children,failed}'::{s}.durable_status[]
    WHEN 3 THEN '{runnable,executing,awaiting_signal,awaiting_children,done,failed}'::{s}.durable_status[]
    ELSE '{}'::{s}.durable_status[] END END`

// insertRowsSQL is the common part of the insertions. It makes one row of r per spec, with an id of
// its own. It draws ids in input order, which decides ties of the pick order; the draw is below the
// sort, in a subquery that Postgres does not merge since nextval is volatile. Rows are inserted in
// key order, so that two processes that insert the same new keys in opposite orders do not deadlock
// (T52, T89): in the order of bytes, which Go has, too, whatever the database's collation is.
//
// A column in which all specs are alike has one element, if it is one that specValues gives to the
// others; one in which no spec has a value is NULL. unnest pads both.
//
// $1 uids $2 machines $3 versions $4 steps $5 queues $6 priorities $7 states $8 partition keys $9
// correlation keys $10 scopes $11 delays, µs $12 times $13 lanes $14 labels $15 traces $16 µs until
// the deadline.
const insertRowsSQL = insertIntoSQL + `SELECT nextval('{s}.gen_durable_id_seq') AS id, t.* FROM (` + specRows + `) t) r `

// insertIntoSQL is insertRowsSQL up to where its rows come from.
const insertIntoSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO {s}.gen_durable (id, uid, fsm, fsm_version, step, queue, priority, state, partition_key, correlation_key, correlation_scope,
  eligible_at, pick_lane, labels, trace, deadline)
OVERRIDING SYSTEM VALUE
SELECT r.id, ` + specValues + `
FROM (`

// specValues lists what a spec makes of its row, from the uid on.
const specValues = `r.uid, ` + fsmText + `, ` + versionText + `, ` + stepText + `, ` + queueText + `, ` + priorityText + `, r.state::jsonb, r.part, r.key,
  ` + scopeText + `, ` + dueText + `, ` + laneText + `,
  r.labels::jsonb, r.trace::jsonb, (SELECT now FROM c) + r.life * interval '1 microsecond'`

// These are the columns in which the specs of an insertion are mostly alike.
const (
	fsmText      = `coalesce(r.fsm, ($2::text[])[1])`
	versionText  = `coalesce(r.ver, ($3::int[])[1])`
	stepText     = `coalesce(r.step, ($4::text[])[1])`
	queueText    = `coalesce(r.queue, ($5::text[])[1])`
	priorityText = `coalesce(r.prio, ($6::smallint[])[1])`
	laneText     = `coalesce(r.lane, ($13::smallint[])[1])`
)

// specRows lists the specs in input order.
const specRows = `SELECT unnest($1::uuid[]) AS uid, unnest($2::text[]) AS fsm, unnest($3::int[]) AS ver, unnest($4::text[]) AS step,
  unnest($5::text[]) AS queue, unnest($6::smallint[]) AS prio, unnest($7::text[]) AS state, unnest($8::text[]) AS part,
  unnest($9::text[]) AS key, unnest($10::smallint[]) AS scope, unnest($11::bigint[]) AS us, unnest($12::timestamptz[]) AS at,
  unnest($13::smallint[]) AS lane, unnest($14::text[]) AS labels, unnest($15::text[]) AS trace, unnest($16::bigint[]) AS life`

// dueText is the time when a spec is due, never in the past.
const dueText = `greatest(coalesce(r.at, (SELECT now FROM c) + r.us * interval '1 microsecond'), (SELECT now FROM c))`

// insertSQL inserts instances. It drops a row whose key is occupied; of two equal keys the first
// wins. $1 … $16 as insertRowsSQL
const insertSQL = insertRowsSQL + inKeyOrder

const inKeyOrder = forKeys + returning

const (
	// forKeys is what an insertion needs for keys: see keyless.
	forKeys = `ORDER BY r.key COLLATE "C" NULLS FIRST, r.id
ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
`
	returning = `RETURNING id, uid`
)

// drawSQL draws ids for specs that several messages insert. $1 how many
var drawSQL = named("draw ids", `SELECT nextval('{s}.gen_durable_id_seq') FROM generate_series(1, $1::int)`)

// insertDrawnSQL inserts those specs that one message of several holds. It inserts them in the
// order of their keys, which is that of the messages, too, under ids that were drawn in input
// order. $1 … $16 as insertRowsSQL $17 ids
var insertDrawnSQL = named("insert", insertIntoSQL+specRows+`, unnest($17::bigint[]) AS id) r `+inKeyOrder, "drawn")

// spawnSQL inserts the children of this batch's ScheduleChildren outcomes, each for the round of
// its parent that this commit has begun. A parent without such a round had no outcome applied, and
// gets no children. The round of a stream is negative: see streamSQL.
//
// $1 … $16 as insertRowsSQL $17 the parent of each, by its place in $20 $18 depths $19 mark $20 the
// distinct parents.
const spawnSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (
  SELECT ARRAY(SELECT coalesce((SELECT x.round FROM {s}.gen_durable x WHERE x.id = u.id AND x.commit_id = $19::uuid), 0)
    FROM unnest($20::bigint[]) WITH ORDINALITY AS u(id, n) ORDER BY u.n) AS rounds)
INSERT INTO {s}.gen_durable (id, uid, fsm, fsm_version, step, queue, priority, state, partition_key, correlation_key, correlation_scope,
  eligible_at, pick_lane, labels, trace, deadline, parent_id, parent_round, depth)
OVERRIDING SYSTEM VALUE
SELECT r.id, ` + specValues + `, r.parent, r.round, coalesce(r.depth, ($18::int[])[1])
FROM (
  SELECT nextval('{s}.gen_durable_id_seq') AS id, t.*, ($20::bigint[])[` + placeText + `] AS parent, (SELECT rounds FROM p)[` + placeText + `] AS round
  FROM (` + specRows + `, unnest($17::int[]) AS place, unnest($18::int[]) AS depth) t) r
WHERE r.round <> 0 ` + inKeyOrder

const placeText = `coalesce(t.place, ($17::int[])[1])`

func (c *specs) insertArgs() []any {
	return []any{c.uids, alike(c.machines), alike(c.versions), alike(c.steps), alike(c.queues), alike(c.priorities), c.states,
		some(c.partitions), some(c.keys), alike(c.scopes), some(c.micros), some(c.times), alike(c.lanes), some(c.labels), some(c.traces),
		some(c.lives)}
}

func (c *specs) args(mark string) []any {
	return append(c.insertArgs(), alike(c.places), alike(c.depths), mark, c.parents)
}

// occupantsSQL finds the instances that occupy keys. $1 keys
var occupantsSQL = named("occupants", `SELECT g.correlation_guard, g.id, g.uid FROM {s}.gen_durable g WHERE g.correlation_guard = ANY($1::text[])`)

type occupant struct {
	id  int64
	uid uuid.UUID
}

// Inserted reports what an insert did with one spec.
type Inserted struct {
	ID        int64 // the new instance; with Replaced, Duplicate and Throttled the one that was there
	Duplicate bool
	Replaced  bool
	Throttled bool      // a Duplicate because of the spec's window
	Until     time.Time // of a Throttled: when the window closes
	Claimed   bool      // the new instance is claimed already: see Insertion.Claim
}

// insertTries bounds how often insertKeyed inserts again after the occupants of its keys have moved
// (T54).
const insertTries = 3

// Insertion inserts all of its specs in one transaction. Its caller may try several times. If all
// specs have keys, it may also try again after a COMMIT without an answer: the Insertion recognises
// by its uid what an earlier try has inserted (T29, T95), even if that has ended since.
type Insertion struct {
	s            *Store
	list         []*step.Spec
	cols         specs
	ruled        bool // some spec has a policy or a window
	recognisable bool
	doubt        [][]Inserted // results of tries whose COMMIT got no answer
	effects      Effects
	by           By
	claims       []*step.Claim
}

// Ask says who inserts, and why, for the audit of the instances that this cancels.
func (i *Insertion) Ask(by By) { i.by = by }

// Effects returns what the successful Try did to other instances.
func (i *Insertion) Effects() Effects { return i.effects }

// Insertion returns an Insertion of list. It sends nothing.
func (s *Store) Insertion(list []*step.Spec) *Insertion {
	i := &Insertion{s: s, list: list, recognisable: true}
	i.cols.grow(len(list))
	for _, x := range list {
		i.cols.add(x)
		i.recognisable = i.recognisable && x.Key != "" && x.Scope != step.ScopeNone
	}
	if i.ruled = anyRuled(list); i.ruled { // the caller may have replaced what others replace again
		i.recognisable = false
		return i
	}
	s.arrange(&i.cols)
	return i
}

// Try inserts, and returns for each spec, in input order, what the insert did with it. After an
// error of [FaultTransient] the caller may try again. ErrUnknown is final: without a key, Try
// cannot recognise what an earlier try inserted.
func (i *Insertion) Try(ctx context.Context) (out []Inserted, err error) {
	if c := i.cols.claiming; c != nil {
		defer func() {
			i.cols.claiming = nil // the tries after this one claim nothing
			if err == nil {
				i.claimed(c, out)
			}
		}()
	}
	switch {
	case i.ruled:
		err = i.s.interactive(ctx, slowLock, func(send send) error {
			out, i.effects, err = i.s.insertRuled(send, i.list, 0, i.by)
			return err
		})
	case len(i.doubt) == 0:
		i.s.learnFirst(ctx, &i.cols)
		out, err = i.s.insertOnce(ctx, &i.cols, i.list)
	default:
		out, err = i.s.insertAgain(ctx, &i.cols, i.list, i.doubt)
	}
	if err != nil {
		i.s.unlearn()
	}
	switch {
	case err == nil:
		return out, nil
	case unknown(err) && !i.recognisable:
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	case unknown(err) && out != nil:
		i.doubt = append(i.doubt, out)
	}
	return nil, err
}

// Failed returns the error of an insertion that its caller gives up after err. It is an ErrUnknown
// if a COMMIT got no answer, and no later try could find out whether it took effect.
func (i *Insertion) Failed(err error) error {
	if len(i.doubt) > 0 {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("insert %d instances: %w", len(i.list), err)
}

// Insert makes an [Insertion] and tries it until ctx ends.
func (s *Store) Insert(ctx context.Context, list []*step.Spec) ([]Inserted, error) {
	i := s.Insertion(list)
	for n := 1; ; n++ {
		out, err := i.Try(ctx)
		if err == nil {
			return out, nil
		}
		if Classify(err) != FaultTransient || errors.Is(err, ErrUnknown) || pause(ctx, n) != nil {
			return nil, i.Failed(err)
		}
	}
}

// insertOnce takes one round trip if no entry has a key. Otherwise it takes two, and three if rows
// were dropped, since it must find the occupants of their keys before the commit.
func (s *Store) insertOnce(ctx context.Context, cols *specs, list []*step.Spec) ([]Inserted, error) {
	fresh, lock := make(map[uuid.UUID]int64, len(list)), slowLock
	if cols.claiming != nil { // slots wait with it
		lock = briefLock
	}
	parts := cols.parts()
	if !cols.keyed && len(parts) == 1 {
		if err := s.transaction(ctx, lock, append(s.learn(), s.insertion(parts[0], fresh))...); err != nil {
			return nil, err
		}
		out, _ := match(list, fresh, nil)
		return out, nil
	}
	var out []Inserted
	err := s.interactiveThen(ctx, lock, func(send send) (last []entpgx.Stmt, err error) {
		if out, err = s.insertIn(send, cols, list); err != nil {
			return nil, err
		}
		return s.takeKept(list, out), nil
	})
	return out, err
}

// insertIn inserts in the transaction of send.
func (s *Store) insertIn(send send, cols *specs, list []*step.Spec) ([]Inserted, error) {
	if cols.keyed {
		return s.insertKeyed(send, cols, list)
	}
	fresh := make(map[uuid.UUID]int64, len(list))
	if err := s.insertParts(send, cols, fresh); err != nil {
		return nil, err
	}
	out, _ := match(list, fresh, nil)
	return out, nil
}

func (s *Store) insertion(cols *specs, fresh map[uuid.UUID]int64) entpgx.Stmt {
	if cols.claiming != nil {
		return s.claimedInsertion(cols, fresh)
	}
	if len(cols.gates) > 0 {
		text, args := insertLinedForms.of(cols, append(cols.insertArgs(), cols.gates)...)
		return s.stmt(text, readFresh(fresh), args...)
	}
	text, args := insertForms.of(cols, cols.insertArgs()...)
	return s.stmt(text, readFresh(fresh), args...)
}

// insertParts inserts specs in as many messages as they need, and notes the ids. Keys are inserted
// in order across the messages.
func (s *Store) insertParts(send send, cols *specs, fresh map[uuid.UUID]int64) error {
	parts, learn := cols.parts(), s.learn()
	if cols.keyed && len(parts) > 1 {
		var ids []int64
		if err := send(s.stmt(drawSQL, readIDs(&ids), cols.len())); err != nil {
			return err
		}
		parts = cols.byKey(ids).parts()
	}
	for _, part := range parts {
		stmt := s.insertion(part, fresh)
		if part.ids != nil {
			text, args := part.retain(insertDrawnSQL, insertDrawnRetainedSQL, append(part.insertArgs(), part.ids)...)
			stmt = s.stmt(text, readFresh(fresh), args...)
		}
		if err := send(append(learn, stmt)...); err != nil {
			return err
		}
		learn = nil
	}
	return nil
}

// insertKeyed inserts in the transaction of send, and finds the instances that occupy the keys of
// dropped specs.
func (s *Store) insertKeyed(send send, cols *specs, list []*step.Spec) ([]Inserted, error) {
	fresh := make(map[uuid.UUID]int64, len(list))
	for range insertTries {
		if err := s.insertParts(send, cols, fresh); err != nil {
			return nil, err
		}
		out, missing := match(list, fresh, nil)
		if len(missing) == 0 {
			return out, nil
		}
		held := map[string]occupant{}
		if err := send(s.stmt(occupantsSQL, readOccupants(held), keysOf(missing))); err != nil {
			return nil, err
		}
		if out, missing = match(list, fresh, held); len(missing) == 0 {
			return out, nil
		}
		cols = &specs{} // their keys were freed between the two statements: insert once more
		for _, x := range missing {
			cols.add(x)
		}
	}
	return nil, errors.New("correlation keys were taken and freed again at every attempt: try again")
}

// match assigns ids to specs, and returns in missing the specs that were neither inserted nor found
// occupied.
func match(list []*step.Spec, fresh map[uuid.UUID]int64, held map[string]occupant) (out []Inserted, missing []*step.Spec) {
	out = make([]Inserted, len(list))
	for i, x := range list {
		if id, ok := fresh[x.UID]; ok {
			out[i] = Inserted{ID: id}
			continue
		}
		o, ok := held[x.Key]
		switch {
		case !ok:
			missing = append(missing, x)
		case o.uid == x.UID: // ours, of an attempt whose COMMIT got no answer
			out[i] = Inserted{ID: o.id}
		default:
			out[i] = Inserted{ID: o.id, Duplicate: true}
		}
	}
	return out, missing
}

func keysOf(list []*step.Spec) []string {
	var keys []string
	for _, x := range list {
		if x.Key != "" {
			keys = append(keys, x.Key)
		}
	}
	return keys
}

// scannedUID is a uuid.UUID that pgx scans as bytes. A uuid.UUID itself is only a sql.Scanner:
// pgx scans it by way of its text, with three allocations. Drivers of database/sql, in hosts'
// transactions, need the Scanner.
type scannedUID uuid.UUID

// ScanUUID implements pgtype.UUIDScanner.
func (u *scannedUID) ScanUUID(v pgtype.UUID) error {
	*u = v.Bytes
	return nil
}

// Scan implements sql.Scanner.
func (u *scannedUID) Scan(from any) error { return (*uuid.UUID)(u).Scan(from) }

func readFresh(into map[uuid.UUID]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		var u scannedUID
		_, err := pgx.ForEachRow(rows, []any{&id, &u}, func() error { into[uuid.UUID(u)] = id; return nil })
		return err
	}
}

func readOccupants(into map[string]occupant) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key string
		var id int64
		var u scannedUID
		_, err := pgx.ForEachRow(rows, []any{&key, &id, &u}, func() error { into[key] = occupant{id, uuid.UUID(u)}; return nil })
		return err
	}
}

// send sends statements of an interactive transaction in one round trip.
type send func(stmts ...entpgx.Stmt) error

// interactive runs a transaction that needs an answer before it knows its next statement. BEGIN
// goes in the round trip of the first statements.
func (s *Store) interactive(ctx context.Context, lock string, body func(send) error) error {
	return s.interactiveThen(ctx, lock, func(send send) ([]entpgx.Stmt, error) { return nil, body(send) })
}

// interactiveThen is interactive for a body that ends with statements whose answers it does not
// need: they go in the round trip of the COMMIT.
func (s *Store) interactiveThen(ctx context.Context, lock string, body func(send) (last []entpgx.Stmt, err error)) error {
	return s.db.Pool().AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		begin := []entpgx.Stmt{s.stmt(beginSQL, nil), s.settings(lock, statementLimit)}
		last, err := body(func(stmts ...entpgx.Stmt) error {
			stmts, begin = append(begin, stmts...), nil
			return s.pipelineOn(ctx, conn.Conn(), stmts...)
		})
		if err == nil {
			err = s.pipelineOn(ctx, conn.Conn(), append(last, s.stmt(endSQL, nil))...)
			if err == nil || len(last) == 0 {
				return err
			}
		}
		if conn.Conn().PgConn().TxStatus() != 'I' {
			ctx := context.WithoutCancel(ctx)
			if rollback := s.pipelineOn(ctx, conn.Conn(), s.stmt(rollbackSQL, nil)); rollback != nil {
				return errors.Join(err, conn.Conn().Close(ctx))
			}
		}
		return err
	})
}
