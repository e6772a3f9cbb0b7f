package pairs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// monthly are the features of the instances that live in a month: those that say nothing of all
// instances, and not of one key.
var monthly = []string{
	"signal", "again", "unless", "join", "race", "stream", "graph", "left", "early", "rest", "failfast", "grow", "crowd", "intx", "batch",
	"oncreate", "update",
}

// keepHistory is how long a month's engines keep the history, and keptFor how long a signal is
// kept.
const keepHistory, keptFor = 2 * 24 * time.Hour, 7 * 24 * time.Hour

// month is a population of instances that lives for weeks in one schema, under engines that work by
// themselves. Between two looks at it, time passes: the database's clock jumps by hours.
type month struct {
	*rig

	t        *testing.T
	clock    *pgtest.Clock
	now      time.Time // of the clock, when the last jump was over
	from     time.Time // the schedules count from here
	declared time.Time // or from a moment up to here
	fleet    []*engine.Engine
	collect  sync.Mutex // one sweep of the GC at a time
	nth      int
	lives    []string // the features of which lives are made

	roots   map[fsm.ID]string // each root, and its path
	mails   []mail
	due     map[fsm.ID]time.Time // when it fails by its deadline
	opened  time.Time            // the window
	over    time.Time            // the schedules are paused from here on; zero: they are not
	sum     sums
	mend    map[string]bool // paths of roots in which nothing breaks any more
	ticks   map[fsm.Key]fsm.ID
	settled atomic.Int64
}

// sums says what a month has had, so that a test can tell that it had all of it.
type sums struct {
	jumps, rough, roots, entities, restarts, deleted, swept, expired, taken, lapsed, throttled, deploys int
	parts                                                                                               [2]int // made, dropped
}

// mail is a message that is kept for a key until an instance occupies it, and the time at which
// one does.
type mail struct {
	key      fsm.Key
	sent, at time.Time
}

type letterbox struct {
	Want bool `json:"want"`
}

var (
	tick   = fsm.Declare[struct{}, int]("tick")
	reader = fsm.Declare[letterbox, int]("reader")
	never  = fsm.Declare[struct{}, int]("never")
)

// others are the machines beside the pairs' machine.
func (m *month) others() []fsm.Definition {
	return []fsm.Definition{
		m.parcels(),
		tick.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[struct{}, int]) (fsm.Outcome, error) {
			if v.Key != "" {
				m.m.Lock()
				defer m.m.Unlock()
				if other, ok := m.ticks[v.Key]; ok && other != v.ID {
					m.violations = append(m.violations, violation{"an occurrence fires twice", fmt.Sprintf("%s: %d and %d", v.Key, other, v.ID)})
				}
				m.ticks[v.Key] = v.ID
			}
			return v.Done(1), nil
		})),
		reader.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[letterbox, int]) (fsm.Outcome, error) {
				return v.Await("read", v.State, letter).Timeout(time.Hour), nil
			}),
			fsm.Step("read", func(_ context.Context, v *fsm.Visit[letterbox, int]) (fsm.Outcome, error) {
				if _, ok, err := letter.First(v); err != nil || ok != v.State.Want {
					m.violate("a kept signal is lost, or comes too late", "%s: %t instead of %t (%v)", v.Key, ok, v.State.Want, err)
				}
				return v.Done(1), nil
			})),
		never.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[struct{}, int]) (fsm.Outcome, error) {
				return v.Await("never", v.State, word), nil
			}),
			fsm.Step("never", func(_ context.Context, v *fsm.Visit[struct{}, int]) (fsm.Outcome, error) {
				m.violate("a signal came that nobody has sent", "%d", v.ID)
				return v.Done(1), nil
			})),
	}
}

// schedules and how often each is due. Jumps are shorter than the shortest of those that do not
// catch up with all.
var schedules = map[string]time.Duration{"hourly": time.Hour, "sixth": 6 * time.Hour, "daily": 24 * time.Hour}

