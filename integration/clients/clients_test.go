package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
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

// recorder records the calls of all clients.
type recorder struct {
	began time.Time

	m       sync.Mutex
	history []porcupine.Operation
	numbers map[fsm.ID]int // of instances, as far as a client was told
	ids     []fsm.ID
	next    int
}

// number is a new number of an instance.
func (r *recorder) number() int {
	r.m.Lock()
	defer r.m.Unlock()
	r.next++
	return r.next
}

// record makes a call, and records it. It leaves out what has no effect and no answer.
func (r *recorder) record(client int, in call, happen func() answer) {
	at := time.Since(r.began).Nanoseconds()
	out := happen()
	until := time.Since(r.began).Nanoseconds()
	if out.Told == unknown {
		if in.Verb == get || in.Verb == wait {
			return
		}
		until = math.MaxInt64 // it may take effect at any time
	}
	r.m.Lock()
	defer r.m.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: client, Input: in, Call: at, Output: out, Return: until})
}

// client calls through its own engine.
type client struct {
	*recorder

	t      *testing.T
	n      int
	eng    *engine.Engine
	random *rand.Rand
	bits   *atomic.Uint64
	pause  time.Duration // at most so long before each call
}

// patience is how long one call may take. Calls without an answer by then are unknown.
const patience = 5 * time.Second

// call makes one call of a client's.
func (c *client) call(ctx context.Context, in call) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	key := fsm.Key(in.Key)
	if in.Verb == insert {
		in.N = c.number()
	}
	if in.Verb == add {
		in.Bit = 1 << c.bits.Add(1)
	}
	c.record(c.n, in, func() answer {
		switch in.Verb {
		case insert:
			id, err := c.eng.Insert(ctx, purses.New(purse{N: in.N}).Key(key))
			if taken := (*engine.DuplicateError)(nil); errors.As(err, &taken) {
				return answer{Told: refused, N: c.known(taken.Occupant)}
			}
			if err == nil {
				c.learn(id, in.N)
			}
			return answer{Told: c.told(in, err)}
		case add:
			_, err := c.eng.Signal(ctx, key, coin.With(in.Bit))
			return answer{Told: c.told(in, err, engine.ErrNoTarget)}
		case end:
			_, err := c.eng.Signal(ctx, key, closed.With(struct{}{}))
			return answer{Told: c.told(in, err, engine.ErrNoTarget)}
		case cancel:
			_, err := c.eng.Admin().Cancel(ctx, key)
			return answer{Told: c.told(in, err, engine.ErrNotFound, engine.ErrConflict)}
		case get:
			i, err := c.eng.Get(ctx, key)
			if err == nil && i.Status.Terminal() { // none occupied the key when it looked
				return answer{Told: refused}
			}
			return c.read(in, i, err)
		default:
			i, err := c.eng.Wait(ctx, c.id(in.N))
			return c.read(in, i, err)
		}
	})
}

// told sorts an error: refusals are what the verb says if it does not apply.
func (c *client) told(in call, err error, refusals ...error) told {
	if err == nil {
		return ok
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return refused
		}
	}
	if !errors.Is(err, engine.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Logf("%+v: %v", in, err)
	}
	return unknown
}

// read is the answer of a call that reads an instance.
func (c *client) read(in call, i fsm.RawInstance, err error) answer {
	out := answer{Told: c.told(in, err, engine.ErrNotFound)}
	if out.Told != ok {
		return out
	}
	var s purse
	if err := json.Unmarshal(i.State, &s); err != nil {
		c.t.Errorf("instance %d: %v", i.ID, err)
	}
	out.N, out.Bits = s.N, s.Bits
	switch {
	case i.Status == fsm.StatusDone:
		out.Ended = "done"
		if err := json.Unmarshal(i.Result, &out.Bits); err != nil {
			c.t.Errorf("instance %d: %v", i.ID, err)
		}
	case i.Failure == fsm.FailureCancelled:
		out.Ended = "cancelled"
	case i.Status.Terminal():
		out.Ended = fmt.Sprint(i.Failure, ": ", i.LastError)
	}
	return out
}

func (r *recorder) known(id fsm.ID) int {
	r.m.Lock()
	defer r.m.Unlock()
	return r.numbers[id]
}

func (r *recorder) learn(id fsm.ID, n int) {
	r.m.Lock()
	defer r.m.Unlock()
	r.numbers[id] = n
	r.ids = append(r.ids, id)
}

