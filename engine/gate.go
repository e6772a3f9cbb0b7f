package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// A *[VerbError] of the verbs for gates names the verb by one of these.
const (
	VerbSetGate       Verb = "set_gate"
	VerbDropGate      Verb = "drop_gate"
	VerbCloseGate     Verb = "close_gate"
	VerbOpenGate      Verb = "open_gate"
	VerbSetGateWeight Verb = "set_gate_weight"
	VerbSetGatePlaces Verb = "set_gate_places"
)

// These bound a [Gate] and its keys.
const (
	MaxGateNameBytes = 64
	MaxGatePlaces    = 10_000               // of Places and of Total
	MaxGateRate      = 1_000_000            // of Rate.N, and of Rate.Burst
	MaxGatePer       = 365 * 24 * time.Hour // of Rate.Per
	MaxGateWeight    = 100
)

// Gate bounds how many instances execute a step at a time, how many begin in a period, or both, in
// all processes together. It concerns the instances that match all of Queue, Machine, Step and
// Label that are not empty: without any, all instances.
//
// An instance goes through at most three gates: one with Run, one of which only Queue is set, and
// one of the others. If it matches several of a kind, the narrowest counts: one with a Step, else
// with a Machine, else with a Label, else with a Queue; of equals the first by name.
type Gate struct {
	Name    string `json:"name"`
	Queue   string `json:"queue,omitempty"`
	Machine string `json:"machine,omitempty"`
	Step    string `json:"step,omitempty"` // of Machine
	// Label is the name of a label. The gate then has Places and a Rate for each value of it, such as
	// 3 for each customer. Each value is a key of the gate. Instances without the label do not go
	// through this gate. Without a Label, the gate has one key, which is its name.
	Label string `json:"label,omitempty"`

	// Places is how many execute at a time, at most MaxGatePlaces; 0: any number.
	Places int `json:"places,omitempty"`
	// Rate is how many begin in a period. The zero value bounds nothing.
	Rate Rate `json:"rate,omitzero"`
	// Total and TotalRate bound all values of the Label together, as Places and Rate bound each.
	Total     int  `json:"total,omitempty"`
	TotalRate Rate `json:"total_rate,omitzero"`
	// CostLabel is the name of a label that says, as a whole number from 1 to 1,000,000, what a run of
	// the instance costs of Rate and TotalRate. Instances without it, or with another text, cost 1; so
	// do all if it is empty.
	CostLabel string `json:"cost_label,omitempty"`
	// Adapt makes fsm.Throttled without a time halve the pace of a key, which recovers by itself. It
	// needs a Rate.
	Adapt bool `json:"adapt,omitempty"`
	// Run makes an instance take its place for the whole run: from its first claim to its end, also
	// while it waits for signals, children or a retry. Only Places count then.
	Run bool `json:"run,omitempty"`
	// Closed lets none begin, whatever the others say. It is for gates without Places: CloseGate
	// closes any gate, or one key of it, also for a time.
	Closed bool `json:"closed,omitempty"`
	// Fair says that the gate bounds nothing: values of the Label only take turns. A gate that bounds
	// something does that, too, and needs no Fair.
	Fair bool `json:"fair,omitempty"`
}

// Rate is how many instances begin in a period: N in each Per, evenly spaced, and up to Burst at
// once after a pause. In any interval t, at most Burst + t·N/Per begin. Retries, and runs after a
// crash, count as well.
//
// A process claims again after 8 to 20 ms, and at most a Burst begins then. So a rate of more than
// 50·Burst a second is not reached: a Burst of 1 gives some 60 of 100/s, and 120 of 1,000/s. Set
// Burst to what the rate allows in 20 ms, such as 20 for 1,000/s. SetGate logs a warning if it is
// smaller, and gendurable doctor reports it.
type Rate struct {
	N     int           `json:"n"`               // 1 to MaxGateRate; 0: any number
	Per   time.Duration `json:"per_ns"`          // 1 ms to MaxGatePer; 0: a second
	Burst int           `json:"burst,omitempty"` // 1 to MaxGateRate; 0: 1
}

