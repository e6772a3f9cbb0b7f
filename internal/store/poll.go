package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// pollSQL looks, for all idle queues of a process at once, when each has something to claim, when
// the next await times out, and whether an instance is over its deadline. Per queue it visits the
// distinct priorities and the machines set aside, never the backlog; of deadlines it visits those
// that are past, and of strays, of rounds with a rest to cancel and of nodes to be skipped the
// first. It returns the queue, the µs until the queue is due (0 or less: now; NULL: nothing waits),
// whether an instance is over its deadline, whether there is a stray, whether a round has a rest to
// cancel, and whether a node is to be skipped. In the last row, the queue is NULL and the µs are
// those until the next await times out. It passes by a timeout of a row that does not wait, which
// foreign SQL has left.
//
// $1 queues $2 machines
var pollSQL = named("poll", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT q.queue, (extract(epoch FROM least(n.at, a.at) - (SELECT clock_timestamp())) * 1000000)::bigint, false, false, false, false
FROM unnest($1::text[]) AS q(queue)
CROSS JOIN LATERAL (
  WITH RECURSIVE level(p, at) AS (
    (SELECT g.priority, g.eligible_at FROM {s}.gen_durable g
     WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front} ORDER BY g.priority, g.eligible_at LIMIT 1)
    UNION ALL
    SELECT n.priority, n.eligible_at FROM level CROSS JOIN LATERAL (
      SELECT g.priority, g.eligible_at FROM {s}.gen_durable g
      WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front} AND g.priority > level.p
      ORDER BY g.priority, g.eligible_at LIMIT 1) n)
  SELECT min(level.at) AS at FROM level) n
CROSS JOIN LATERAL (
  WITH RECURSIVE aside(f, v) AS (
    (SELECT g.fsm, g.fsm_version FROM {s}.gen_durable g
     WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane aside} ORDER BY g.fsm, g.fsm_version LIMIT 1)
    UNION ALL
    SELECT n.fsm, n.fsm_version FROM aside CROSS JOIN LATERAL (
      SELECT g.fsm, g.fsm_version FROM {s}.gen_durable g
      WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane aside}
        AND (g.fsm, g.fsm_version) > (aside.f, aside.v) ORDER BY g.fsm, g.fsm_version LIMIT 1) n)
  SELECT min(s.eligible_at) AS at FROM aside CROSS JOIN LATERAL (
    SELECT g.eligible_at FROM {s}.gen_durable g
    WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane aside} AND g.fsm = aside.f AND g.fsm_version = aside.v
    ORDER BY g.priority, g.eligible_at LIMIT 1) s
  WHERE (aside.f || '/' || aside.v) = ANY($2::text[])) a
