package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// crowd counts who is in a step at a time, by customer.
type crowd struct {
	mu       sync.Mutex
	in, most map[string]int
	entered  chan struct{}
}

func newCrowd() *crowd {
	return &crowd{in: map[string]int{}, most: map[string]int{}, entered: make(chan struct{}, 1000)}
}

func (c *crowd) enter(customer string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in[customer]++
	c.most[customer] = max(c.most[customer], c.in[customer])
	c.entered <- struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.in[customer]--
	}
}

func (c *crowd) atMost() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for name, n := range c.most {
		out[name] = n
	}
	return out
}

var charges = fsm.Declare[string, string]("charge")

// chargeIn has a first step that is behind no gate, and a second one in which it counts itself.
func chargeIn(c *crowd) fsm.Definition {
	return charges.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Next("call", v.State), nil
		}),
		fsm.Step("call", func(ctx context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			defer c.enter(v.State)()
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
			return v.Done(v.State), nil
		}))
}

// Three processes, of which one after the other is stopped in the middle of its work and replaced,
// never execute more of a customer's instances at a time than the gate has places, although each
// could keep its claims from the step before. All of them end.
func TestAGateIsNeverExceeded(t *testing.T) {
	t.Parallel()
	pool, ctx, c := pgtest.Pool(t, pgtest.Migrated(t)), within(t), newCrowd()
	admin := open(t, pool).Admin()
	changed, err := admin.SetGate(ctx, engine.Gate{Name: "calls", Machine: "charge", Step: "call", Label: "customer", Places: 2})
	require.NoError(t, err)
	require.True(t, changed)
	process := func(c2 *engine.Config) {
		c2.Machines = []fsm.Definition{chargeIn(c)}
		c2.Queues = map[string]engine.Queue{"default": {Concurrency: 10, PollMin: 10 * time.Millisecond, PollMax: 50 * time.Millisecond}}
		c2.DrainTimeout, c2.DrainGrace = time.Millisecond, 10*time.Second
	}
	var running []*engine.Engine
	for range 3 {
		e := open(t, pool, process)
		require.NoError(t, e.Start(ctx))
		running = append(running, e)
	}
	customers := []string{"acme", "zoo", "kiosk", "bakery"}
	var specs []fsm.Spec
	for i := range 200 {
		customer := customers[i%len(customers)]
		specs = append(specs, charges.New(customer).Label("customer", customer))
	}
	ids, err := running[0].InsertMany(ctx, specs)
	require.NoError(t, err)
	for i := range running {
		for range 20 {
			<-c.entered
		}
		require.NoError(t, running[i].Stop(ctx))
		running[i] = working(t, pool, process)
	}
	for _, id := range ids {
		_, err := charges.Wait(ctx, running[0], id.ID)
		require.NoError(t, err)
	}
	for customer, most := range c.atMost() {
		require.LessOrEqual(t, most, 2, customer)
	}
	require.Len(t, c.atMost(), len(customers))
	require.Eventually(t, func() bool {
		gates, err := admin.Gates(ctx)
		return err == nil && gates[0].Taken == 0 && gates[0].Waiting == 0
	}, testPatience, testGlance)
}

// A gate that is set, changed and dropped while the work goes on is obeyed by running processes,
// and Why names the instances that hold its places.
func TestAGateIsObeyedAtOnce(t *testing.T) {
	w := newWard(t)
	ctx, admin := within(t), w.e.Admin()
	set := func(places int) {
		_, err := admin.SetGate(ctx, engine.Gate{Name: "kids", Label: "house", Places: places, Closed: places == 0})
		require.NoError(t, err)
	}
	set(0)
	kid := func() fsm.ID { return w.insert(children.New("x").Label("house", "red").Queue("other")) }
	// The process knows of the gate once it has put an instance in line.
	require.Eventually(t, func() bool {
		w.insert(ticket.New("probe").Label("house", "blue"))
		gates, err := admin.Gates(ctx)
		return err == nil && gates[0].Waiting > 0
	}, testPatience, testGlance)
	first := kid()
	w.becomes(first, engine.CauseGateClosed)
	set(1)
	w.becomes(first, engine.CauseRunning)
	second := kid()
	cause := w.becomes(second, engine.CauseGate)[0]
	require.Equal(t, engine.Cause{Kind: engine.CauseGate, Names: []string{"kids/red"}, IDs: []fsm.ID{first}, Count: 1}, cause)
	require.Equal(t, fmt.Sprintf("all 1 places of gate kids/red are taken: [%v]", first), cause.String())
	w.becomes(w.insert(children.New("buffered").Queue("other")), engine.CauseRunning) // its queue claims no more
	changed, err := admin.DropGate(ctx, "kids")
	require.NoError(t, err)
	require.True(t, changed)
	w.becomes(second, engine.CauseSlots) // those of its queue
	close(w.free)
	_, err = children.Wait(ctx, w.e, second)
	require.NoError(t, err)
	gates, err := admin.Gates(ctx)
	require.NoError(t, err)
	require.Empty(t, gates)
}

