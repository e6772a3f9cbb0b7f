package rollout

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrations"
)

// fleet is how many processes there are.
const fleet = 3

// many and some are how many steps a process runs before the deploy goes on.
func many() int { return tier.Pick(12, 50) }
func some() int { return tier.Pick(6, 20) }

func TestARollingDeployAcrossAMigration(t *testing.T) {
	t.Parallel()
	watchdog := steady.Watch(t)
	older, newer := builds(t)
	url := pgtest.Migrated(t)
	l := newLoad(t, url)
	parked := l.park()

	var old []*program
	for range fleet {
		p, said := run(t, older, "-url", url, "-machines", Old)
		require.Equal(t, "ready", said)
		old = append(old, p)
	}
	l.grow(Order1, Retired, Choice, Flow, Rush)
	l.ranBy(many(), old...)

	// In this order it does not work: the new build says what is missing, and changes nothing.
	early, said := run(t, newer, "-url", url, "-machines", New)
	require.Empty(t, said)
	<-early.exited
	require.True(t, early.log.has("is older than this program"))

	// The first new process migrates under the load of the old ones, which go on.
	first, said := run(t, newer, "-url", url, "-machines", New, "-migrate")
	require.Equal(t, "ready", said)
	require.ErrorContains(t, migrations.Check(t.Context(), l.pool, ""), "newer")
	l.forget()
	l.grow(Order2, Fresh)
	l.ranBy(many(), old...)
	l.ranBy(many(), first)

	// What the old processes cannot serve, the new one does not write while one of them is live. It
	// tries again, and nothing fails.
	graph := l.insert(Graph.New(Order{}))
	require.Eventually(t, func() bool { return first.log.has("release 2 can") }, patience, 20*time.Millisecond)
	require.Zero(t, l.nodes(graph))

	// An old process that starts again does not know the schema, and says so. The running ones go on
	// all the same.
	late, said := run(t, older, "-url", url, "-machines", Old)
	require.Empty(t, said)
	<-late.exited
	require.True(t, late.log.has("is newer than this program"))

	// Without this the test would show nothing.
	steady.Eventually(t, func() bool {
		return slices.ContainsFunc(old, func(p *program) bool { return p.log.has("not registered here") })
	}, "no old process meets an instance of the new ones")
	l.retire() // programs that insert such instances were deployed before, as every client is
	fleetOfNew := []*program{first}
	for n, p := range old {
		l.forget()
		p.stop()
		if n < fleet-1 {
			next, said := run(t, newer, "-url", url, "-machines", New, "-migrate")
			require.Equal(t, "ready", said)
			fleetOfNew = append(fleetOfNew, next)
			l.ranBy(some(), next)
		}
	}
	// The processes restart in turn again, as for the next release.
	again, said := run(t, newer, "-url", url, "-machines", All)
	require.Equal(t, "ready", said)
	for _, p := range fleetOfNew {
		p.stop()
	}
	l.ranBy(some(), again)
	l.stop()
	l.signal(parked...)
	l.allDone()
	require.Equal(t, 2, l.nodes(graph))
	again.stop()

	l.nothingBurned()
	for _, p := range old {
		require.Zero(t, l.count("process = $1 AND (version = 2 OR machine = 'fresh')", p.pid()), "an old process ran what it does not know")
	}
	require.NotZero(t, l.count("version = 2 AND process <> $1", again.pid()))
	watchdog.SkipIfStood(10 * time.Second) // a third of a lease
	for _, p := range append(append(old, fleetOfNew...), again) {
		require.False(t, p.log.has("level=ERROR"))
		require.False(t, p.log.has("reaped"))
	}
}

// load inserts and signals all the time, and remembers which instances have to end.
type load struct {
	t    *testing.T
	pool *pgxpool.Pool
	eng  *engine.Engine

	ctx    context.Context
	cancel context.CancelFunc
	making sync.WaitGroup
	over   atomic.Bool // no more of the retired machine

	mu  sync.Mutex
	ids []fsm.ID
}

