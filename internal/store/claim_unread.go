package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A row that was claimed may turn out to be unreadable: a part of its state that Postgres stores
// apart is lost (XX001), or a value fits no Go type. The transaction that reads a claim then fails
// as a whole, after the claim's COMMIT. So it narrows down, too: it reads the claimed rows by
// halves, until the culprits are alone, by the very statements that read any claim. Of a culprit
// it reads what identifies the instance. That is enough to make it fail: that it could not be read
// is its step's error, which goes to its machine's handler alone.

// claimedSQL returns what the claim before it on the connection has left in the session's settings:
// the claimed rows, their fencing tokens, and the keys of blocked rows that were moved.
var claimedSQL = named("claimed", `SELECT current_setting('gendurable.claimed')::bigint[], current_setting('gendurable.fencing')::bigint[],
  current_setting('gendurable.unsettled')::text[]`)

// claimPartSQL makes the statements of look read some of the claimed rows, in this transaction. $1
// their ids $2 whether to read what they awaited
var claimPartSQL = named("claim part", `SELECT set_config('gendurable.claimed', coalesce($1::bigint[], '{}')::text, true),
  set_config('gendurable.awaiting', ARRAY(
    SELECT unnest(current_setting('gendurable.awaiting')::bigint[]) INTERSECT SELECT unnest($1::bigint[]) WHERE $2::bool)::text, true)`)

// readApart reads the rows of a claim of which some row cannot be read.
func (s *Store) readApart(ctx context.Context, conn *pgx.Conn, p *ClaimParams, out *Claimed) error {
	out.Claims, out.Last, out.placed = nil, Place{}, nil
	var ids, fencing []int64
	if err := s.pipelineOn(ctx, conn, s.stmt(claimedSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&ids, &fencing, &out.Unsettled}, func() error { return nil })
		return err
	})); err != nil {
		return err
	}
	read := func(ids []int64, inbox bool) ([]placed, error) {
		var part Claimed
		err := s.pipelineOn(ctx, conn, s.look(p, &part, s.stmt(claimPartSQL, nil, ids, inbox))...)
		return part.placed, err
	}
	unread, err := narrow(ids, func(ids []int64) error {
		found, err := read(ids, true)
		if err == nil {
			out.take(found)
		}
		return err
	}, ofID)
	for _, u := range unread {
		if err != nil {
			break
		}
		var found []placed
		if found, err = read([]int64{u.ID}, false); err == nil {
			for _, f := range found {
				f.claim.Partial = true // Complete fails at its inbox, in its step
			}
		} else if blames(err) {
			found, err = s.readRemains(ctx, conn, p, u, tokensOf(fencing))
		}
		if blames(err) {
			out.Refused, err = append(out.Refused, u), nil // it is left to its lease, and counts as a crash
			continue
		}
		out.take(found)
	}
	return err
}

// remainsSQL reads of a claimed row what identifies the instance, and what a commit needs: columns
// that Postgres never stores apart from the row, and that always fit their Go types. $1 id $2
// worker.
var remainsSQL = named("claim remains", `SELECT g.id, g.uid, g.fsm, g.fsm_version, g.step, g.attempt, g.crashes, g.visit, g.claim_token, g.priority,
  coalesce(g.partition_key, ''), coalesce(g.parent_id, 0), g.parent_round, g.depth, g.round, coalesce(g.join_round, 0), g.timed_out,
  g.partition_key IS NOT NULL AND EXISTS (SELECT FROM {s}.lost_claims l WHERE l.partition_key = g.partition_key AND l.worker <> $2),
  coalesce(g.node, '')
FROM {s}.gen_durable g WHERE g.id = $1 AND coalesce(g.status = 'executing', false) AND g.locked_by = $2`)

// readRemains returns the claim of a row that cannot be read, or none if it has changed hands.
func (s *Store) readRemains(ctx context.Context, conn *pgx.Conn, p *ClaimParams, u Refused, fencing map[int64]int64) (found []placed, err error) {
	err = s.pipelineOn(ctx, conn, s.enclose(fastLock, []entpgx.Stmt{s.stmt(remainsSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			c := step.Claim{Queue: p.Queue, Unread: fmt.Errorf("the instance cannot be read: repair its row, then retry it: %w", u.Err)}
			if err := rows.Scan(&c.ID, &c.UID, &c.Machine, &c.Version, &c.Step, &c.Attempt, &c.Crashes, &c.Visit, &c.Token, &c.Priority,
				&c.PartitionKey, &c.Parent, &c.ParentRound, &c.Depth, &c.Round, &c.JoinsAt, &c.TimedOut, &c.Lingers, &c.Node); err != nil {
				return err
			}
			if c.FencingToken = cmp.Or(fencing[c.ID], c.Token); c.FencingToken < c.Token {
				continue // as in readTaken
			}
			found = append(found, placed{claim: &c})
		}
		return rows.Err()
	}, u.ID, p.Worker)})...)
	return found, err
}
