package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrate"
)

// A session holds something, and does not let go: a row, a key, a connection in the middle of an
// answer. All work that needs nothing of it must go on meanwhile.
// TestNobodyWaitsForWhatTheyDoNotNeed makes each of the holds, lets bystanders of every kind begin
// their work, waits until all of them have ended, and only then lets go.

// errand is the state of bystanders and of held instances. Its kind says what the instance does.
type errand struct {
	Kind string
	Gate string // of the kind "gated"
	Mark string // only one outcome has it
	Pad  string // bytes that nobody reads
}

var (
	errandMachine = fsm.Declare[errand, string]("errand")
	word          = fsm.DeclareSignal[string]("word")
)

// crew runs errands. Errands of the kind "gated" report that they run, and do not return before
// their gate is open.
type crew struct {
	running chan fsm.ID
	left    chan fsm.ID

	mu    sync.Mutex
	gates map[string]chan struct{}
}

func newCrew() *crew {
	return &crew{running: make(chan fsm.ID, 1000), left: make(chan fsm.ID, 1000), gates: map[string]chan struct{}{}}
}

func (c *crew) gate(name string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gates[name] == nil {
		c.gates[name] = make(chan struct{})
	}
	return c.gates[name]
}

// open opens a gate, for good.
func (c *crew) open(name string) {
	gate := c.gate(name)
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (c *crew) definition() fsm.Definition {
	type visit = fsm.Visit[errand, string]
	done := func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(v.State.Mark), nil }
	return errandMachine.Define(
		fsm.Step("start", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
			switch v.State.Kind {
			case "gated", "gated, then on":
				c.running <- v.ID
				select {
				case <-c.gate(v.State.Gate):
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
				c.left <- v.ID
				if v.State.Kind == "gated" {
					return v.Done(v.State.Mark), nil
				}
				return v.Next("end", v.State), nil
			case "parent of gated":
				return v.ScheduleChildren("end", v.State, errands(3, "gated")...), nil
			case "parent of one with a key":
				return v.ScheduleChildren("end", v.State, errandMachine.New(errand{}).Key("child")), nil
			case "chain":
				return v.Next("link", v.State), nil
			case "retry":
				if v.Attempt == 0 {
					return v.Retry(v.State, time.Millisecond), nil
				}
			case "own transaction":
				return engine.InTx(func(context.Context, pgx.Tx) (fsm.Outcome, error) { return v.Done(""), nil }), nil
			case "family":
				own := fmt.Sprint("child of ", v.ID)
				return v.ScheduleChildren("end", v.State, errandMachine.New(errand{}), errandMachine.New(errand{}).Key(fsm.Key(own)),
					errandMachine.New(errand{}).PartitionKey(own), errandMachine.New(errand{Kind: "chain"})), nil
			case "mail", "overdue":
				return v.Await("end", v.State, word), nil
			case "timer":
				return v.Await("end", v.State, word).Timeout(100 * time.Millisecond), nil
			}
			return v.Done(""), nil
		}),
		fsm.Step("link", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Next("end", v.State).After(10 * time.Millisecond), nil
		}),
		fsm.Step("end", done)).CrashLimit(crashLimit)
}

const crashLimit = 5

// stage is where something is held: a database, the configuration of an engine on it, and a client
// beside it, for the other session.
type stage struct {
	*testing.T

	url      string
	pool     *pgxpool.Pool
	host     *engine.Engine
	crew     *crew
	config   engine.Config
	working  bool
	stranger pgx.Tx
	held     []fsm.ID // instances that wait, and go on when the hold ends
	beside   []fsm.ID // instances that go on meanwhile, like the bystanders
}

// others is a second queue of every stage.
const others = "others"

func newStage(t *testing.T, slots int) *stage {
	t.Helper()
	s := &stage{T: t, url: pgtest.Migrated(t), crew: newCrew()}
	s.pool = pgtest.Pool(t, s.url, func(c *pgxpool.Config) { c.MaxConns = 10 })
	s.host = client(t, s.pool)
	s.config = hasty(configOn(t, s.url, s.crew.definition()))
	s.config.Queues = map[string]engine.Queue{"default": quick(slots), others: quick(3)}
	s.config.Schedules = []engine.Schedule{engine.Every("tick", time.Second, errandMachine.New(errand{}))}
	return s
}

