package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A join that cancels the rest of its round (fsm.ChildrenOutcome.CancelRest) does not do so in the
// commit that wakes the parent: that commit would have to lock siblings that execute elsewhere.
// Instead, the commit that parks the parent notes the round in the parent's column losers. It is
// armed while the parent waits for that round, and due as soon as it does not. No statement makes
// it due: the index gen_durable_losers has exactly the rows with a due round, since its predicate
// says when the parent waits. So whatever ends the wait, also in a process of a release that does
// not know of losers, makes it due: an end, a timeout, a signal, a cancel, a deadline, a rewind.
//
// A Rejoin waits for a round again whose rest may be due. Then it makes the round negative in
// losers, which stays due while the parent waits: see rejoinSQL. The round of a stream is negative
// itself, and positive in losers if it is due while the parent waits. So rounds are compared by
// their amounts.
//
// losers is in the order of the rounds, and only the newest can be armed. So the first element
// differs from the round that the row waits for exactly if an element is due.
//
// A graph is over when its root has ended, and only then, unless its join cancels the rest as
// well: a root that goes on early may wait for the nodes again. So the rounds that are graphs are
// noted in a separate column, graphs, all of which are due while the root has ended. Here, too, no
// statement makes them so, whatever it is that ends the root, and a Retry takes that back.

// restDue is the condition that parent x has a due round: the predicate of gen_durable_losers.
const restDue = `(x.losers IS NOT NULL AND (x.status <> 'awaiting_children' OR x.losers[1] <> x.round)
    OR x.graphs IS NOT NULL AND x.finished_at IS NOT NULL)`

// dueRestSQL locks parents with due rounds, and returns these, with the parent's queue if it is
// runnable: a claim passes over a row that is locked, and is to come again. $1 behind this id
// $2 most parents
var dueRestSQL = named("rest", `SELECT l.id, r.round, CASE WHEN l.status = 'runnable' AND NOT l.paused THEN l.queue ELSE '' END FROM (
  SELECT x.id, x.losers, x.graphs, x.round, x.status, x.paused, x.queue, x.finished_at FROM {s}.gen_durable x WHERE `+restDue+` AND x.id > $1
  ORDER BY x.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) l
CROSS JOIN LATERAL (SELECT abs(r.round) AS round FROM unnest(l.losers) AS r(round) WHERE l.status <> 'awaiting_children' OR r.round <> l.round
  UNION SELECT r.round FROM unnest(l.graphs) AS r(round) WHERE l.finished_at IS NOT NULL) r
ORDER BY l.id`)

// retriedLoser is the condition that the child k was cancelled as a loser, and that an operator's
// Retry or Rewind has let it run again since: its parent counts it no more, and its round may
// still be due, since a sibling is locked. A Restart lets the parent count it again, so that it
// may be a loser again.
const retriedLoser = `(k.joined IS NOT NULL AND coalesce(k.errors @> jsonb_build_array(jsonb_build_object('kind', 'cancel', 'error', ` + lostText + `)), false))`

var (
	losersSQL      = named("losers", losersText(false))
	theseLosersSQL = named("losers", losersText(true), "these")
)

// losersText locks the live children of due rounds, whose parents this transaction has locked. A
// locked child is left to a later sweep, and one that was retried goes on. $1 parents $2 their
// rounds $3 ids to pass over, or the only ones $4 most rows
func losersText(these bool) string {
	return `SELECT x.id, coalesce(x.partition_key, ''), x.status::text, coalesce(x.locked_by, ''), x.claim_token, x.parent_round < 0
FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT k.id, k.parent_round, k.partition_key, k.status, k.locked_by, k.claim_token FROM {s}.gen_durable k
  WHERE k.parent_id = u.parent AND abs(k.parent_round) = u.round AND k.finished_at IS NULL AND k.id ` + either(these, `= ANY(`, `<> ALL(`) + `$3::bigint[])
    AND NOT ` + retriedLoser + `
  FOR NO KEY UPDATE SKIP LOCKED) x
LIMIT $4`
}

