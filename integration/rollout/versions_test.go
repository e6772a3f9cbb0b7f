package rollout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// shortLease lets what a killed process held go on soon.
const shortLease = "5s"

// TestARollingDeployOfVersions runs processes of version 1 and version 2 of a machine side by side,
// of a machine with one step more, too. It rolls forward, back and forward again under load, kills
// a process of each build, and migrates eagerly meanwhile. No instance fails or is lost, each has
// the right state in the end, and no instance pays an attempt but for the kills.
func TestARollingDeployOfVersions(t *testing.T) {
	t.Parallel()
	rounds := tier.Size(t, "ROLLOUT_ROUNDS", 1, 1, 5) // of rolling back and forward again
	path := build(t)
	url := pgtest.Migrated(t)
	v := &voyage{load: newLoad(t, url), want: map[fsm.ID]string{}, path: path, url: url}
	parked := v.park()
	v.sail(func(n int) { v.trip(Trip1.New(TripV1{Cents: n, Left: n % 5}), n) })
	v.sail(func(n int) { v.add(Errand.New(n), strconv.Itoa(n+1)) })
	one := v.run(One, 2)
	v.ranBy(many(), one...)
	var two []*program
	for round := range rounds {
		if round == 0 { // clients of the new release, which go on through the roll-back
			v.sail(func(n int) { v.add(Errand.New(n).Step("inspect"), strconv.Itoa(n)) })
			v.sail(func(n int) { v.trip(Trip2.New(Trip{n, n % 5, "EUR"}), n) })
		}
		v.forget()
		two = v.run(Two, 1)
		v.ranBy(many(), append(two, one...)...)
		one[0].kill()
		v.migrate()
		v.forget()
		v.ranBy(many(), one[1], two[0])

		// The deploy is rolled back: instances that have come to version 2 wait.
		one = append(one[1:], v.run(One, 1)...)
		two[0].stop()
		v.aside("pick_lane = 2 AND fsm = 'trip' AND fsm_version = 2")
		v.aside("pick_lane = 4 AND fsm = 'errand' AND aside_step = 'inspect'")
		v.forget()
		v.ranBy(many(), one...)

		// And forward again.
		two = v.run(Two, 2)
		v.forget()
		v.ranBy(many(), two...)
		two[0].kill()
		two = two[1:]
		v.migrate()
		if round+1 < rounds {
			two[0].stop()
		}
	}
	for _, p := range one {
		p.stop()
	}
	v.stop()
	for _, id := range parked {
		v.depart(id)
	}
	v.migrate()
	v.settled()
	two[0].stop()
	require.NotZero(t, v.count("version = 1"))
	require.NotZero(t, v.count("version = 2 AND instance IN (SELECT instance FROM traces WHERE version = 1)"), "nothing was converted")
}

// voyage is the load of the test, which knows how each instance has to end.
type voyage struct {
	*load
	want      map[fsm.ID]string // under load.mu
	path, url string
}

// run starts programs.
func (v *voyage) run(machines string, n int) (all []*program) {
	v.t.Helper()
	for range n {
		p, said := run(v.t, v.path, "-url", v.url, "-machines", machines, "-lease", shortLease)
		require.Equal(v.t, "ready", said)
		all = append(all, p)
	}
	return all
}

// sail calls a function over and over, until the load stops.
func (v *voyage) sail(once func(n int)) {
	v.making.Go(func() {
		tick := time.NewTicker(streamed)
		defer tick.Stop()
		for n := 0; v.ctx.Err() == nil; n++ {
			if n%10 == 0 && !v.room() {
				break
			}
			once(n)
			select {
			case <-tick.C:
			case <-v.ctx.Done():
			}
		}
	})
}

func (v *voyage) add(spec fsm.Spec, want string) fsm.ID {
	id := v.insert(spec)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.want[id] = want
	return id
}

// trip inserts a trip that begins with n cents and goes n % 5 steps, and lets it depart: the signal
// counts as one more. Some have partition keys, under which trips of both versions stand in line.
func (v *voyage) trip(spec fsm.Spec, n int) {
	if n%3 == 0 {
		spec = spec.PartitionKey(fmt.Sprint("key ", n%5))
	}
	v.depart(v.add(spec, Price(n+n%5+1)))
}

func (v *voyage) depart(id fsm.ID) {
	if _, err := v.eng.Signal(v.t.Context(), id, Depart.With(1)); err != nil {
		v.t.Error(err)
	}
}

// park inserts trips that wait through the whole deploy: for their signal, or paused.
func (v *voyage) park() (ids []fsm.ID) {
	for n := range 20 {
		ids = append(ids, v.add(Trip1.New(TripV1{Cents: n, Left: 2}), Price(n+3)))
	}
	return ids
}

// migrate brings what waits to version 2 at once, by an engine that runs no steps.
func (v *voyage) migrate() {
	v.t.Helper()
	eng, err := engine.New(engine.Config{Pool: v.pool, Machines: Machines(Two, Traces{Pool: v.pool})})
	require.NoError(v.t, err)
	plan, err := eng.Admin().Migrate(v.t.Context(), Trip1.Name(), 1, 2)
	require.NoError(v.t, err)
	require.NoError(v.t, plan.Err())
	require.Empty(v.t, plan.Waiting, "every step is named")
	done, err := plan.Apply(v.t.Context(), engine.Actor("deploy"))
	require.NoError(v.t, err)
	require.NoError(v.t, done.Plan.Err())
	v.t.Logf("migrated eagerly: %d of %d", done.Moved, plan.Ready)
}

// aside waits until some instances are set aside as given, at the cost of no attempt.
func (v *voyage) aside(where string) {
	v.t.Helper()
	steady.Eventually(v.t, func() bool {
		var n int
		err := v.pool.QueryRow(v.t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND `+where).Scan(&n)
		require.NoError(v.t, err)
		return n > 0
	}, "nothing was set aside: %s", where)
}

// settled waits until every instance has ended, and requires that each has ended as it has to.
func (v *voyage) settled() {
	v.t.Helper()
	for id, want := range v.want {
		ctx, cancel := steady.Context(v.t)
		i, err := v.eng.Wait(ctx, id)
		cancel()
		if errors.Is(err, context.Canceled) {
			why, _ := v.eng.Admin().Why(v.t.Context(), id)
			require.Fail(v.t, "an instance does not end", "instance %d: %+v %+v", id, i, why)
		}
		require.NoError(v.t, err, "instance %d", id)
		require.Equal(v.t, fsm.StatusDone, i.Status, "instance %d: %s", id, i.LastError)
		require.JSONEq(v.t, strconv.Quote(want), string(i.Result), "instance %d", id)
	}
	var lost, odd, crashed int
	require.NoError(v.t, v.pool.QueryRow(v.t.Context(), `SELECT count(*) FILTER (WHERE status <> 'done'), count(*) FILTER (WHERE attempt <> crashes OR paused),
		$1 - count(*) FROM gendurable.gen_durable`, len(v.want)).Scan(&odd, &crashed, &lost))
	require.Equal(v.t, []int{0, 0, 0}, []int{odd, crashed, lost}, "not done, attempts that no crash explains, lost")
	require.Zero(v.t, v.count("attempt <> crashes OR error IS NOT NULL"))
	v.t.Logf("%d instances, %d steps, %d of them after a crash", len(v.want), v.count("true"), v.count("crashes > 0"))
}
