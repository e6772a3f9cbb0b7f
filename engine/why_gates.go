package engine

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/gatekey"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/internal/store"
)

// gates looks what the gates allow through which an instance has to go next: the one at which it is
// in line, or will be once a claim meets it, and the one of its queue.
func (w *why) gates(ctx context.Context) error {
	rows, err := w.tx.Gate.Query().All(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	gates := make(store.Gates, len(rows))
	for i, r := range rows {
		gates[i] = gateRule(r)
	}
	key := gates.Of(w.row.Queue, w.row.Machine, w.row.Step, w.row.Labels, w.row.RunGate != nil)
	if w.row.PickLane == lineLane {
		key = text(w.row.Gate)
	}
	if g := gates.Named(key); g != nil {
		if err := w.atGate(ctx, g, key); err != nil {
			return err
		}
	}
	own := gates.OfQueue(w.row.Queue)
	if own == nil {
		return nil
	}
	if err := w.closed(ctx, own, own.Name); err != nil {
		return err
	}
	if err := w.places(ctx, CauseGate, own.Name, own.Places, instance.Queue(own.Queue), instance.SeatNotNil()); err != nil {
		return err
	}
	return w.rate(ctx, own.Name, own.Rate, 1, 0)
}

// atGate looks at the gate of a key.
func (w *why) atGate(ctx context.Context, g *store.Gate, key string) error {
	if err := w.closed(ctx, g, key); err != nil {
		return err
	}
	if g.Run {
		return w.places(ctx, CauseGateRun, key, g.Places, instance.RunGate(key), instance.RunPlaceNotNil(), instance.FinishedAtIsNil())
	}
	if err := w.places(ctx, CauseGate, key, g.Places, instance.Gate(key), instance.PlaceNotNil()); err != nil {
		return err
	}
	if g.Total > 0 {
		if err := w.places(ctx, CauseGate, g.Name, g.Total, instance.GateHasPrefix(g.Name+"/"), instance.PlaceNotNil()); err != nil {
			return err
		}
	}
	if g.Rate.N == 0 && g.TotalRate.N == 0 {
		return nil
	}
	ahead, err := w.aheadInLine(ctx, key)
	if err != nil {
		return err
	}
	cost := 1.0
	if ahead == 0 {
		cost = costAt(g, w.row.Labels)
	}
	if err := w.rate(ctx, key, g.Rate, cost, ahead); err != nil || g.Label == "" {
		return err
	}
	return w.rate(ctx, g.Name, g.TotalRate, cost, ahead)
}

// lineLane is the lane of instances in line.
const lineLane = 3

// closed looks who has closed a gate, or one key of it.
func (w *why) closed(ctx context.Context, g *store.Gate, key string) error {
	if g.Places == 0 || g.Total == 0 {
		w.add(Cause{Kind: CauseGateClosed, Names: []string{g.Name}})
	}
	rows, err := w.tx.GateKey.Query().Where(gatekey.IDIn(key, g.Name), gatekey.ClosedUntilGT(w.now)).Order(gatekey.ByClosedUntil()).All(ctx)
	if err != nil {
		return err
	}
	for _, k := range rows {
		w.add(Cause{Kind: CauseGateClosed, Names: []string{k.ID}, Until: k.ClosedUntil.UTC()})
	}
	return nil
}

// places looks whether all places are taken, and by whom.
func (w *why) places(ctx context.Context, kind CauseKind, key string, most int, held ...predicate.Instance) error {
	if most <= 0 {
		return nil
	}
	ids, err := w.tx.Instance.Query().Where(held...).Order(instance.ByID()).Limit(most).IDs(ctx)
	if err != nil || len(ids) < most {
		return err
	}
	c := Cause{Kind: kind, Names: []string{key}, IDs: ids[:min(len(ids), whyList)], Count: most}
	if kind == CauseGateRun {
		first, err := w.tx.Instance.Query().Where(instance.ID(ids[0])).Select(instance.FieldStatus, instance.FieldStep).Only(ctx)
		if err != nil {
			return err
		}
		c.Names = append(c.Names, string(first.Status), first.Step)
	}
	w.add(c)
	return nil
}

// rate looks whether the rate of a key leaves enough for an instance by now, and if not, when.
func (w *why) rate(ctx context.Context, key string, r store.Rate, cost float64, ahead int) error {
	if r.N == 0 {
		return nil
	}
	k, err := w.tx.GateKey.Get(ctx, key)
	if ent.IsNotFound(err) {
		return nil // nothing is owed yet
	}
	if err != nil {
		return err
	}
	if in := untilPaid(r, k, cost, w.now); in > 0 {
		w.add(Cause{Kind: CauseGateRate, Names: []string{key}, Until: w.now.Add(in).UTC(), Count: ahead})
	}
	return nil
}

// untilPaid returns how long after now the debt of a key has come down so far that something of a
// cost may begin, as a claim decides it.
func untilPaid(r store.Rate, k *ent.GateKey, cost float64, now time.Time) time.Duration {
	perSecond := float64(r.N) / r.Per.Seconds() * k.Pace
	debt := max(0, k.Debt-max(0, now.Sub(k.At).Seconds())*perSecond)
	over := debt + min(cost, float64(r.Burst)) - float64(r.Burst)
	return time.Duration(math.Ceil(max(0, over/perSecond) * float64(time.Second)))
}

// costAt returns for how many an instance with these labels counts in the rates of a gate.
func costAt(g *store.Gate, labels map[string]string) float64 {
	n, err := strconv.ParseUint(labels[g.CostLabel], 10, 64)
	if g.CostLabel == "" || err != nil || len(labels[g.CostLabel]) > 7 {
		return 1
	}
	return float64(min(max(n, 1), 1_000_000))
}

// aheadInLine counts those in line at a key that are before the instance, up to whyMost.
func (w *why) aheadInLine(ctx context.Context, key string) (int, error) {
	ids, err := w.tx.Instance.Query().Where(instance.PickLane(lineLane), instance.Gate(key), w.before()).Limit(whyMost).IDs(ctx)
	return len(ids), err
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// gateRule returns a row of gates as package store has it.
func gateRule(r *ent.Gate) store.Gate {
	bound := func(n *int32) int {
		if n == nil {
			return store.NoBound
		}
		return int(*n)
	}
	rate := func(n *int32, per *int64, burst *int32) store.Rate {
		if n == nil {
			return store.Rate{}
		}
		return store.Rate{N: int(*n), Per: time.Duration(*per) * time.Microsecond, Burst: int(*burst)}
	}
	return store.Gate{
		Name: r.ID, Queue: text(r.Queue), Machine: text(r.Machine), Step: text(r.Step), Label: text(r.Label),
		Places: bound(r.Places), Rate: rate(r.Rate, r.RatePer, r.RateBurst),
		Total: bound(r.Total), TotalRate: rate(r.TotalRate, r.TotalRatePer, r.TotalRateBurst),
		CostLabel: text(r.CostLabel), Adapt: r.Adapt, Run: r.Run,
	}
}
