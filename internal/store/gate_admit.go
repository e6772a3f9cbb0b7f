package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// admitSQL gives the free places of some gates to the rows that are first in line there, in given
// queues, and puts these rows in front.
//
//   - k: per gate, how many of its places are free. If fewer places exist than are taken, since an
//     operator has lowered the number, none is free, whatever numbers are.
//   - line: per gate and queue the first row in line, locked or not, and as many as there are free
//     places of those that nobody has locked.
//   - If the first row in line is locked, then probably by another Admit, which is giving it one of
//     the very places that are free here. Both would give the lowest numbers, and the unique index
//     would refuse the later one. So the gate is left alone and reported, and the caller tries it
//     again. A stranger's transaction may have locked that row, too, and nobody may wait for it: $2
//     says to pass it over, for a caller that has tried a few times.
//   - If another Admit has finished since the snapshot, the first row here is one of its rows,
//     which is no longer in line. So it cannot be locked, and the gate is reported as well.
//     Otherwise the snapshot has all places that were given to rows before the first one in line.
//     Rows that got in line before it since are the rare case that is left to the unique index.
//   - A row that is no longer behind this gate, since an operator has changed or dropped it, goes
//     in front without a place.
//
// Rows are updated in the order of gates and places, so that two statements that meet on several
// gates do not deadlock. todo drives the update, row by row, by ctid: see claimSQL.
//
// It returns gate, queue, and true for rows that went in front; gate, NULL, and false for gates to
// try again.
//
// $1 gates $2 whether to pass over a locked row $3 queues $4 most rows of a gate
const admitSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
k AS MATERIALIZED (
  SELECT u.k, u.pass, r.places, h.held, CASE WHEN r.name IS NULL THEN $4::int ELSE least($4::int, r.places - h.held) END AS free
  FROM (SELECT x.k, bool_or(x.pass) AS pass FROM unnest($1::text[], $2::bool[]) AS x(k, pass) GROUP BY x.k) u
  LEFT JOIN {s}.gates r ON r.name = split_part(u.k, '/', 1)
  CROSS JOIN LATERAL (SELECT count(*)::int AS held FROM {s}.gen_durable g WHERE g.gate = u.k AND g.place IS NOT NULL) h),
