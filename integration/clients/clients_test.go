package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/calls"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// purse takes bits until it is closed. Then it is done with what it has taken.
type purse struct {
	N    int    `json:"n"`
	Bits uint64 `json:"bits"`
}

var (
	purses = fsm.Declare[purse, uint64]("purse")
	coin   = fsm.DeclareSignal[uint64]("coin")
	closed = fsm.DeclareSignal[struct{}]("closed")
)

// define defines the machine. A step that takes coins takes so long.
func define(takes time.Duration) fsm.Definition {
	return purses.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[purse, uint64]) (fsm.Outcome, error) {
			return v.Await("take", v.State, coin, closed), nil
		}),
		fsm.Step("take", func(ctx context.Context, v *fsm.Visit[purse, uint64]) (fsm.Outcome, error) {
			pace.Sleep(ctx, takes)
			s := v.State
			bits, err := coin.All(v)
			if err != nil {
				return nil, err
			}
			for _, b := range bits {
				s.Bits |= b
			}
			if _, over, err := closed.First(v); err != nil || over {
				return v.Done(s.Bits), err
			}
			return v.Await("take", s, coin, closed), nil
		}))
}

var workerQueues = map[string]engine.Queue{"default": {PollMin: 5 * time.Millisecond, PollMax: 50 * time.Millisecond}}

// purseCalls is how clients call about purses, each through its own engine.
type purseCalls struct{ eng *engine.Engine }

func (p purseCalls) Insert(ctx context.Context, key fsm.Key, n int) (fsm.ID, error) {
	return p.eng.Insert(ctx, purses.New(purse{N: n}).Key(key))
}

func (p purseCalls) Add(ctx context.Context, key fsm.Key, bit uint64) error {
	_, err := p.eng.Signal(ctx, key, coin.With(bit))
	return err
}

func (p purseCalls) Close(ctx context.Context, key fsm.Key) error {
	_, err := p.eng.Signal(ctx, key, closed.With(struct{}{}))
	return err
}

func (p purseCalls) Cancel(ctx context.Context, key fsm.Key) error {
	_, err := p.eng.Admin().Cancel(ctx, key)
	return err
}

func (p purseCalls) Get(ctx context.Context, key fsm.Key) (fsm.RawInstance, error) {
	return p.eng.Get(ctx, key)
}

func (p purseCalls) Wait(ctx context.Context, id fsm.ID) (fsm.RawInstance, error) {
	return p.eng.Wait(ctx, id)
}

// Read takes the bits of a purse that is done from its result.
func (p purseCalls) Read(i fsm.RawInstance) (n int, bits uint64, err error) {
	var s purse
	if err := json.Unmarshal(i.State, &s); err != nil {
		return 0, 0, err
	}
	if i.Status == fsm.StatusDone {
		err = json.Unmarshal(i.Result, &s.Bits)
	}
	return s.N, s.Bits, err
}

// patience is how long one call may take. Calls without an answer by then are unknown.
const patience = 5 * time.Second

// client returns a client with its own random calls.
func (f *fleet) client(r *calls.Recorder, number int, eng *engine.Engine, random *rand.Rand, bits *atomic.Uint64) *calls.Client {
	return &calls.Client{Recorder: r, Purses: purseCalls{eng}, Number: number, Random: random, Patience: patience,
		Bit:    func(string) uint64 { return 1 << bits.Add(1) },
		Wonder: func(in calls.Call, err error) { f.t.Logf("%+v: %v", in, err) }}
}

// fleet is what a history runs on.
type fleet struct {
	t       *testing.T
	proxy   *proxy
	clients []*engine.Engine
	cuts    int
	crew    *crew // nil: engines of this process work
}

// newFleet returns a fleet of clients and two workers, which are processes or engines of this one.
func newFleet(t *testing.T, clients int, processes bool) *fleet {
	t.Helper()
	direct := pgtest.Migrated(t)
	p, through := newProxy(t, direct)
	f := &fleet{t: t, proxy: p}
	engineOn := func(c engine.Config) *engine.Engine {
		c.Pool = pgtest.Pool(t, through, func(c *pgxpool.Config) { c.MaxConns = 3 })
		c.Logger = slog.New(slog.DiscardHandler)
		e, err := engine.New(c)
		require.NoError(t, err)
		return e
	}
	if processes {
		f.crew = newCrew(t, through, 2)
	}
	for range 2 {
		if processes {
			break
		}
		e := engineOn(engine.Config{Machines: []fsm.Definition{define(0)}, Lease: 3 * time.Second, Heartbeat: 500 * time.Millisecond, Queues: workerQueues})
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	}
	for range clients {
		f.clients = append(f.clients, engineOn(engine.Config{}))
	}
	return f
}

