package integration

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// reaps counts the claims that an engine reaps, through its hooks.
func reaps(c engine.Config) (engine.Config, *atomic.Int64) {
	var n atomic.Int64
	c.Hooks = append(c.Hooks, engine.Hooks{Reap: func(_ context.Context, e engine.ReapEvent) { n.Add(int64(e.Released + e.Failed)) }})
	return c, &n
}

// leg is a machine that goes a long way in short steps, and counts the executions of each visit.
type leg struct {
	mu   sync.Mutex
	runs map[fsm.ID]map[int64]int
}

var legMachine = fsm.Declare[counter, int]("leg")

const legs = 12

func (l *leg) definition() fsm.Definition {
	return legMachine.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
		l.mu.Lock()
		if l.runs[v.ID] == nil {
			l.runs[v.ID] = map[int64]int{}
		}
		l.runs[v.ID][v.Visit]++
		l.mu.Unlock()
		if v.State.N == legs {
			return v.Done(v.State.N), nil
		}
		return v.Next("start", counter{v.State.N + 1}), nil
	}))
}

// total returns how many executions all visits of all instances have had.
func (l *leg) total() (total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, visits := range l.runs {
		for _, n := range visits {
			total += n
		}
	}
	return total
}

func TestADatabaseThatGoesAwayAndComesBackLosesNothing(t *testing.T) {
	t.Parallel()
	server := ownCluster(t)
	l := &leg{runs: map[fsm.ID]map[int64]int{}}
	log := newJournal(t)
	c := hasty(configOn(t, server.URL(""), l.definition()))
	c.RunAheadSteps = 1
	c.Logger = log.logger()
	eng := start(t, c)
	specs := make([]fsm.Spec, tier.Pick(200, 1000))
	for n := range specs {
		specs[n] = legMachine.New(counter{})
		if n%10 == 0 {
			specs[n] = specs[n].PartitionKey(strconv.Itoa(n % 70))
		}
	}
	ids := insertAll(t, eng, specs)
	for part := range tier.Pick(2, 3) {
		eventually(t, func() bool { return l.total() > (part+1)*len(ids)*legs/5 })
		server.crash()
		server.comeBack()
	}
	allDone(t, eng, ids...)
	for _, id := range ids {
		require.JSONEq(t, strconv.Itoa(legs), string(get(t, eng, id).Result))
		require.EqualValues(t, legs, get(t, eng, id).Visit)
	}
	// Which loop meets the fault is chance: there is no claim while all slots are taken.
	require.NotEmpty(t, log.lines("level=WARN", "retrying", "fault=transient"))
	log.isShort(t)
	require.Empty(t, log.lines("level=ERROR"))
}

// outage is a fault during which no lease can be extended.
type outage struct {
	name       string
	begin, end func(c cluster)
}

func outages() []outage {
	return []outage{
		{"server away", cluster.crash, cluster.comeBack},
		{"read-only", func(c cluster) { c.readOnly(true) }, func(c cluster) { c.readOnly(false) }},
		{"read-only and hung up", func(c cluster) { c.readOnly(true); c.hangUp() }, func(c cluster) { c.readOnly(false); c.hangUp() }},
	}
}

// When the database is back, every lease has expired, also of claims that are still held: their
// holders must be able to say so first.
func TestAnOutageLongerThanTheLeaseCostsNoLiveClaim(t *testing.T) {
	t.Parallel()
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			server := ownCluster(t)
			gate := make(chan struct{})
			var running atomic.Int64
			m := fsm.Declare[int, int]("enduring")
			def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
				running.Add(1)
				<-gate
				return v.Done(v.State), nil
			})).OnError(func(_ context.Context, _ *fsm.Visit[int, int], err error) (fsm.Outcome, error) {
				return nil, errors.Join(errors.New("handled"), err)
			})
			log := newJournal(t)
			c, reaped := reaps(hasty(configOn(t, server.URL(""), def)))
			c.Logger = log.logger()
			eng := start(t, c)
			// The other engine has no claims to extend: only the database can tell it about the outage.
			idle, reapedByOther := reaps(hasty(configOn(t, server.URL(""), plainJob())))
			start(t, idle)
			var specs []fsm.Spec
			for n := range 20 {
				specs = append(specs, m.New(n))
			}
			ids := insertAll(t, eng, specs)
			eventually(t, func() bool { return running.Load() == 20 })

			o.begin(server)
			pass(t, c.Lease+c.Lease/4)
			o.end(server)

			// Leases are extended again and again, and no other engine reaped them before.
			afterwards := pgtest.Pool(t, server.URL(""))
			beaten := query[time.Time](t, afterwards, `SELECT clock_timestamp() + $1`, c.Lease+c.Lease/2)
			eventually(t, func() bool {
				return query[int](t, afterwards, `SELECT count(*) FROM gendurable.gen_durable WHERE lease_expires_at > $1`, beaten) == 20 ||
					reaped.Load()+reapedByOther.Load() > 0
			})
			close(gate)
			allDone(t, eng, ids...)
			require.Zero(t, reaped.Load()+reapedByOther.Load(), "live claims were reaped")
			require.EqualValues(t, 20, running.Load(), "steps ran twice")
			log.says(t, "level=WARN", "cannot heartbeat; retrying")
			log.isShort(t)
			require.Empty(t, log.lines("level=ERROR"))
		})
	}
}

// The contexts of the steps end, since they may have lost their claims. If they have not, no
// attempt is burned.
func TestAnOutageLongerThanTheLeaseBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	server := ownCluster(t)
	gate := make(chan struct{})
	var running atomic.Int64
	causes := make(chan error, 100)
	m := fsm.Declare[int, int]("listening")
	def := m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		running.Add(1)
		select {
		case <-gate:
			return v.Done(v.Attempt + v.Crashes), nil
		case <-ctx.Done():
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}))
	c := hasty(configOn(t, server.URL(""), def))
	c.DrainGrace = 10 * time.Millisecond
	eng := start(t, c)
	ids := insertAll(t, eng, []fsm.Spec{m.New(1), m.New(2), m.New(3).PartitionKey("k")})
	eventually(t, func() bool { return running.Load() == 3 })
	server.crash()
	for range 3 {
		require.ErrorIs(t, <-causes, fsm.ErrLeaseLost)
	}
	pass(t, 3*c.Lease)
	server.comeBack()
	eventually(t, func() bool { return running.Load() >= 6 }) // more often where a heartbeat is late again
	close(gate)
	allDone(t, eng, ids...)
	for _, id := range ids {
		require.JSONEq(t, "0", string(get(t, eng, id).Result), "attempts were burned")
	}
}

// pass lets time pass where the fault itself consists of time.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func TestStopIsBoundedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := ownCluster(t)
	m := fsm.Declare[int, int]("late")
	gate := make(chan struct{})
	var running atomic.Int64
	c := hasty(configOn(t, server.URL(""), m.Job(func(context.Context, int) (int, error) {
		running.Add(1)
		<-gate
		return 1, nil
	})))
	c.DrainTimeout, c.DrainGrace = 300*time.Millisecond, 300*time.Millisecond
	eng, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	for n := range 40 {
		insert(t, eng, m.New(n))
	}
	eventually(t, func() bool { return running.Load() == 20 })
	server.crash()
	close(gate)
	stopped := make(chan error, 1)
	go func() { stopped <- eng.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		require.Error(t, err, "it cannot have committed them")
	case <-time.After(2 * patience):
		t.Fatal("Stop never returned")
	}
}
