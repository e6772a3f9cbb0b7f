package store

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// policyText notes what wakes parents before all of their children have ended. It follows the
// update that parked them, in its transaction, so that commits without such parents are what they
// were.
//
// The policy counts while join_round >= round: join_round is the visit at which the children join,
// round that at which they first did, and both are one here. So a later round without a policy
// ends this one by moving round. awaits and await_deadline work as for an Await: deliveries and
// the sweep of timeouts wake such a parent, too, and recheckSQL looks for signals that were there
// before.
//
// A graph always has one, if only an empty one, and its round is noted in graphs: its live nodes
// are cancelled once the parent has ended. Once none of its nodes lives, the round is forgotten
// there by the next graph, or by forgetRestSQL. A node that runs again later does so by a Restart,
// which notes the round anew. See restDue.
//
// $1 ids $2 mark $3 $4 $5 how many that are done, that failed, that have ended, wake it; NULL: none
// $6 timeout, µs $7 time $8, $9 slice of $10 names $11 whether the rest is cancelled then
func policyText(graph bool) string {
	return `UPDATE {s}.gen_durable g SET join_round = g.round, join_size = g.children_pending, join_done = 0, join_failed = 0,
  wake_done = u.done, wake_failed = u.failed, wake_ended = u.ended, awaits = ($10::text[])[u.lo:u.hi],
  losers = CASE WHEN u.cancels THEN array_append(g.losers, g.round) ELSE g.losers END,` + when(graph, `
  graphs = array_append(ARRAY(SELECT r.round FROM unnest(g.graphs) WITH ORDINALITY AS r(round, n)
    WHERE EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = g.id AND k.parent_round = r.round AND k.finished_at IS NULL OFFSET 0) ORDER BY r.n), g.round),`) + `
  await_deadline = CASE WHEN u.at IS NOT NULL THEN u.at
    WHEN u.us IS NOT NULL THEN (SELECT clock_timestamp()) + u.us * interval '1 microsecond' END
FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS done, unnest($4::int[]) AS failed, unnest($5::int[]) AS ended,
  unnest($6::bigint[]) AS us, unnest($7::timestamptz[]) AS at, unnest($8::int[]) AS lo, unnest($9::int[]) AS hi, unnest($11::boolean[]) AS cancels) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid OFFSET 0) l
WHERE g.ctid = l.tid`
}

var (
	policySQL      = named("policy", policyText(false))
	policyGraphSQL = named("policy graph", policyText(true))
)

// rejoinSQL lets parents that this batch has parked by a Rejoin wait for the children of their
// newest round that are left, under its own policy. It counts the children anew, since children
// that end while their parent runs are not counted. It is a separate statement after the park,
// under the row lock of the park: a transaction that ends a child locks its parent first, so each
// such commit is either in this snapshot, or will find the row as this statement leaves it.
// Children that this very batch has ended are taken as left: joinSQL, which follows, counts them.
//
// The numbers of the policy count the ends that the step has not seen, so that an end between its
// look at the children and this statement is not slept through. A step that has not looked has seen
// what its parent had counted when it woke. A child counts as it first ended, for the statement and
// for the step: one that an operator has retried since has failed, whatever it is now, so these
// counts only grow while the step runs. A Restart takes an end back, but only of a child whose
// parent waits.
//
// The counts are of the whole round, as they are at its first join, so that joinSQL need not know
// of a Rejoin; the thresholds are those counts and what the policy adds. A Rejoin
// whose condition is true wakes the parent at once.
//
// A rest that is due stays due, though the parent waits for the round again: the round becomes
// negative in losers, and so differs from the round that the row waits for. See dueRestSQL.
//
// If the Rejoin goes on with a stream, it counts the ends that no visit was shown: see streamSQL.
//
// $1 to $11 as policySQL $12 rounds $13 $14 how many that are done, that failed, the step has seen
// (NULL: it has not looked) $15 how many ends a portion of the stream has at most (NULL: it is
// none).
var rejoinSQL = named("rejoin", `UPDATE {s}.gen_durable g SET join_round = g.visit, join_size = u.size, join_done = u.ok, join_failed = u.bad,
  children_pending = u.size - u.ok - u.bad - u.skipped, wake_done = u.ok + u.done - `+freshDone+`, wake_failed = u.bad + u.failed - `+freshFailed+`,
  wake_ended = u.ok + u.bad + u.ended - `+freshEnded+`, stream_most = u.stream,
  awaits = ($10::text[])[u.lo:u.hi],
  losers = CASE WHEN u.cancels AND NOT coalesce(g.round = ANY(g.losers) OR -g.round = ANY(g.losers), false) THEN array_append(g.losers, g.round)
    ELSE array_replace(g.losers, g.round, -g.round) END,
  status = CASE WHEN `+rejoinWakes+` THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN `+rejoinWakes+` THEN (SELECT clock_timestamp()) ELSE g.eligible_at END,
  updated_at = CASE WHEN `+rejoinWakes+` THEN (SELECT clock_timestamp()) ELSE g.updated_at END,
  await_deadline = CASE WHEN `+rejoinWakes+` THEN NULL WHEN u.at IS NOT NULL THEN u.at
    WHEN u.us IS NOT NULL THEN (SELECT clock_timestamp()) + u.us * interval '1 microsecond' END
FROM (SELECT t.*, c.* FROM (
  SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS done, unnest($4::int[]) AS failed, unnest($5::int[]) AS ended,
    unnest($6::bigint[]) AS us, unnest($7::timestamptz[]) AS at, unnest($8::int[]) AS lo, unnest($9::int[]) AS hi, unnest($11::boolean[]) AS cancels,
    unnest($12::bigint[]) AS round, unnest($13::int[]) AS seen_done, unnest($14::int[]) AS seen_failed,
    unnest($15::int[]) AS stream) t
  CROSS JOIN LATERAL (SELECT count(*)::int AS size, count(*) FILTER (WHERE NOT `+retriedText("k")+` AND k.joined <> $2::uuid AND k.status = 'done')::int AS ok,
      count(*) FILTER (WHERE k.joined <> $2::uuid AND (k.status <> 'done' AND k.failure IS DISTINCT FROM 'skipped' OR `+retriedText("k")+`))::int AS bad,
      count(*) FILTER (WHERE NOT `+retriedText("k")+` AND k.joined <> $2::uuid AND k.failure = 'skipped')::int AS skipped,
      count(*) FILTER (WHERE k.joined <> $2::uuid AND k.stream_visit IS NULL)::int AS unshown
    FROM {s}.gen_durable k WHERE k.parent_id = t.id AND k.parent_round = t.round) c OFFSET 0) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid OFFSET 0) l
WHERE g.ctid = l.tid
RETURNING g.queue, g.status = 'runnable'`)

