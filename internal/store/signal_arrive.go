package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// EndedError means that DeliverOrInsert could neither deliver nor insert: the key's occupant has
// ended, and the scope keeps the key occupied. It is an ErrNoTarget.
type EndedError struct{ Occupant int64 }

func (e *EndedError) Error() string {
	return fmt.Sprintf("%v: instance %d has ended, and its scope keeps the key", ErrNoTarget, e.Occupant)
}

// Is reports whether target is ErrNoTarget.
func (e *EndedError) Is(target error) bool { return target == ErrNoTarget }

var (
	insertUnlessSQL              = named("insert unless", insertForm{}.unless())
	insertUnlessRetainedSQL      = named("insert unless", insertForm{retained: true}.unless(), "retained")
	insertUnlessLinedSQL         = named("insert unless lined", insertForm{lined: true}.unless())
	insertUnlessLinedRetainedSQL = named("insert unless lined", insertForm{lined: true, retained: true}.unless(), "retained")
)

// unless inserts the one spec if the lock before it has found no target, and makes the new
// instance the target of the following statements. It waits for another insert of the same key. If
// that transaction commits, the statement inserts nothing, and another attempt will find the
// occupant. $1 … $16 as rows, and behind these what the form has: gates, retentions
func (f insertForm) unless() string {
	p := parameters(16)
	return f.into() + f.numbered(&p) + `WHERE nullif(current_setting('gendurable.target'), '') IS NULL
` + refuseKeys + `RETURNING id, uid, set_config('gendurable.target', id::text, true)`
}

// endedHolderSQL finds a terminal instance that occupies a key. $1 key
var endedHolderSQL = named("ended holder", `SELECT g.id FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.status IN ('done', 'failed')`)

// arriveAgain bounds how often an attempt starts anew because the key was taken and freed while it
// looked. Each repetition needs others to do both at just that moment.
const arriveAgain = 10

// arrival is a signal for the instance that occupies a key, or for a new one that takes the key.
type arrival struct {
	delivery
	spec  *step.Spec
	cols  specs
	fresh map[uuid.UUID]int64
}

func newArrival(x *step.Spec, m *step.Signal, inbox int) *arrival {
	a := &arrival{delivery: delivery{to: Address{Key: x.Key}, signal: m, inbox: inbox}, spec: x}
	a.cols.add(x)
	return a
}

// attempt forgets the last attempt, and returns the statements of the next.
func (a *arrival) attempt(s *Store) []entpgx.Stmt {
	a.delivery = delivery{to: a.to, signal: a.signal, inbox: a.inbox}
	a.fresh = map[uuid.UUID]int64{}
	read := func(rows pgx.Rows) error {
		var id int64
		var uid uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id, &uid, nil}, func() error { a.fresh[uid], a.target = id, id; return nil })
		return err
	}
	s.lineUp(&a.cols)
	text, args := a.cols.retain(insertUnlessSQL, insertUnlessRetainedSQL, a.cols.insertArgs()...)
	insert := s.stmt(text, read, args...)
	if len(a.cols.gates) > 0 {
		text, args = a.cols.retain(insertUnlessLinedSQL, insertUnlessLinedRetainedSQL, append(a.cols.insertArgs(), a.cols.gates)...)
		insert = s.stmt(text, read, args...)
	}
	stmts := []entpgx.Stmt{a.lock(s), insert, a.insert(s), a.flip(s)}
	if s.keeping.Load() || s.looks.Load() { // what is kept came before, and there is no time to look
		stmts = slices.Insert(stmts, 2, s.takeIfKept([]*step.Spec{a.spec}, []Inserted{{}})...)
	}
	return append(s.learn(), stmts...)
}

func (a *arrival) verdict() (Delivery, error) {
	got, err := a.delivery.verdict()
	if _, inserted := a.fresh[a.spec.UID]; inserted {
		got.Queue, got.Inserted = a.spec.Queue, true
	}
	return got, err
}

// deliverOrInsert repeats attempts in the transaction of send until an instance has the signal.
// Every attempt sees what others have committed since, because the transaction is READ COMMITTED,
// or each attempt has its own.
func (s *Store) deliverOrInsert(a *arrival, send send) (Delivery, error) {
	for range arriveAgain {
		if err := send(a.attempt(s)...); err != nil {
			return Delivery{}, err
		}
		if a.target != 0 {
			return a.verdict()
		}
		if a.moved {
			continue
		}
		var ended int64
		if err := send(s.stmt(endedHolderSQL, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&ended}, func() error { return nil })
			return err
		}, a.spec.Key)); err != nil {
			return Delivery{}, err
		}
		if ended != 0 {
			return Delivery{}, &EndedError{Occupant: ended}
		}
	}
	return Delivery{}, errors.New("inserts took and freed the correlation key at every attempt: send the signal again")
}

// DeliverOrInsert delivers a signal to the live instance that occupies the spec's key, as Deliver
// does, or else inserts the spec with the signal in its inbox. It takes one transaction and one
// round trip. Two callers that find the key free wait for each other in its unique index, and the
// loser delivers to the winner's instance.
//
// It returns the errors of Deliver, and an *EndedError. If a COMMIT gets no answer, it looks for
// the uid of the new instance, to find out whether that was inserted, and sends nothing again
// before it knows.
func (s *Store) DeliverOrInsert(ctx context.Context, x *step.Spec, m *step.Signal, inbox int) (Delivery, error) {
	began := time.Now()
	got, err := s.deliverOrInsert(newArrival(x, m, inbox), func(stmts ...entpgx.Stmt) error {
		return s.transaction(ctx, slowLock, stmts...)
	})
	lost := err != nil && unknown(err)
	if lost || err == nil && got.Duplicate && !got.Inserted {
		// A duplicate may be this very signal, from an attempt whose COMMIT got no answer. Beside an
		// instance that this attempt has inserted it is one of a kept signal.
		mine, looked := s.isIn(ctx, x, lost, began)
		for n := 1; looked != nil && lost && pause(ctx, n) == nil; n++ {
			mine, looked = s.isIn(ctx, x, lost, began)
		}
		switch {
		case looked != nil && err == nil:
			err = looked
		case looked == nil && mine != 0:
			return Delivery{Target: mine, Queue: x.Queue, Inserted: true}, nil
		case lost && m.DedupKey == "":
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to key %q or insert it: %w", m.Name, x.Key, err)
	}
	return got, nil
}

// isInSQL finds an instance that has just been inserted: it occupies its key, or has meanwhile run,
// ended and left its scope. No index contains uids, but few instances end in so short a time.
//
// $1 key $2 uid $3 how far back to look among ended instances, µs; NULL: not at all
var isInSQL = named("is in", `SELECT g.id FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.uid = $2::text::uuid
UNION
SELECT g.id FROM {s}.gen_durable g
WHERE g.finished_at > (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond' AND g.uid = $2::text::uuid`)

// isIn looks for an instance of a spec. If ended is true, it also looks among those that have ended
// since a time.
func (s *Store) isIn(ctx context.Context, x *step.Spec, ended bool, since time.Time) (id int64, err error) {
	const slack = time.Second // in case somebody sets a clock
	var us *int64
	if ended {
		us = new(micros(time.Since(since) + slack))
	}
	err = s.one(ctx, slowLock, isInSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { return nil })
		return err
	}, x.Key, uuid.UUID(x.UID).String(), us)
	return id, err
}
