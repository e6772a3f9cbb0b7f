package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// A *[VerbError] of SetGate and DropGate names the verb by one of these.
const (
	VerbSetGate  Verb = "set_gate"
	VerbDropGate Verb = "drop_gate"
)

// MaxGateNameBytes and MaxGatePlaces bound a [Gate].
const (
	MaxGateNameBytes = 64
	MaxGatePlaces    = 10_000
)

// Gate bounds how many instances execute a step at a time, in all processes together. It concerns
// the instances that match all of Queue, Machine, Step and Label that are not empty: without any,
// all instances.
//
// An instance goes through one gate at a time. If it matches several, the narrowest counts: one
// with a Step, else with a Machine, else with a Label, else with a Queue; of equals the first by
// name.
type Gate struct {
	Name    string `json:"name"`
	Queue   string `json:"queue,omitempty"`
	Machine string `json:"machine,omitempty"`
	Step    string `json:"step,omitempty"` // of Machine
	// Label is the name of a label. The gate then has Places for each value of it, such as 3 for each
	// customer. Instances without the label do not go through this gate.
	Label string `json:"label,omitempty"`
	// Places is how many execute at a time, at most MaxGatePlaces. With 0, none begins any more.
	Places int `json:"places"`
}

// GateStatus is a gate, and how it is used at the moment.
type GateStatus struct {
	Gate

	// Taken is how many places are taken, those of all values of the label together. A place is taken
	// from when an instance may be claimed until its claim has ended.
	Taken int `json:"taken"`
	// Values is the number of values of the label of which a place is taken; of a gate without a label
	// it is 1 if any place is taken.
	Values int `json:"values"`
	// Waiting is how many instances are due and in line. Of all gates together, at most 100,000 are
	// counted.
	Waiting int `json:"waiting"`
}

// SetGate stores a gate, or changes the one of that name, and reports whether that changed
// anything. Each process obeys with its next poll, within a second.
//
// Of a new gate, what executes already takes no place. If Places is lowered, what executes goes on,
// and none begins before fewer than Places execute. If it is raised, more begin.
//
// The bound is of claims, each of which ends when its outcome is durable, or its lease has expired.
// A process that stalls past its lease may still run code of a claim that it has lost; only a
// partition key excludes that.
//
// Errors: a *[VerbError] for bad input; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) SetGate(ctx context.Context, g Gate, options ...VerbOption) (changed bool, err error) {
	defer a.engine.explain(ctx, toSetGates, &err)
	if err := g.validate(); err != nil {
		return false, err
	}
	by, err := a.by(ctx, VerbSetGate, options)
	if err != nil {
		return false, err
	}
	t := task{doing: "set a gate", attrs: []slog.Attr{slog.String("gate", g.Name)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = a.engine.store.SetGate(ctx, g.stored(), by)
		return err
	})
	return changed, err
}

func (g *Gate) stored() store.Gate {
	return store.Gate{Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Label: g.Label, Places: g.Places, Total: store.NoBound}
}

func gateOf(g store.Gate) Gate {
	return Gate{Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Label: g.Label, Places: g.Places}
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
	} {
		if f.value == "" {
			continue
		}
		if err := checkName(f.value, f.most); err != nil {
			return wrong(f.field, err)
		}
	}
	switch {
	case g.Step != "" && g.Machine == "":
		return wrong("machine", fmt.Errorf("empty, but step is %q: a step is one of a machine", g.Step))
	case g.Places < 0 || g.Places > MaxGatePlaces:
		return wrong("places", fmt.Errorf("%d, from 0 to %d", g.Places, MaxGatePlaces))
	}
	return nil
}

func checkGateName(name string) error {
	if err := checkName(name, MaxGateNameBytes); err != nil {
		return err
	}
	if strings.Contains(name, "/") {
		return fmt.Errorf("%q has a slash", name)
	}
	return nil
}

// DropGate deletes a gate, and reports whether there was one. The instances in line there begin
// within a few seconds. Errors: as those of SetGate.
func (a *Admin) DropGate(ctx context.Context, name string, options ...VerbOption) (changed bool, err error) {
	defer a.engine.explain(ctx, toSetGates, &err)
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

// Gates lists the gates by name, with what they do at the moment.
func (a *Admin) Gates(ctx context.Context) (gates []GateStatus, err error) {
	defer a.engine.explain(ctx, toRead("gates", "gen_durable"), &err)
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
		gates[i] = GateStatus{Gate: gateOf(r.Gate), Taken: r.Taken, Values: r.Values, Waiting: r.Waiting}
	}
	return gates, nil
}