// String returns the rate as "10/s, burst 5", or "" if it bounds nothing.
func (r Rate) String() string {
	if r.N == 0 {
		return ""
	}
	per := "s"
	switch r.Per {
	case 0, time.Second:
	case time.Minute:
		per = "m"
	case time.Hour:
		per = "h"
	default:
		per = r.Per.String()
	}
	if r.Burst > 1 {
		return fmt.Sprintf("%d/%s, burst %d", r.N, per, r.Burst)
	}
	return fmt.Sprintf("%d/%s", r.N, per)
}

// normal returns the rate with its defaults.
func (r Rate) normal() Rate {
	if r.N == 0 {
		return Rate{}
	}
	return Rate{r.N, cmp.Or(r.Per, time.Second), cmp.Or(r.Burst, 1)}
}

// claimRound is about the longest time between a claim that uses up a rate and the process' next
// claim.
const claimRound = 20 * time.Millisecond

// narrow reports whether the burst is too small for the rate: more instances become due in a
// claimRound than may begin at once, and the rest of the rate is lost.
func (r Rate) narrow() bool {
	r = r.normal()
	return r.N > 0 && float64(r.N)*claimRound.Seconds()/r.Per.Seconds() > float64(r.Burst)
}

// fault returns how the rate is out of bounds.
func (r Rate) fault() error {
	switch {
	case r.N == 0 && r != Rate{}:
		return errors.New("N is 0, but Per or Burst is set: N is how many may begin in each Per") //nolint:staticcheck // it begins with a field
	case r.N < 0 || r.N > MaxGateRate:
		return fmt.Errorf("N is %d, want 1 to %d", r.N, MaxGateRate) //nolint:staticcheck // it begins with a field
	case r.Per != 0 && (r.Per < time.Millisecond || r.Per > MaxGatePer):
		return fmt.Errorf("Per is %v, want 1ms to %v", r.Per, MaxGatePer) //nolint:staticcheck // it begins with a field
	case r.Burst < 0 || r.Burst > MaxGateRate:
		return fmt.Errorf("Burst is %d, want 1 to %d", r.Burst, MaxGateRate) //nolint:staticcheck // it begins with a field
	}
	return nil
}

// GateStatus is a gate, and how it is used at the moment.
type GateStatus struct {
	Gate

	// Taken is the number of places that are taken, by all values of the label together. A place is
	// taken from the claim to its end; at a gate with Run, from the first claim to the instance's
	// end. A gate that has only rates has no places.
	Taken int `json:"taken"`
	// Values is the number of values of the label of which a place is taken; of a gate without a label
	// it is 1 if any place is taken.
	Values int `json:"values"`
	// Waiting is how many instances are due and in line. At most 100,000 are counted, of all gates
	// together.
	Waiting int `json:"waiting"`
	// Lag is how long the oldest counted instance has been due.
	Lag time.Duration `json:"lag_ns"`
	// ClosedUntil is when the gate opens, if CloseGate or a step that was throttled has closed it for
	// all; GateForGood if only OpenGate opens it, zero if it is open.
	ClosedUntil time.Time `json:"closed_until,omitzero"`
	// ClosedKeys is how many single keys are closed: GateKeys lists them. At most 10,000 are counted,
	// of all gates together.
	ClosedKeys int `json:"closed_keys,omitempty"`
}

// rule is the gate as package store has it.
func (g *Gate) rule() store.Gate {
	bound := func(n int) int {
		if n == 0 {
			return store.NoBound
		}
		return n
	}
	r := store.Gate{
		Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Label: g.Label, Places: bound(g.Places), Rate: store.Rate(g.Rate.normal()),
		Total: bound(g.Total), TotalRate: store.Rate(g.TotalRate.normal()), CostLabel: g.CostLabel, Adapt: g.Adapt, Run: g.Run,
	}
	if g.Closed {
		r.Places = 0
	}
	return r
}

