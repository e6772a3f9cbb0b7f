package work

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a database and the processes that work on it, in a bubble of package synctest. Time
// passes only while everybody waits, so minutes take no time, and a bubble ends only when no
// goroutine is left.
type scene struct {
	t       *testing.T
	db      *fake
	witness *witness
	journal *journal
	// Every process of the scene uses these values. Change them before start.
	config  Config
	machine step.Machine
	timeout time.Duration // of the step
	run     runFunc
	// batch is the batch step "b" of the machine, if its Run is set.
	batch step.Batch
	// onDemand lets the step read its children itself.
	onDemand bool

	running []*player
	notes   sync.Mutex
}

// runFunc is the code of a step.
type runFunc func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error)

// player is a running worker.
type player struct {
	*Worker
	s    *scene
	line *fakeLine
}

// play plays a scene in a separate bubble.
func play(t *testing.T, slots int, scene func(t *testing.T, s *scene)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { scene(t, newScene(t, slots)) })
}

// newScene makes a scene with one queue "q" of the given slots, one machine "m" with one step "s",
// and the engine's default times.
func newScene(t *testing.T, slots int) *scene {
	t.Helper()
	s := &scene{t: t, db: newFake(), journal: &journal{}}
	s.witness = newWitness(s)
	s.machine = step.Machine{Name: "m", Version: 1, Queue: "q", Initial: "s", OnError: func(_ context.Context, _ *step.Claim, err error) (*step.Commit, error) {
		return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(err), Failure: string(fsm.FailureDecided)}, nil
	}}
	s.config = Config{
		Env: &step.Env{Limits: step.Limits{}.WithDefaults()}, Queues: map[string]worker.Queue{"q": usual(slots)},
		Lease: time.Minute, Heartbeat: 20 * time.Second, Reap: 30 * time.Second, DrainTimeout: 30 * time.Second, DrainGrace: 5 * time.Second,
		RunAheadFor: time.Second, RunAheadSteps: 100, Logger: slog.New(s.journal),
	}
	s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return done(), nil }
	t.Cleanup(s.end)
	return s
}

// end stops the processes that still run, so that a failed test leaves nothing, and asks the
// witness.
func (s *scene) end() {
	s.db.mu.Lock()
	s.db.weather = weather{}
	s.db.mu.Unlock()
	for _, p := range slices.Clone(s.running) {
		_, _ = p.stop()
	}
	pace.Sleep(context.Background(), 24*time.Hour) // for steps that ignore their contexts
	require.Empty(s.t, s.witness.all())
	if s.t.Failed() {
		log := s.journal.saying("")
		s.t.Log(strings.Join(log[max(0, len(log)-40):], "\n"))
	}
}

func usual(slots int) worker.Queue {
	return worker.Queue{Concurrency: slots, PollMin: 250 * time.Millisecond, PollMax: time.Second}
}

// start starts one more process. The scene's end stops it, if the test does not.
func (s *scene) start() *player {
	p := s.player()
	p.Start()
	return p
}

// player makes one more process, which the caller starts.
func (s *scene) player() *player {
	p := &player{s: s, line: &fakeLine{db: s.db}}
	m := s.machine
	m.Steps = map[string]step.Step{"s": {Timeout: s.timeout, OnDemand: s.onDemand, Run: func(ctx context.Context, c *step.Claim) (*step.Commit, error) {
		defer s.witness.begin(p, c)()
		return s.run(ctx, p, c)
	}}}
	if s.batch.Run != nil {
		b := s.batch
		b.Run = func(ctx context.Context, members []step.Member) []step.Decided {
			defer s.witness.beginBatch(p, members)()
			return s.batch.Run(ctx, members)
		}
		m.Steps["b"] = step.Step{Timeout: s.timeout, Batch: &b, Run: func(ctx context.Context, c *step.Claim) (*step.Commit, error) {
			d := b.Run(ctx, []step.Member{{Context: ctx, Claim: c}})[0]
			return d.Commit, d.Err
		}}
	}
	c := s.config
	c.Machines = []*step.Machine{&m}
	p.Worker = assemble(c, s.db, func(worker string) beater {
		if !c.LockByLease {
			p.line.worker = worker
		}
		return p.line
	})
	s.running = append(s.running, p)
	return p
}

// stop stops a process in order, and returns what Stop returned and how long it took.
func (p *player) stop() (time.Duration, error) {
	began := time.Now()
	p.s.running = slices.DeleteFunc(p.s.running, func(other *player) bool { return other == p })
	err := p.Stop(context.WithoutCancel(p.s.t.Context()))
	return time.Since(began), err
}

func (p *player) stopped() {
	_, err := p.stop()
	require.NoError(p.s.t, err)
}

// pass lets time pass, and lets everybody finish what is due. The caller sees the results.
func (s *scene) pass(d time.Duration) {
	pace.Sleep(s.t.Context(), d)
	synctest.Wait()
}

// note guards the records of steps and hooks of several goroutines.
func (s *scene) note(f func()) {
	s.notes.Lock()
	defer s.notes.Unlock()
	f()
}

// until lets time pass until something holds.
func (s *scene) until(most time.Duration, holds func() bool, what string) {
	s.t.Helper()
	for began := time.Now(); !holds(); s.pass(max(5*time.Millisecond, time.Since(began)/1000)) {
		require.Less(s.t, time.Since(began), most, what)
	}
}

// ended waits until every row is terminal.
func (s *scene) ended(most time.Duration) {
	s.t.Helper()
	s.until(most, func() bool { return len(s.left()) == 0 }, "something never ends")
}

// left returns the ids of the instances that have not ended.
func (s *scene) left() (ids []int64) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, r := range s.db.unended() {
		if !r.terminal() {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// sent returns the statements of some kind so far, or since a time.
func (s *scene) sent(verb string, since ...time.Time) (out []statement) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, one := range s.db.sent {
		if one.verb == verb && (len(since) == 0 || !one.at.Before(since[0])) {
			out = append(out, one)
		}
	}
	return out
}

func done() *step.Commit { return &step.Commit{Kind: step.Done, Result: []byte("{}")} }
func next() *step.Commit { return &step.Commit{Kind: step.Next, Step: "s", State: []byte("{}")} }

// keyed, urgent and in edit a row to insert.
func keyed(key string) func(*row)      { return func(r *row) { r.PartitionKey = key } }
func priority(p int) func(*row)        { return func(r *row) { r.Priority = p } }
func in(queue string) func(*row)       { return func(r *row) { r.Queue = queue } }
func large(state string) func(*row)    { return func(r *row) { r.large, r.State = true, []byte(state) } }
func child(parent int64) func(*row)    { return func(r *row) { r.Parent = parent } }
func after(d time.Duration) func(*row) { return func(r *row) { r.eligible = time.Now().Add(d) } }

// forever returns a time that no test reaches.
func forever() time.Time { return time.Now().Add(1000 * time.Hour) }

// takes returns a step that works for d unless its context ends.
func takes(d time.Duration) runFunc {
	return func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
		if !pace.Sleep(ctx, d) {
			return nil, ctx.Err()
		}
		return done(), nil
	}
}

// deaf returns a step that works for d, without heeding its context.
func deaf(d time.Duration) runFunc {
	return func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
		pace.Sleep(context.WithoutCancel(ctx), d)
		return done(), nil
	}
}

// journal keeps the log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return nil
}

// saying returns the lines that contain some text.
func (j *journal) saying(text string) (out []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

var (
	_ backend = (*fake)(nil)
	_ beater  = (*fakeLine)(nil)
)
