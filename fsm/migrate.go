package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/gendurable/gendurable/internal/step"
)

// StepNames says where instances of an older version go on: from a step of that version to one of
// the newer. An instance at a step that is not named stays with its version until it comes to one
// that is.
type StepNames map[string]string

// Migration converts instances of one version of a machine into a newer one: see [Migrate].
type Migration struct {
	m     *step.Migration
	state reflect.Type // to which it converts
}

// Migrate declares how the instances of an older version of a machine go on as a newer one, for
// [Defined.From]. The function converts a state. It is called whenever such an instance is about to
// run, until an outcome of the new version is committed, and by typed reads: it has to be quick and
// to change nothing else. If it fails or panics, the instance is paused as it was, with an error
// that says why. Resume it after the repair.
//
// With an instance go its visit, its attempts, its idempotency keys, its inbox, what it awaits and
// its children: the step at which it goes on must handle the signals that the old version awaited.
// Ended instances stay with their version.
func Migrate[S1, R1, S2, R2 any](from *Machine[S1, R1], to *Machine[S2, R2], convert func(S1) (S2, error), steps StepNames) Migration {
	m := &step.Migration{Machine: to.d.name, From: from.d.version, To: to.d.version, Steps: maps.Clone(steps),
		SameResult: reflect.TypeFor[R1]() == reflect.TypeFor[R2]()}
	switch {
	case from.d.name != to.d.name:
		m.Fault = fmt.Errorf("it leads from machine %.80q to machine %.80q: a migration stays within one", from.d.name, to.d.name)
	case from.d.version >= to.d.version:
		m.Fault = fmt.Errorf("it leads to version %d, want a newer one", to.d.version)
	case convert == nil:
		m.Fault = errors.New("nil function")
	}
	m.Convert = func(env *step.Env, raw json.RawMessage) (json.RawMessage, error) {
		old, err := decode[S1](env.Codec, raw, "state")
		if err != nil {
			return nil, err
		}
		state, err := convert(old)
		if err != nil {
			return nil, err
		}
		if raw, err = encode(env, state); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		return raw, nil
	}
	return Migration{m, reflect.TypeFor[S2]()}
}

// From declares the migrations by which instances of older versions go on as this one. A program
// with this definition also runs those instances; it needs no definition of the older version, as
// long as each step at which they may stand is named. Migrations form chains: one to version 2 and
// one from 2 to 3 bring version 1 to version 3. engine.New refuses two ways from one version, and
// steps that this definition does not have.
func (d *Defined[S, R]) From(migrations ...Migration) *Defined[S, R] {
	d.from = append(slices.Clone(d.from), migrations...)
	return d
}

// migrations returns the migrations of the definition that have no fault.
func (d *plan) migrations() (all []*step.Migration) {
	for _, one := range d.from {
		if one.m != nil && one.m.Fault == nil {
			all = append(all, one.m)
		}
	}
	return all
}

// fromFaults checks the migrations against the steps that the definition has.
func (d *plan) fromFaults(has func(step string) bool, add func(field string, err error)) {
	ways := map[int]int{}
	for _, one := range d.from {
		if one.m != nil {
			ways[one.m.From]++
		}
	}
	for i, one := range d.from {
		m := one.m
		if m == nil {
			add(fmt.Sprintf("from[%d]", i), errors.New("the zero Migration: make it by fsm.Migrate"))
			continue
		}
		field := fmt.Sprintf("from[version %d]", m.From)
		if m.Fault != nil {
			add(field, m.Fault)
			continue
		}
		if m.Machine != d.declared.name {
			add(field, fmt.Errorf("it is a migration of machine %.80q", m.Machine))
		}
		if ways[m.From] > 1 {
			add(field, fmt.Errorf("%d migrations from it, want one", ways[m.From]))
		}
		if m.To > d.declared.version || m.To < d.declared.version && ways[m.To] == 0 {
			add(field, fmt.Errorf("leads to version %d, and nothing here leads from there to %d", m.To, d.declared.version))
		}
		for _, name := range slices.Sorted(maps.Keys(m.Steps)) {
			if err := checkName(name); err != nil {
				add(field+".steps", err)
			}
			if to := m.Steps[name]; m.To == d.declared.version && !has(to) {
				add(field+".steps", fmt.Errorf("no step %.80q, to which %.80q leads", to, name))
			}
		}
	}
}

// Definer is what typed reads ask about migrations: a [Reader] or [Lister] that has definitions.
// *engine.Engine implements it.
type Definer interface {
	// Definition returns the registered definition of a version of a machine; nil if there is none.
	Definition(machine string, version int) Definition
}

// definition finds the registered machine of a version by which a reader reads; nil: none.
func definition(from any, d *declaration) *step.Machine {
	if definer, ok := from.(Definer); ok {
		if known := definer.Definition(d.name, d.version); known != nil {
			return known.erase()
		}
	}
	return nil
}

// converted returns a state of an older version as one of machine m's, and false if no migration of
// m says how.
func converted(m *step.Machine, codec Codec, version int, raw json.RawMessage) (_ json.RawMessage, ok bool, err error) {
	chain := m.Chain(version)
	if len(chain) == 0 {
		return nil, false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &DecodeError{Field: "state", Err: &PanicError{Value: p, Stack: debug.Stack()}}
		}
	}()
	env := envOf(&step.Env{Codec: codec, Limits: step.Limits{PayloadBytes: math.MaxInt}})
	for _, one := range chain {
		if raw, err = one.Convert(env, raw); err != nil {
			return nil, true, &DecodeError{Field: "state", Err: fmt.Errorf("convert version %d to %d: %w", one.From, one.To, err)}
		}
	}
	return raw, true, nil
}