// gateOf is the inverse of rule.
func gateOf(r *store.Gate) Gate {
	g := Gate{
		Name: r.Name, Queue: r.Queue, Machine: r.Machine, Step: r.Step, Label: r.Label, Places: max(r.Places, 0), Rate: Rate(r.Rate),
		Total: max(r.Total, 0), TotalRate: Rate(r.TotalRate), CostLabel: r.CostLabel, Adapt: r.Adapt, Run: r.Run,
		Closed: r.Places == 0 || r.Total == 0,
	}
	g.Fair = g.Places == 0 && g.Total == 0 && g.Rate.N == 0 && g.TotalRate.N == 0 && !g.Closed
	return g
}

// SetGate stores a gate, or changes the one of that name, and reports whether that changed
// anything. Each process obeys with its next poll, within a second.
//
// If a rate changes, a debt of the old one counts for one Burst at most.
//
// Instances that execute already take no place at a new gate. If Places is lowered, executing
// instances go on, and none begins before fewer than Places execute. If it is raised, more begin.
//
// The bound is of claims, each of which ends when its outcome is durable, or its lease has expired.
// A process that stalls past its lease may still run code of a claim that it has lost; only a
// partition key excludes that.
//
// Errors: a *[VerbError] for bad input; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) SetGate(ctx context.Context, g Gate, options ...VerbOption) (changed bool, err error) {
	defer a.engine.explain(ctx, toSetGates, &err)
	if err := a.whole(VerbSetGate.method()); err != nil {
		return false, err
	}
	if err := g.validate(); err != nil {
		return false, err
	}
	by, err := a.by(ctx, VerbSetGate, options)
	if err != nil {
		return false, err
	}
	t := task{doing: "set a gate", attrs: []slog.Attr{slog.String("gate", g.Name)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = a.engine.store.SetGate(ctx, g.rule(), by)
		return err
	})
	if err == nil && (g.Rate.narrow() || g.TotalRate.narrow()) {
		a.engine.config.Logger.LogAttrs(ctx, slog.LevelWarn, "a gate does not reach its rate: set its burst to what the rate allows in 20 ms", slog.String("gate", g.Name))
	}
	return changed, err
}

// validate returns a *[VerbError].
func (g *Gate) validate() error {
	wrong := func(field string, err error) error { return &VerbError{VerbSetGate, field, err} }
	if err := checkGateName(g.Name); err != nil {
		return wrong("name", err)
	}
	for _, f := range []struct {
		field, value string
		most         int
	}{
		{"queue", g.Queue, fsm.MaxNameBytes},
		{"machine", g.Machine, fsm.MaxNameBytes},
		{"step", g.Step, fsm.MaxNameBytes},
		{"label", g.Label, fsm.MaxLabelNameBytes},
		{"cost_label", g.CostLabel, fsm.MaxLabelNameBytes},
	} {
		if f.value == "" {
			continue
		}
		if err := checkName(f.value, f.most); err != nil {
			return wrong(f.field, err)
		}
	}
	for _, r := range []struct {
		field string
		rate  Rate
	}{{"rate", g.Rate}, {"total_rate", g.TotalRate}} {
		if err := r.rate.fault(); err != nil {
			return wrong(r.field, err)
		}
	}
	if field, err := g.fault(); err != nil {
		return wrong(field, err)
	}
	return nil
}