func newMonth(t *testing.T, seed uint64, lives []string, change pgtest.Batches) *month {
	t.Helper()
	url := pgtest.Migrated(t)
	clock := pgtest.NewClock(t, url)
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) {
		clock.Configure(c)
		c.MaxConns = 16
		if change != nil {
			c.ConnConfig.Tracer = change
		}
	})
	_, err := pool.Exec(t.Context(), hostSQL)
	require.NoError(t, err)
	m := &month{t: t, clock: clock, lives: lives, roots: map[fsm.ID]string{}, due: map[fsm.ID]time.Time{}, mend: map[string]bool{}, ticks: map[fsm.Key]fsm.ID{}}
	m.rig = &rig{base: &base{url: url, pool: pool}, ctx: t.Context(), log: t.Output(), random: rand.New(rand.NewPCG(seed, 2)),
		store: store.New(entpgx.New(pool), schema), ran: map[fsm.ID][]string{}, begun: map[fsm.ID]bool{}, counts: map[string]int{}, running: map[fsm.ID]int{}}
	for _, name := range monthly {
		m.features = append(m.features, registry[name])
	}
	m.breaks, m.quiet = m.isBroken, m.settle
	m.from = m.read()
	m.roll()
	for range 2 {
		m.fleet = append(m.fleet, m.launch())
	}
	m.eng, m.declared = m.fleet[0], m.read()
	_, err = m.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "tenants", Label: "tenant", Places: 2})
	require.NoError(t, err)
	_, err = m.eng.Admin().SetGate(t.Context(), engine.Gate{Name: "bank", Machine: reader.Name(), Rate: engine.Rate{N: 100, Per: time.Minute}})
	require.NoError(t, err)
	return m
}

// launch starts an engine that works by itself.
func (m *month) launch() *engine.Engine {
	c := engine.Config{Driver: entpgx.New(m.pool), Machines: append(m.others(), m.definition()), History: fsm.KeepTransitions, RetainHistory: keepHistory,
		Queues:    map[string]engine.Queue{"default": {PollMin: 10 * time.Millisecond, PollMax: 100 * time.Millisecond}},
		Heartbeat: time.Second, Reap: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelError})),
		Hooks:  []engine.Hooks{{Step: func(_ context.Context, e engine.StepEvent) { m.note(e) }}}}
	for name, every := range schedules {
		s := engine.Every(name, every, tick.New(struct{}{}).Label("tenant", name))
		if name != "daily" {
			s = s.CatchUp(engine.CatchUpAll)
		}
		c.Schedules = append(c.Schedules, s)
	}
	e, err := engine.New(c)
	require.NoError(m.t, err)
	require.NoError(m.t, e.Start(m.ctx))
	m.t.Cleanup(func() { require.NoError(m.t, e.Stop(context.Background())) })
	return e
}

// deploy stops an engine while the others work, and starts one in its place.
func (m *month) deploy() {
	n := m.sum.deploys % len(m.fleet)
	next := m.launch()
	require.NoError(m.t, m.fleet[n].Stop(m.ctx))
	m.fleet[n], m.eng = next, next
	m.sum.deploys++
}

func (m *month) read() time.Time {
	now, err := m.clock.Now(m.ctx)
	require.NoError(m.t, err)
	return now
}

// isBroken reports whether a step fails until an operator has mended it: a few under roots that
// the operator can restart.
func (m *month) isBroken(v *visit) bool {
	path, _, _ := strings.Cut(v.State.Path, "/")
	m.m.Lock()
	mended, ok := m.mend[path]
	m.m.Unlock()
	if mended || !ok {
		return false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.State.Path + " " + v.Step))
	return h.Sum32()%10 == 0
}

