package pairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/byhand"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/work"
)

const (
	schema = "gendurable"
	lease  = time.Hour
	// mostTakes bounds the steps of one case: an instance that runs for ever is a violation.
	mostTakes = 1000
)

// base is a database, on which cases run one after the other.
type base struct {
	url   string
	pool  *pgxpool.Pool
	pools [2]*pgxpool.Pool // of the engines of a fleet
}

// newBase migrates a database. change breaks statements of the engines on purpose; nil: none.
func newBase(t *testing.T, change pgtest.Batches) *base {
	t.Helper()
	url := pgtest.Migrated(t)
	configure := func(c *pgxpool.Config) {
		if c.MaxConns = 6; change != nil {
			c.ConnConfig.Tracer = change
		}
	}
	b := &base{url: url, pool: pgtest.Pool(t, url, configure)}
	for n := range b.pools {
		b.pools[n] = pgtest.Pool(t, url, configure)
	}
	if _, err := b.pool.Exec(t.Context(), hostSQL); err != nil {
		t.Fatal(err)
	}
	return b
}

// hostSQL makes the tables of the host.
const hostSQL = `CREATE SCHEMA host; CREATE TABLE host.booked (instance bigint, visit bigint);
	CREATE TABLE host.entities (name text PRIMARY KEY, instance bigint);
	CREATE TABLE host.parcels (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number text UNIQUE, instance_id bigint UNIQUE);
	CREATE TABLE host.seats (number text PRIMARY KEY, instance_id bigint UNIQUE, cents bigint NOT NULL DEFAULT 0)`

// clear empties the tables for the next case.
func (b *base) clear(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `TRUNCATE gendurable.gen_durable, gendurable.signals, gendurable.edges, gendurable.kept_signals, gendurable.windows,
		gendurable.gates, gendurable.gate_keys, gendurable.schedules, gendurable.lost_claims, gendurable.paused_queues, gendurable.history,
		gendurable.recorded_machines, gendurable.definitions, gendurable.workers, host.booked, host.entities, host.parcels, host.seats`)
	return err
}

// violation is what a case found wrong. Its kind is a fixed text, by which the ledger knows it.
type violation struct{ kind, detail string }

func (v violation) String() string { return v.kind + ": " + v.detail }

// rig runs one case.
type rig struct {
	*base

	t        testing.TB
	ctx      context.Context
	log      io.Writer
	c        Case
	random   *rand.Rand
	features []*feature
	store    *store.Store

	eng   *engine.Engine
	hand  *work.Hand
	root  fsm.ID
	gone  bool // the case has deleted its root
	takes int  // steps that were begun; of a fleet: under m
	today time.Time

	fleet   []*engine.Engine    // engines that work by themselves, in place of hand
	leaving chan *engine.Engine // one of them whose process has to end; nil: the case has no fleet

	progress atomic.Int64 // grows with each step that begins, and as time passes

	fault *struck // nil: none is to come
	// For a population that lives for longer than a case: whether a step fails for now, and a function
	// that waits until nothing can run, if engines work by themselves.
	breaks func(v *visit) bool
	quiet  func() error
	held   sync.WaitGroup // strangers that hold rows

	m          sync.Mutex     // what steps and hooks note
	running    map[fsm.ID]int // steps that run now
	violations []violation
	ran        map[fsm.ID][]string // outcomes that were applied, by kind
	begun      map[fsm.ID]bool     // a step of it was called
	counts     map[string]int
	stale      int
	story      []string
}

// violate notes that something is wrong.
func (r *rig) violate(kind, format string, args ...any) {
	r.m.Lock()
	defer r.m.Unlock()
	v := violation{kind, fmt.Sprintf(format, args...)}
	if !slices.Contains(r.violations, v) {
		r.violations = append(r.violations, v)
	}
}

// last returns the last line of the story.
func (r *rig) last() string {
	r.m.Lock()
	defer r.m.Unlock()
	return strings.TrimSpace(r.story[len(r.story)-1])
}

