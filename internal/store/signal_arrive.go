package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// EndedError is a key that cannot be delivered to, since its occupant has ended, and not be inserted at either, since the scope keeps it
// occupied. It is an ErrNoTarget.
type EndedError struct{ Occupant int64 }

func (e *EndedError) Error() string {
	return fmt.Sprintf("%v: instance %d has ended and holds the key still", ErrNoTarget, e.Occupant)
}

// Is makes it an ErrNoTarget.
func (e *EndedError) Is(target error) bool { return target == ErrNoTarget }

// insertUnlessSQL inserts the one spec if the lock before it has found nobody to deliver to, and makes the new instance the target of what
// follows. It waits for whoever is inserting the same key; if that one commits, nothing is inserted, and another attempt will find it.
// $1 … $16 as insertRowsSQL
const insertUnlessSQL = insertRowsSQL + `WHERE nullif(current_setting('gendurable.target'), '') IS NULL
ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
RETURNING id, uid, set_config('gendurable.target', id::text, true)`

// endedHolderSQL finds a terminal instance that occupies a key. $1 key
const endedHolderSQL = `SELECT g.id FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.status IN ('done', 'failed')`

// arriveAgain bounds the fresh looks at a key that is taken and freed while one looks: each needs others to do both at just that moment.
const arriveAgain = 10

// arrival is a signal for whoever has a key, or for the instance that takes it.
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

// attempt forgets the last attempt and returns the statements of the next.
func (a *arrival) attempt(s *Store) []entpgx.Stmt {
	a.delivery = delivery{to: a.to, signal: a.signal, inbox: a.inbox}
	a.fresh = map[uuid.UUID]int64{}
	read := func(rows pgx.Rows) error {
		var id int64
		var uid uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id, &uid, nil}, func() error { a.fresh[uid], a.target = id, id; return nil })
		return err
	}
	return []entpgx.Stmt{a.lock(s), s.stmt("insert unless", insertUnlessSQL, read, a.cols.insertArgs()...), a.insert(s), a.flip(s)}
}

func (a *arrival) verdict() (Delivery, error) {
	got, err := a.delivery.verdict()
	if _, inserted := a.fresh[a.spec.UID]; inserted {
		got.Queue, got.Inserted = a.spec.Queue, true
	}
	return got, err
}

// deliverOrInsert tries, in whatever transaction send speaks to, until somebody has the signal. Every attempt looks afresh: the transaction
// is READ COMMITTED, or one of its own each time.
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
		if err := send(s.stmt("ended holder", endedHolderSQL, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&ended}, func() error { return nil })
			return err
		}, a.spec.Key)); err != nil {
			return Delivery{}, err
		}
		if ended != 0 {
			return Delivery{}, &EndedError{Occupant: ended}
		}
	}
	return Delivery{}, errors.New("the correlation key was taken and freed again at every attempt: try again")
}

// DeliverOrInsert delivers a signal to the live instance that occupies the spec's key, as Deliver does, or inserts the spec with the
// signal in its inbox: one transaction, one round trip. Two that find the key free wait for each other in its unique index; the loser
// delivers to the winner's instance.
//
// Errors: as of Deliver, and an *EndedError. Where the answer of a commit is lost, the instance's own uid tells that it is in, and nothing is
// sent again before that is known.
func (s *Store) DeliverOrInsert(ctx context.Context, x *step.Spec, m *step.Signal, inbox int) (Delivery, error) {
	began := time.Now()
	got, err := s.deliverOrInsert(newArrival(x, m, inbox), func(stmts ...entpgx.Stmt) error {
		return s.transaction(ctx, slowLock, stmts...)
	})
	lost := err != nil && unknown(err)
	if lost || err == nil && got.Duplicate {
		// A duplicate may be this very signal, of an attempt whose answer was lost.
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

// isInSQL finds an instance that has just been inserted: it occupies its key, or has run, ended and left its scope meanwhile. No index
// knows uids; what has ended in so short a time is not much. $1 key $2 uid $3 for how long, µs; NULL: not among what has ended
const isInSQL = `SELECT g.id FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.uid = $2::text::uuid
UNION
SELECT g.id FROM {s}.gen_durable g
WHERE g.finished_at > (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond' AND g.uid = $2::text::uuid`

// isIn looks whether a spec has been inserted, and with ended also whether it has ended again since a time.
func (s *Store) isIn(ctx context.Context, x *step.Spec, ended bool, since time.Time) (id int64, err error) {
	const slack = time.Second // of a clock that is set
	var us *int64
	if ended {
		us = new(micros(time.Since(since) + slack))
	}
	err = s.one(ctx, slowLock, "is in", isInSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { return nil })
		return err
	}, x.Key, uuid.UUID(x.UID).String(), us)
	return id, err
}