// busySQL asks what can run now, and in how many seconds the next thing is due, of those that are
// due within a minute.
const busySQL = `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now), d AS (
    SELECT 'instance ' || id || ' ' || status AS what, CASE WHEN pick_lane = 5 THEN '-infinity' ELSE eligible_at END AS at FROM gendurable.gen_durable WHERE status = 'runnable' AND NOT paused
    UNION ALL SELECT 'claim ' || id, '-infinity' FROM gendurable.gen_durable WHERE status = 'executing'
    UNION ALL SELECT 'rest ' || id, '-infinity' FROM gendurable.gen_durable WHERE losers IS NOT NULL
      AND (status <> 'awaiting_children' OR losers[1] <> round) OR graphs IS NOT NULL AND finished_at IS NOT NULL
    UNION ALL SELECT 'timeout ' || id, await_deadline FROM gendurable.gen_durable WHERE status IN ('awaiting_signal', 'awaiting_children')
    UNION ALL SELECT 'deadline ' || id, deadline FROM gendurable.gen_durable WHERE finished_at IS NULL
    UNION ALL SELECT 'schedule ' || name, next_at FROM gendurable.schedules WHERE paused_at IS NULL)
  SELECT coalesce(string_agg(what, ', ') FILTER (WHERE at <= c.now), ''), bool_or(at > c.now AND at < c.now + interval '2 minutes') FROM d, c`

// settle waits until nothing can run, and lets a minute pass where something is due soon.
func (m *month) settle() error {
	for range 50 {
		var soon *bool
		busy := ""
		if !steady.Happens(m.t, steady.Patience, func() (int64, bool) {
			err := m.pool.QueryRow(m.ctx, busySQL).Scan(&busy, &soon)
			require.NoError(m.t, err)
			m.m.Lock()
			defer m.m.Unlock()
			return int64(len(m.story)), busy == ""
		}) {
			return fmt.Errorf("it does not come to rest: %s", busy)
		}
		if soon == nil || !*soon {
			m.settled.Add(1)
			return nil
		}
		if err := m.clock.Advance(m.ctx, 2*time.Minute); err != nil {
			return err
		}
	}
	return errors.New("something is due each minute")
}

// jump lets time pass.
func (m *month) jump(by time.Duration) {
	require.NoError(m.t, m.clock.Advance(m.ctx, by))
	m.now = m.read()
	m.sum.jumps++
	m.m.Lock()
	m.story = append(m.story, fmt.Sprintf("it is %s", m.now.Format(time.DateTime)))
	m.m.Unlock()
}

// arrive inserts what comes new: roots with lives of two or three features, and one of each of the
// others.
func (m *month) arrive(roots int) {
	for range roots {
		m.nth++
		path := fmt.Sprint("root", m.nth)
		var life []string
		for range 2 + m.random.IntN(2) {
			life = append(life, m.lives[m.random.IntN(len(m.lives))])
		}
		m.m.Lock()
		if m.random.IntN(2) == 0 && !slices.Contains(life, "stream") { // one that has failed cannot be restarted
			m.mend[path] = false
		}
		m.m.Unlock()
		insert := func(s fsm.Spec) (fsm.ID, error) { return m.eng.Insert(m.ctx, s) }
		if m.nth%3 == 0 {
			insert = m.insertEntity
			m.sum.entities += 2
		}
		id, err := insert(m.spec(beginning(path, root, life)).Retain(fsm.Retention{Failed: 365 * 24 * time.Hour}))
		require.NoError(m.t, err)
		m.roots[id] = path
		m.tell("%s, instance %d: %v", path, id, life)
		m.sum.roots++
	}
	m.now = m.read()

	m.nth++
	gaps := []time.Duration{time.Hour, 3 * 24 * time.Hour, 6 * 24 * time.Hour, 8 * 24 * time.Hour}
	gap := gaps[m.random.IntN(len(gaps))]
	key := fsm.Key(fmt.Sprint("mail ", m.nth))
	d, err := m.eng.Signal(m.ctx, key, letter.With("early").KeepFor(keptFor))
	require.NoError(m.t, err)
	require.True(m.t, d.Kept)
	m.mails = append(m.mails, mail{key, m.now, m.now.Add(gap)})

	after := []time.Duration{2 * time.Hour, 24 * time.Hour, 4 * 24 * time.Hour}[m.random.IntN(3)]
	id, err := m.eng.Insert(m.ctx, never.New(struct{}{}).Deadline(after))
	require.NoError(m.t, err)
	m.due[id] = m.now.Add(after)

	_, err = m.eng.Insert(m.ctx, tick.New(struct{}{}).Throttle("window", 20*time.Hour))
	switch open := m.now.Sub(m.opened) > 20*time.Hour; {
	case errors.Is(err, engine.ErrThrottled):
		m.sum.throttled++
		if m.now.Sub(m.opened) > 20*time.Hour+time.Minute {
			m.violate("a window stays closed", "since %s", m.opened)
		}
	case err != nil:
		require.NoError(m.t, err)
	case !open && m.now.Sub(m.opened) < 20*time.Hour-time.Minute:
		m.violate("a window lets a second one in", "since %s", m.opened)
	default:
		m.opened = m.now
	}
}