// tell adds a line to the story of the case, which a failure prints.
func (r *rig) tell(format string, args ...any) {
	r.m.Lock()
	defer r.m.Unlock()
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

// bump counts something, and returns how often it was counted.
func (r *rig) bump(what string) int {
	r.m.Lock()
	defer r.m.Unlock()
	r.counts[what]++
	return r.counts[what]
}

// config is the Config of an engine on a pool.
func (r *rig) config(pool *pgxpool.Pool) engine.Config {
	c := engine.Config{PartitionLock: engine.LockLease, Lease: lease, Machines: []fsm.Definition{r.definition()},
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelError})),
		Driver: entpgx.New(pool).Around(r.around),
		Hooks: []engine.Hooks{{
			Step: func(_ context.Context, e engine.StepEvent) { r.note(e) },
			Stale: func(context.Context, engine.StaleEvent) {
				r.m.Lock()
				defer r.m.Unlock()
				r.stale++
			},
		}},
	}
	if r.c.Fault == "bound" {
		c.Limits = engine.Limits{Children: 1, Inbox: 1, Depth: len(r.c.Life) + 1, AwaitNames: 1}
		for _, f := range r.features {
			if f.bound != nil {
				f.bound(&c.Limits)
			}
		}
	}
	for _, f := range r.features {
		if f.config != nil {
			f.config(r, &c)
		}
	}
	return c
}

// start makes an engine, which does nothing by itself, or a fleet, which does.
func (r *rig) start() (err error) {
	if slices.Contains(r.c.Life, "fleet") {
		return r.launchAll()
	}
	r.eng, r.hand, err = byhand.New(r.ctx, r.config(r.pool), r.today)
	return err
}

// stop ends all engines of the case.
func (r *rig) stop(ctx context.Context) (err error) {
	if r.fleet == nil && r.eng != nil {
		return r.eng.Stop(ctx)
	}
	for _, e := range r.fleet {
		if e != nil { // it could not start
			err = errors.Join(err, e.Stop(ctx))
		}
	}
	return err
}

// definition is the machine of the case: the steps of all its features.
func (r *rig) definition() fsm.Definition {
	steps := []fsm.StepDef[state, int]{r.step("start", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
		return r.take(v, v.State), r.waited(ctx, v)
	})}
	for _, f := range r.features {
		steps = append(steps, f.steps(r)...)
	}
	d := unit.Define(steps...)
	for _, f := range r.features {
		if f.define != nil {
			d = f.define(r, d)
		}
	}
	return d
}

// asNeeded says for each kind of edge whether a node may run behind one that has ended so. A quorum
// may have some nodes that failed.
var asNeeded = map[int]func(s fsm.Status) bool{
	0: func(s fsm.Status) bool { return s == fsm.StatusDone },
	1: fsm.Status.Terminal,
	2: func(s fsm.Status) bool { return s == fsm.StatusFailed },
	3: fsm.Status.Terminal,
}

// waited finds out whether a node is given all that it has waited for, however often it begins, and
// whether that has ended as the node needs.
func (r *rig) waited(ctx context.Context, v *visit) error {
	if v.State.Kind != node {
		return nil
	}
	rows, _ := r.pool.Query(ctx, `SELECT o.node, e.needs FROM gendurable.edges e JOIN gendurable.gen_durable o ON o.id = e.from_id WHERE e.to_id = $1`, int64(v.ID))
	var name string
	var needs int
	_, err := pgx.ForEachRow(rows, []any{&name, &needs}, func() error {
		switch c, ok := v.Upstream(name); {
		case !ok:
			r.violate("a node lacks what it has waited for", "%s lacks %s", v.State.Path, name)
		case !asNeeded[needs](c.Status):
			r.violate("a node runs though another did not end as it needs", "%s needs %d of %s, which is %s", v.State.Path, needs, name, c.Status)
		}
		return nil
	})
	return err
}