func newLoad(t *testing.T, url string) *load {
	t.Helper()
	l := &load{t: t, pool: pgtest.Pool(t, url)}
	_, err := l.pool.Exec(t.Context(), TracesDDL)
	require.NoError(t, err)
	l.eng, err = engine.New(engine.Config{Pool: l.pool, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	l.ctx, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(l.making.Wait)
	t.Cleanup(l.cancel)
	return l
}

// streamed is how often a stream inserts an instance, where the processes keep up.
const streamed = 30 * time.Millisecond

// room waits until few instances have not ended, so that the load is one that the machine can
// bear. It reports whether the load goes on.
func (l *load) room() bool {
	for l.ctx.Err() == nil {
		var live int
		if err := l.pool.QueryRow(l.ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND pick_lane = 0`).Scan(&live); err == nil && live < 40 {
			return true
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(streamed):
		}
	}
	return false
}

// park inserts orders that wait through the whole deploy for their payment.
func (l *load) park() []fsm.ID {
	var ids []fsm.ID
	for range 20 {
		ids = append(ids, l.insert(Order1.New(Order{})))
	}
	return ids
}

// grow adds a stream of instances of some machines: with and without partition keys, short and long
// ones.
func (l *load) grow(machines ...*fsm.Machine[Order, string]) {
	for _, m := range machines {
		l.making.Go(func() {
			tick := time.NewTicker(streamed)
			defer tick.Stop()
			for n := 0; l.ctx.Err() == nil; n++ {
				if n%10 == 0 && !l.room() {
					break
				}
				if m.Name() == Retired.Name() && l.over.Load() {
					return
				}
				spec := m.New(Order{Left: n % 5, Long: n%10 == 0})
				if n%3 == 0 {
					spec = spec.PartitionKey(fmt.Sprint("key ", n%5))
				}
				if id := l.insert(spec); m.Name() == Order1.Name() {
					l.signal(id)
				}
				select {
				case <-tick.C:
				case <-l.ctx.Done():
				}
			}
		})
	}
}

func (l *load) insert(spec fsm.Spec) fsm.ID {
	id, err := l.eng.Insert(l.t.Context(), spec)
	if err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, id)
	return id
}

func (l *load) signal(ids ...fsm.ID) {
	for _, id := range ids {
		if _, err := l.eng.Signal(l.t.Context(), id, Paid.With(1)); err != nil {
			l.t.Error(err)
		}
	}
}

// retire ends the stream of the machine that the new build lacks.
func (l *load) retire() { l.over.Store(true) }

// stop ends the streams.
func (l *load) stop() {
	l.cancel()
	l.making.Wait()
}

func (l *load) count(where string, arguments ...any) (n int) {
	l.t.Helper()
	require.NoError(l.t, l.pool.QueryRow(l.t.Context(), `SELECT count(*) FROM traces WHERE `+where, arguments...).Scan(&n))
	return n
}

// nodes counts the nodes of a graph.
func (l *load) nodes(root fsm.ID) (n int) {
	l.t.Helper()
	require.NoError(l.t, l.pool.QueryRow(l.t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND node IS NOT NULL`, root).Scan(&n))
	return n
}

// forget makes ranBy count from now on.
func (l *load) forget() {
	l.t.Helper()
	_, err := l.pool.Exec(l.t.Context(), `UPDATE traces SET at = '-infinity' WHERE at <> '-infinity'`)
	require.NoError(l.t, err)
}

// ranBy waits until each of some processes has run so many steps since the last forget.
func (l *load) ranBy(steps int, by ...*program) {
	l.t.Helper()
	for _, p := range by {
		steady.Progressing(l.t, func() (ran int, enough bool) {
			ran = l.count("process = $1 AND at > '-infinity'", p.pid())
			return ran, ran >= steps
		}, "process %d", p.pid())
	}
}

// allDone waits until every instance is done.
func (l *load) allDone() {
	l.t.Helper()
	for _, id := range l.ids {
		ctx, cancel := steady.Context(l.t)
		i, err := l.eng.Wait(ctx, id)
		cancel()
		require.NoError(l.t, err, "instance %d", id)
		require.Equal(l.t, fsm.StatusDone, i.Status, "instance %d: %s", id, i.LastError)
	}
	l.t.Logf("%d instances, %d steps", len(l.ids), l.count("true"))
}

// leftOver is the condition that a join has cancelled an instance, which it did not wait for.
const leftOver = `coalesce(failure = 'cancelled' AND parent_id IS NOT NULL AND last_error LIKE 'cancelled: its parent%', false)`

// nothingBurned requires that no step ran as another attempt, no process counted as dead, and no
// handler was called. Joins have cancelled what they did not wait for, and nothing else has failed.
func (l *load) nothingBurned() {
	l.t.Helper()
	require.Zero(l.t, l.count("attempt > 0 OR crashes > 0 OR error IS NOT NULL"))
	var n int
	require.NoError(l.t, l.pool.QueryRow(l.t.Context(), `SELECT count(*) FROM gendurable.gen_durable
		WHERE (status <> 'done' OR last_error IS NOT NULL) AND NOT `+leftOver+` OR attempt > 0 OR crashes > 0`).Scan(&n))
	require.Zero(l.t, n)
	require.NoError(l.t, l.pool.QueryRow(l.t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE `+leftOver).Scan(&n))
	require.Positive(l.t, n)
}
