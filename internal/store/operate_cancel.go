package store

import (
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// cancelSQL fails instances as cancelled, whatever they are doing. It voids a claim on one of them:
// the fence stops the claim's outcome, and the next heartbeat cancels its step. Like a Fail, it
// leaves awaits, round and inbox, so that a Retry sees them.
//
// The caller has locked the rows, so SKIP LOCKED skips none, and makes the join by ctid right, as
// in releaseForms. coalesce() is for the plan (T98).
//
// $1 ids $2 mark $3 last_error
var cancelSQL = named("cancel", `UPDATE {s}.gen_durable g SET status = 'failed', failure = 'cancelled', last_error = $3, finished_at = (SELECT clock_timestamp()),
  pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = `+remembered+`'at', (SELECT clock_timestamp()), 'kind', 'cancel', 'error', left($3, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id`)

// familySQL lists instances and all their descendants. It goes through terminal ones, too, since
// the children of an ended instance go on. $1 ids $2 most
var familySQL = named("family", `WITH RECURSIVE f(id) AS (
  SELECT unnest($1::bigint[])
  UNION
  SELECT k.id FROM f CROSS JOIN LATERAL (SELECT c.id FROM {s}.gen_durable c WHERE c.parent_id = f.id OFFSET 0) k)
SELECT f.id FROM (SELECT id FROM f LIMIT $2) f ORDER BY f.id`)

// errGrown makes Operate start anew: the family has a member that can no longer be locked in order.
var errGrown = errors.New("the family grew while it was being locked")

// lockFamily locks instances with all their descendants, and returns their ids in order. While it
// waits for some rows, instances that it has not locked yet may spawn others, so it looks again
// until it finds no new ones. Ids do not become visible in order. If a new id is lower than a
// locked one, also than one outside of the family that waits for a node of it, locking it would
// break the order of locks, and the transaction begins anew.
func (s *Store) lockFamily(send send, ids []int64, o *Order, found map[int64]*operated) ([]int64, error) {
	var locked []int64
	for {
		var family []int64
		if err := send(s.stmt(familySQL, readIDs(&family), ids, o.Most+1)); err != nil {
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
		case len(locked) > 0 && fresh[0] < slices.Max(slices.Collect(maps.Keys(found))):
			return nil, errGrown
		}
		if err := send(s.lockOperated(fresh, o, found)); err != nil {
			return nil, err
		}
		locked = family
	}
}

// cancelAll ends rows bottom-up, each generation together with its parents' joins. So a parent that
// is cancelled with its children has had their joins before.
func (s *Store) cancelAll(todo []*operated, o *Order, read func(pgx.Rows) error, out *Operated) []entpgx.Stmt {
	text := "cancelled"
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	var keys []string
	var lost lostClaims
	for _, r := range todo {
		if r.key != "" && r.status == "executing" { // its step goes on until it listens
			lost.add(r.key, r.worker, r.token)
		}
	}
	stmts := s.noted(&lost)
	for _, generation := range byDepth(todo) {
		var ids, nodes []int64
		var joiners joiners
		for _, r := range generation {
			ids = append(ids, r.id)
			if r.child {
				joiners.add(r.id, r.streamed)
			}
			if r.node {
				nodes = append(nodes, r.id)
			}
			if r.key != "" && (r.status == "runnable" || r.status == "executing") { // a parked row holds up no other row of its key
				keys = append(keys, r.key)
			}
		}
		stmts = append(stmts, s.stmt(cancelSQL, read, ids, o.Mark, text))
		stmts = append(stmts, s.join(&joiners, o.Mark, readWoken(&out.Queues, &out.Rest))...)
		if len(nodes) > 0 {
			stmts = append(stmts, s.stmt(settleEdgesSQL, readSettled(&out.Queues, &out.Skips), nodes, o.Mark))
		}
	}
	return append(stmts, s.promotion(keys, out)...)
}