// play lets clients make calls about one key at a time, while connections are cut, and then finds
// out what has become of each instance. The recorder also writes a file, which has to read the
// same.
func (f *fleet) play(seed uint64, key string, n int) []calls.Operation {
	t := f.t
	var file bytes.Buffer
	r := calls.NewRecorder(time.Now(), 1, 1, &file)
	var bits atomic.Uint64
	over := make(chan struct{})
	var cutter, group sync.WaitGroup
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a plan
	cutter.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
			}
			if f.proxy.cut(random.IntN(2) == 0) {
				f.cuts++
			}
		}
	})
	var pause time.Duration
	if f.crew != nil {
		pause = callPause
		disturber := rand.New(rand.NewPCG(seed, 1<<32)) //nolint:gosec // a plan
		cutter.Go(func() { f.crew.disturb(over, disturber) })
	}
	for number, e := range f.clients {
		c := f.client(r, number, e, rand.New(rand.NewPCG(seed, uint64(number+1))), &bits) //nolint:gosec // a plan
		c.Pause = pause
		group.Go(func() {
			for range n {
				c.Some(t.Context(), key)
			}
		})
	}
	group.Wait()
	close(over)
	cutter.Wait()

	last := f.client(r, len(f.clients), f.clients[0], random, &bits)
	for range 3 { // a connection may still be cut when it is next used
		last.Make(t.Context(), calls.Call{Key: key, Verb: calls.Close})
	}
	steady.Eventually(t, func() bool { // what may be unknown comes to rest as well
		i, err := f.clients[0].Get(t.Context(), fsm.Key(key))
		return errors.Is(err, engine.ErrNotFound) || err == nil && i.Status.Terminal()
	})
	for _, in := range r.Waits() {
		last.Make(t.Context(), in)
	}
	history, err := r.History()
	require.NoError(t, err)
	read, err := calls.Read(&file)
	require.NoError(t, err)
	for i := range history { // a reader knows more occupants than a client did at the time
		if history[i].Told == calls.Refused && history[i].Verb == calls.Insert && history[i].Answer.N == 0 {
			history[i].Answer.N = read[i].Answer.N
		}
	}
	require.Equal(t, history, read)
	return read
}

// TestCallsAreLinearizable records histories of one key each, and has them checked. SEED decides
// the calls of the clients and the cuts, N the number of histories.
func TestCallsAreLinearizable(t *testing.T) {
	t.Parallel()
	sum := newFleet(t, 4, false).explained(tier.Size(t, "N", 6, 20, 500))
	for _, met := range []Met{
		{calls.Insert, calls.OK}, {calls.Insert, calls.Refused}, {calls.Add, calls.OK}, {calls.Add, calls.Refused}, {calls.Add, calls.Unknown},
		{calls.Cancel, calls.OK}, {calls.Cancel, calls.Refused}, {calls.Get, calls.OK}, {calls.Wait, calls.OK},
	} {
		require.NotZero(t, sum[met], met)
	}
}

// TestCallsAreLinearizableWhileWorkersDie does the same while the processes that work are killed,
// and stopped for longer than their leases.
func TestCallsAreLinearizableWhileWorkersDie(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, true)
	f.explained(tier.Size(t, "PROCESSES", 2, 5, 200))
	t.Logf("%d kills, %d stops, %d outcomes came too late", f.crew.kills, f.crew.stops, f.crew.stale.Load())
	require.NotZero(t, f.crew.kills+f.crew.stops)
}

// explained plays n histories, requires that some order explains each, and returns how often calls
// were answered how.
func (f *fleet) explained(n int) Counts {
	t := f.t
	tier.Figure(t, "%d histories", n)
	seed := uint64(tier.Size(t, "SEED", 1, 1, 1)) //nolint:gosec // any number
	sum, unchecked := Counts{}, 0
	for i := range n {
		key := fmt.Sprint("key ", i)
		history := f.play(seed+uint64(i)*1000, key, 12) //nolint:gosec // any number
		switch Explains(history) {
		case porcupine.Ok:
		case porcupine.Illegal:
			Print(t.Output(), history)
			t.Fatalf("SEED=%d: no order explains what the clients of %s were told", seed, key)
		case porcupine.Unknown:
			t.Logf("%s: the search for an order took too long", key)
			unchecked++
		}
		for met, times := range Count(history) {
			sum[met] += times
		}
		broken(t, history)
	}
	t.Logf("%d histories, %d cuts: %v", n, f.cuts, sum)
	require.LessOrEqual(t, unchecked, 1+n/10)
	return sum
}

// broken breaks one answer of a history after the other, each so that no order can explain it.
func broken(t *testing.T, history []calls.Operation) {
	t.Helper()
	for i, o := range history {
		var why string
		switch {
		case o.Verb == calls.Wait && o.Ended == "done":
			why, o.Bits = "a signal that nobody has sent", o.Bits|1<<63
		case o.Verb == calls.Wait && o.Ended == "cancelled":
			why, o.Ended = "another end than the others were told", "done"
			if !twice(history, o.Call.N) {
				continue
			}
		case o.Verb == calls.Get && o.Told == calls.OK:
			why, o.Answer.N = "an instance that nobody has inserted", 1_000_000
		default:
			continue
		}
		other := slices.Clone(history)
		other[i] = o
		require.NotEqual(t, porcupine.Ok, Explains(other), "%s: %+v", why, o)
		return
	}
}

// twice reports whether several calls were told how an instance ended.
func twice(history []calls.Operation, n int) bool {
	told := 0
	for _, o := range history {
		if o.Verb == calls.Wait && o.Call.N == n && o.Told == calls.OK {
			told++
		}
	}
	return told > 1
}