// These are the ends that the step of a Rejoin has not seen, and the condition that the Rejoin has
// nothing to wait for.
const (
	freshDone   = `greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0)`
	freshFailed = `greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0)`
	freshEnded  = `CASE WHEN u.stream IS NULL THEN ` + freshDone + ` + ` + freshFailed + ` ELSE u.unshown END`
	rejoinWakes = `(u.size = u.ok + u.bad + u.skipped OR coalesce(
      ` + freshDone + ` >= u.done OR ` + freshDone + ` + u.size - u.ok - u.bad - u.skipped < u.done
      OR ` + freshFailed + ` >= u.failed OR ` + freshEnded + ` >= u.ended, false))`
)

// retriedText is the condition that the child is one whose end its parent has counted, or may
// have, and that an operator's Retry or Rewind has let run again since. The end of a child leaves
// one mark in joined and in commit_id; a second end leaves another one in commit_id alone.
func retriedText(child string) string {
	return `(` + child + `.joined IS NOT NULL AND (` + child + `.finished_at IS NULL OR coalesce(` + child + `.joined <> ` + child + `.commit_id, false)))`
}

// joinWakes is the condition that the ends of d wake the parent x: all children are in; or the
// policy's number of them is done, or never will be; or enough of them have failed, or ended. A
// node that was skipped counts as one that will never be done, and as nothing else: what it was
// skipped for has counted, or is no failure.
const joinWakes = `(x.children_pending <= d.n
      OR coalesce(x.join_round >= x.round AND (
        x.join_done + d.ok >= x.wake_done OR x.join_done + d.ok + x.children_pending - d.n < x.wake_done
        OR x.join_failed + d.bad >= x.wake_failed OR x.join_done + d.ok + x.join_failed + d.bad >= x.wake_ended), false))`

// policies holds the policies of joins.
type policies struct {
	ids                 []int64
	done, failed, ended []*int32
	micros              []*int64
	times               []*time.Time
	lo, hi              []*int32
	names               []string
	cancels             []bool
}

// rejoins holds the policies of parents that join the rest of a round again.
type rejoins struct {
	policies

	rounds               []int64
	seenDone, seenFailed []*int32
	streams              []*int32
}

func (r *rejoins) add(c *step.Claim, j *step.Join) {
	r.policies.add(c, j)
	r.rounds = append(r.rounds, c.Round)
	var done, failed *int32
	if j.Seen != nil {
		done, failed = new(int32(j.Seen.Done)), new(int32(j.Seen.Failed)) //nolint:gosec // bounded by the limits
	}
	r.seenDone, r.seenFailed = append(r.seenDone, done), append(r.seenFailed, failed)
	r.streams = append(r.streams, positive(j.Stream))
}

// policed reports whether the outcome parks its instance under a policy. Any graph does.
func (e *Entry) policed() bool {
	return (e.Commit.Join != nil || e.Commit.Graph != nil) && len(e.Commit.Spawn) > 0
}

func (p *policies) add(c *step.Claim, j *step.Join) {
	p.ids = append(p.ids, c.ID)
	p.done, p.failed, p.ended = append(p.done, positive(j.Done)), append(p.failed, positive(j.Failed)), append(p.ended, positive(j.Ended))
	var us *int64
	if j.Timeout > 0 {
		us = new(micros(j.Timeout))
	}
	var at *time.Time
	if !j.At.IsZero() {
		at = &j.At
	}
	p.micros, p.times = append(p.micros, us), append(p.times, at)
	var lo, hi *int32
	if len(j.Names) > 0 {
		lo, hi = positive(len(p.names)+1), positive(len(p.names)+len(j.Names))
		p.names = append(p.names, j.Names...)
	}
	p.lo, p.hi, p.cancels = append(p.lo, lo), append(p.hi, hi), append(p.cancels, j.Cancel)
}

// positive returns nil for 0.
func positive(n int) *int32 {
	if n == 0 {
		return nil
	}
	return new(int32(n)) //nolint:gosec // bounded by the limits
}

// readIfWoken reads rows of a queue and whether an instance of it was woken.
func readIfWoken(into *[]string) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var queue string
		var woken bool
		_, err := pgx.ForEachRow(rows, []any{&queue, &woken}, func() error {
			if woken {
				*into = append(*into, queue)
			}
			return nil
		})
		return err
	}
}