// occupy inserts those whose time has come to occupy a key.
func (m *month) occupy() {
	m.mails = slices.DeleteFunc(m.mails, func(one mail) bool {
		late := m.now.Sub(one.sent) - keptFor
		if m.now.Before(one.at) || late > -10*time.Minute && late < 10*time.Minute {
			return false
		}
		_, err := m.eng.Insert(m.ctx, reader.New(letterbox{late < 0}).Key(one.key))
		require.NoError(m.t, err)
		if late < 0 {
			m.sum.taken++
		} else {
			m.sum.lapsed++
		}
		return true
	})
}

// operate restarts roots that have failed, and lets their broken steps work from now on.
func (m *month) operate() {
	var failed []fsm.ID
	for i, err := range m.eng.All(m.ctx, engine.Query{Filter: engine.Filter{Machine: unit.Name(), Status: []fsm.Status{fsm.StatusFailed}}}) {
		require.NoError(m.t, err)
		if m.roots[i.ID] != "" {
			failed = append(failed, i.ID)
		}
	}
	for _, id := range failed {
		below := m.below(id)
		m.m.Lock()
		m.mend[m.roots[id]] = true
		for _, k := range below { // at its first visit a Restart decides anew whether it runs: an alarm may be needed no more
			delete(m.begun, k)
		}
		m.m.Unlock()
		_, err := m.eng.Admin().Restart(m.ctx, id)
		m.tell("restart of %s, instance %d: %v", m.roots[id], id, err)
		if err != nil {
			m.violate("it cannot be repaired", "%s, instance %d: %v", m.roots[id], id, err)
			continue
		}
		m.sum.restarts++
	}
}

// below returns the instances below one that have failed at their first visits.
func (m *month) below(id fsm.ID) []fsm.ID {
	rows, _ := m.pool.Query(m.ctx, `WITH RECURSIVE f AS (SELECT id, status, visit FROM gendurable.gen_durable WHERE id = $1
		UNION ALL SELECT k.id, k.status, k.visit FROM f JOIN gendurable.gen_durable k ON k.parent_id = f.id) SELECT id FROM f WHERE status = 'failed' AND visit = 0`, int64(id))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[fsm.ID])
	require.NoError(m.t, err)
	return ids
}

// serve lets the world outside do what is waited for.
func (m *month) serve() {
	for _, f := range m.features {
		if f.serve != nil {
			require.NoError(m.t, f.serve(m.rig), f.name)
		}
	}
}