// fault returns the first field that is out of bounds, or that does not go with the others.
func (g *Gate) fault() (field string, err error) {
	rated := g.Rate.N > 0 || g.TotalRate.N > 0
	for _, rule := range []struct {
		broken bool
		field  string
		why    string
	}{
		{g.Step != "" && g.Machine == "", "machine", fmt.Sprintf("empty, but step is %q: name the machine of the step", g.Step)},
		{g.Places < 0 || g.Places > MaxGatePlaces, "places", fmt.Sprintf("%d, want 0 (any number) to %d", g.Places, MaxGatePlaces)},
		{g.Total < 0 || g.Total > MaxGatePlaces, "total", fmt.Sprintf("%d, want 0 (any number) to %d", g.Total, MaxGatePlaces)},
		{g.Label == "" && g.Total > 0, "total", "set without a label, of which it bounds all values together: set label, or use places"},
		{g.Label == "" && g.TotalRate.N > 0, "total_rate", "set without a label, of which it bounds all values together: set label, or use rate"},
		{g.CostLabel != "" && !rated, "cost_label", "set without a rate, for which it says what a run costs: set rate or total_rate"},
		{g.Adapt && g.Rate.N == 0, "adapt", "set without a rate, which it slows down: set rate"},
		{g.Closed && g.Places > 0, "closed", fmt.Sprintf("set, but places is %d: leave one out; CloseGate closes a gate, and keeps its places", g.Places)},
		{g.Run && g.Places == 0 && !g.Closed, "places", "0, but run is set: give the number of instances that may be under way at a time"},
		{g.Run && (rated || g.Total > 0 || g.Fair), "run", "set beside a rate, total or fair: a gate of whole runs bounds places only"},
		{g.Run && g.Step != "", "run", "set beside step: a run goes through all steps of the machine, so leave step out"},
		{g.Fair && (g.Label == "" || g.Places > 0 || g.Total > 0 || rated), "fair", "set, which is for a gate that has a label and bounds nothing: set label, and leave places, total and the rates out"},
		{g.Places == 0 && g.Total == 0 && !rated && !g.Closed && !g.Fair, "places", "0, and the gate has no other limit: give it places or a rate, or set closed so that nothing begins"},
	} {
		if rule.broken {
			return rule.field, errors.New(rule.why)
		}
	}
	return "", nil
}

func checkGateName(name string) error {
	if err := checkName(name, MaxGateNameBytes); err != nil {
		return err
	}
	if strings.Contains(name, "/") {
		return fmt.Errorf("%q has a slash, which separates a gate from its key: use another character", name)
	}
	return nil
}

// DropGate deletes a gate, and reports whether there was one. The instances in line there begin
// within a few seconds. Errors: as of SetGate.
func (a *Admin) DropGate(ctx context.Context, name string, options ...VerbOption) (changed bool, err error) {
	defer a.engine.explain(ctx, toSetGates, &err)
	if err := a.whole(VerbDropGate.method()); err != nil {
		return false, err
	}
	if err := checkGateName(name); err != nil {
		return false, &VerbError{VerbDropGate, "name", err}
	}
	by, err := a.by(ctx, VerbDropGate, options)
	if err != nil {
		return false, err
	}
	t := task{doing: "drop a gate", attrs: []slog.Attr{slog.String("gate", name)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = a.engine.store.DropGate(ctx, name, by)
		return err
	})
	return changed, err
}

// Gates lists the gates by name, with what they do at the moment. Bounds have to be of queues and
// machines, and cover all instances that a listed gate bounds.
func (a *Admin) Gates(ctx context.Context) (gates []GateStatus, err error) {
	defer a.engine.explain(ctx, toRead("gates", "gate_keys", "gen_durable"), &err)
	if err := a.byLabel("Gates"); err != nil {
		return nil, err
	}
	var rows []store.GateCount
	err = a.engine.patiently(ctx, task{doing: "list gates"}, func() error {
		rows, err = a.engine.store.Gates(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	gates = make([]GateStatus, len(rows))
	for i, r := range rows {
		gates[i] = GateStatus{Gate: gateOf(&r.Gate), Taken: r.Taken, Values: r.Values, Waiting: r.Waiting, Lag: r.Lag, ClosedKeys: r.ClosedKeys}
		if !r.Until.IsZero() {
			gates[i].ClosedUntil = r.Until.UTC()
		}
	}
	return slices.DeleteFunc(gates, func(g GateStatus) bool { return !a.sees(g.Queue, g.Machine) }), nil
}
