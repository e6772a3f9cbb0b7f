package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// An instance that waits in line at a gate is concerned by another one when an operator stores a
// narrower gate, or changes whom the old one concerns. A claim notices that when it takes the
// instance from its line, which a full or closed gate never lets it do. So each process that
// learns of other rules goes through the lines once, and brings such instances into their line.
//
// Nothing depends on who does so, how often, or by which version of the rules: a claim from a line
// looks again whether the instance belongs there.

// RefileLate is the time after a change of the rules from which no process inserts by the old
// ones.
const RefileLate = knownFor + 5*time.Second

// Filed is where a pass through the lines goes on. The zero Filed is before all lines.
type Filed struct {
	queue, gate string
	priority    int64
	at          time.Time
	id          int64
}

// refileSQL looks at a page of the rows in line, in the order of gen_durable_lines: the rest of a
// key, the rest of its queue, and the queues behind that. It puts those that are behind another
// gate by now in line there, and those behind none in front. A row with a partition key that is in
// line has been the head of its key; a claim checks whether it still is.
//
// The page is read without locks. Then each row that moves is locked, and its place in line
// checked again on what is locked: a row that a claim or a verb has changed since is left alone,
// and a locked one is left to its claim, or to the next pass. The row that the lock returns may be
// newer than this statement's snapshot. Then the update does not find it, and it stays for the
// next pass as well.
//
// $1 … $5 the last row of the page before: queue, gate, priority, time, id $6 most rows
var refileSQL = named("refile", `WITH p AS MATERIALIZED (
  SELECT x.*, row_number() OVER () AS n FROM (
    (`+lineRow+` AND g.queue = $1 AND g.gate = $2 AND (g.priority, g.eligible_at, g.id) > ($3::bigint, $4::timestamptz, $5::bigint) `+lineOrder+` LIMIT $6::bigint)
    UNION ALL (`+lineRow+` AND g.queue = $1 AND g.gate ~>~ $2 `+lineOrder+` LIMIT $6::bigint)
    UNION ALL (`+lineRow+` AND g.queue > $1 `+lineOrder+` LIMIT $6::bigint)) x LIMIT $6::bigint),
l AS MATERIALIZED (
  SELECT x.tid, x.now_at FROM (
    SELECT g.ctid AS tid, g.gate, `+gateText+` AS now_at FROM {s}.gen_durable g WHERE g.id = ANY(ARRAY(
      SELECT g.id FROM {s}.gen_durable g JOIN p ON p.id = g.id WHERE g.gate IS DISTINCT FROM `+gateText+`)) AND `+inLine+`
    FOR NO KEY UPDATE OF g SKIP LOCKED) x
  WHERE x.gate IS DISTINCT FROM x.now_at),
m AS (
  UPDATE {s}.gen_durable g SET gate = l.now_at, pick_lane = CASE WHEN l.now_at IS NULL THEN {lane front} ELSE {lane line} END FROM l WHERE g.ctid = l.tid RETURNING g.queue)
SELECT (SELECT count(*) FROM p), (SELECT coalesce(array_agg(DISTINCT m.queue), '{}') FROM m), p.queue, p.gate, p.priority, p.eligible_at, p.id
FROM p ORDER BY p.n DESC LIMIT 1`)

const lineRow = `SELECT g.id, g.queue, g.gate, g.priority, g.eligible_at FROM {s}.gen_durable g WHERE ` + inLine

// Refile looks at the next most rows in line, brings those that are behind another gate by now
// into its line, and returns the queues in which it has moved some. It reports whether there may
// be more rows in line behind.
func (s *Store) Refile(ctx context.Context, from *Filed, most int) (queues []string, more bool, err error) {
	seen := 0
	err = s.one(ctx, fastLock, refileSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&seen, &queues, &from.queue, &from.gate, &from.priority, &from.at, &from.id}, func() error { return nil })
		return err
	}, from.queue, from.gate, from.priority, from.at, from.id, most)
	if err != nil {
		return nil, false, fmt.Errorf("move waiting instances to the lines of their gates: %w", err)
	}
	return queues, seen >= most, nil
}

// Regroups reports whether these gates may concern other instances than others do, whatever they
// bound.
func (gs Gates) Regroups(old Gates) bool {
	concerns := map[Gate]bool{}
	for _, g := range old {
		concerns[g.whom()] = true
	}
	for _, g := range gs {
		if !concerns[g.whom()] {
			return true
		}
	}
	return false
}

// whom returns the gate without what it bounds.
func (g *Gate) whom() Gate {
	w := Gate{Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Label: g.Label, Run: g.Run}
	if g.ofQueue() {
		w.Places = 1 // instances are not in line at it
	}
	return w
}
