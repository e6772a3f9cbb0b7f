package interleave

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

const schema = "gendurable"

//go:embed invariants.sql
var invariantsSQL string

// rig is a database with the invariants in it, its sessions, and a monitor that sets up the world,
// watches the sessions and judges.
type rig struct {
	t       testing.TB
	monitor *pgx.Conn
	cast    []*session
	holder  *pgx.Conn // a stranger's
	played  int
	mutant  atomic.Pointer[mutant]
	mutated atomic.Bool // it has changed something
}

const names = "ABC"

func newRig(t testing.TB) *rig {
	t.Helper()
	url := pgtest.Migrated(t)
	monitor, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = monitor.Close(context.Background()) })
	_, err = monitor.Exec(t.Context(), pgtest.ByHand(invariantsSQL))
	require.NoError(t, err)
	// The history does not include the set-up. The invariants are planned once.
	_, err = monitor.Exec(t.Context(), `SET session_replication_role = replica; SET plan_cache_mode = force_generic_plan; SET jit = off`)
	require.NoError(t, err)
	_, err = monitor.Exec(t.Context(), pgtest.ByHand(keptFor(1, "x", "go", "", "1 h"))) // so that sessions know of it
	require.NoError(t, err)
	holder, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	r := &rig{t: t, monitor: monitor, holder: holder}
	for _, name := range names {
		r.cast = append(r.cast, r.newSession(url, string(name)))
	}
	return r
}

// breaks makes the sessions run the statements of a mutant from now on.
func (r *rig) breaks(m *mutant) {
	r.mutant.Store(m)
	r.mutated.Store(false)
}

// resetSQL empties the tables. In every schedule new ids start at the same number, above those that
// worlds use.
var resetSQL = []string{
	`DELETE FROM gendurable.gen_durable`, `DELETE FROM gendurable.signals`, `DELETE FROM gendurable.edges`, `DELETE FROM interleave.reference`,
	`DELETE FROM interleave.change`, `DELETE FROM interleave.letter`, `DELETE FROM interleave.outcome`, `DELETE FROM interleave.held`,
	`DELETE FROM interleave.booked`, `DELETE FROM interleave.owned`, `DELETE FROM interleave.stale`, `DELETE FROM interleave.claimed`, `DELETE FROM interleave.sent`, `DELETE FROM interleave.inserted`,
	`DELETE FROM gendurable.lost_claims`, `DELETE FROM interleave.taken`, `DELETE FROM interleave.alive`, `DELETE FROM interleave.landed`, `DELETE FROM interleave.asked`, `DELETE FROM interleave.edited`,
	`DELETE FROM gendurable.kept_signals`, `DELETE FROM interleave.shelf`, `DELETE FROM interleave.shelved`, `DELETE FROM interleave.looked`,
	`DELETE FROM gendurable.history`, `DELETE FROM gendurable.recorded_machines`,
	`SELECT pg_advisory_unlock_all()`,
	`DELETE FROM gendurable.schedules`, `DELETE FROM gendurable.gates`, `DELETE FROM gendurable.gate_keys`, `DELETE FROM interleave.ruled`, `DELETE FROM interleave.owed`, `DELETE FROM interleave.throttled`, `DELETE FROM interleave.closed`, `DELETE FROM interleave.weighed`, `DELETE FROM interleave.granted`, `DELETE FROM interleave.refiled`, `DELETE FROM interleave.waited`, `DELETE FROM gendurable.windows`, `DELETE FROM interleave.ruling`, `DELETE FROM interleave.plan`, `DELETE FROM interleave.firing`, `DELETE FROM interleave.tried`,
	`SELECT setval(q.seqrelid, q.seqmin + 1000) FROM pg_sequence q
	  WHERE q.seqrelid IN ('gendurable.gen_durable_id_seq'::regclass, 'gendurable.signals_id_seq'::regclass, 'gendurable.gen_durable_token'::regclass)`,
	`SELECT setval('interleave.clock', 1)`,
}

// vacuumEvery is the number of schedules after which the dead rows of the resets are vacuumed,
// since autovacuum is off for these tables.
const vacuumEvery = 200

