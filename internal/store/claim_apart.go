package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Postgres may refuse to change a row of a claim's window: see refused.go. The claim then fails as
// a whole, and so would each claim after it. So it narrows down: it lists the window, and claims
// its rows by halves until the culprits are alone. They are set apart, and claims that follow use
// claimOthersSQL, which passes them over. Claims of a queue with nothing set apart do not.
//
// Both variants of claimSQL leave out act forward: a head in lane key does not come forward, since
// it may be what Postgres refuses to change, and the rows behind it would be blamed for it. A row
// behind such a head goes to lane key as well, and the key is among the unsettled ones. Why that is
// right: the claim is a mover in the sense of settleSQL, which brings the head forward afterwards.
// If Postgres refuses that, the key alone stands still, and the sweep of the keys tries it again.
// The lane is a hint here as elsewhere, so no order is broken.
//
// A culprit that is the head of its key stays the head: probe finds it as before, since it goes by
// the index and not by the window. The rows behind it go to lane key, and no other row waits.

// windowSQL lists the rows at which claimOthersSQL looks, most urgent first, and locks none. $1
// queue $2 window $3 machines $4 $5 $6 place $7 ids to pass over
var windowSQL = named("claim window", claimForm{others: true}.window(look{machines: "$3", priority: "$4", at: "$5", id: "$6", ids: "$7"})+`
SELECT w.id FROM seen w ORDER BY w.priority, w.eligible_at, w.id`)

// claimAgain is in how long a claim is worth repeating that narrowed down and met no culprit:
// another transaction claimed or locked it meanwhile.
const claimAgain = 100 * time.Millisecond

// claimApart claims what claimOnce could not, since Postgres refuses to change some row. It returns
// the culprits in Refused.
func (s *Store) claimApart(ctx context.Context, conn *pgx.Conn, p *ClaimParams, pass []int64) (Claimed, error) {
	out := Claimed{NextDue: claimAgain}
	var window []int64
	args := append([]any{p.Queue, p.Window, p.Machines}, p.After.args()...)
	err := s.pipelineOn(ctx, conn, s.enclose(fastLock, []entpgx.Stmt{
		s.stmt(windowSQL, readIDs(&window), append(args, pass)...)})...)
	if err != nil {
		return out, err
	}
	began, alone := time.Now(), *p
	alone.Committed = nil
	p = &alone
	out.Refused, err = narrow(window, func(ids []int64) error {
		left := p.Limit - len(out.Claims)
		if len(ids) > 0 && (left <= 0 || time.Since(began) > p.Lease/4) {
			return nil // the next claim looks at them; nobody extends leases meanwhile
		}
		some := *p
		some.Limit, some.Window = max(1, left), max(1, len(ids))
		got, err := s.claimSome(ctx, conn, &some, ids)
		if collided(err) || IsLockTimeout(err) {
			return nil // with another claim: no row is at fault
		}
		if err == nil {
			out.add(&got)
		}
		return err
	}, ofID)
	if err == nil && p.Gated {
		err = s.lineApart(ctx, conn, p, &out, began)
	}
	if len(out.Claims) > 0 && err != nil && !unknown(err) {
		err = nil // what was claimed counts, and the next claim meets the error again
	}
	return out, err
}

// claimSome claims some rows by their ids, behind statements of the same transaction.
func (s *Store) claimSome(ctx context.Context, conn *pgx.Conn, p *ClaimParams, ids []int64, before ...entpgx.Stmt) (Claimed, error) {
	some := *p
	some.off = true
	return s.claimOnce(ctx, conn, &some, func(out *Claimed) entpgx.Stmt {
		if p.Gated {
			return s.stmt(gatedSomeSQL, out.readPick, append(p.args(), ids)...)
		}
		return s.stmt(claimSomeSQL, out.readPick, append(p.args(), ids)...)
	}, before...)
}

// add adds what another claim of the same queue did.
func (c *Claimed) add(more *Claimed) {
	c.take(more.placed)
	c.Moved += more.Moved
	c.Blocked += more.Blocked
	c.Took += more.Took
	c.Aside, c.Unsettled = append(c.Aside, more.Aside...), append(c.Unsettled, more.Unsettled...)
	c.Refused = append(c.Refused, more.Refused...)
	c.Busy, c.More, c.Cut, c.Crowded = c.Busy || more.Busy, c.More || more.More, c.Cut || more.Cut, c.Crowded || more.Crowded
	c.Entered = append(c.Entered, more.Entered...)
	c.Left, c.Turn = c.Left+more.Left, more.Turn
}

// collided reports whether two claims of one partition key met on its unique index, or a
// transaction that does not heed the lock of a gate has given a place.
func collided(err error) bool {
	pg := reported(err)
	return pg != nil && pg.Code == codeUniqueViolation &&
		slices.Contains([]string{"gen_durable_busy", "gen_durable_place", "gen_durable_seat", "gen_durable_run"}, unsharded(pg.ConstraintName))
}
