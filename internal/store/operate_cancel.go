package store

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// cancelSQL ends instances, whatever they are doing, as failed and cancelled. A claim on one of them is void from here on: the fence stops
// its outcome, the next heartbeat tells its step. What a Stop leaves, this leaves: awaits, round and inbox, so that a Retry sees them.
//
// The rows are locked: SKIP LOCKED skips none, and lets the join go by ctid, as in releaseSQL. coalesce() is for the plan (T98).
// $1 ids $2 mark $3 last_error
const cancelSQL = `UPDATE {s}.gen_durable g SET status = 'failed', failure = 'cancelled', last_error = $3, finished_at = (SELECT clock_timestamp()),
  pick_lane = 0, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = ` + remembered + `'at', (SELECT clock_timestamp()), 'kind', 'cancel', 'error', left($3, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id`

// familySQL lists instances and all their descendants, through terminal ones too: the children of what has ended go on. $1 ids $2 most
const familySQL = `WITH RECURSIVE f(id) AS (
  SELECT unnest($1::bigint[])
  UNION
  SELECT k.id FROM f CROSS JOIN LATERAL (SELECT c.id FROM {s}.gen_durable c WHERE c.parent_id = f.id OFFSET 0) k)
SELECT f.id FROM (SELECT id FROM f LIMIT $2) f ORDER BY f.id`

// errGrown: a family has members that cannot be locked in order any more.
var errGrown = errors.New("the family grew while it was being locked")

// lockFamily locks instances with all their descendants, and returns them in order. While some are waited for others may be born, but only
// of those not locked yet; so it looks again until there are no new ones. Ids do not become visible in order: one that is lower than what is
// locked already would break the order of locks, and the transaction begins anew.
func (s *Store) lockFamily(send send, ids []int64, o *Order, found map[int64]*operated) ([]int64, error) {
	var locked []int64
	for {
		var family []int64
		if err := send(s.stmt("family", familySQL, readIDs(&family), ids, o.Most+1)); err != nil {
			return nil, err
		}
		if len(family) > o.Most {
			return nil, &TooManyError{o.Most}
		}
		var fresh []int64
		for _, id := range family {
			if _, ok := slices.BinarySearch(locked, id); !ok {
				fresh = append(fresh, id)
			}
		}
		switch {
		case len(fresh) == 0:
			return family, nil
		case len(locked) > 0 && fresh[0] < locked[len(locked)-1]:
			return nil, errGrown
		}
		if err := send(s.lockOperated(fresh, o, found)); err != nil {
			return nil, err
		}
		locked = family
	}
}

// cancelAll ends rows bottom-up, each generation with its parents' joins: a parent that ends with its children has had their joins.
func (s *Store) cancelAll(todo []*operated, o *Order, read func(pgx.Rows) error, out *Operated) []entpgx.Stmt {
	text := "cancelled"
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	var stmts []entpgx.Stmt
	var keys []string
	for _, generation := range byDepth(todo) {
		var ids, joiners []int64
		for _, r := range generation {
			ids = append(ids, r.id)
			if r.child {
				joiners = append(joiners, r.id)
			}
			if r.key != "" && (r.status == "runnable" || r.status == "executing") { // what is parked holds up no other
				keys = append(keys, r.key)
			}
		}
		stmts = append(stmts, s.stmt("cancel", cancelSQL, read, ids, o.Mark, text))
		if len(joiners) > 0 {
			stmts = append(stmts, s.stmt("join", joinSQL, readQueues(&out.Queues), joiners, o.Mark))
		}
	}
	return append(stmts, s.promotion(keys, out)...)
}
