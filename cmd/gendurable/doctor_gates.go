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
//     machine, or no version of the machine has its step. So no instance goes through the gate.
//   - above: a bound that cannot be reached, since there are fewer slots, or since the ceiling of
//     the queue or the total of the gate is lower.
//   - narrow: rates that are not reached, since more instances become due in the 20 ms between two
//     claims than the burst lets begin at once.
//   - dead: instances that have places of a gate, seats of a queue or places of whole runs, and
//     whose lease is over for longer than $1.
//   - unserved: instances that stand in line for longer than $1, in a queue that no live worker
//     serves. Of each queue one instance is looked at.
//   - itself: keys of gates with Run of which each place is held by an instance that waits for its
//     children, while one below it has been in line there for longer than $1. $2 is how many
//     children in line are looked at.
//   - closed: gates without places, and keys that are closed for another hour or more.
//   - unlabelled: gates of a label that none of the newest instances carries which the gate could
//     concern. $2 is how many of the newest are looked at.
//   - stray: keys with a weight or places, or closed, that no gate uses: there is no such gate, or
//     it has no label.
const gateFaultsSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, $1::float8 * interval '1 second' AS patience),
w AS MATERIALIZED (SELECT w.queues, w.machines FROM {s}.workers w, c WHERE w.expires_at > c.now AND NOT w.draining),
line AS MATERIALIZED (
  WITH RECURSIVE q(queue, gate, at) AS (
    (SELECT g.queue, g.gate, g.eligible_at FROM {s}.gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane line}
     ORDER BY g.queue LIMIT 1)
    UNION ALL
    SELECT n.queue, n.gate, n.eligible_at FROM q CROSS JOIN LATERAL (
      SELECT g.queue, g.gate, g.eligible_at FROM {s}.gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane line} AND g.queue > q.queue
      ORDER BY g.queue LIMIT 1) n)
  SELECT * FROM q),
o AS MATERIALIZED (SELECT DISTINCT ON (r.queue) r.queue, r.name, r.places FROM {s}.gates r
  WHERE r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run
  ORDER BY r.queue, r.name COLLATE "C")
(SELECT 'unreached', r.name, CASE WHEN r.queue IS NOT NULL AND NOT EXISTS (SELECT FROM w WHERE w.queues ? r.queue)
    THEN 'no live worker serves queue ' || r.queue
    WHEN NOT EXISTS (SELECT FROM w, unnest(w.machines) AS m(name) WHERE starts_with(m.name, r.machine || '/'))
    THEN 'no live worker registers machine ' || r.machine ELSE 'no version of machine ' || r.machine || ' has a step ' || r.step END, 0::bigint
  FROM {s}.gates r
  WHERE EXISTS (SELECT FROM w) AND (r.queue IS NOT NULL AND NOT EXISTS (SELECT FROM w WHERE w.queues ? r.queue)
    OR r.machine IS NOT NULL AND NOT EXISTS (SELECT FROM w, unnest(w.machines) AS m(name) WHERE starts_with(m.name, r.machine || '/'))
    OR EXISTS (SELECT FROM {s}.definitions d WHERE d.machine = r.machine) AND r.step IS NOT NULL AND NOT EXISTS (
      SELECT FROM {s}.definitions d WHERE d.machine = r.machine AND d.graph -> 'steps' @> jsonb_build_array(jsonb_build_object('name', r.step))))
  ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'above', r.name, CASE
    WHEN r.places > r.total THEN r.places || ' places, but ' || r.total || ' in all'
    WHEN greatest(r.places, r.total) > o.places AND o.name <> r.name THEN greatest(r.places, r.total) || ' places, but gate ' || o.name || ' has ' || o.places || ' for all of queue ' || r.queue
    ELSE r.places || ' places, but its workers have ' || n.slots || ' slots' END, 0::bigint
  FROM {s}.gates r LEFT JOIN o ON o.queue = r.queue AND NOT r.run
  CROSS JOIN LATERAL (SELECT sum(q.slots::bigint) AS slots FROM w, jsonb_each_text(w.queues) AS q(name, slots) WHERE coalesce(q.name = r.queue, true)) n
  WHERE r.places > r.total OR greatest(r.places, r.total) > o.places AND o.name <> r.name OR r.places > n.slots AND NOT r.run
  ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'narrow', r.name, x.n || ' in ' || x.per / 1000 || 'ms with a burst of ' || x.burst, 0::bigint
  FROM {s}.gates r CROSS JOIN LATERAL (VALUES (r.rate, r.rate_per, r.rate_burst), (r.total_rate, r.total_rate_per, r.total_rate_burst)) AS x(n, per, burst)
  WHERE x.n * 20000::float8 / x.per > x.burst ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'dead', x.name, count(*) || ' places', max(extract(epoch FROM x.now - x.lease_expires_at))::bigint
  FROM (SELECT k.name, g.lease_expires_at, c.now FROM {s}.gen_durable g CROSS JOIN c CROSS JOIN LATERAL (VALUES
      (CASE WHEN g.place IS NOT NULL THEN split_part(g.gate, '/', 1) END), (CASE WHEN g.run_place IS NOT NULL THEN split_part(g.run_gate, '/', 1) END),
      (CASE WHEN g.seat IS NOT NULL THEN (SELECT o.name FROM o WHERE o.queue = g.queue) END)) AS k(name)
    WHERE g.status = 'executing' AND g.lease_expires_at < c.now - c.patience AND k.name IS NOT NULL) x
  GROUP BY 2 ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'unserved', l.gate, 'no live worker serves queue ' || l.queue, extract(epoch FROM c.now - l.at)::bigint
  FROM line l, c WHERE l.at < c.now - c.patience AND NOT EXISTS (SELECT FROM w WHERE w.queues ? l.queue)
    AND NOT EXISTS (SELECT FROM {s}.paused_queues p WHERE p.queue = l.queue)
  ORDER BY 2 LIMIT 20)
