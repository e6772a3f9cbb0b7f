package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// resolveSQL reads the fate of outcomes that a commit did not report as applied. Per outcome it
// returns the mark of the row, whether the fence still holds, and the parent to join, if it
// exists.
//
// $1 ids $2 tokens $3 visits $4 worker $5 parents, 0: none
var resolveSQL = named("resolve", `SELECT u.id, coalesce(g.commit_id::text, ''),
  coalesce(`+visitFence("u.token", "u.visit")+`, false),
  coalesce((SELECT p.id FROM {s}.gen_durable p WHERE p.id = u.parent), 0)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::bigint[]) AS u(id, token, visit, parent)
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.visit, x.commit_id FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
  ON true`)

// freeSQL locks the given rows that are free. $1 ids
var freeSQL = named("resolve lock", `SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED`)

// resolveSlowSQL is freeSQL for callers that wait. $1 ids
var resolveSlowSQL = named("resolve lock", slowText, "slow")

// Verdict is the fate of an outcome that a commit did not report as applied.
type Verdict int

// The verdicts.
const (
	// Stale means that the claim is over and the row bears none of the outcome's marks. The outcome
	// changed nothing, as far as the database shows.
	Stale Verdict = iota
	// Mine means that the outcome was applied: the row bears one of its marks.
	Mine
	// Current means that the outcome was not applied, that the claim still holds, and that neither
	// its row nor the row of the parent that it joins was locked. Commit it again.
	Current
	// Held means that the last committed version of the row says the same as for Current, but that
	// row or the parent's is locked. The holder may be an attempt in its old backend, about to
	// commit, or another program.
	Held
)

// Resolve returns, by instance id, the fate of outcomes. marks are, for each of them, the marks of
// every attempt to commit it. The marks of one outcome say nothing about another's: an attempt
// that left out the one may have committed the other's outcome of the visit before. No instance
// may occur twice.
//
// An attempt without an answer may still be about to commit in its old backend. Then it holds the
// rows of all its outcomes, and reading them would mislead (T28). So Resolve first locks the rows,
// and the rows of the parents to join, as far as they are free, and then reads them by a separate
// statement. It waits for no lock, and the holder of one row delays the verdict on that outcome
// only. With wait, which is for one outcome alone, Resolve waits for the holders instead.
//
// Resolve also reads the rows that it could not lock. If one bears a mark, or no longer passes the
// fence, then that is committed, and stays true whatever the holder does: the holder's own version
// is not visible, and cannot come from an attempt of ours, whose fence would not have held. Only a
// claim that still holds leaves the fate open, and the verdict is Held.
func (s *Store) Resolve(ctx context.Context, worker string, marks [][]string, entries []Entry, wait time.Duration) (map[int64]Verdict, error) {
	var of fences
	parents := make([]int64, len(entries))
	rows := make([]int64, 0, 2*len(entries))
	marked := make(map[int64][]string, len(entries))
	for i := range entries {
		c := entries[i].Claim
		marked[c.ID] = marks[i]
		of.add(c)
		rows = append(rows, c.ID)
		if entries[i].Commit.Kind.Terminal() && c.Parent != 0 {
			parents[i] = c.Parent
			rows = append(rows, c.Parent)
		}
	}
	locking, lock := freeSQL, fastLock
	if wait > 0 {
		locking, lock = resolveSlowSQL, millis(wait)
	}
	locked := make(map[int64]bool, len(rows))
	out := make(map[int64]Verdict, len(entries))
	read := func(found pgx.Rows) error {
		var id, parent int64
		var mark string
		var current bool
		_, err := pgx.ForEachRow(found, []any{&id, &mark, &current, &parent}, func() error {
			switch {
			case mark != "" && slices.Contains(marked[id], mark):
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
	if err := s.transaction(ctx, lock, s.stmt(locking, noteIDs(locked), rows),
		s.stmt(resolveSQL, read, of.ids, of.tokens, of.visits, worker, parents)); err != nil {
		return nil, fmt.Errorf("check whether %d outcomes were committed: %w", len(entries), err)
	}
	return out, nil
}