UNION ALL
SELECT NULL, (SELECT (extract(epoch FROM g.await_deadline - (SELECT clock_timestamp())) * 1000000)::bigint
  FROM {s}.gen_durable g WHERE g.await_deadline IS NOT NULL AND coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false)
  ORDER BY g.await_deadline LIMIT 1),
  (SELECT true FROM {s}.gen_durable x WHERE `+overdueText+` ORDER BY x.deadline LIMIT 1) IS NOT NULL,
  (SELECT true FROM {s}.gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane stray}
   ORDER BY g.queue, g.fsm, g.fsm_version, g.aside_step LIMIT 1) IS NOT NULL,
  (SELECT true FROM {s}.gen_durable x WHERE `+restDue+` ORDER BY x.id LIMIT 1) IS NOT NULL,
  (SELECT true FROM {s}.gen_durable x WHERE `+toBeSkipped+` ORDER BY x.id LIMIT 1) IS NOT NULL`)

// Polled is the result of a poll.
type Polled struct {
	Due      map[string]time.Duration // by idle queue, how soon it has something to claim: zero or less is now; a queue is missing if nothing waits
	Awaits   bool                     // an await times out some time,
	Deadline time.Duration            // the next one after this
	Overdue  bool                     // some instance is over its deadline
	Strays   bool                     // some instance is set aside at its step, in any queue
	Rest     bool                     // some parent does not wait any more for children that are to be cancelled then
	Skips    bool                     // some node is to be skipped
	Keeping  bool                     // signals are kept
	Paused   []PausedQueue            // all paused queues, not only those of the poll
	Gates    Gates                    // all gates
	Own      map[string]int           // keys of gates that have their own places, up to 1,000, and how many
	Lines    map[string]bool          // the queues with instances in line at gates, and "" if any queue has some; nil: it has not looked
	Fires    bool                     // some schedule is not paused,
	Fire     time.Duration            // and the next occurrence comes after this
}

// Poll returns when each of some idle queues has something to claim, when the next await times out,
// whether an instance is over its deadline, which queues are paused, which gates there are, and
// when the next schedule is due. It sends one statement for all queues (§6), and two for tables
// that are nearly empty.
//
// lines are queues in which it also looks for instances in line at gates, by a third statement;
// nil: it does not look. If a claim has found a gate locked since the last poll, it sees to it that
// this ends: see freeGates.
func (s *Store) Poll(ctx context.Context, queues, machines, lines []string) (Polled, error) {
	var out Polled
	err := s.reads(ctx, func() []entpgx.Stmt {
		out = Polled{}
		body := []entpgx.Stmt{s.poll(queues, machines, &out), s.orders(&out), s.nextFire(&out)}
		if lines != nil {
			body = append(body, s.lines(lines, &out))
		}
		return body
	})
	if err != nil {
		return Polled{}, fmt.Errorf("poll %d idle queues: %w", len(queues), err)
	}
	s.freeGates(ctx)
	return out, nil
}

// Due returns when each of some queues has something to claim, as Poll does, and nothing else.
func (s *Store) Due(ctx context.Context, queues, machines []string) (map[string]time.Duration, error) {
	var out Polled
	if err := s.transaction(ctx, fastLock, s.poll(queues, machines, &out)); err != nil {
		return nil, fmt.Errorf("look for due instances in %d queues: %w", len(queues), err)
	}
	return out.Due, nil
}

func (s *Store) poll(queues, machines []string, out *Polled) entpgx.Stmt {
	out.Due = map[string]time.Duration{}
	return s.stmt(pollSQL, func(rows pgx.Rows) error {
		var queue *string
		var us *int64
		var overdue, strays, rest, skips bool
		_, err := pgx.ForEachRow(rows, []any{&queue, &us, &overdue, &strays, &rest, &skips}, func() error {
			out.Overdue, out.Strays = out.Overdue || overdue, out.Strays || strays
			out.Rest, out.Skips = out.Rest || rest, out.Skips || skips
			switch {
			case us == nil:
			case queue == nil:
				out.Deadline, out.Awaits = duration(*us), true
			default:
				out.Due[*queue] = duration(*us)
			}
			return nil
		})
		return err
	}, queues, machines)
}

// linesSQL lists, of some queues, those in which instances are in line, and an empty name if any
// queue has some. $1 queues
var linesSQL = named("lines", `SELECT q.queue FROM unnest($1::text[]) AS q(queue)
WHERE (SELECT g.id FROM {s}.gen_durable g WHERE g.queue = q.queue AND `+inLine+` `+lineOrder+` LIMIT 1) IS NOT NULL
UNION ALL SELECT '' WHERE (SELECT g.id FROM {s}.gen_durable g WHERE `+inLine+` `+lineOrder+` LIMIT 1) IS NOT NULL`)

func (s *Store) lines(queues []string, out *Polled) entpgx.Stmt {
	out.Lines = map[string]bool{}
	return s.stmt(linesSQL, func(rows pgx.Rows) error {
		var queue string
		_, err := pgx.ForEachRow(rows, []any{&queue}, func() error { out.Lines[queue] = true; return nil })
		return err
	}, queues)
}
