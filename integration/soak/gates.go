package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// extra is the gate that operators drop and store again. The others are there all the time, and
// operators change their places, and close keys of theirs.
const extra = "extra"

// gates returns a gate of each kind: places per value of a label and of all values, rates of both,
// whole runs, and a ceiling of a queue.
func gates() []engine.Gate {
	return []engine.Gate{
		{Name: "tenants", Label: "tenant", Places: 2, Total: 5},
		{Name: "totals", Label: "region", Total: 3},
		{Name: "callers", Label: "caller", Rate: engine.Rate{N: 5, Per: time.Second, Burst: 3}, TotalRate: engine.Rate{N: 12, Per: time.Second, Burst: 4}},
		{Name: "orders", Label: "order", Places: 1, Run: true},
		{Name: "narrow", Queue: "narrow", Places: 5, Rate: engine.Rate{N: 20, Per: time.Second, Burst: 10}},
		{Name: extra, Machine: doomed.Name(), Places: 3},
	}
}

// values is how many values each label has.
const values = 4

// bound stores the gates, before any worker starts.
func bound(ctx context.Context, db *pgxpool.Pool) error {
	eng, err := engine.New(engine.Config{Pool: db})
	if err != nil {
		return err
	}
	for _, g := range gates() {
		if _, err := eng.Admin().SetGate(ctx, g); err != nil {
			return fmt.Errorf("store the gates: %w", err)
		}
	}
	return eng.Stop(ctx)
}

// crowd inserts some instances at once that go through one of the gates.
func (u *undertaking) crowd(ctx context.Context) {
	label := []string{"tenant", "region", "caller", "order"}[u.IntN(4)]
	var specs []fsm.Spec
	for n := range 2 + u.IntN(4) {
		w := u.work()
		w.Label, w.Busy = fmt.Sprintf("%s/%d", u.name, n), u.IntN(150)
		spec := job.New(w)
		if label == "order" || u.IntN(4) == 0 {
			w.Steps, w.Busy = 2+u.IntN(3), u.IntN(quick)
			spec = chainTwo.New(w)
		}
		specs = append(specs, spec.Label(label, fmt.Sprint(u.IntN(values))).Priority(u.IntN(3)-1))
	}
	ids, ok := u.insertMany(ctx, specs)
	if !ok {
		return
	}
	for _, id := range ids {
		u.outcome(ctx, id)
	}
}

// changeGates changes gates as operators do: it gives more places and fewer, drops one and stores
// it again, closes keys for a while, and sets weights.
func (o *operator) changeGates(ctx, life context.Context) {
	random := rand.New(rand.NewPCG(o.r.Seed, 5)) //nolint:gosec // repeatable
	all := gates()
	a := o.eng.Admin()
	for n := 0; ; n++ {
		pause(ctx, time.Duration(100+random.IntN(1500))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		g := all[random.IntN(len(all))]
		key := fmt.Sprintf("%s/%d", g.Name, random.IntN(values))
		var call func(context.Context) (bool, error)
		switch {
		case n%4 == 0:
			call = func(ctx context.Context) (bool, error) { return a.DropGate(ctx, extra) }
		case n%4 == 1 && g.Label != "":
			long := time.Duration(100+random.IntN(1500)) * time.Millisecond
			call = func(ctx context.Context) (bool, error) { return a.CloseGate(ctx, key, time.Now().Add(long)) }
		case n%8 == 2 && g.Label != "":
			places := random.IntN(4) // 0: those of the gate
			call = func(ctx context.Context) (bool, error) { return a.SetGatePlaces(ctx, key, places) }
		case n%8 == 6 && g.Label != "":
			weight := 1 + random.IntN(5)
			call = func(ctx context.Context) (bool, error) { return a.SetGateWeight(ctx, key, weight) }
		default:
			if g.Places > 0 {
				g.Places = 1 + random.IntN(4)
			}
			if g.Total > 0 {
				g.Total = 2 + random.IntN(5)
			}
			call = func(ctx context.Context) (bool, error) { return a.SetGate(ctx, g) }
		}
		if o.insist(life, call) {
			o.log.write(event{Kind: evMeddled, Label: g.Name, Detail: string(engine.VerbSetGate)})
		}
	}
}
