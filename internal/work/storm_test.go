package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/worker"
)

// TestStorm runs random work on two or three processes that come and go, in random weather. No work
// may be lost, overlap in a key, take more than its slots or stay behind. And unless a lease has
// really expired, no attempt may be spent. The seed is in the name of the subtest. It determines
// work and weather, but not which goroutine goes first.
func TestStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(tier.Size(t, "SEEDS", 30, 300, 5000)) { //nolint:gosec // a few thousand
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newStorm(t, seed).blow() })
		})
	}
}

// storm is a scene in which chance decides.
type storm struct {
	*scene
	seed  uint64
	rand  *rand.Rand // for the test's own goroutine only
	fleet []*player
	rough bool // the weather makes leases expire
}

func newStorm(t *testing.T, seed uint64) *storm {
	st := &storm{scene: newScene(t, 0), seed: seed, rand: rand.New(rand.NewPCG(seed, 0))}
	st.rough = st.chance(0.3)
	st.config.Queues = map[string]worker.Queue{"q": usual(1 + st.rand.IntN(8)), "slow": usual(1 + st.rand.IntN(2))}
	if st.chance(0.3) {
		q := st.config.Queues["q"]
		q.Buffer = st.rand.IntN(10)
		st.config.Queues["q"] = q
	}
	st.config.RunAheadSteps = []int{1, 3, 100}[st.rand.IntN(3)]
	st.config.LockByLease = st.chance(0.2)
	st.machine.CrashLimit = []int{0, 20}[st.rand.IntN(2)]
	st.machine.OnError = st.handle
	st.run = st.behave
	if st.chance(0.4) {
		st.batch = step.Batch{Most: 1 + st.rand.IntN(8), Within: time.Duration(st.rand.IntN(3)*st.rand.IntN(1500)) * time.Millisecond, Run: st.behaveTogether}
		if st.chance(0.5) {
			st.batch.Key = func(c *step.Claim) (string, error) { return fmt.Sprint(c.ID % 3), nil }
		}
	}
	st.witness.lax = st.rough
	st.brew()
	return st
}

func (st *storm) chance(p float64) bool { return st.rand.Float64() < p }

// brew makes the weather.
func (st *storm) brew() {
	w := &st.db.weather
	w.rand = rand.New(rand.NewPCG(st.seed, 1))
	slowest := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond}[st.rand.IntN(4)]
	w.latency = func(string) time.Duration { return rand.N(slowest + 1) }
	if st.chance(0.5) {
		w.leftOut, w.missed, w.collision = 0.1, 0.1, 0.05
	}
	ill := []float64{0, 0.05, 0.3}[st.rand.IntN(3)]
	w.answers = func(verb, _ string) answer {
		if !w.happens(ill) {
			return fair
		}
		what := []answer{deadlock, cut, lostDone, lostNever, lostLate}[w.rand.IntN(5)]
		switch {
		case verb == "commit":
		case what == lostLate, what == lostDone && (verb == "claim" || verb == claimedRows) && !st.rough: // a claim of which nobody knows waits for its lease
			what = lostNever
		}
		return what
	}
}

// blow inserts work, lets processes come and go until all work has ended, and stops them.
func (st *storm) blow() {
	for range 2 + st.rand.IntN(2) {
		st.fleet = append(st.fleet, st.start())
	}
	for range 25 {
		st.event()
	}
	st.db.mu.Lock()
	st.db.weather.answers = nil // lost connections would keep the reaper from its work
	st.db.mu.Unlock()
	for began := time.Now(); len(st.left()) > 0; st.pass(time.Second) {
		require.Less(st.t, time.Since(began), 20*time.Minute, "instances %v never end", st.left())
	}
	for i := range st.fleet {
		st.stop(i)
	}
	st.judge()
}

// work inserts an instance.
func (st *storm) work() {
	r := st.db.insert(priority(st.rand.IntN(3)), after(time.Duration(max(0, st.rand.IntN(4)-2))*time.Second))
	st.db.change(r.ID, func(r *row) {
		if st.chance(0.4) {
			r.PartitionKey = fmt.Sprint("key ", st.rand.IntN(3))
		}
		if st.chance(0.2) {
			r.Queue = "slow"
		}
		if st.batch.Run != nil && st.chance(0.6) {
			r.Step = "b"
		}
		if st.chance(0.1) {
			r.Deadline = time.Now().Add(time.Duration(st.rand.IntN(20_000)) * time.Millisecond)
		}
	})
	if st.chance(0.5) {
		st.fleet[st.rand.IntN(len(st.fleet))].Nudge("q", "slow")
	}
}

// event makes something happen, and lets some time pass.
func (st *storm) event() {
	i := st.rand.IntN(len(st.fleet))
	switch p := st.fleet[i]; st.rand.IntN(30) {
	case 0: // a rolling restart
		st.stop(i)
		st.fleet[i] = st.start()
	case 1:
		if st.rough {
			p.line.cut()
		}
	case 2: // a stranger's transaction
		if left := st.left(); len(left) > 0 {
			until := time.Now().Add(time.Duration(st.rand.IntN(5)) * time.Second)
			st.db.change(left[st.rand.IntN(len(left))], func(r *row) { r.held = until })
		}
	case 3:
		st.outage()
	default:
		st.work()
	}
	st.pass(time.Duration(st.rand.IntN(1000)) * time.Millisecond)
}

// stop stops a process. It may have to leave outcomes to their leases only if the database does not
// answer.
func (st *storm) stop(i int) {
	if _, err := st.fleet[i].stop(); !st.rough {
		require.NoError(st.t, err)
	}
}