func TestGatesThatAreWrong(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	rate := func(n int, per time.Duration, burst int) engine.Rate {
		return engine.Rate{N: n, Per: per, Burst: burst}
	}
	for field, gates := range map[string][]engine.Gate{
		"name":       {{}, {Name: "a/b"}, {Name: strings.Repeat("x", 65)}, {Name: "\xff"}},
		"queue":      {{Name: "g", Queue: strings.Repeat("x", 513)}},
		"machine":    {{Name: "g", Machine: "\x00"}, {Name: "g", Step: "s", Places: 1}},
		"step":       {{Name: "g", Machine: "m", Step: strings.Repeat("x", 513)}},
		"label":      {{Name: "g", Label: strings.Repeat("x", 65)}},
		"places":     {{Name: "g"}, {Name: "g", Places: -1}, {Name: "g", Places: 10_001}, {Name: "g", Run: true}},
		"closed":     {{Name: "g", Places: 1, Closed: true}},
		"total":      {{Name: "g", Total: 1}, {Name: "g", Label: "l", Total: -1}, {Name: "g", Label: "l", Total: 10_001}},
		"rate":       {{Name: "g", Rate: rate(-1, 0, 0)}, {Name: "g", Rate: rate(1, 1, 0)}, {Name: "g", Rate: rate(1, 9000*time.Hour, 0)}, {Name: "g", Rate: rate(1, 0, -1)}, {Name: "g", Rate: rate(0, 1, 0)}, {Name: "g", Rate: rate(1_000_001, 0, 0)}},
		"total_rate": {{Name: "g", TotalRate: rate(1, 0, 0)}, {Name: "g", Label: "l", TotalRate: rate(1, 0, 1_000_001)}},
		"cost_label": {{Name: "g", Places: 1, CostLabel: "c"}, {Name: "g", Rate: rate(1, 0, 0), CostLabel: strings.Repeat("x", 65)}},
		"adapt":      {{Name: "g", Places: 1, Adapt: true}},
		"run":        {{Name: "g", Places: 1, Run: true, Rate: rate(1, 0, 0)}, {Name: "g", Places: 1, Run: true, Machine: "m", Step: "s"}},
		"fair":       {{Name: "g", Fair: true}, {Name: "g", Label: "l", Places: 1, Fair: true}},
	} {
		for _, g := range gates {
			_, err := e.Admin().SetGate(t.Context(), g)
			wrong, ok := errors.AsType[*engine.VerbError](err)
			require.True(t, ok, "%+v", g)
			require.Equal(t, engine.VerbSetGate, wrong.Verb)
			require.Equal(t, field, wrong.Field, "%+v", g)
		}
	}
	_, err := e.Admin().DropGate(t.Context(), "a/b")
	require.ErrorContains(t, err, "slash")
}

// SetGate stores a rate that its burst is too small for, and logs a warning.
func TestARateThatIsNotReachedIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e, _ := client(t, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for _, c := range []struct {
		rate engine.Rate
		said bool
	}{
		{engine.Rate{N: 50}, false},
		{engine.Rate{N: 51}, true},
		{engine.Rate{N: 1000, Burst: 20}, false},
		{engine.Rate{N: 60_000, Per: time.Minute, Burst: 19}, true},
	} {
		for _, g := range []engine.Gate{{Name: "g", Rate: c.rate}, {Name: "g", Label: "l", TotalRate: c.rate}} {
			log.Reset()
			_, err := e.Admin().SetGate(t.Context(), g)
			require.NoError(t, err)
			require.Equal(t, c.said, strings.Contains(log.String(), "does not reach its rate"), "%+v", g)
		}
	}
}