// step is a step that the case's fault may strike.
func (r *rig) step(name string, f step) fsm.StepDef[state, int] {
	return fsm.Step(name, func(ctx context.Context, v *visit) (fsm.Outcome, error) { return r.strike(ctx, v, f) })
}

func (r *rig) note(e engine.StepEvent) {
	r.m.Lock()
	defer r.m.Unlock()
	if e.Outcome != fsm.OutcomeNone && e.Instance.Machine == unit.Name() {
		r.ran[e.Instance.ID] = append(r.ran[e.Instance.ID], string(e.Outcome))
	}
	text := fmt.Sprintf("  %d %s visit %d attempt %d: %s", e.Instance.ID, e.Instance.Step, e.Instance.Visit, e.Instance.Attempt, e.Outcome)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	r.story = append(r.story, text)
}

// around loses the answer of a commit, if the fault says so.
func (r *rig) around(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
	r.linger()
	err := send(ctx)
	r.linger()
	if err == nil && r.fault.loses(stmts) {
		return &entpgx.StmtError{Name: stmts[0].Name, Sent: true, Err: io.ErrUnexpectedEOF} // as of a connection that was cut
	}
	return err
}

// errTooMany ends a case that runs too many steps. The violation says which.
var errTooMany = errors.New("too many steps")

// run runs what can run now, until nothing can or until so many steps have begun: then left is
// false.
func (r *rig) run(until int) (left bool, err error) {
	switch {
	case r.quiet != nil:
		return false, r.quiet()
	case r.fleet != nil:
		return r.await(until)
	}
	for more := true; more; {
		more = false
		if err := r.hand.Fire(r.ctx, r.today); err != nil {
			return false, err
		}
		paused, err := r.hand.Wake(r.ctx)
		if err != nil {
			return false, err
		}
		rows, _ := r.pool.Query(r.ctx, `SELECT DISTINCT queue COLLATE "C" FROM gendurable.gen_durable
			WHERE status = 'runnable' AND NOT paused AND eligible_at <= clock_timestamp() ORDER BY 1`)
		queues, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, err
		}
		for _, queue := range queues {
			if slices.Contains(paused, queue) {
				continue
			}
			for {
				switch {
				case r.takes >= mostTakes:
					return true, errTooMany
				case r.takes >= until:
					return true, nil
				}
				taken, err := r.hand.Take(r.ctx, queue, 10)
				if err != nil {
					return false, err
				}
				if taken == nil {
					break
				}
				r.takes++
				more = true
				if err := r.runTaken(taken); err != nil {
					return false, err
				}
			}
		}
	}
	return false, nil
}

// runTaken runs a step. With the fault "drain" the engine stops in its middle, and another one goes
// on.
func (r *rig) runTaken(taken *work.Taken) error {
	drain, ctx, cancel := r.fault.drains(), r.ctx, context.CancelFunc(func() {})
	if drain {
		ctx, cancel = context.WithCancel(ctx)
		r.fault.drain(cancel)
	}
	defer cancel()
	err := taken.Run(ctx)
	if !drain || r.ctx.Err() != nil {
		return err
	}
	if err := r.eng.Stop(r.ctx); err != nil {
		return err
	}
	r.tell("the engine has stopped, another one goes on")
	return r.start()
}

// pass lets time pass: instances that become due meanwhile run in their turn.
func (r *rig) pass(d time.Duration) error {
	for left := d; ; {
		var since time.Time
		if err := r.pool.QueryRow(r.ctx, `SELECT clock_timestamp()`).Scan(&since); err != nil {
			return err
		}
		if _, err := r.run(mostTakes); err != nil {
			return err
		}
		if left <= 0 {
			return nil
		}
		by, err := r.shift(since, left)
		if err != nil {
			return fmt.Errorf("let time pass: %w", err)
		}
		left -= by
	}
}

