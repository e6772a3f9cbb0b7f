package store

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// identifySQL reads the uids of instances, whatever their status. $1 ids
var identifySQL = named("identify", `SELECT g.id, g.uid FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[])`)

// errIsIn rolls back an attempt to insert: an earlier one took effect.
var errIsIn = errors.New("an earlier attempt to insert took effect")

// recognise returns the result of an attempt whose COMMIT got no answer, if that attempt took
// effect. It looks for the ids that the attempt drew and received before its COMMIT. The key alone
// does not suffice: an instance may have run, ended and left its scope before the next attempt,
// which would find the key free and insert the instance anew (T29).
//
// The caller sends it after the statement that inserts again, in the same transaction. That
// statement has waited in the unique index for anything that an earlier attempt may still be about
// to commit in its old backend.
func (s *Store) recognise(send send, list []*step.Spec, doubt [][]Inserted) ([]Inserted, error) {
	var ids []int64
	for _, attempt := range doubt {
		for _, in := range attempt {
			if !in.Duplicate {
				ids = append(ids, in.ID)
			}
		}
	}
	found := map[uuid.UUID]int64{}
	if err := send(s.stmt(identifySQL, readFresh(found), ids)); err != nil {
		return nil, err
	}
	for _, attempt := range doubt {
		for i, in := range attempt {
			if !in.Duplicate && found[list[i].UID] == in.ID { // an attempt is one transaction: all of it took effect
				return attempt, nil
			}
		}
	}
	return nil, nil
}

// insertAgain is insertOnce after attempts whose COMMIT got no answer.
func (s *Store) insertAgain(ctx context.Context, cols *specs, list []*step.Spec, doubt [][]Inserted) (out []Inserted, err error) {
	err = s.interactiveThen(ctx, slowLock, func(send send) ([]entpgx.Stmt, error) {
		if out, err = s.insertKeyed(send, cols, list); err != nil {
			return nil, err
		}
		before, err := s.recognise(send, list, doubt)
		if before != nil {
			out, err = before, errIsIn
		}
		return s.takeKept(list, out), err
	})
	if errors.Is(err, errIsIn) {
		return out, nil
	}
	return out, err
}