// loseSQL fails losers as cancelled, as cancelSQL does. What they have begun is cancelled with
// them, a generation at a time: every round in which such an instance has live children becomes
// due. This is a separate statement after the locks, so it sees all children: an instance spawns
// them by a commit that has its lock. $1 ids $2 mark
var loseSQL = named("lose", `UPDATE {s}.gen_durable g SET status = 'failed', failure = 'cancelled', last_error = `+lostText+`,
  finished_at = (SELECT clock_timestamp()), pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  await_deadline = NULL, joined = CASE WHEN g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  losers = (SELECT array_agg(DISTINCT k.parent_round) FROM {s}.gen_durable k WHERE k.parent_id = g.id AND k.finished_at IS NULL),
  errors = `+remembered+`'at', (SELECT clock_timestamp()), 'kind', 'cancel', 'error', `+lostText+`),
  commit_id = $2::uuid, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.finished_at IS NULL
RETURNING g.id`)

// lostText is last_error of a loser.
const lostText = `'cancelled: its parent does not wait for it any more'`

// loseRecordedSQL appends losers of recorded machines to the history. They are as loseSQL has left
// them in this transaction. The kind has a dot, so that the row counts as no run of a step. $1 ids
// $2 mark $3 the workers that executed them
var loseRecordedSQL = named("history lose", historyInto+`g.updated_at, g.id, g.visit, NULL, NULL, g.attempt, g.fsm_version, 'join.cancel',
  CASE WHEN u.worker ~ '^[0-9a-f-]{36}$' THEN u.worker::uuid END, g.fsm, g.step, NULL, g.failure, left(g.last_error, `+errorMost+`), NULL
FROM unnest($1::bigint[], $3::text[]) AS u(id, worker)
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
JOIN {s}.recorded_machines r ON r.machine = g.fsm
WHERE g.commit_id = $2::uuid`)

// forgetRestSQL forgets the due rounds that have no live child any more, but for those that were
// retried. Nobody adds one: a parent
// spawns by a commit that has its lock, and a later commit spawns for a later round. $1 parents
// $2 rounds
var forgetRestSQL = named("forget rest", `UPDATE {s}.gen_durable g SET losers = nullif(ARRAY(
  SELECT l.round FROM unnest(g.losers) WITH ORDINALITY AS l(round, n) WHERE abs(l.round) <> ALL(d.rounds) ORDER BY l.n), '{}'),
  graphs = nullif(ARRAY(SELECT r.round FROM unnest(g.graphs) WITH ORDINALITY AS r(round, n) WHERE r.round <> ALL(d.rounds) ORDER BY r.n), '{}')
FROM (SELECT u.parent, array_agg(u.round) AS rounds FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
  WHERE NOT EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = u.parent AND abs(k.parent_round) = u.round AND k.finished_at IS NULL
    AND NOT `+retriedLoser+` OFFSET 0)
  GROUP BY 1) d
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = d.parent OFFSET 0) l
WHERE g.ctid = l.tid`)

// Rested reports what one slice of CancelRest did.
type Rested struct {
	Cancelled []int64
	Last      int64 // the last parent it looked at; 0: there are none behind it
	Full      bool  // there may be more for the same parents
	Promotion
}

// restParents bounds the parents of one slice.
const restParents = 100

// CancelRest cancels up to limit children that no join waits for any more, of parents behind an
// id. It locks the parents first, and children of theirs then, which is ascending; and it waits
// for no lock. A locked parent or child is left to a later sweep, and so is a row that Postgres
// refuses to change.
func (s *Store) CancelRest(ctx context.Context, mark string, after int64, limit int) (out Rested, err error) {
	pass := s.apart.rest.ids()
	var tried []int64
	if err = s.cancelRest(ctx, &out, losersSQL, mark, after, limit, pass, &tried, true); !holdsUp(err) {
		return out, err
	}
	out = Rested{Last: out.Last, Full: true}
	out.Refused, err = narrow(tried, func(ids []int64) error {
		return s.cancelRest(ctx, &out, theseLosersSQL, mark, after, limit, ids, nil, false)
	}, ofID)
	s.apart.rest.add(out.Refused)
	return out, err
}

