package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A stream shows a parent the ends of its children in portions, each end once, in the order in
// which they were committed (fsm.ChildrenOutcome.Stream). Nothing of that goes by a clock:
//
// A transaction that ends a child locks its parent first, and keeps that lock to its end. In it,
// joinText draws a number from a sequence for the child, in stream_nth. Between two ends of
// children of one parent lies the release of that lock, so the numbers are in the order of the
// commits, and a snapshot that has a number has all lower ones, too.
//
// Which ends a visit of the parent is shown is noted in the children, in stream_visit, before the
// step runs: see portionSQL. A visit keeps its portion, however often it runs. Only progress begins
// another visit, and a child that has a visit gets no other one. So each child is shown to one
// visit, and no statement has to consume what was shown.
//
// The round of a stream is negative: minus the visit at which its children join first. So a claim
// of a child says in parent_round that its end is to be numbered, and commits without such claims
// are what they were. The policy of a stream wakes with the first end (wake_ended). A child that
// foreign SQL has ended has no number, and the parent is shown it behind those that have one.

// streamSQL begins streams. It follows policySQL, which goes by the visit, and precedes the
// insertion of the children, which takes the round from here.
// $1 ids $2 mark $3 most ends of a portion
var streamSQL = named("stream", `UPDATE {s}.gen_durable g SET round = -g.round, stream_most = u.most
FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS most) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid AND x.round > 0 OFFSET 0) l
WHERE g.ctid = l.tid`)

// joiners are children that end, and whose parents count that. A transaction that ends a row sees
// whether it is a child of a stream. So joinStreamedSQL goes out only for batches, sweeps and
// verbs that end such a child, and everybody else sends the statement that knows nothing of
// streams.
type joiners struct {
	ids      []int64
	streamed bool // one of them is a child of a stream
}

func (j *joiners) add(id int64, streamed bool) {
	j.ids, j.streamed = append(j.ids, id), j.streamed || streamed
}

// join returns the statement that counts joiners at their parents, if there are any.
func (s *Store) join(j *joiners, mark string, read func(pgx.Rows) error) []entpgx.Stmt {
	switch {
	case len(j.ids) == 0:
		return nil
	case j.streamed:
		return []entpgx.Stmt{s.stmt(joinStreamedSQL, read, j.ids, mark)}
	default:
		return []entpgx.Stmt{s.stmt(joinSQL, read, j.ids, mark)}
	}
}

// streams holds the parents that begin a stream.
type streams struct {
	ids  []int64
	most []int32
}

func (s *streams) add(c *step.Claim, j *step.Join) {
	if j != nil && j.Stream > 0 {
		s.ids, s.most = append(s.ids, c.ID), append(s.most, int32(j.Stream)) //nolint:gosec // bounded by fsm
	}
}

// streamed reports whether the entry ends a child of a stream.
func (e *Entry) streamed() bool {
	return e.Commit.Kind.Terminal() && e.Claim.Parent != 0 && e.Claim.ParentRound < 0
}

// portionLockSQL locks a parent while its portion is noted, so that only one of two processes that
// take themselves for its owner notes it. It returns how many children a portion has; NULL if the
// join is no stream. coalesce() is for the plan (T98). $1 id $2 token $3 visit
var portionLockSQL = named("portion lock", `SELECT x.stream_most FROM {s}.gen_durable x
WHERE x.id = $1 AND x.claim_token = $2 AND x.visit = $3 AND coalesce(x.status = 'executing', false) FOR NO KEY UPDATE`)

// portionSQL notes the portion of a visit, unless it has one: of the ends that no visit was shown,
// the first. Those without a number come last: see above. It is a separate statement after the
// lock. The children are locked by ascending ids, as an operator's verbs do. $1 parent $2 round $3
// visit $4 most
var portionSQL = named("portion", `WITH k AS MATERIALIZED (
  SELECT x.id, x.joined, x.stream_nth, x.stream_visit, x.finished_at FROM {s}.gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint),
l AS MATERIALIZED (
  SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY(ARRAY(
    SELECT k.id FROM k WHERE k.joined IS NOT NULL AND k.stream_visit IS NULL AND NOT EXISTS (SELECT FROM k WHERE k.stream_visit = $3::bigint)
    ORDER BY k.stream_nth, k.finished_at, k.id LIMIT $4::int))
  ORDER BY x.id FOR NO KEY UPDATE)
UPDATE {s}.gen_durable g SET stream_visit = $3::bigint FROM l WHERE g.id = l.id`)

// portionReadSQL reads the portion of a visit, and how many children no visit was shown yet.
// $1 parent $2 round $3 visit
var portionReadSQL = named("portion read", `SELECT coalesce(array_agg(x.id ORDER BY x.stream_nth, x.finished_at, x.id) FILTER (WHERE x.stream_visit = $3::bigint), '{}'),
  count(*) FILTER (WHERE x.stream_visit IS NULL)
FROM {s}.gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint`)

// shortenSQL takes back what a visit is not shown after all, for later visits. It follows the lock
// of the parent. $1 parent $2 round $3 visit $4 ids that stay
var shortenSQL = named("portion shorten", `UPDATE {s}.gen_durable g SET stream_visit = NULL
FROM (SELECT x.id FROM {s}.gen_durable x
  WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint AND x.stream_visit = $3::bigint AND x.id <> ALL($4::bigint[])
  ORDER BY x.id FOR NO KEY UPDATE) l
WHERE g.id = l.id`)

// Portion is what a visit is shown of a stream.
type Portion struct {
	Held   bool    // the claim is current
	Stream bool    // the visit joins a stream; else it joins a whole round
	IDs    []int64 // of the children, in the order of their ends
	Left   int     // children that no visit was shown yet, whether they have ended or not
}

// Portion notes which children the visit of a claim is shown, if that is not noted yet, and
// returns them. It waits for locked rows, the parent's or a child's, for no longer than wait, at
// least a millisecond: IsLockTimeout tells that. It passes over none, since a portion has the ends
// in their order.
func (s *Store) Portion(ctx context.Context, c *step.Claim, wait time.Duration) (out Portion, err error) {
	return s.portion(ctx, millis(wait), c, func(most int) entpgx.Stmt { return s.stmt(portionSQL, nil, c.ID, c.Round, c.Visit, most) })
}

// Shorten leaves only some children in the portion of a visit, before its step has seen them. The
// others are shown to later visits. It waits only briefly, since it is called in a slot.
func (s *Store) Shorten(ctx context.Context, c *step.Claim, to []int64) (out Portion, err error) {
	return s.portion(ctx, briefLock, c, func(int) entpgx.Stmt { return s.stmt(shortenSQL, nil, c.ID, c.Round, c.Visit, to) })
}

// portion changes the portion of a visit, behind the lock of the parent, and reads it. It does
// neither if the claim is stale, or the join no stream.
func (s *Store) portion(ctx context.Context, lock string, c *step.Claim, change func(most int) entpgx.Stmt) (out Portion, err error) {
	err = s.interactive(ctx, lock, func(send send) error {
		out = Portion{}
		var most *int
		if err := send(s.stmt(portionLockSQL, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&most}, func() error { out.Held = true; return nil })
			return err
		}, c.ID, c.Token, c.Visit)); err != nil || most == nil {
			return err
		}
		out.Stream = true
		return send(change(*most),
			s.stmt(portionReadSQL, func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&out.IDs, &out.Left}, func() error { return nil })
				return err
			}, c.ID, c.Round, c.Visit))
	})
	if err != nil {
		return Portion{}, fmt.Errorf("read the ended children of the stream of instance %d: %w", c.ID, err)
	}
	return out, nil
}