// outage takes the database away: for a moment, or for longer than the leases.
func (st *storm) outage() {
	w, kind := &st.db.weather, cut
	lasts := time.Duration(st.rand.IntN(8)) * time.Second
	if st.rough && st.chance(0.2) {
		lasts, kind = 2*time.Minute, []answer{cut, silent}[st.rand.IntN(2)]
	}
	st.db.mu.Lock()
	before := w.answers
	w.answers = func(string, string) answer { return kind }
	st.db.mu.Unlock()
	st.pass(lasts)
	st.db.mu.Lock()
	w.answers = before
	if st.chance(0.5) {
		st.db.booted = time.Now()
	}
	st.db.mu.Unlock()
}

// behave is a step. Its behaviour depends on the seed, the instance and how often that has run.
func (st *storm) behave(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
	runs := uint64(len(st.witness.runs(c.ID)))
	r := rand.New(rand.NewPCG(st.seed<<32|uint64(c.ID), runs))
	if d := time.Duration(r.IntN(300)) * time.Millisecond; r.IntN(3) == 0 && !pace.Sleep(ctx, d) {
		return nil, ctx.Err()
	}
	if c.Queue == "slow" && !pace.Sleep(ctx, 3*time.Second) {
		return nil, ctx.Err()
	}
	if runs > 12 {
		return done(), nil
	}
	o := next()
	if st.batch.Run != nil && r.IntN(3) == 0 {
		o.Step = "b"
	}
	switch r.IntN(20) {
	case 0:
		o.Delay = time.Duration(r.IntN(5000)) * time.Millisecond
	case 1:
		o.Kind, o.State, o.Delay = step.Retry, nil, time.Duration(r.IntN(3))*time.Second
	case 2:
		o.Kind, o.Names, o.Timeout = step.Await, []string{"x"}, time.Duration(1+r.IntN(3000))*time.Millisecond
	case 3:
		if c.Depth == 0 {
			o.Kind, o.Spawn = step.Children, make([]step.Spec, 1+r.IntN(3))
		}
	case 4:
		return nil, fmt.Errorf("an error of run %d", runs)
	case 5:
		panic("a panic")
	case 6:
		runtime.Goexit()
	case 7:
		o.State = []byte(`"` + poison + `"`)
	case 8:
		pace.Sleep(context.WithoutCancel(ctx), 2*time.Second) // it ignores its context
	case 9, 10, 11, 12, 13:
		return done(), nil
	}
	return o, nil
}

// behaveTogether is a batch step. Each instance behaves as alone, unless the call fails as a whole.
func (st *storm) behaveTogether(ctx context.Context, members []step.Member) []step.Decided {
	first := members[0].Claim
	r := rand.New(rand.NewPCG(st.seed<<32|uint64(first.ID), uint64(len(st.witness.runs(first.ID)))<<16))
	decided := make([]step.Decided, len(members))
	failed := fmt.Errorf("an error of %d", len(members))
	switch r.IntN(12) {
	case 0:
		runtime.Goexit()
	case 1:
		pace.Sleep(context.WithoutCancel(ctx), 2*time.Second)
	case 2:
		for i := range decided {
			decided[i].Err = failed
		}
		return decided
	}
	for i, m := range members {
		out, failed := guard(func() (*step.Commit, error) { return st.behaveQuietly(m.Context, m.Claim) })
		decided[i].Commit = out
		if failed != nil {
			decided[i].Err = failed.safe
		}
	}
	return decided
}

// behaveQuietly is behave without what ends the goroutine of a whole batch.
func (st *storm) behaveQuietly(ctx context.Context, c *step.Claim) (out *step.Commit, err error) {
	err = errors.New("the goroutine has ended")
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if recover() != nil {
				err = errors.New("a panic")
			}
		}()
		out, err = st.behave(ctx, nil, c)
	}()
	<-over
	return out, err
}

// handle is the machine's handler: it retries, gives up, fails, or returns an outcome that Postgres
// refuses.
func (st *storm) handle(_ context.Context, c *step.Claim, failed error) (*step.Commit, error) {
	r := rand.New(rand.NewPCG(st.seed<<32|uint64(c.ID), uint64(len(st.witness.runs(c.ID)))<<32))
	switch r.IntN(8) {
	case 0:
		panic("the handler's")
	case 1:
		runtime.Goexit()
	case 2:
		return &step.Commit{Kind: step.Retry, State: []byte(`"` + poison + `"`)}, nil
	case 3:
		return &step.Commit{Kind: step.Fail, Err: failed.Error(), Failure: string(fsm.FailureDecided)}, nil
	}
	return &step.Commit{Kind: step.Retry, Delay: time.Second, Err: step.SanitizeError(failed)}, nil
}

// judge checks the rows that the storm has left.
func (st *storm) judge() {
	st.db.mu.Lock()
	defer st.db.mu.Unlock()
	for id, r := range st.db.rows {
		require.Empty(st.t, r.worker, "instance %d is still claimed", id)
		if !st.rough {
			require.Zero(st.t, r.Crashes, "instance %d lost its worker, which nothing in this weather explains", id)
		}
		ends := slices.IndexFunc(r.outcomes, func(k step.Kind) bool { return k == step.Done || k == step.Fail })
		if ends < 0 && r.failure == string(fsm.FailureDeadline) {
			require.False(st.t, r.Deadline.IsZero() || r.Deadline.After(time.Now()), "instance %d is failed by a deadline that is none", id)
			continue
		}
		require.Equal(st.t, len(r.outcomes)-1, ends, "instance %d: outcomes after its end", id)
	}
	require.Empty(st.t, st.db.lines, "a worker is still taken for alive")
}