// A gate is listed as it was set, with its defaults, and setting it again changes nothing.
func TestGatesAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx, minute := t.Context(), engine.Rate{N: 7, Per: time.Minute, Burst: 3}
	for _, g := range []engine.Gate{
		{Name: "g", Queue: "q", Machine: "m", Step: "s", Label: "l", Places: 10_000},
		{Name: "g", Label: "l", Places: 3, Rate: minute, Total: 5, TotalRate: engine.Rate{N: 100}, CostLabel: "tokens", Adapt: true},
		{Name: "g", Rate: engine.Rate{N: 1}},
		{Name: "g", Label: "customer", Places: 1, Run: true},
		{Name: "g", Label: "tenant", Fair: true},
		{Name: "g", Closed: true},
		{Name: "g", Rate: minute, Closed: true},
	} {
		for _, want := range []bool{true, false} {
			changed, err := e.Admin().SetGate(ctx, g)
			require.NoError(t, err)
			require.Equal(t, want, changed, "%+v", g)
		}
		for _, r := range []*engine.Rate{&g.Rate, &g.TotalRate} {
			if r.N > 0 && r.Per == 0 {
				r.Per, r.Burst = time.Second, 1
			}
		}
		gates, err := e.Admin().Gates(ctx)
		require.NoError(t, err)
		require.Equal(t, []engine.GateStatus{{Gate: g}}, gates)
	}
	lag, err := e.GateLag(ctx, "g", "none")
	require.NoError(t, err)
	require.Equal(t, map[string]time.Duration{"g": 0, "none": 0}, lag)
	for _, want := range []bool{true, false} {
		changed, err := e.Admin().DropGate(ctx, "g")
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
}

func TestKeysOfGates(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx, a := t.Context(), e.Admin()
	_, err := a.SetGate(ctx, engine.Gate{Name: "each", Label: "customer", Places: 1})
	require.NoError(t, err)
	_, err = a.SetGate(ctx, engine.Gate{Name: "all", Places: 1})
	require.NoError(t, err)
	long := strings.Repeat("é", 300)
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Millisecond)
	for i, c := range []struct {
		change func() (bool, error)
		want   bool
	}{
		{func() (bool, error) { return a.CloseGate(ctx, "each/acme", tomorrow) }, true},
		{func() (bool, error) { return a.CloseGate(ctx, "each/acme", tomorrow) }, false},
		{func() (bool, error) { return a.CloseGate(ctx, "each/"+long, time.Time{}) }, true},
		{func() (bool, error) { return a.CloseGate(ctx, "each/"+long[:600], time.Time{}) }, false},
		{func() (bool, error) { return a.CloseGate(ctx, "all", time.Time{}) }, true},
		{func() (bool, error) { return a.OpenGate(ctx, "all") }, true},
		{func() (bool, error) { return a.OpenGate(ctx, "all") }, false},
		{func() (bool, error) { return a.OpenGate(ctx, "each") }, false},
		{func() (bool, error) { return a.SetGateWeight(ctx, "each/zoo", 1) }, false},
		{func() (bool, error) { return a.SetGateWeight(ctx, "each/zoo", 7) }, true},
		{func() (bool, error) { return a.SetGateWeight(ctx, "each/zoo", 7) }, false},
		{func() (bool, error) { return a.SetGateWeight(ctx, "all", 3) }, true},
		{func() (bool, error) { return a.SetGateWeight(ctx, "all", 1) }, true},
		{func() (bool, error) { return a.SetGatePlaces(ctx, "each/zoo", 4) }, true},
		{func() (bool, error) { return a.SetGatePlaces(ctx, "each/zoo", 4) }, false},
		{func() (bool, error) { return a.SetGatePlaces(ctx, "each/bar", 9) }, true},
		{func() (bool, error) { return a.SetGatePlaces(ctx, "each/bar", 0) }, true},
		{func() (bool, error) { return a.SetGatePlaces(ctx, "each/bar", 0) }, false},
		{func() (bool, error) { return a.CloseGate(ctx, "each/past", time.Unix(1, 0)) }, true},
	} {
		changed, err := c.change()
		require.NoError(t, err, i)
		require.Equal(t, c.want, changed, i)
	}
	keys, err := a.GateKeys(ctx, "each")
	require.NoError(t, err)
	require.ElementsMatch(t, []engine.GateKey{
		{Key: "each/acme", Weight: 1, Pace: 1, ClosedUntil: tomorrow},
		{Key: "each/" + strings.Repeat("é", 256), Weight: 1, Pace: 1, ClosedUntil: engine.GateForGood},
		{Key: "each/zoo", Weight: 7, Places: 4, Pace: 1},
	}, keys)
	keys, err = a.GateKeys(ctx, "all")
	require.NoError(t, err)
	require.Empty(t, keys)
	closed := func() map[string]time.Time {
		gates, err := a.Gates(ctx)
		require.NoError(t, err)
		until := map[string]time.Time{}
		for _, g := range gates {
			until[g.Name] = g.ClosedUntil
			require.Equal(t, map[string]int{"each": 2}[g.Name], g.ClosedKeys, "those that are closed now, of single values")
		}
		return until
	}
	require.Equal(t, map[string]time.Time{"each": {}, "all": {}}, closed(), "keys are closed, and no gate")
	for _, until := range []time.Time{tomorrow, engine.GateForGood} {
		_, err = a.CloseGate(ctx, "all", until)
		require.NoError(t, err)
		require.Equal(t, map[string]time.Time{"each": {}, "all": until}, closed())
	}
	_, err = a.CloseGate(ctx, "all", time.Unix(1, 0))
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"each": {}, "all": {}}, closed(), "its time is over")
	for want, do := range map[string]func() error{
		"close_gate: key":          func() error { _, err := a.CloseGate(ctx, "all/acme", tomorrow); return err },
		"close_gate: until":        func() error { _, err := a.CloseGate(ctx, "all", engine.GateForGood.Add(1)); return err },
		"open_gate: key":           func() error { _, err := a.OpenGate(ctx, "a\x00/b"); return err },
		"set_gate_weight: weight":  func() error { _, err := a.SetGateWeight(ctx, "each/zoo", 0); return err },
		"set_gate_places: places":  func() error { _, err := a.SetGatePlaces(ctx, "each/zoo", -1); return err },
		"set_gate_places: places ": func() error { _, err := a.SetGatePlaces(ctx, "each/zoo", 10_001); return err },
		"set_gate_places: key":     func() error { _, err := a.SetGatePlaces(ctx, "each", 1); return err },
		"set_gate_places: key ":    func() error { _, err := a.SetGatePlaces(ctx, "all/zoo", 1); return err },
		"set_gate_weight: weight ": func() error { _, err := a.SetGateWeight(ctx, "each/zoo", 101); return err },
	} {
		wrong, ok := errors.AsType[*engine.VerbError](do())
		require.True(t, ok, want)
		require.Equal(t, strings.TrimSpace(want), fmt.Sprintf("%s: %s", wrong.Verb, wrong.Field))
	}
	_, err = a.CloseGate(ctx, "other/acme", tomorrow)
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = a.GateKeys(ctx, "a/b")
	require.Error(t, err)
}

