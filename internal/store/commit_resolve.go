package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// resolveSQL looks what became of outcomes that a commit did not report as applied: mine by one of its marks, still mine to commit, or
// neither. $1 ids $2 tokens $3 visits $4 worker $5 marks
var resolveSQL = `SELECT u.id, coalesce(g.commit_id = ANY($5::text[]::uuid[]), false),
  coalesce(` + visitFence("u.token", "u.visit") + `, false)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u(id, token, visit)
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.visit, x.commit_id FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
  ON true`

// Verdict on an outcome that a commit did not report as applied.
type Verdict int

// The verdicts.
const (
	Stale   Verdict = iota // the claim is not current any more, and none of the marks is on the row: it changed nothing, as far as can be told
	Mine                   // it was applied: the row bears one of the marks
	Current                // it was left out, and the claim still holds: commit it again
)

// Resolve tells, per instance id, what became of outcomes. marks are those of every attempt to commit them. With settle it first waits
// for the rows' locks, up to the lock timeout: an attempt whose fate is unknown may still be about to commit in its old backend, and a
// look before that would lie (T28).
func (s *Store) Resolve(ctx context.Context, worker string, marks []string, entries []Entry, settle bool) (map[int64]Verdict, error) {
	ids, tokens, visits := make([]int64, len(entries)), make([]int64, len(entries)), make([]int64, len(entries))
	for i := range entries {
		ids[i], tokens[i], visits[i] = entries[i].Claim.ID, entries[i].Claim.Token, entries[i].Claim.Visit
	}
	out := make(map[int64]Verdict, len(entries))
	var stmts []entpgx.Stmt
	if settle {
		stmts = append(stmts, s.stmt("resolve lock", slowSQL, nil, ids))
	}
	stmts = append(stmts, s.stmt("resolve", resolveSQL, func(rows pgx.Rows) error {
		var id int64
		var mine, current bool
		_, err := pgx.ForEachRow(rows, []any{&id, &mine, &current}, func() error {
			switch {
			case mine:
				out[id] = Mine
			case current:
				out[id] = Current
			default:
				out[id] = Stale
			}
			return nil
		})
		return err
	}, ids, tokens, visits, worker, marks))
	if err := s.transaction(ctx, slowLock, stmts...); err != nil {
		return nil, fmt.Errorf("resolve %d outcomes: %w", len(entries), err)
	}
	return out, nil
}