func (r *recorder) id(n int) fsm.ID {
	r.m.Lock()
	defer r.m.Unlock()
	for id, of := range r.numbers {
		if of == n {
			return id
		}
	}
	return 0
}

// some returns the number of some instance that was inserted not long ago, 0 if none is known.
func (r *recorder) some(random *rand.Rand) int {
	r.m.Lock()
	defer r.m.Unlock()
	if len(r.ids) == 0 {
		return 0
	}
	return r.numbers[r.ids[max(0, len(r.ids)-1-random.IntN(3))]]
}

// odds is how often a client calls each verb.
var odds = []verb{insert, insert, insert, add, add, add, add, add, add, end, cancel, get, get, get, wait}

// run makes n calls about a key.
func (c *client) run(ctx context.Context, key string, n int) {
	for range n {
		if c.pause > 0 {
			pace.Sleep(ctx, time.Duration(c.random.Int64N(int64(c.pause))))
		}
		in := call{Key: key, Verb: odds[c.random.IntN(len(odds))]}
		if in.Verb == wait {
			if in.N = c.some(c.random); in.N == 0 {
				continue
			}
			short, stop := context.WithTimeout(ctx, 100*time.Millisecond) // it may live on: then there is no answer
			c.call(short, in)
			stop()
			continue
		}
		c.call(ctx, in)
	}
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
// out what has become of each instance.
func (f *fleet) play(seed uint64, key string, calls int) []porcupine.Operation {
	t := f.t
	r := &recorder{began: time.Now(), numbers: map[fsm.ID]int{}}
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
	for n, e := range f.clients {
		c := &client{r, t, n, e, rand.New(rand.NewPCG(seed, uint64(n+1))), &bits, pause} //nolint:gosec // a plan
		group.Go(func() { c.run(t.Context(), key, calls) })
	}
	group.Wait()
	close(over)
	cutter.Wait()

	last := &client{r, t, len(f.clients), f.clients[0], random, &bits, 0}
	for range 3 { // a connection may still be cut when it is next used
		last.call(t.Context(), call{Key: key, Verb: end})
	}
	steady.Eventually(t, func() bool { // what may be unknown comes to rest as well
		i, err := last.eng.Get(t.Context(), fsm.Key(key))
		return errors.Is(err, engine.ErrNotFound) || err == nil && i.Status.Terminal()
	})
	for _, id := range r.ids {
		last.call(t.Context(), call{Key: key, Verb: wait, N: r.numbers[id]})
	}
	return r.history
}

// count returns how often calls were answered so.
func count(history []porcupine.Operation, verb verb, told told) (n int) {
	for _, o := range history {
		if o.Input.(call).Verb == verb && o.Output.(answer).Told == told {
			n++
		}
	}
	return n
}

// long bounds the search for an order.
const long = 20 * time.Second

// check asks porcupine whether there is an order.
func check(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(sequential, history, long)
}

// TestCallsAreLinearizable records histories of one key each, and has them checked. SEED decides
// the calls of the clients and the cuts, N the number of histories.
func TestCallsAreLinearizable(t *testing.T) {
	t.Parallel()
	sum := newFleet(t, 4, false).explained(tier.Size(t, "N", 6, 20, 500))
	for _, met := range []string{"insert ok", "insert refused", "add ok", "add refused", "add unknown", "cancel ok", "cancel refused", "get ok", "wait ok"} {
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
func (f *fleet) explained(n int) (sum map[string]int) {
	t := f.t
	seed := uint64(tier.Size(t, "SEED", 1, 1, 1)) //nolint:gosec // any number
	sum = map[string]int{}
	for i := range n {
		key := fmt.Sprint("key ", i)
		history := f.play(seed+uint64(i)*1000, key, 12) //nolint:gosec // any number
		switch check(history) {
		case porcupine.Ok:
		case porcupine.Illegal:
			for _, o := range history {
				t.Logf("%d: %d to %d: %s", o.ClientId, o.Call/1000, o.Return/1000, sequential.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("SEED=%d: no order explains what the clients of %s were told", seed, key)
		case porcupine.Unknown:
			t.Logf("%s: the search for an order took too long", key)
			sum["unchecked"]++
		}
		for _, v := range []verb{insert, add, end, cancel, get, wait} {
			for _, how := range []told{ok, refused, unknown} {
				sum[fmt.Sprint(v, " ", how)] += count(history, v, how)
			}
		}
		broken(t, history)
	}
	t.Logf("%d histories, %d cuts: %v", n, f.cuts, sum)
	require.LessOrEqual(t, sum["unchecked"], 1+n/10)
	return sum
}

// broken breaks one answer of a history after the other, each so that no order can explain it.
func broken(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	for i, o := range history {
		in, out := o.Input.(call), o.Output.(answer)
		var why string
		switch {
		case in.Verb == wait && out.Ended == "done":
			why, out.Bits = "a signal that nobody has sent", out.Bits|1<<63
		case in.Verb == wait && out.Ended == "cancelled":
			why, out.Ended = "another end than the others were told", "done"
			if count(history, wait, ok) < 2 || !twice(history, in.N) {
				continue
			}
		case in.Verb == get && out.Told == ok:
			why, out.N = "an instance that nobody has inserted", 1_000_000
		default:
			continue
		}
		other := append([]porcupine.Operation(nil), history...)
		other[i].Output = out
		require.NotEqual(t, porcupine.Ok, check(other), "%s: %+v", why, o)
		return
	}
}

// twice reports whether several calls were told how an instance ended.
func twice(history []porcupine.Operation, n int) bool {
	told := 0
	for _, o := range history {
		if in := o.Input.(call); in.Verb == wait && in.N == n && o.Output.(answer).Told == ok {
			told++
		}
	}
	return told > 1
}

// Histories that no order explains, by hand.
func TestBrokenHistories(t *testing.T) {
	t.Parallel()
	yes, no := answer{Told: ok}, answer{Told: refused}
	done := func(n int, bits uint64) answer { return answer{Told: ok, N: n, Bits: bits, Ended: "done"} }
	inserted := call{Verb: insert, N: 1}
	for _, c := range []struct {
		name  string
		right bool
		calls []call
		told  []answer
	}{
		{"all is well", true, []call{inserted, {Verb: add, Bit: 1}, {Verb: end}, {Verb: wait, N: 1}}, []answer{yes, yes, yes, done(1, 1)}},
		{"a signal is lost", false, []call{inserted, {Verb: add, Bit: 1}, {Verb: end}, {Verb: wait, N: 1}}, []answer{yes, yes, yes, done(1, 0)}},
		{"a refused signal is taken", false, []call{inserted, {Verb: end}, {Verb: add, Bit: 1}, {Verb: wait, N: 1}}, []answer{yes, yes, no, done(1, 1)}},
		{"an unknown signal is taken", true, []call{inserted, {Verb: add, Bit: 1}, {Verb: end}, {Verb: wait, N: 1}}, []answer{yes, {Told: unknown}, yes, done(1, 1)}},
		{"an unknown signal is not taken", true, []call{inserted, {Verb: add, Bit: 1}, {Verb: end}, {Verb: wait, N: 1}}, []answer{yes, {Told: unknown}, yes, done(1, 0)}},
		{"two have a key", false, []call{inserted, {Verb: insert, N: 2}}, []answer{yes, yes}},
		{"a key is refused that nobody has", false, []call{inserted, {Verb: cancel}, {Verb: insert, N: 2}}, []answer{yes, yes, no}},
		{"a key is free once it is closed", true, []call{inserted, {Verb: end}, {Verb: insert, N: 2}, {Verb: wait, N: 1}}, []answer{yes, yes, yes, done(1, 0)}},
		{"a cancelled one is done", false, []call{inserted, {Verb: cancel}, {Verb: wait, N: 1}}, []answer{yes, yes, done(1, 0)}},
		{"an accepted signal has no target", false, []call{{Verb: add, Bit: 1}}, []answer{yes}},
		{"a read goes back", false, []call{inserted, {Verb: add, Bit: 1}, {Verb: get}, {Verb: get}},
			[]answer{yes, yes, {Told: ok, N: 1, Bits: 1}, {Told: ok, N: 1}}},
		{"a result changes", false, []call{inserted, {Verb: end}, {Verb: add, Bit: 1}, {Verb: wait, N: 1}, {Verb: wait, N: 1}},
			[]answer{yes, yes, yes, done(1, 1), done(1, 0)}},
	} {
		var history []porcupine.Operation
		for i, in := range c.calls {
			history = append(history, porcupine.Operation{Input: in, Call: int64(2 * i), Output: c.told[i], Return: int64(2*i + 1)})
		}
		want := map[bool]porcupine.CheckResult{true: porcupine.Ok, false: porcupine.Illegal}[c.right]
		require.Equal(t, want, check(history), c.name)
	}
}
