package store

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// A verb may be bound to some instances: Filter.Within. To it an instance outside does not exist.
// And if it would change others that lie outside, it is refused whole, and never carried out in
// part. A graph of which the half is cancelled is neither the one that its machine meant nor the
// one that the operator saw, and no answer could say which half without telling of the other.
// These count as changed by a verb:
//
//   - by a Cancel: a live parent, since its join counts a failure, and may let it fail.
//     Then all that sweep_rest.go and sweep_skip.go end after it: the nodes of its graph and the
//     rest of its round; of a node, or if the parent cancels the rest of a round, everything
//     beneath that parent. With Descendants, all of these.
//   - by a Restart: all rows that run or wait again.
//
// Retry, Rewind, Edit, Pause and the verbs about times change one row. A Rewind lets children go on
// without a join, but leaves them as they are.
//
// Turns are not counted: the next instance of a partition key, or in line at a gate, moves up when
// one ends or is paused, also one outside, as it does when a step ends.

// ErrHidden refuses a verb on an instance that lies outside of its bounds.
var ErrHidden = errors.New("no such instance within the bounds")

// ErrOutside refuses a verb on an instance that lies within its bounds, since it would change
// others that do not.
var ErrOutside = errors.New("it would also change instances outside of the bounds: its parent, nodes of its graph, or others beneath it")

// ErrTooWide refuses a verb on an instance that lies within its bounds, since so many others hang
// together with it that the order does not look at all of them.
var ErrTooWide = errors.New("it is related to too many instances to check whether all of them lie within the bounds")

// boundsSQL says of instances whether they lie within bounds, and of a cancel whether it would
// change others that do not, or more than it looked at. The caller has locked the instances, and of
// a cancel their parents. What they spawn while others wait for the lock is seen; what their
// siblings spawn later is not.
//
// Siblings share what lies beneath their parent. So w walks once from each row from which any of
// the instances leads on, and not once for each instance. An instance whose parent's walk goes over
// everything is in that walk, and needs none from itself.
//
// $1 ids $2 queues $3 machines $4 labels (NULL: any) $5 it is a cancel $6 with descendants $7 most
// that one walk may look at.
var boundsSQL = named("bounds", `WITH i AS MATERIALIZED (
  SELECT g.id, `+coveredText("g")+` AS covered, $6::boolean OR g.losers IS NOT NULL OR g.graphs IS NOT NULL AS leads,
    p.id AS parent, p.id IS NOT NULL AND (g.node IS NOT NULL OR p.losers IS NOT NULL) AS whole
  FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) g
  LEFT JOIN LATERAL (SELECT x.id, x.losers FROM {s}.gen_durable x
    WHERE x.id = g.parent_id AND g.finished_at IS NULL AND x.finished_at IS NULL OFFSET 0) p ON $5::boolean),
w AS MATERIALIZED (
  SELECT s.id, s.whole, r.outside, r.wide
  FROM (SELECT i.parent AS id, i.whole FROM i WHERE i.parent IS NOT NULL
    UNION SELECT i.id, true FROM i WHERE $5::boolean AND i.leads AND NOT i.whole) s
  CROSS JOIN LATERAL (
    WITH RECURSIVE r(id, all_beneath) AS (
      SELECT s.id, s.whole
      UNION
      SELECT k.id, true FROM r CROSS JOIN LATERAL (SELECT c.id FROM {s}.gen_durable c WHERE c.parent_id = r.id AND r.all_beneath OFFSET 0) k)
    SELECT count(*) > $7::int AS wide, bool_or(x.finished_at IS NULL AND NOT `+coveredText("x")+`) AS outside
    FROM (SELECT r.id FROM r LIMIT $7::int + 1) l
    CROSS JOIN LATERAL (SELECT y.queue, y.fsm, y.labels, y.finished_at FROM {s}.gen_durable y WHERE y.id = l.id OFFSET 0) x) r)
SELECT i.id, i.covered, coalesce(own.outside, false) OR coalesce(above.outside, false), coalesce(own.wide, false) OR coalesce(above.wide, false)
FROM i
LEFT JOIN w own ON own.id = i.id AND own.whole AND i.leads
LEFT JOIN w above ON above.id = i.parent AND above.whole = i.whole`)

// coveredText says of a row whether it lies within bounds.
func coveredText(g string) string {
	return `(($2::text[] IS NULL OR ` + g + `.queue = ANY($2)) AND ($3::text[] IS NULL OR ` + g + `.fsm = ANY($3))
  AND ($4::jsonb IS NULL OR coalesce(` + g + `.labels @> $4, false)))`
}

// bound notes which of locked rows lie outside of the bounds of an order, and which of them it may
// not touch for the sake of others. It sends nothing if the order has no bounds.
func (s *Store) bound(send send, ids []int64, o *Order, found map[int64]*operated) error {
	if o.Filter.Within.IsZero() {
		return nil
	}
	return send(s.boundsOf(ids, o, found))
}

func (s *Store) boundsOf(ids []int64, o *Order, found map[int64]*operated) entpgx.Stmt {
	b := o.Filter.Within
	return s.stmt(boundsSQL, func(rows pgx.Rows) error {
		var id int64
		var covered, outside, wide bool
		_, err := pgx.ForEachRow(rows, []any{&id, &covered, &outside, &wide}, func() error {
			if row := found[id]; row != nil {
				row.hidden, row.reaches, row.wide = !covered, outside, wide
			}
			return nil
		})
		return err
	}, ids, b.Queues, b.Machines, optional(b.Labels), o.Verb == Cancel, o.Descendants, o.Most)
}
