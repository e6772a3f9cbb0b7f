package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// resolveSQL looks what became of outcomes that a commit did not report as applied: mine by one of
// its marks, still mine to commit, or neither; and whether there is a parent to be joined.
// $1 ids $2 tokens $3 visits $4 worker $5 marks $6 parents, 0: none
var resolveSQL = `SELECT u.id, coalesce(g.commit_id = ANY($5::text[]::uuid[]), false),
  coalesce(` + visitFence("u.token", "u.visit") + `, false),
  coalesce((SELECT p.id FROM {s}.gen_durable p WHERE p.id = u.parent), 0)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $6::bigint[]) AS u(id, token, visit, parent)
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.visit, x.commit_id FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
  ON true`

// freeSQL locks those of some rows that nobody has locked. $1 ids
const freeSQL = `SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED`

// Verdict on an outcome that a commit did not report as applied.
type Verdict int

// The verdicts.
const (
	// Stale: the claim is not current any more, and none of the marks is on the row. It changed
	// nothing, as far as can be told.
	Stale Verdict = iota
	// Mine: it was applied. The row bears one of the marks.
	Mine
	// Current: it was not applied, and the claim still holds. Nobody had its row locked, nor that of
	// the parent that it joins: commit it again.
	Current
	// Held: its row's last committed version says the same as of Current, but somebody has that row
	// locked, or the parent's. It may be an attempt in its old backend, about to commit, or a
	// stranger.
	Held
)

// Resolve tells, per instance id, what became of outcomes; marks are those of every attempt to
// commit them.
//
// An attempt whose fate is unknown may still be about to commit in its old backend, and then has
// the rows of all its outcomes locked: a look at them would lie (T28). So the rows are locked
// first, and those of the parents to join, as far as they can be had now, and then read by a
// statement of its own. Nobody waits, and whoever holds one row keeps only its outcome from being
// decided. With wait, which is for one outcome alone, they are waited for instead.
//
// What was not locked is read as well. A mark on the row, or a fence that has passed, was committed
// by somebody, and stays true whatever the holder does: the holder's own version is not visible,
// and cannot be of an attempt of ours, whose fence would not have held. Only that the claim still
// holds is open: Held.
func (s *Store) Resolve(ctx context.Context, worker string, marks []string, entries []Entry, wait time.Duration) (map[int64]Verdict, error) {
	var of fences
	parents := make([]int64, len(entries))
	rows := make([]int64, 0, 2*len(entries))
	for i := range entries {
		c := entries[i].Claim
		of.add(c)
		rows = append(rows, c.ID)
		if entries[i].Commit.Kind.Terminal() && c.Parent != 0 {
			parents[i] = c.Parent
			rows = append(rows, c.Parent)
		}
	}
	locking, lock := freeSQL, fastLock
	if wait > 0 {
		locking, lock = slowSQL, millis(wait)
	}
	locked := make(map[int64]bool, len(rows))
	out := make(map[int64]Verdict, len(entries))
	read := func(found pgx.Rows) error {
		var id, parent int64
		var mine, current bool
		_, err := pgx.ForEachRow(found, []any{&id, &mine, &current, &parent}, func() error {
			switch {
			case mine:
				out[id] = Mine
			case !current:
				out[id] = Stale
			case locked[id] && (parent == 0 || locked[parent]):
				out[id] = Current
			default:
				out[id] = Held
			}
			return nil
		})
		return err
	}
	if err := s.transaction(ctx, lock, s.stmt("resolve lock", locking, noteIDs(locked), rows),
		s.stmt("resolve", resolveSQL, read, of.ids, of.tokens, of.visits, worker, marks, parents)); err != nil {
		return nil, fmt.Errorf("resolve %d outcomes: %w", len(entries), err)
	}
	return out, nil
}
