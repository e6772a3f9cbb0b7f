package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// gateFaultsSQL returns what may be wrong with gates, and for how many seconds, at most 20 of each
// kind:
//
//   - unreached: there are live workers, and none serves the gate's queue, or registers its
//     machine. So nobody goes through the gate.
//   - dead: instances that have places of a gate, and whose lease is over for longer than $1.
//   - unserved: instances that stand in line for longer than $1, in a queue that no live worker
//     serves. Of each queue one instance is looked at.
//   - closed: gates without places, and keys that are closed for another hour or more.
const gateFaultsSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, $1::float8 * interval '1 second' AS patience),
w AS MATERIALIZED (SELECT w.queues, w.machines FROM {s}.workers w, c WHERE w.expires_at > c.now AND NOT w.draining),
line AS MATERIALIZED (
  WITH RECURSIVE q(queue, gate, at) AS (
    (SELECT g.queue, g.gate, g.eligible_at FROM {s}.gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3
     ORDER BY g.queue LIMIT 1)
    UNION ALL
    SELECT n.queue, n.gate, n.eligible_at FROM q CROSS JOIN LATERAL (
      SELECT g.queue, g.gate, g.eligible_at FROM {s}.gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue > q.queue
      ORDER BY g.queue LIMIT 1) n)
  SELECT * FROM q)
(SELECT 'unreached', r.name, CASE WHEN r.queue IS NOT NULL AND NOT EXISTS (SELECT FROM w WHERE w.queues ? r.queue)
    THEN 'no live worker serves queue ' || r.queue ELSE 'no live worker registers machine ' || r.machine END, 0::bigint
  FROM {s}.gates r
  WHERE EXISTS (SELECT FROM w) AND (r.queue IS NOT NULL AND NOT EXISTS (SELECT FROM w WHERE w.queues ? r.queue)
    OR r.machine IS NOT NULL AND NOT EXISTS (SELECT FROM w, unnest(w.machines) AS m(name) WHERE m.name LIKE replace(replace(r.machine, '%', '\%'), '_', '\_') || '/%'))
  ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'dead', split_part(g.gate, '/', 1), count(*) || ' places', max(extract(epoch FROM c.now - g.lease_expires_at))::bigint
  FROM {s}.gen_durable g, c WHERE g.status = 'executing' AND g.gate IS NOT NULL AND g.lease_expires_at < c.now - c.patience
  GROUP BY 2 ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'unserved', l.gate, 'no live worker serves queue ' || l.queue, extract(epoch FROM c.now - l.at)::bigint
  FROM line l, c WHERE l.at < c.now - c.patience AND NOT EXISTS (SELECT FROM w WHERE w.queues ? l.queue)
    AND NOT EXISTS (SELECT FROM {s}.paused_queues p WHERE p.queue = l.queue)
  ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'closed', r.name, 'has no places', extract(epoch FROM c.now - r.updated_at)::bigint FROM {s}.gates r, c WHERE r.places = 0 OR r.total = 0 ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'closed', k.key, CASE WHEN k.closed_until > c.now + interval '1000 years' THEN 'until somebody opens it' ELSE 'until ' || to_char(k.closed_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC' END, 0
  FROM {s}.gate_keys k, c WHERE k.closed_until > c.now + interval '1 hour' ORDER BY 2 LIMIT 20)`

// gates looks for limits that hold work back though nobody means them to.
func (p *patient) gates(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, within(p.schema, gateFaultsSQL), p.Patience.Seconds())
	if err != nil {
		return finding{}, err
	}
	seen, do, worst := []string{}, []string{}, gradeOK
	note := func(grade grade, advice, format string, args ...any) {
		seen = append(seen, fmt.Sprintf(format, args...))
		if worst != gradeFail {
			worst = grade
		}
		if len(do) == 0 || do[len(do)-1] != advice {
			do = append(do, advice)
		}
	}
	var kind, gate, what string
	var age int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &gate, &what, &age}, func() error {
		switch kind {
		case "unreached":
			note(gradeWarn, "gendurable gate drop, if nobody means the gate any more", "nobody goes through %q: %s", gate, what)
		case "dead":
			note(gradeFail, "nobody reaps: start an engine with queues and without NoReaper", "%s of %q are held by the dead, for %s", what, gate, span(seconds(age)))
		case "unserved":
			note(gradeFail, "start a process that serves the queue", "in line at %q for %s: %s", gate, span(seconds(age)), what)
		case "closed":
			if age > 0 {
				what += " for " + span(seconds(age))
			}
			note(gradeWarn, "gendurable gate open, or gate set, if nobody means it any more", "%q is closed: %s", gate, what)
		}
		return nil
	})
	if err != nil || len(seen) == 0 {
		return ok("none holds back what could run"), err
	}
	return ok("%s", strings.Join(seen, "; ")).or(worst, strings.Join(do, "; ")), nil
}
