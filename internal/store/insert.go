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

// drawSQL draws ids for specs that several messages insert. $1 how many
var drawSQL = named("draw ids", `SELECT {next id} FROM generate_series(1, $1::int)`)

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
		i.s.unlearn(err)
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
	return fmt.Errorf("insert %s: %w", instances(len(i.list)), err)
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
	parts, body := cols.parts(), s.learn()
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
		body = append(body, stmt)
		if part.keyed {
			body = append(body, s.lookForKept(values(part.keys))...)
		}
		if err := send(body...); err != nil {
			return err
		}
		body = nil
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
	return nil, errors.New("other inserts took and freed the correlation keys at every attempt: try again")
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

// values returns what is there.
func values(texts []*string) (there []string) {
	for _, text := range texts {
		if text != nil {
			there = append(there, *text)
		}
	}
	return there
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
	return s.db.Pool().AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return s.interactiveOn(ctx, conn, lock, body) })
}

// interactiveOn is interactiveThen on a connection that the caller has.
func (s *Store) interactiveOn(ctx context.Context, conn *pgxpool.Conn, lock string, body func(send) (last []entpgx.Stmt, err error)) error {
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
}