// cancelRest runs one transaction. promote has the same meaning as for reap. It notes in tried
// which children it was about to cancel.
func (s *Store) cancelRest(ctx context.Context, sum *Rested, text *statement, mark string, after int64, limit int, ids []int64, tried *[]int64, promote bool) error {
	var out Rested
	err := s.interactive(ctx, fastLock, func(send send) error {
		out = Rested{}
		var due dueRounds
		if err := send(s.stmt(dueRestSQL, due.read, after, restParents)); err != nil || len(due.parents) == 0 {
			return err
		}
		out.Last, out.Queues = due.last(), due.queues
		var l losers
		if err := send(s.stmt(text, l.read, due.parents, due.rounds, ids, limit)); err != nil {
			return err
		}
		out.Full = len(l.ids) == limit
		if tried != nil {
			*tried = l.ids
		}
		stmts := s.noted(&l.lost)
		if len(l.ids) > 0 {
			stmts = append(stmts, s.stmt(loseSQL, readIDs(&out.Cancelled), l.ids, mark))
			if s.recording.Load() {
				stmts = append(stmts, s.stmt(loseRecordedSQL, nil, l.ids, mark, l.workers))
			}
		}
		stmts = append(stmts, s.stmt(forgetRestSQL, nil, due.parents, due.rounds))
		// Losers that are nodes of a graph settle no edges: the nodes that wait for them are losers as
		// well, of the same round, which stays due until all have ended.
		return s.follow(send, &joiners{l.ids, l.streamed}, nil, l.keys, mark, promote, &out.Promotion, stmts...)
	})
	sum.Last = out.Last
	if err != nil {
		return fmt.Errorf("cancel children that no join waits for: %w", err)
	}
	sum.Cancelled, sum.Full = append(sum.Cancelled, out.Cancelled...), sum.Full || out.Full
	sum.add(out.Promotion)
	return nil
}

// dueRounds holds rounds whose rest is to be cancelled, by ascending parents.
type dueRounds struct {
	parents, rounds []int64
	queues          []string // of the parents that are runnable
}

func (d *dueRounds) read(rows pgx.Rows) error {
	var parent, round int64
	var queue string
	_, err := pgx.ForEachRow(rows, []any{&parent, &round, &queue}, func() error {
		d.parents, d.rounds = append(d.parents, parent), append(d.rounds, round)
		if queue != "" && !slices.Contains(d.queues, queue) {
			d.queues = append(d.queues, queue)
		}
		return nil
	})
	return err
}

// last returns the last parent, if there may be others behind it, or 0.
func (d *dueRounds) last() int64 {
	if len(slices.Compact(slices.Clone(d.parents))) < restParents {
		return 0
	}
	return d.parents[len(d.parents)-1]
}

// losers holds locked children that are about to be cancelled.
type losers struct {
	ids      []int64
	streamed bool     // one of them is a child of a stream
	workers  []string // that execute them, or ""
	keys     []string // partition keys that go on without them
	lost     lostClaims
}

func (l *losers) read(rows pgx.Rows) error {
	var id, token int64
	var key, status, worker string
	var streamed bool
	_, err := pgx.ForEachRow(rows, []any{&id, &key, &status, &worker, &token, &streamed}, func() error {
		l.streamed = l.streamed || streamed
		l.ids, l.workers = append(l.ids, id), append(l.workers, worker)
		if key == "" {
			return nil
		}
		if status == "executing" { // its step goes on until it listens
			l.lost.add(key, worker, token)
		}
		if status == "runnable" || status == "executing" { // a parked row holds up no other row of its key
			l.keys = append(l.keys, key)
		}
		return nil
	})
	return err
}