func (r *rig) reset(ctx context.Context, w *world) error {
	if r.played++; r.played%vacuumEvery == 0 {
		if _, err := r.monitor.Exec(ctx, pgtest.ByHand(`VACUUM gendurable.gen_durable, gendurable.signals, interleave.change, interleave.letter,
		  interleave.outcome, interleave.claimed, interleave.sent, interleave.held, interleave.stale, interleave.inserted, interleave.booked, interleave.owned,
		  gendurable.schedules, interleave.plan, interleave.firing, interleave.tried,
		  gendurable.kept_signals, interleave.shelf, interleave.shelved, gendurable.lost_claims, interleave.taken, interleave.alive, interleave.landed, interleave.asked, interleave.edited, gendurable.history, gendurable.recorded_machines`)); err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
	}
	if !w.looks {
		return r.send(ctx, w, append(resetSQL, w.setup...))
	}
	if err := r.send(ctx, w, resetSQL); err != nil {
		return err
	}
	for _, s := range r.cast {
		if err := s.forget(ctx); err != nil {
			return fmt.Errorf("set up world %s: %w", w.name, err)
		}
	}
	return r.send(ctx, w, w.setup)
}

// send sets up a world, or a part of it.
func (r *rig) send(ctx context.Context, w *world, statements []string) error {
	b := &pgx.Batch{}
	for _, sql := range statements {
		b.Queue(pgtest.ByHand(sql))
	}
	if err := r.monitor.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("set up world %s: %w", w.name, err)
	}
	return nil
}

// verdict is the result of one schedule.
type verdict struct {
	trace    []string // which units passed in which order, and who waited
	effect   string   // the order in which units passed: schedules with the same effect are one schedule
	counts   []int    // units per session
	dead     []string // effects after which a session could not take the turn it was given: another order with the same beginning is not a new one
	broken   []string
	slowed   int // number of outcomes that went through the slow lane
	waitings int
}