// shiftSQL moves all times in the tables nearer, ends and leases as well.
var shiftSQL = []string{
	`UPDATE gendurable.gen_durable SET eligible_at = eligible_at - $1::bigint * interval '1 microsecond',
		await_deadline = await_deadline - $1::bigint * interval '1 microsecond', deadline = deadline - $1::bigint * interval '1 microsecond',
		finished_at = finished_at - $1::bigint * interval '1 microsecond', lease_expires_at = lease_expires_at - $1::bigint * interval '1 microsecond'`,
	`UPDATE gendurable.windows SET opened_at = opened_at - $1::bigint * interval '1 microsecond', until = until - $1::bigint * interval '1 microsecond'`,
	`UPDATE gendurable.gates SET updated_at = updated_at - $1::bigint * interval '1 microsecond'`,
	`UPDATE gendurable.gate_keys SET at = at - $1::bigint * interval '1 microsecond', slowed_at = slowed_at - $1::bigint * interval '1 microsecond'`,
	`UPDATE gendurable.kept_signals SET expires_at = expires_at - $1::bigint * interval '1 microsecond'`,
}

// shift moves all times until the next instance is due, by at most most.
func (r *rig) shift(since time.Time, most time.Duration) (by time.Duration, err error) {
	err = pgx.BeginFunc(r.ctx, r.pool, func(tx pgx.Tx) error {
		var next *int64
		if err := tx.QueryRow(r.ctx, `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
			SELECT (extract(epoch FROM min(g.at) - min(c.now)) * 1000000)::bigint FROM c, (
				SELECT eligible_at AS at FROM gendurable.gen_durable WHERE status = 'runnable' AND NOT paused
				UNION ALL SELECT await_deadline FROM gendurable.gen_durable WHERE status IN ('awaiting_signal', 'awaiting_children')
				UNION ALL SELECT deadline FROM gendurable.gen_durable WHERE finished_at IS NULL) g
			WHERE g.at > $1`, since).Scan(&next); err != nil {
			return err
		}
		by = most
		if next != nil {
			by = min(by, max(0, time.Duration(*next)*time.Microsecond))
		}
		if r.hand != nil {
			if due := r.hand.NextDue(); due > 0 {
				by = min(by, due)
			}
		}
		for _, text := range shiftSQL {
			if _, err := tx.Exec(r.ctx, text, by.Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
	r.today = r.today.Add(by)
	r.progress.Add(1)
	return by, err
}

// reap ends the claims whose lease is over.
func (r *rig) reap(ctx context.Context) error {
	_, err := r.store.Reap(ctx, uuid.NewString(), store.CrashLimits{}, 100)
	return err
}

// retention is what the engine keeps, unless a spec says otherwise.
const retention = 24 * time.Hour

// pruned is what a sweep of the GC deletes.
var pruned = store.PruneParams{Done: retention, Failed: retention, Tombstones: 100, Limit: 100, Gates: true}

// sweep is one sweep of the GC. It must delete nothing that is needed, and go on until it finds
// nothing.
func (r *rig) sweep() error {
	needed, err := r.needed()
	if err != nil {
		return err
	}
	done, err := r.store.Prune(r.ctx, pruned)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	r.tell("the GC has deleted %d", done.Instances)
	return r.kept(needed)
}

// month lets a month pass, day by day at first, with the GC's sweeps.
func (r *rig) month() error {
	for _, d := range []time.Duration{time.Minute, retention + time.Hour, 6 * 24 * time.Hour, 23 * 24 * time.Hour} {
		if err := r.pass(d); err != nil {
			return err
		}
		if err := r.sweep(); err != nil {
			return err
		}
	}
	return nil
}

// text returns what the case found, and how it came to that.
func (r *rig) text() string {
	var out strings.Builder
	for _, v := range r.violations {
		fmt.Fprintln(&out, v)
	}
	fmt.Fprintln(&out, "the story:")
	for _, line := range r.story {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}