// An instance behind another gate begins as soon beside thousands of keys of a closed gate as one
// without a gate in another queue.
func TestAGateBesideManyKeysOfAClosedOne(t *testing.T) {
	w := newWard(t)
	close(w.free)
	ctx, admin := within(t), w.e.Admin()
	_, err := admin.SetGate(ctx, engine.Gate{Name: "closed", Label: "house", Closed: true})
	require.NoError(t, err)
	_, err = admin.SetGate(ctx, engine.Gate{Name: "open", Machine: "child", Label: "tenant", Places: 1})
	require.NoError(t, err)
	_, err = w.pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
		SELECT 'ticket', 'start', 'default', 3, 'closed/' || n, jsonb_build_object('house', n::text) FROM generate_series(1, $1::int) n`, tier.Pick(5_000, 100_000))
	require.NoError(t, err)
	_, err = w.pool.Exec(ctx, `VACUUM ANALYZE gendurable.gen_durable`)
	require.NoError(t, err)
	one := func(spec fsm.Spec) func(context.Context) error {
		return func(ctx context.Context) error {
			for range 5 {
				id, err := w.e.Insert(ctx, spec)
				if err == nil {
					_, err = children.Wait(ctx, w.e, id)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	steady.Within(t, 5*time.Second, one(children.New("").Queue("other")), one(children.New("").Label("tenant", "x")))
}

// An instance in line at a closed gate goes on as soon as a narrower gate comes to concern it, or
// its own does not any more, although the closed one never lets it be looked at.
func TestInstancesFollowTheGates(t *testing.T) {
	w := newWard(t)
	close(w.free)
	ctx, admin := within(t), w.e.Admin()
	set := func(g engine.Gate) {
		_, err := admin.SetGate(ctx, g)
		require.NoError(t, err)
	}
	lined := func(id fsm.ID) {
		require.Eventually(t, func() bool {
			row, err := w.e.Ent().Instance.Get(ctx, id)
			return err == nil && row.PickLane == 3 && *row.Gate == "all/red"
		}, testPatience, testGlance)
	}
	set(engine.Gate{Name: "all", Label: "house", Closed: true})
	require.Eventually(t, func() bool { // the process knows of the gate once it has put somebody in line
		w.insert(ticket.New("probe").Label("house", "blue"))
		gates, err := admin.Gates(ctx)
		require.NoError(t, err)
		return gates[0].Waiting > 0
	}, testPatience, testGlance)
	kid, other := w.insert(children.New("x").Label("house", "red")), w.insert(ticket.New("A1").Label("house", "red"))
	lined(kid)
	lined(other)
	set(engine.Gate{Name: "kids", Machine: "child", Label: "house", Places: 1})
	_, err := children.Wait(ctx, w.e, kid)
	require.NoError(t, err)
	lined(other)
	set(engine.Gate{Name: "all", Machine: "nobody", Label: "house", Closed: true})
	w.becomes(other, engine.CauseSignals)
}