// patiently returns a context that ends when this process has run for so long. The time in which a
// busy machine lets it wait does not count.
func patiently(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		watch := steady.Begin()
		defer watch.End()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for watch.Ran() < most {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// play runs one schedule, from the set-up to the verdict.
func (r *rig) play(ctx context.Context, s schedule) (*verdict, error) {
	ctx, cancel := patiently(ctx, 30*time.Second)
	defer cancel()
	if err := r.reset(ctx, s.world); err != nil {
		return nil, err
	}
	for i := range s.verbs {
		if err := r.cast[i].learn(ctx, s.world.heeds); err != nil {
			return nil, fmt.Errorf("learn of the gates: %w", err)
		}
	}
	p := &play{rig: r, schedule: s, verdict: &verdict{counts: make([]int, len(s.verbs))}, credit: make([]int, len(s.verbs))}
	if err := p.hold(ctx); err != nil {
		return nil, err
	}
	if err := p.run(ctx); err != nil {
		return p.verdict, fmt.Errorf("%s: %w\n%s", s, err, strings.Join(p.trace, "\n"))
	}
	if err := p.letGo(ctx); err != nil {
		return nil, err
	}
	for i := range s.verbs {
		actor := r.cast[i]
		actor.open()
		if s.world.rests && i == len(s.verbs)-1 {
			actor.later(actor.cancelRest)
		}
		// A fact that is noted while the list is processed belongs to it.
		for n := 0; n < len(actor.after); n++ { //nolint:intrange // the list grows
			if err := actor.after[n](ctx); err != nil {
				actor.fault("afterwards: %v", err)
			}
		}
		p.slowed += actor.leftOut
	}
	if s.world.heeds {
		if err := r.cast[0].claimsOn(ctx); err != nil {
			return nil, fmt.Errorf("%s: claim after all: %w", s, err)
		}
	}
	return p.verdict, p.judge(ctx)
}

type play struct {
	*verdict
	rig      *rig
	schedule schedule
	credit   []int  // turns that a session may take
	waits    []bool // for a lock, now
	waited   []bool // at any time before
}

func (p *play) run(ctx context.Context) error {
	p.waits, p.waited = make([]bool, len(p.schedule.verbs)), make([]bool, len(p.schedule.verbs))
	for i, v := range p.schedule.verbs {
		if err := p.rig.cast[i].hear(ctx, p.schedule.world.recorded); err != nil {
			return err
		}
		p.rig.cast[i].begin(ctx, v)
		if _, err := p.settle(ctx, i); err != nil {
			return err
		}
	}
	for _, name := range p.schedule.order {
		i, before := strings.IndexRune(names, name), p.effect
		p.credit[i]++
		if _, err := p.pump(ctx); err != nil {
			return err
		}
		if p.credit[i] > 0 {
			p.dead = append(p.dead, before+string(name))
		}
	}
	for i := range p.credit {
		p.credit[i] = 1 << 20 // the order has ended: the remaining sessions go on, the first one first
	}
	for over := false; !over; {
		var err error
		if over, err = p.pump(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pump lets every session take the turns it has, until none can.
func (p *play) pump(ctx context.Context) (over bool, err error) {
	for progress := true; progress; {
		progress, over = false, true
		for i := range p.schedule.verbs {
			state, err := p.settle(ctx, i)
			if err != nil {
				return false, err
			}
			over = over && state == ended
			if state != ready || p.credit[i] == 0 {
				continue
			}
			p.credit[i]--
			if err := p.release(ctx, i); err != nil {
				return false, err
			}
			progress = true
		}
	}
	return over, nil
}

func (p *play) release(ctx context.Context, i int) error {
	s := p.rig.cast[i]
	next, _, _ := s.at()
	p.trace = append(p.trace, s.name+" "+next)
	p.effect += s.name
	p.counts[i]++
	if err := s.release(); err != nil {
		return err
	}
	_, err := p.settle(ctx, i)
	return err
}

type state int

const (
	ready   state = iota // waits for its turn
	waiting              // for a lock that another session holds
	ended
)

// patience is how long a unit may take before the monitor asks if it waits. Most are done by then.
const patience = time.Millisecond

// settle waits until a session stops: at the gate, at another session's lock, or at its end.
func (p *play) settle(ctx context.Context, i int) (state, error) {
	s := p.rig.cast[i]
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		next, pid, over := s.at()
		switch {
		case over:
			return ended, nil
		case next != "":
			p.waits[i] = false
			return ready, nil
		case pid != 0 && p.waits[i]:
			blocked, err := p.blocked(ctx, i, pid)
			if err != nil || blocked {
				return waiting, err
			}
			p.waits[i] = false
		}
		timer.Reset(patience)
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("session %s came to no end: %w", s.name, ctx.Err())
		case <-s.turn:
		case <-timer.C:
			if pid != 0 {
				var err error
				if p.waits[i], err = p.blocked(ctx, i, pid); err != nil {
					return 0, err
				}
				if p.waits[i] {
					return waiting, nil
				}
			}
		}
	}
}

// A session that waits for a row holds that row's tuple lock or queues for it. One that waits for a
// unique index entry does neither. Autovacuum may hold the whole table for a moment, and does not
// count as a holder.
const blockedSQL = `SELECT CASE WHEN cardinality(pg_blocking_pids($1)) > 0 THEN EXISTS (SELECT FROM pg_stat_activity a
	WHERE a.pid = ANY(pg_blocking_pids($1)) AND a.backend_type = 'client backend') ELSE false END, EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'tuple')`

func (p *play) blocked(ctx context.Context, i int, pid uint32) (bool, error) {
	var blocked, row bool
	if err := p.rig.monitor.QueryRow(ctx, blockedSQL, int32(pid)).Scan(&blocked, &row); err != nil {
		return false, fmt.Errorf("ask whom session %s waits for: %w", p.rig.cast[i].name, err)
	}
	if blocked && !p.waits[i] {
		p.waitings++
		p.waited[i] = true
		p.trace = append(p.trace, fmt.Sprintf("%s waits (row: %t)", p.rig.cast[i].name, row))
		v := p.schedule.verbs[i]
		if v.quick && (row || !v.mayMeetKey) {
			p.broken = append(p.broken, fmt.Sprintf("waited: %s is of the fast lane", v.name))
		}
	}
	return blocked, nil
}

// judge checks the invariants.
func (p *play) judge(ctx context.Context) error {
	b := &pgx.Batch{}
	for i, v := range p.schedule.verbs {
		s := p.rig.cast[i]
		p.broken = append(p.broken, s.faults...)
		if s.deadlocks > 0 { // a worker repeats the transaction, but no lock order of ours may cause a deadlock
			p.broken = append(p.broken, fmt.Sprintf("deadlock: %s", v.name))
		}
		s.facts.save(b)
		if v.harmless && len(p.schedule.verbs) == 2 {
			p.unharmed(1 - i)
		}
		if v.family == "look" && len(p.schedule.verbs) == 2 && foreign(p.schedule.verbs[1-i]) {
			p.told(i)
		}
	}
	broken := `SELECT name || ': ' || detail FROM interleave.broken_ungated ORDER BY 1`
	if p.schedule.world.heeds { // only there are gates
		broken = `SELECT name || ': ' || detail FROM interleave.broken ORDER BY 1`
	}
	b.Queue(broken).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		p.broken = append(p.broken, found...)
		return err
	})
	if err := p.rig.monitor.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("judge %s: %w", p.schedule, err)
	}
	return nil
}

// unharmed requires that no session noticed the lock: only a foreign key's check holds the row.
func (p *play) unharmed(i int) {
	s := p.rig.cast[i]
	if p.waited[i] || s.leftOut > 0 || s.emptyHanded && p.schedule.world.claimable {
		p.broken = append(p.broken, fmt.Sprintf("hidden: %s did not get a row of which only the key is locked", p.schedule.verbs[i].name))
	}
}

// errReplay reports a text that names no schedule.
var errReplay = errors.New("not a schedule")