line AS MATERIALIZED (
  SELECT k.k, k.pass OR coalesce(bool_or(w.id = f.id) OVER (PARTITION BY k.k, q.queue), false) AS open, w.*
  FROM (SELECT * FROM k WHERE k.free > 0) k CROSS JOIN unnest($3::text[]) AS q(queue)
  CROSS JOIN LATERAL (
    SELECT g.id FROM {s}.gen_durable g WHERE g.gate = k.k AND g.queue = q.queue AND ` + inLine + `
    ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
  LEFT JOIN LATERAL (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, coalesce(` + gateText + ` = k.k, false) AS fits
    FROM {s}.gen_durable g WHERE g.gate = k.k AND g.queue = q.queue AND ` + inLine + `
    ORDER BY g.priority, g.eligible_at, g.id LIMIT k.free FOR NO KEY UPDATE OF g SKIP LOCKED) w ON true),
number AS MATERIALIZED (
  SELECT k.k, n.n, row_number() OVER (PARTITION BY k.k ORDER BY n.n) AS i
  FROM (SELECT * FROM k WHERE k.free > 0) k CROSS JOIN LATERAL (
    SELECT s.n FROM generate_series(1, least(k.places, k.held + k.free)) AS s(n)
    EXCEPT SELECT g.place FROM {s}.gen_durable g WHERE g.gate = k.k AND g.place IS NOT NULL) n),
todo AS MATERIALIZED (
  SELECT r.tid, r.k, r.fits, n.n FROM (
    SELECT l.tid, l.k, l.fits, l.free, row_number() OVER (PARTITION BY l.k, l.fits ORDER BY l.priority, l.eligible_at, l.id) AS i
    FROM (SELECT line.*, k.free FROM line JOIN k USING (k) WHERE line.open AND line.tid IS NOT NULL) l) r
  LEFT JOIN number n ON n.k = r.k AND n.i = r.i AND r.fits AND r.i <= r.free
  WHERE n.n IS NOT NULL OR NOT r.fits ORDER BY r.k, n.n),
moved AS (
  UPDATE {s}.gen_durable g SET pick_lane = 0, gate = CASE WHEN t.fits THEN g.gate END, place = t.n, updated_at = (SELECT now FROM c)
  FROM todo t WHERE g.ctid = t.tid RETURNING t.k, t.fits, g.queue)
SELECT DISTINCT m.k, m.queue, true FROM moved m
UNION ALL SELECT DISTINCT l.k, NULL, false FROM line l WHERE NOT l.open
UNION ALL SELECT m.k, NULL, false FROM moved m GROUP BY m.k HAVING count(*) >= $4::int OR NOT bool_and(m.fits)`

// admitMost bounds how many rows of a gate one Admit puts in front.
const admitMost = 500

// Admit gives free places of gates to the rows that are first in line there, in some queues. It
// never waits for a stranger. pass says of each gate whether to pass over a first row that somebody
// has locked: for a gate that Admit has reported as missed a few times. Call it again for gates
// that it reports in Missed. A gate of which Postgres refuses to change an instance does not affect
// the others.
func (s *Store) Admit(ctx context.Context, gates []string, pass []bool, queues []string) (p Promotion, err error) {
	type line struct {
		gate string
		pass bool
	}
	lines := make([]line, len(gates))
	for i, g := range gates {
		lines[i] = line{g, pass[i]}
	}
	admit := func(lines []line) error {
		gates, pass := make([]string, len(lines)), make([]bool, len(lines))
		for i, l := range lines {
			gates[i], pass[i] = l.gate, l.pass
		}
		var one Promotion
		err := s.one(ctx, fastLock, "admit", admitSQL, one.read, gates, pass, queues, admitMost)
		switch {
		case err == nil:
			p.add(one)
			return nil
		case len(gates) == 1 && IsUniqueViolation(err):
			p.Missed = append(p.Missed, gates...) // somebody else has just given the same place
			return nil
		}
		return fmt.Errorf("admit instances at %d gates: %w", len(gates), err)
	}
	if err = admit(lines); blames(err) {
		p.Refused, err = narrow(lines, admit, func(l line, err error) Refused { return Refused{Key: l.gate, Err: err} })
	}
	return p, err
}

// withdrawSQL takes places away from rows that do not use them while others wait in line: a row
// that is in front for longer than $1 µs, since its queue is paused or has no worker, gets in line
// again. A place of a row that is neither in front nor executing comes from a claim of a process
// that knows of no gate, or from foreign SQL.
const withdrawSQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
l AS MATERIALIZED (
  SELECT x.ctid AS tid FROM {s}.gen_durable x
  WHERE x.place IS NOT NULL AND coalesce(x.status <> 'executing', false) AND x.updated_at < (SELECT now FROM c) - $1::bigint * interval '1 microsecond'
    AND (SELECT g.id FROM {s}.gen_durable g WHERE g.gate = x.gate AND ` + inLine + ` ` + lineOrder + ` LIMIT 1) IS NOT NULL
  ORDER BY x.gate, x.place LIMIT 1000 FOR NO KEY UPDATE OF x SKIP LOCKED)
UPDATE {s}.gen_durable g SET place = NULL, updated_at = (SELECT now FROM c),
  gate = CASE WHEN g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 THEN g.gate END,
  pick_lane = CASE WHEN g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 THEN 3 ELSE g.pick_lane END
FROM l WHERE g.ctid = l.tid`

// linesSQL lists the gates after $1 at which rows are in line, at most $2 of them, and whether one
// of their places is free.
const linesSQL = `WITH RECURSIVE lines(k) AS (
  (SELECT g.gate FROM {s}.gen_durable g WHERE ` + inLine + ` AND g.gate > $1 ORDER BY g.gate LIMIT 1)
  UNION ALL
  SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE ` + inLine + ` AND g.gate > lines.k ORDER BY g.gate LIMIT 1)
  FROM lines WHERE lines.k IS NOT NULL),
slice AS MATERIALIZED (SELECT k FROM lines WHERE k IS NOT NULL LIMIT $2)
SELECT s.k, r.name IS NULL OR (SELECT count(*) FROM {s}.gen_durable g WHERE g.gate = s.k AND g.place IS NOT NULL) < r.places
FROM slice s LEFT JOIN {s}.gates r ON r.name = split_part(s.k, '/', 1) ORDER BY s.k`

// Lines visits up to limit gates after the given one at which rows are in line, and returns those
// that have a free place, to Admit, and the last one that it visited: "" at the end. It first takes
// places away that somebody has not used for longer than unused. It is what finds a free place if
// the process that had to Admit has died, an operator has raised a number, or the instances of a
// gate are in queues of different processes.
func (s *Store) Lines(ctx context.Context, after string, limit int, unused time.Duration) (last string, free []string, err error) {
	visited := 0
	err = s.transaction(ctx, fastLock, s.stmt("withdraw", withdrawSQL, nil, micros(unused)), s.stmt("lines", linesSQL, func(rows pgx.Rows) error {
		var open bool
		_, err := pgx.ForEachRow(rows, []any{&last, &open}, func() error {
			visited++
			if open {
				free = append(free, last)
			}
			return nil
		})
		return err
	}, after, limit))
	if err != nil {
		return "", nil, fmt.Errorf("look at the lines of gates: %w", err)
	}
	if visited < limit {
		last = ""
	}
	return last, free, nil
}