UNION ALL
(WITH RECURSIVE up(key, at, child, above) AS (
    (SELECT g.gate, g.eligible_at, g.id, g.parent_id FROM {s}.gen_durable g, c WHERE g.status = 'runnable' AND NOT g.paused
        AND g.pick_lane = {lane line} AND g.parent_id IS NOT NULL AND g.eligible_at < c.now - c.patience
        AND EXISTS (SELECT FROM {s}.gates r WHERE r.run AND r.name = split_part(g.gate, '/', 1)) LIMIT $2)
    UNION ALL
    SELECT up.key, up.at, up.child, p.parent_id FROM up JOIN {s}.gen_durable p ON p.id = up.above
    WHERE p.run_gate IS DISTINCT FROM up.key AND p.parent_id IS NOT NULL)
  SELECT 'itself', up.key, (array_agg(up.child || ' is below ' || p.id ORDER BY up.child))[1], max(extract(epoch FROM c.now - up.at))::bigint
  FROM up JOIN {s}.gen_durable p ON p.id = up.above AND p.run_gate = up.key AND p.run_place IS NOT NULL AND p.status = 'awaiting_children', c
  GROUP BY up.key HAVING count(DISTINCT p.id) = (SELECT count(*) FROM {s}.gen_durable h WHERE h.run_gate = up.key AND h.run_place IS NOT NULL)
    AND count(DISTINCT p.id) >= (SELECT coalesce(b.places, r.places) FROM {s}.gates r LEFT JOIN {s}.gate_keys b ON b.key = up.key WHERE r.name = split_part(up.key, '/', 1))
  ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'closed', r.name, 'has no places', extract(epoch FROM c.now - r.updated_at)::bigint FROM {s}.gates r, c WHERE r.places = 0 OR r.total = 0 ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'closed', k.key, CASE WHEN k.closed_until > c.now + interval '1000 years' THEN 'until somebody opens it' ELSE 'until ' || to_char(k.closed_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC' END, 0
  FROM {s}.gate_keys k, c WHERE k.closed_until > c.now + interval '1 hour' ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'unlabelled', r.name, 'none of the newest ' || count(*) || ' instances that it could concern has the label ' || r.label, 0
  FROM {s}.gates r JOIN (SELECT g.queue, g.fsm, g.step, g.labels FROM {s}.gen_durable g ORDER BY g.id DESC LIMIT $2) n
    ON coalesce(n.queue = r.queue, true) AND coalesce(n.fsm = r.machine, true) AND coalesce(n.step = r.step, true)
  WHERE r.label IS NOT NULL GROUP BY r.name, r.label HAVING NOT coalesce(bool_or(n.labels ? r.label), false) ORDER BY 2 LIMIT 20)
UNION ALL
(SELECT 'stray', k.key, CASE WHEN r.name IS NULL THEN 'there is no gate ' || split_part(k.key, '/', 1) ELSE 'gate ' || r.name || ' has no label' END, 0
  FROM {s}.gate_keys k CROSS JOIN c LEFT JOIN {s}.gates r ON r.name = split_part(k.key, '/', 1)
  WHERE (k.weight <> 1 OR k.places IS NOT NULL OR k.closed_until > c.now) AND (r.name IS NULL OR r.label IS NULL AND k.key <> r.name) ORDER BY 2 LIMIT 20)`

// newestMost bounds how many instances are looked at for a label.
const newestMost = 1000

// gates looks for limits that hold work back unintentionally.
func (p *patient) gates(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, within(p.schema, gateFaultsSQL), p.Patience.Seconds(), newestMost)
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
			note(gradeWarn, "gendurable gate drop, if no program needs the gate any more", "no instance goes through %q: %s", gate, what)
		case "above":
			note(gradeWarn, "gendurable gate set, with a bound that can be reached, or none", "no instance can reach the bound of %q: %s", gate, what)
		case "narrow":
			note(gradeWarn, "gendurable gate set --burst, with what the rate allows in 20 ms", "%q does not reach its rate: %s", gate, what)
		case "unlabelled":
			note(gradeWarn, "give the specs the label, or gendurable gate set without it", "no instance goes through %q: %s", gate, what)
		case "stray":
			note(gradeWarn, "gendurable gate set the gate again; then gate open, gate weight 1 and gate places 0 forget the key", "no gate has the key %q: %s", gate, what)
		case "dead":
			note(gradeFail, "no engine reaps: start one with queues and without NoReaper", "%s of %q are held by dead processes, for %s", what, gate, span(seconds(age)))
		case "unserved":
			note(gradeFail, "start a process that serves the queue", "in line at %q for %s: %s", gate, span(seconds(age)), what)
		case "itself":
			note(gradeFail, "gendurable gate set with more places, now; then give the gate a machine or a label that parents and children do not share",
				"%q waits for itself for %s: all its places are held by instances that wait for children in line there (%s)", gate, span(seconds(age)), what)
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
