package fsm

import "github.com/gendurable/gendurable/internal/step"

// Package internal/hidden has these for the engine's packages.
func init() { //nolint:gochecknoinits // so they are no part of what the package exports
	h := &step.Hidden
	h.InfoOf, h.WithClaim, h.WithExecution, h.Restore, h.Snoozed, h.ThrottledFor = infoOf, withClaim, withExecution, restore, snoozed, throttledFor
	h.Machine = func(d Definition) *step.Machine { return d.erase() }
	h.Commit = func(o Outcome, of *step.Claim) (*step.Commit, error) { return o.erase(of) }
	h.Spec, h.Signal = Spec.erase, Message.erase
	h.Change = Change.apply
	h.InQueue = Spec.inQueue
	h.Declared = declaredOf
	h.Definition = func(machine func() *step.Machine) Definition { return made(machine) }
	h.Outcome = func(commit func(*step.Claim) (*step.Commit, error)) Outcome { return decided(commit) }
}

// declaredOf returns what a machine's declaration says to code that is generated from it.
func declaredOf(machine any) (out step.Declared, ok bool) {
	m, ok := machine.(interface{ declared() *declaration })
	if !ok || m.declared() == nil {
		return out, false
	}
	d := m.declared()
	return step.Declared{Name: d.name, Version: d.version, StateSince: d.stateSince, ResultSince: d.resultSince, State: d.state, Result: d.result}, true
}

// made is a definition that another package of the project has made.
type made func() *step.Machine

func (m made) erase() *step.Machine { return m() }

// decided is an outcome of another package of the project.
type decided func(of *step.Claim) (*step.Commit, error)

func (d decided) erase(of *step.Claim) (*step.Commit, error) { return d(of) }