// sweepWhile sweeps while engines work, as their own collections would, more often. It returns what
// ends that. Every other time it leaves all to the next look, which compares what a sweep deletes
// with what it has to keep.
func (m *month) sweepWhile() (end func()) {
	if m.sum.jumps%2 == 0 {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			m.collect.Lock()
			gone, err := m.store.Prune(m.ctx, pruned)
			m.sum.deleted += gone.Instances
			m.sum.expired += gone.Expired
			m.collect.Unlock()
			if err != nil && m.ctx.Err() == nil {
				m.violate("the GC fails", "%v", err)
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// day is one simulated day: jumps by hours, one of which strikes while engines are at work.
func (m *month) day(roots int) {
	for left := 24 * time.Hour; left > 0 && len(m.violations) == 0; {
		end := m.sweepWhile()
		m.arrive(roots)
		m.occupy()
		if m.random.IntN(4) == 0 {
			m.serve()
		}
		if m.random.IntN(3) == 0 {
			m.operate()
		}
		rough := m.random.IntN(3) == 0
		if !rough {
			require.NoError(m.t, m.settle(), "%s", m.tail())
		}
		end()
		if !rough {
			m.look()
		} else {
			m.sum.rough++
		}
		by := time.Duration(10+m.random.IntN(8*60)) * time.Minute
		m.jump(by)
		left -= by
	}
}

// finish lets all that lives come to its end, by jumps of days, and then its retention pass.
func (m *month) finish() {
	require.NoError(m.t, m.settle(), "%s", m.tail())
	for name := range schedules {
		_, err := m.eng.Admin().PauseSchedule(m.ctx, name)
		require.NoError(m.t, err)
	}
	m.over = m.read()
	for n := 0; len(m.violations) == 0; n++ {
		end := m.sweepWhile()
		m.occupy()
		m.serve()
		m.operate()
		require.NoError(m.t, m.settle(), "%s", m.tail())
		end()
		m.look()
		var live int
		require.NoError(m.t, m.pool.QueryRow(m.ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE finished_at IS NULL`).Scan(&live))
		if live == 0 && len(m.mails) == 0 {
			break
		}
		if n == 150 {
			require.NoError(m.t, m.unended())
			return
		}
		m.jump(min(6*time.Hour*time.Duration(n+1), 6*24*time.Hour)) //nolint:durationcheck // n is a number
	}
	for range 3 {
		if len(m.violations) > 0 {
			return
		}
		m.jump(20 * time.Hour)
		require.NoError(m.t, m.settle())
		m.look()
	}
	require.NoError(m.t, registry["oncreate"].end(m.rig)) // all entities, of which the instances are gone
	require.NoError(m.t, m.leftover())
	for id, path := range m.roots {
		if !slices.Contains(m.ran[id], "done") {
			m.violate("a root is gone without its result", "%s, instance %d: %v", path, id, m.ran[id])
		}
	}
}

// tail returns the end of the story, and the violations.
func (m *month) tail() string {
	m.m.Lock()
	defer m.m.Unlock()
	var out strings.Builder
	for _, line := range m.story[max(0, len(m.story)-100):] {
		fmt.Fprintln(&out, line)
	}
	for _, v := range m.violations[:min(len(m.violations), 20)] {
		fmt.Fprintln(&out, v)
	}
	return out.String()
}

// play lets days pass, and returns what was violated.
func (m *month) play(days, roots int) []violation {
	for n := range days {
		if len(m.violations) > 0 {
			break
		}
		if n%2 == 1 {
			m.deploy()
		}
		m.day(roots)
	}
	m.finish()
	m.t.Logf("%+v, %d steps", m.sum, len(m.story))
	return m.violations
}

// TestAMonth lets a month pass over one schema in which graphs, joins, streams, gates, schedules,
// deadlines and kept signals live, while engines work and sweep. SEED chooses the population, DAYS
// and ROOTS say how many days pass, and how many roots come before each jump.
func TestAMonth(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI)
	seed := uint64(tier.Size(t, "SEED", 1, 1, 0)) //nolint:gosec // any number
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1_000_000) //nolint:gosec // any number
		t.Logf("SEED=%d", seed)
	}
	m := newMonth(t, seed, monthly, nil)
	require.Empty(t, m.play(tier.Size(t, "DAYS", 2, 2, 31), tier.Size(t, "ROOTS", 1, 1, 2)), "%s", m.tail())
	require.NotZero(t, m.sum.restarts)
	require.NotZero(t, m.sum.taken)
	require.NotZero(t, m.sum.throttled)
	require.NotZero(t, m.sum.entities)
	require.NotZero(t, m.sum.parts[1], "days of the history are dropped")
}