// insert inserts errands, and requires that all of them are new.
func (s *stage) insert(specs ...fsm.Spec) []fsm.ID {
	s.Helper()
	return insertAll(s.T, s.host, specs)
}

// hold makes the other session lock rows, as a transaction that has signalled to them does.
func (s *stage) hold(ids ...fsm.ID) {
	s.Helper()
	for _, id := range ids {
		s.within(`SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
	}
}

// within sends a statement in the other session's open transaction.
func (s *stage) within(sql string, args ...any) {
	s.Helper()
	_, err := s.transaction().Exec(s.Context(), sql, args...)
	require.NoError(s, err, sql)
}

// transaction begins a transaction of the other session, which stays open.
func (s *stage) transaction() pgx.Tx {
	s.Helper()
	if s.stranger == nil {
		tx, err := s.pool.Begin(s.Context())
		require.NoError(s, err)
		s.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // before the engine stops
		s.stranger = tx
	}
	return s.stranger
}

// letGo ends the other session's transaction, and opens the gates.
func (s *stage) letGo() {
	s.Helper()
	s.crew.open("")
	if s.stranger != nil {
		require.NoError(s, s.stranger.Commit(s.Context()))
	}
	execute(s.T, s.pool, `DROP TRIGGER IF EXISTS refuse ON gendurable.gen_durable`)
}

// work starts the engine, if it has not been started.
func (s *stage) work() {
	s.Helper()
	if !s.working {
		s.working = true
		start(s.T, s.config)
	}
}

// gated starts the engine and inserts instances. When it returns, all of their steps run.
func (s *stage) gated(specs ...fsm.Spec) []fsm.ID {
	s.Helper()
	ids := s.insert(specs...)
	s.work()
	for range ids {
		<-s.crew.running
	}
	return ids
}

// bystanders inserts instances of every kind, in both queues, that need nothing of each other. It
// returns those that end by themselves.
func (s *stage) bystanders() (ids []fsm.ID) {
	s.Helper()
	var mail []fsm.ID
	for _, queue := range []string{"default", others} {
		var specs []fsm.Spec
		kinds := []string{"job", "chain", "retry", "own transaction", "family", "timer"}
		if tier.Long() {
			kinds = append(kinds, "job", "job", "job", "family")
		}
		for _, kind := range kinds {
			specs = append(specs, errandMachine.New(errand{Kind: kind}).Queue(queue))
		}
		for n := range 6 {
			specs = append(specs, errandMachine.New(errand{Kind: "chain"}).Queue(queue).PartitionKey(fmt.Sprint(queue, n%2)))
		}
		specs = append(specs, errandMachine.New(errand{Kind: "overdue"}).Queue(queue).Deadline(300*time.Millisecond))
		ids = append(ids, s.insert(specs...)...)
		mail = append(mail, s.insert(errandMachine.New(errand{Kind: "mail"}).Queue(queue).Key(fsm.Key("mail of "+queue)))...)
		// The worker of these has just gone; the second one fails by that.
		for _, crashes := range []int{0, crashLimit} {
			ids = append(ids, put(s.T, s.pool, "fsm, fsm_version, step, state, queue, status, locked_by, lease_expires_at, crashes",
				fmt.Sprintf(`'errand', 1, 'start', '{"Kind": "lost, %d times"}', '%s', 'executing', 'gone', now(), %d`, crashes, queue, crashes)))
		}
	}
	for _, id := range mail {
		_, err := s.host.Signal(s.Context(), id, word.With("go"))
		require.NoError(s, err)
	}
	_, err := s.host.SignalOrInsert(s.Context(), errandMachine.New(errand{Kind: "mail"}).Key("begun by mail"), word.With("go"))
	require.NoError(s, err)
	return append(ids, mail...)
}

// waiting lists the instances that have not ended, and whether a schedule has fired since.
func (s *stage) waiting(ids []fsm.ID, since time.Time) (who []string) {
	rows, err := s.pool.Query(s.Context(), `SELECT format('%s in %s is %s at %s, lane %s', coalesce(nullif(state->>'Kind', ''), id::text), queue, status, step, pick_lane)
		FROM gendurable.gen_durable WHERE (id = ANY($1) OR parent_id = ANY($1) OR correlation_key = 'begun by mail') AND status NOT IN ('done', 'failed')
		UNION ALL SELECT 'the schedule' WHERE NOT EXISTS (SELECT FROM gendurable.gen_durable
		WHERE correlation_key LIKE 'schedule:tick:%' AND status = 'done' AND inserted_at > $2) LIMIT 50`, ids, since)
	require.NoError(s, err)
	who, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return who
}

// whileItFails is how long the test watches a hold that still delays bystanders.
const whileItFails = 6 * time.Second

// hold is something that a session holds.
type hold struct {
	name    string
	slots   int           // of the queue "default", in which most held instances are
	begin   func(*stage)  // when it returns, it is held
	pending string        // why bystanders still wait for the hold; "": they must not
	within  time.Duration // how long they may, where that is less than the patience of the test
	crowded bool          // hundreds of instances take the processors, so that nothing else should run beside it
}

// undelayed is within how long bystanders end beside a hold that delays none of them: their own
// waits and the schedule's take 1.3 s of it, the start of an engine the most of the rest.
const undelayed = 4 * time.Second

// undelayedLost is the same for those whose worker has gone, or stands still, and for instances
// that wait behind them: their kinds begin with "lost". Their lease ends, and a reaper looks. One
// that has just begun holds off for two heartbeats, so that other workers can beat first.
func undelayedLost(c engine.Config) time.Duration {
	return undelayed + max(c.Lease, 2*c.Heartbeat) + c.Reap
}

// hasWorker reports whether one of the instances that [stage.waiting] lists waits for no lease.
func hasWorker(who []string) bool {
	return slices.ContainsFunc(who, func(w string) bool { return !strings.HasPrefix(w, "lost") })
}

func TestNobodyWaitsForWhatTheyDoNotNeed(t *testing.T) {
	t.Parallel()
	calm := &control{t: t}
	defer calm.end()
	t.Run("beside", func(t *testing.T) {
		for _, h := range holds {
			if !h.crowded {
				t.Run(h.name, func(t *testing.T) {
					t.Parallel()
					h.delaysNobody(t, calm)
				})
			}
		}
	})
}

// It runs before the parallel tests.
func TestNobodyWaitsBesideACrowd(t *testing.T) { //nolint:paralleltest // see hold.crowded
	calm := &control{t: t}
	defer calm.end()
	for _, h := range holds {
		if h.crowded {
			t.Run(h.name, func(t *testing.T) { h.delaysNobody(t, calm) })
		}
	}
}

// delaysNobody requires that bystanders end as soon as a control's do. A hold delays them each
// time, a burst of other work only once. So bystanders that were late have another attempt, and a
// third one, each beside a hold that has just begun, and from then on beside the control.
func (h *hold) delaysNobody(t *testing.T, calm *control) {
	t.Helper()
	why := ""
	for n, attempt := range []string{"once", "again", "a third time"} {
		if n > 0 {
			calm.begin()
		}
		t.Run(attempt, func(t *testing.T) { why = h.delays(t, calm) })
		if why == "" {
			return
		}
		t.Log(why)
	}
	t.Error("they were late each time")
}

// delays says why bystanders ended late, or returns "".
func (h *hold) delays(t *testing.T, calm *control) (why string) {
	t.Helper()
	s := newStage(t, h.slots)
	h.begin(s)
	since := query[time.Time](t, s.pool, `SELECT clock_timestamp()`)
	began := time.Now()
	ids := append(s.bystanders(), s.beside...)
	s.work()
	watched := cmp.Or(h.within, patience)
	if h.pending != "" {
		watched = whileItFails
	}
	var who []string
	var took time.Duration // of all but those that wait for a lease
	steady.Happens(t, watched, func() (waiting int, done bool) {
		who = s.waiting(ids, since)
		if took == 0 && !hasWorker(who) {
			took = time.Since(began)
		}
		return len(who), len(who) == 0
	})
	tookAll := time.Since(began)
	if h.pending != "" {
		s.letGo() // else the engine waits when it stops
		require.NotEmpty(t, who, "it is cured: take it off those that are pending (%s)", h.pending)
		return ""
	}
	require.Empty(t, who, "they wait for what they do not need")
	if h.within == 0 {
		why = cmp.Or(calm.late(t, undelayed, began, took), calm.late(t, undelayedLost(s.config), began, tookAll))
	}
	s.letGo()
	allDone(t, s.host, s.held...)
	return why
}

// control repeats, in a database without held rows, the work of the bystanders of each hold. It
// tells a hold that delays them from a machine that is slow, and begins when there is something to
// tell.
type control struct {
	t           *testing.T
	once        sync.Once
	stop, ended chan struct{} // nil: it has not begun

	mu     sync.Mutex
	rounds []span // the last one has not ended
}

type span struct{ began, ended time.Time }

func (c *control) begin() {
	c.once.Do(func() {
		s := newStage(c.t, 3) // as many slots as most holds leave
		s.work()
		c.mu.Lock()
		c.rounds = []span{{began: time.Now()}}
		c.mu.Unlock()
		c.stop, c.ended = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(c.ended)
			for {
				c.round(s)
				select {
				case <-c.stop:
					return
				default:
				}
			}
		}()
	})
}

func (c *control) round(s *stage) {
	since := query[time.Time](s.T, s.pool, `SELECT clock_timestamp()`)
	ids := s.bystanders()
	steady.Eventually(s.T, func() bool { return len(s.waiting(ids, since)) == 0 }, "nothing is held, and they wait")
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.rounds[len(c.rounds)-1].ended = now
	c.rounds = append(c.rounds, span{began: now})
}

func (c *control) end() {
	if c.stop != nil {
		close(c.stop)
		<-c.ended
	}
}

// late says why bystanders that took longer than bound since they began were delayed, or returns
// "". It skips the test if the machine was too slow to tell: for that it waits for the rounds that
// were under way meanwhile.
func (c *control) late(t *testing.T, bound time.Duration, began time.Time, took time.Duration) (why string) {
	t.Helper()
	if took <= bound {
		return ""
	}
	var slowest time.Duration
	steady.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := true
		for _, r := range c.rounds {
			if r.began.After(began.Add(took)) || !r.ended.IsZero() && r.ended.Before(began) {
				continue
			}
			if r.ended.IsZero() {
				all = false
			}
			slowest = max(slowest, r.ended.Sub(r.began))
		}
		return all
	}, "the control does not end")
	t.Logf("it took %v, the control %v", took, slowest)
	return steady.Late(t, bound, slowest, took)
}

// A server has few locks and connections. Work that needs more of either than there is takes its
// time, and all of it ends.
func TestASmallServersLocksAndConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		locks     string
		instances []fsm.Spec
		pending   string
	}{
		{"as many keys as there are locks, three times over", "10", func() (specs []fsm.Spec) {
			for n := range tier.Pick(1500, 2500) {
				specs = append(specs, errandMachine.New(errand{Kind: "chain"}).PartitionKey(fmt.Sprint(n)))
			}
			return specs
		}(), ""},
		{"more pools than connections", "64", errands(tier.Pick(100, 300), "chain"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c, err := pgdev.Start(t.Context(), pgdev.WithSetting("fsync", "off"), pgdev.WithSetting("max_locks_per_transaction", row.locks),
				pgdev.WithSetting("max_connections", "20"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Stop()) })
			pool := pgtest.Pool(t, c.URL(""), func(c *pgxpool.Config) { c.MaxConns = 2 })
			_, err = migrate.Migrator{Pool: pool}.Up(t.Context())
			require.NoError(t, err)
			host := client(t, pool)
			for specs := range slices.Chunk(row.instances, 500) {
				insertAll(t, host, specs)
			}
			for range 3 {
				config := engine.Config{
					Pool:     pgtest.Pool(t, c.URL(""), func(c *pgxpool.Config) { c.MaxConns = 12 }),
					Machines: []fsm.Definition{newCrew().definition()},
					Queues:   map[string]engine.Queue{"default": quick(1000)}, Logger: newJournal(t).logger(),
				}
				eng, err := engine.New(config)
				require.NoError(t, err)
				// It starts as soon as there is a connection for it.
				eventually(t, func() bool { return eng.Start(t.Context()) == nil }, "it cannot start")
				t.Cleanup(func() { require.NoError(t, stop(eng)) })
			}
			left := func() int {
				var n int
				if pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status <> 'done'`).Scan(&n) != nil {
					return -1
				}
				return n
			}
			if row.pending != "" {
				pause(t.Context(), 2*whileItFails)
				require.NotZero(t, left(), "it is cured: take it off those that are pending (%s)", row.pending)
				return
			}
			eventually(t, func() bool { return left() == 0 }, "not all have ended")
		})
	}
}
