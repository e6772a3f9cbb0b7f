// Package badinput gives the engine bad input on a real Postgres, through the public API and
// through the store. Any input must be refused with a typed error, or read back equal. No step may
// run over and over because of it, and no other instance may notice.
//
// Each property is a fuzz target. Its seeds, in the code and below testdata/fuzz, run with every
// test run, a third of those in the code in the short tier; make fuzz looks for more.
package badinput

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
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
)

func TestMain(m *testing.M) { pgtest.NoLeaks(m) }

// seeds returns what adds a seed to a target. In the short tier it adds every third, always the
// same ones. What fuzzing has found, below testdata/fuzz, runs in every tier.
func seeds(f *testing.F) func(args ...any) {
	every, n := tier.Pick(3, 1), 0
	return func(args ...any) {
		if n%every == 0 {
			f.Add(args...)
		}
		n++
	}
}

const (
	patience = 30 * time.Second
	// fewRuns is more than any instance of these tests needs: a step, its next one, a retry, and
	// handlers that fail.
	fewRuns = 8
)

// rig is an engine that works on a database of the fuzz process's own, with witnesses: instances
// that must not notice anything.
type rig struct {
	pool *pgxpool.Pool
	eng  *engine.Engine
	log  *complaints

	runs  sync.Map // fsm.ID → *atomic.Int64: how often steps of an instance ran
	plans sync.Map // fsm.Key → *plan of an instance
	gates sync.Map // int64 → chan struct{} of a witness
	count atomic.Int64
}

// witness ends with the number that it began with, once its gate opens.
var witness = fsm.Declare[int64, int64]("witness")

// start begins to run machines, which may ask the rig for their plans.
func (r *rig) start(f *testing.F, codec fsm.Codec, machines ...fsm.Definition) {
	f.Helper()
	r.pool, r.log = pgtest.Pool(f, pgtest.Migrated(f)), &complaints{}
	testify := witness.Job(func(ctx context.Context, n int64) (int64, error) {
		gate, ok := r.gates.Load(n)
		if !ok {
			return 0, nil
		}
		select {
		case <-gate.(chan struct{}): //nolint:forcetypeassert // nothing else is stored
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}).Retry(fsm.RetryPolicy{MaxAttempts: 1})
	eng, err := engine.New(engine.Config{
		Pool: r.pool, Codec: codec, Machines: append(machines, testify),
		Queues:        map[string]engine.Queue{"default": {Concurrency: 8, PollMin: 20 * time.Millisecond, PollMax: 100 * time.Millisecond}},
		RunAheadSteps: 1, // so that every step reads the stored state
		Logger:        slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Hooks:         []engine.Hooks{{Step: r.ran}},
	})
	require.NoError(f, err)
	require.NoError(f, eng.Start(f.Context()))
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(f, eng.Stop(ctx))
	})
	r.eng = eng
}

func (r *rig) ran(_ context.Context, e engine.StepEvent) {
	n, _ := r.runs.LoadOrStore(e.Instance.ID, new(atomic.Int64))
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // nothing else is stored
}

// number returns a new number at each call.
func (r *rig) number() int64 { return r.count.Add(1) }

// trial is one input under test, beside its witness.
type trial struct {
	*rig
	t       *testing.T
	bad     []fsm.ID
	keys    []fsm.Key
	open    func() // the witness's gate
	watch   *steady.Watchdog
	witness fsm.ID
	n       int64
}

// begin inserts the witness, whose outcome waits until the trial's step has one, so that both are
// committed together.
func (r *rig) begin(t *testing.T) *trial {
	t.Helper()
	gate := make(chan struct{})
	x := &trial{rig: r, t: t, open: sync.OnceFunc(func() { close(gate) }), watch: steady.Watch(t), n: r.number()}
	r.gates.Store(x.n, gate)
	var err error
	x.witness, err = r.eng.Insert(t.Context(), witness.New(x.n))
	require.NoError(t, err)
	return x
}

// finish requires that the trial harmed no other instance and that nothing ran over and over, and
// removes the trial's rows.
func (x *trial) finish() {
	x.t.Helper()
	x.open()
	i := x.ended(x.witness)
	require.Equal(x.t, fsm.StatusDone, i.Status, "the witness: %s", i.LastError)
	require.Zero(x.t, i.Attempt+i.Crashes, "the witness ran again")
	n, err := witness.DecodeResult(x.eng.Codec(), i.Result)
	require.NoError(x.t, err)
	require.Equal(x.t, x.n, n, "the witness is another")
	x.gates.Delete(x.n)
	for _, key := range x.keys {
		x.plans.Delete(key)
	}
	for _, id := range x.bad {
		if n, ok := x.runs.LoadAndDelete(id); ok {
			require.LessOrEqual(x.t, n.(*atomic.Int64).Load(), int64(fewRuns), "instance %d runs over and over", id) //nolint:forcetypeassert // as above
		}
	}
	x.runs.Delete(x.witness)
	complaints := x.log.take()
	var crashed int
	require.NoError(x.t, x.pool.QueryRow(x.t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE crashes > 0`).Scan(&crashed))
	if stood := x.watch.Stood(); crashed+len(complaints) > 0 && stood > tolerable {
		x.t.Skipf("the machine stood still for %v, so that statements were cut off: %q", stood.Round(time.Millisecond), complaints)
	}
	require.Zero(x.t, crashed, "a process died")
	require.Empty(x.t, complaints, "the engine had to try something again that will never work")
	_, err = x.pool.Exec(x.t.Context(), `DELETE FROM gendurable.gen_durable`)
	require.NoError(x.t, err)
}

func (x *trial) insert(spec fsm.Spec) (fsm.ID, error) {
	id, err := x.eng.Insert(x.t.Context(), spec)
	if err == nil {
		x.bad = append(x.bad, id)
	}
	return id, err
}

func (x *trial) ended(id fsm.ID) fsm.RawInstance {
	x.t.Helper()
	ctx, cancel := steady.Context(x.t)
	defer cancel()
	i, err := x.eng.Wait(ctx, id)
	require.NoError(x.t, err, "instance %d never ended: %+v", id, i)
	return i
}

// rested waits until an instance has ended, is parked, or is due only later.
func (x *trial) rested(id fsm.ID) (i fsm.RawInstance) {
	x.t.Helper()
	steady.Eventually(x.t, func() bool {
		var err error
		i, err = x.eng.Get(x.t.Context(), id)
		require.NoError(x.t, err)
		return i.Status.Terminal() || i.Status == fsm.StatusAwaitingSignal || i.Status == fsm.StatusRunnable && i.EligibleAt.After(time.Now().Add(soon))
	}, "instance %d neither ends nor sleeps", id)
	return i
}

// soon is a delay that rested waits for.
const soon = 200 * time.Millisecond

// tolerable is how long the machine may stand still before a lease or a statement's time may be
// over.
const tolerable = 3 * time.Second

// complaints are an engine's warnings about work that it will try again. Bad input never causes
// one.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

// Write takes one record.
func (c *complaints) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("retrying")) || bytes.Contains(p, []byte("trying again")) || bytes.Contains(p, []byte("level=ERROR")) {
		c.mu.Lock()
		c.lines = append(c.lines, strings.TrimSpace(string(p)))
		c.mu.Unlock()
	}
	return len(p), nil
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}
