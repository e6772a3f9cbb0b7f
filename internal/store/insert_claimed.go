package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A process that works may insert what is due at once as claimed already, if it has a slot for it:
// the row is executing from the start, with all that a claim leaves, and needs no claim any more.
// That saves a round trip, a flush and an update between the insert and the step, and an entry in
// the index of ready rows.
//
// No other transaction sees the row before the COMMIT, which makes row and claim at once. After it
// the row is one that this worker has claimed, and everything that concerns such rows concerns it:
// leases, the fence, cancels, signals. So no interleaving is new but two. Another insert of the
// same correlation key waits for the COMMIT in the unique index, and finds the key occupied by an
// executing instance. And if the COMMIT gets no answer, there may be a row of this worker without
// a flight: see Held.

const (
	// claimedMost bounds the instances of one insertion as claimed.
	claimedMost = 100
	// claimedBytes bounds what one such insertion sends and reads back. The rows come before the
	// COMMIT, so they have to fit the buffers between server and client: a server that waits for a
	// client that does not read would hold the entries of new keys.
	claimedBytes = 32 << 10
)

var (
	insertClaimedSQL        = named("insert claimed", insertForm{retained: true, claimed: true}.insert())
	insertClaimedKeylessSQL = named("insert claimed", insertForm{retained: true, claimed: true, keyless: true}.insert(), "keyless")
)

// claimedText returns rows that are claimed by the worker that inserts them, as takenSQL does. The
// state comes as Postgres has stored it, so that the first run of a step finds the same text as any
// later one.
//
// $1 … $16 as insertForm.rows $17 retentions $18 worker $19 lease, µs $20 most bytes of a state
const claimedText = `RETURNING g.id, g.uid, g.fsm, g.fsm_version, g.step, CASE WHEN octet_length(g.state::text) <= $20::int THEN g.state::text END,
  g.attempt, g.crashes, g.visit, g.claim_token, g.priority, g.correlation_key, g.partition_key, g.parent_id, g.parent_round, g.depth, g.round,
  g.timed_out, g.inserted_at, NULL::text, false, g.deadline, (date_part('epoch', g.deadline - clock_timestamp()) * 1000000)::bigint, g.labels,
  g.trace, g.eligible_at, false, NULL::text, coalesce(g.retain[1] = 0, false), coalesce(g.join_round, 0), g.node`

// claiming makes an insertion claim its rows.
type claiming struct {
	queue  string
	worker string
	lease  time.Duration
	got    Claimed
}

// MayClaim reports whether specs are such that Insertion.Claim claims them, as far as they
// themselves say: due at once, in one queue, without a partition key, policy or window, and small.
func MayClaim(list []*step.Spec) bool {
	if len(list) == 0 || len(list) > claimedMost {
		return false
	}
	bytes := 0
	for _, x := range list {
		bytes += x.Bytes()
		if x.Queue != list[0].Queue || x.PartitionKey != "" || x.Delay > 0 || !x.At.IsZero() || x.Ruled() {
			return false
		}
	}
	return bytes <= claimedBytes
}

// Claim makes the next Try insert the instances as claimed by a worker, and reports whether it
// will: no known gate may concern them, and MayClaim has to hold. A later Try inserts them as
// usual. If that Try fails with an error that is Unknown, rows may be claimed nevertheless: see
// Held.
func (i *Insertion) Claim(worker string, lease time.Duration) bool {
	if i.ruled || i.cols.gates != nil || !MayClaim(i.list) || len(i.doubt) > 0 {
		return false
	}
	i.cols.claiming = &claiming{queue: i.list[0].Queue, worker: worker, lease: lease}
	return true
}

// Claims returns the claims that the last Try has made, if it succeeded. Specs whose keys were
// occupied at first, and became free while it looked, are not among them: they are runnable.
func (i *Insertion) Claims() []*step.Claim { return i.claims }

// claimed notes which results of a successful Try are claims.
func (i *Insertion) claimed(c *claiming, out []Inserted) {
	i.claims = c.got.Claims
	for n := range out {
		out[n].Claimed = !out[n].Duplicate && slices.ContainsFunc(i.claims, func(one *step.Claim) bool { return one.ID == out[n].ID })
	}
}

// claimedInsertion returns the statement that inserts specs as claimed.
func (s *Store) claimedInsertion(cols *specs, fresh map[uuid.UUID]int64) entpgx.Stmt {
	c, text := cols.claiming, insertClaimedSQL
	if !cols.keyed {
		text = insertClaimedKeylessSQL
	}
	read := func(rows pgx.Rows) error {
		if err := c.got.readTaken(rows, c.queue, nil, nil); err != nil {
			return fmt.Errorf("read the instances that were inserted as claimed: %w", err)
		}
		for _, one := range c.got.Claims {
			fresh[one.UID] = one.ID
		}
		return nil
	}
	args := append(cols.insertArgs(), cols.retains, c.worker, micros(c.lease), claimedBytes/cols.len())
	return s.stmt(text, read, args...)
}
