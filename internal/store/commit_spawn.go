package store

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// droppedSQL sets a parent's barrier to the children really inserted, and records the others for the step that joins. None left:
// the barrier is open at once. $1 parents $2 mark $3 children that were not inserted, per parent $4 what to record
const droppedSQL = `UPDATE {s}.gen_durable g SET children_pending = g.children_pending - u.n, dropped = u.dropped::jsonb,
  status = CASE WHEN g.children_pending <= u.n THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN g.children_pending <= u.n THEN (SELECT clock_timestamp()) ELSE g.eligible_at END
FROM unnest($1::bigint[], $3::int[], $4::text[]) AS u(id, n, dropped)
WHERE g.id = u.id AND g.commit_id = $2::uuid
RETURNING g.queue`

// commitKeyed is a commit in the slow lane whose children have correlation keys: which of them were dropped, and for whom, is known only
// after the insertion, so the transaction takes more than one round trip.
func (s *Store) commitKeyed(send send, b *batch, out *Committed) error {
	fresh, held := map[uuid.UUID]int64{}, map[string]occupant{}
	var keys []string
	for _, k := range b.spawn.keys {
		if k != nil {
			keys = append(keys, *k)
		}
	}
	if err := send(append(s.outcomes(b, out),
		s.stmt("spawn", spawnSQL, readFresh(fresh), b.spawn.args(b.mark)...),
		s.stmt("occupants", occupantsSQL, readOccupants(held), keys))...); err != nil {
		return err
	}
	rest := s.settle(b, out)
	var parents []int64
	var counts []int32
	var texts []string
	for parent, dropped := range b.droppedOf(fresh, held) {
		text, err := json.Marshal(dropped)
		if err != nil {
			return err
		}
		parents, counts, texts = append(parents, parent), append(counts, int32(len(dropped))), append(texts, string(text)) //nolint:gosec // bounded
	}
	if len(parents) > 0 {
		rest = append(rest, s.stmt("dropped", droppedSQL, func(rows pgx.Rows) error {
			return readQueues(&out.Queues)(rows)
		}, parents, b.mark, counts, texts))
	}
	if len(rest) == 0 {
		return nil
	}
	return send(rest...)
}
