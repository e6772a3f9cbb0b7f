package interleave

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Another session's transaction may hold rows for the whole of a schedule, like one that has
// signalled to them and stays open. The fast lane must not wait for it. Bystanders, which need
// nothing of the held rows, must go on: a scheduler claims all of them, however few rows it looks
// at, and their outcomes are committed beside those that are left out.

// holdings are the sets of rows that another session may hold, by name, and the things that they
// are.
var holdings = map[string]struct {
	rows []int64
	sql  string // what is held beside these rows, of worlds that heed gates only
	are  things
}{
	"subject held":  {[]int64{subjectID}, "", subject | key},
	"follower held": {[]int64{followerID}, "", key},
	"parent held":   {[]int64{parentID}, "", parent},
	"key held":      {[]int64{subjectID, followerID, abroadID}, "", subject | key},
	"family held":   {[]int64{parentID, subjectID, siblingID}, "", subject | key | parent},
	"gates held":    {nil, `SELECT FROM gendurable.gates FOR UPDATE`, rule},
	"rates held":    {nil, `SELECT FROM gendurable.gate_keys FOR UPDATE`, rule},
}

// The bystanders. They come after all others in the order of the queue, and are at a step that no
// gate is for.
const (
	plainID  = 101 // and the next one
	keyedID  = 103 // the head of a key, with one behind it
	asideID  = 105 // set aside by a worker that does not know its machine
	beginsID = 106 // executes
)

var bystanders = []string{
	row(plainID), row(plainID + 1),
	row(keyedID, "partition_key", "'z'"), row(keyedID+1, "partition_key", "'z'", "pick_lane", "1"),
	row(asideID, "pick_lane", "2"),
	row(beginsID, with(executing, "claim_token", "16", "visit", "1")...),
	fmt.Sprintf(`UPDATE gendurable.gen_durable SET step = 'b' WHERE id BETWEEN %d AND %d`, plainID, beginsID),
}

var bystanderClaim = &step.Claim{ID: beginsID, Token: 16, Visit: 1, Step: "b", Queue: "default"}

// waitingSQL finds bystanders that have not gone on.
const waitingSQL = `SELECT format('bystander waits: %s is %s', g.id, g.status) FROM gendurable.gen_durable g
	WHERE g.id = ANY($1) AND g.status = 'runnable' OR g.id = $2 AND g.status <> 'done' ORDER BY 1`

// hold makes the other session lock the rows that are held in the schedule.
func (p *play) hold(ctx context.Context) error {
	if p.schedule.held == "" {
		return nil
	}
	b := &pgx.Batch{}
	for _, sql := range bystanders {
		b.Queue(pgtest.ByHand(sql))
	}
	if err := p.rig.monitor.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("set up bystanders: %w", err)
	}
	for _, sql := range []string{`ROLLBACK`, `BEGIN`} {
		if _, err := p.rig.holder.Exec(ctx, sql); err != nil {
			return fmt.Errorf("hold: %w", err)
		}
	}
	held := holdings[p.schedule.held]
	if _, err := p.rig.holder.Exec(ctx, pgtest.ByHand(`SELECT FROM gendurable.gen_durable WHERE id = ANY($1) FOR NO KEY UPDATE`), held.rows); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	_, err := p.rig.holder.Exec(ctx, pgtest.ByHand(held.sql))
	return err
}

// letGo looks for bystanders that still wait, and ends the other session's transaction.
func (p *play) letGo(ctx context.Context) error {
	if p.schedule.held == "" {
		return nil
	}
	for i, v := range p.schedule.verbs {
		if v.name != drain {
			continue
		}
		s := p.rig.cast[i] // its last claim may have met another's; the next poll finds what that has left
		s.open()
		s.drain(ctx)
		rows, err := p.rig.monitor.Query(ctx, pgtest.ByHand(waitingSQL), []int64{plainID, plainID + 1, keyedID, asideID}, beginsID)
		if err != nil {
			return fmt.Errorf("look who waits: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look who waits: %w", err)
		}
		p.broken = append(p.broken, found...)
	}
	_, err := p.rig.holder.Exec(ctx, `ROLLBACK`)
	return err
}

const drain = "drain"

// drains commits an outcome of a bystander in a batch with one of the subject's, and then claims
// as a scheduler does.
func drains() verb {
	return verb{name: drain, family: "claim", touches: subject | key | parent, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		s.commit(ctx, owner, []store.Entry{next(subjectClaim), done(bystanderClaim)}, false)
		s.drain(ctx)
	}}
}

// drain claims like a scheduler with many slots that fills them one at a time, as in
// internal/work/pick.go, until a claim from the front brings nothing. It looks at as many rows as
// it wants, goes on behind its last claim, looks further where rows were in the way, and then from
// the front. It keeps what it has claimed.
func (s *session) drain(ctx context.Context) {
	p := store.ClaimParams{Queue: "default", Worker: "w3", Machines: []string{"m/1"}, Limit: 1, Window: 1, Lease: time.Minute,
		Gated: s.heeds}
	for range 50 {
		got, err := s.db.Claim(ctx, p)
		if err != nil {
			if s.transient("claim", err) {
				continue
			}
			return
		}
		s.facts.claims(s.name, p.Worker, got.Claims)
		s.promoteMissed(got.Unsettled)
		short := len(got.Claims) < p.Limit
		p.MoveBlocked = short && got.Blocked+len(got.Unsettled) > 0
		p.Window, p.Lines = 1, got.Turn
		switch {
		case !short:
			p.After = got.Last
		case got.Moved > 0 || p.MoveBlocked:
			p.Window, p.After = 1000, store.Place{}
		case p.After != store.Place{}:
			p.After = store.Place{}
		default:
			return
		}
	}
	s.fault("a scheduler claims without end")
}

// mayRun reports whether a verb has nothing to wait for while something is held that is there.
func mayRun(w *world, v verb, held string) bool {
	return !foreign(v) && (w.heeds || holdings[held].sql == "") && (v.quick || v.touches&holdings[held].are == 0)
}

// heldOrders returns orders of a verb and a scheduler: one after the other, and some at random.
func (p *proof) heldOrders(n int) []string {
	orders := []string{strings.Repeat("A", 30) + strings.Repeat("B", 30), strings.Repeat("B", 30) + strings.Repeat("A", 30)}
	random := p.random(n)
	for range 2 {
		orders = append(orders, anyOrder(random, []int{8, 30}))
	}
	return orders
}
