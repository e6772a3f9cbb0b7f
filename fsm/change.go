package fsm

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/internal/step"
)

// Change makes a new state of an instance's state, for an operator's Edit or Rewind.
// [Machine.Change] and [Machine.SetState] make typed ones, [ChangeJSON] one of any machine. The
// zero Change leaves the state as it is.
type Change struct {
	of func(env *step.Env, i RawInstance) (json.RawMessage, error)
}

// Change returns a change by a function, which gets the state of one instance and changes it, or
// returns an error and so changes nothing. An instance of another machine, or of a version whose
// states this one does not read, is an error.
//
//go:noinline
func (m *Machine[S, R]) Change(change func(state *S) error) Change {
	return m.d.change(func(env *step.Env, i RawInstance) (any, error) {
		state, err := decode[S](env.Codec, i.State, "state")
		if err != nil {
			return nil, fmt.Errorf("instance %d: %w", i.ID, err)
		}
		if change == nil {
			return nil, errors.New("nil function")
		}
		err = change(&state)
		return state, err
	})
}

// SetState returns a change to this state, whatever the state was: also one that does not decode.
// An instance of another machine, or of a version whose states this one does not read, is an error.
//
//go:noinline
func (m *Machine[S, R]) SetState(state S) Change {
	return m.d.change(func(*step.Env, RawInstance) (any, error) { return state, nil })
}

// change returns a change to the state that a function makes for an instance of this machine, whose
// states this version reads.
//
//go:noinline
func (d *declaration) change(state func(*step.Env, RawInstance) (any, error)) Change {
	return Change{func(env *step.Env, i RawInstance) (json.RawMessage, error) {
		if i.Machine != d.name {
			return nil, fmt.Errorf("instance %d is of machine %.80q, not of %.80q", i.ID, i.Machine, d.name)
		}
		if err := d.readsState(i.ID, i.Version); err != nil {
			return nil, err
		}
		v, err := state(env, i)
		if err != nil {
			return nil, err
		}
		raw, err := encode(env, v)
		if err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		return raw, nil
	}}
}

// ChangeJSON returns a change by a function that gets the state as the codec has encoded it, and
// returns another such. The instance's step decodes it, and fails if it cannot.
func ChangeJSON(change func(state json.RawMessage) (json.RawMessage, error)) Change {
	return Change{func(env *step.Env, i RawInstance) (json.RawMessage, error) {
		if change == nil {
			return nil, errors.New("nil function")
		}
		state, err := change(i.State)
		if err != nil {
			return nil, err
		}
		if !json.Valid(state) {
			return nil, fmt.Errorf("state: %w", step.ErrNotJSON)
		}
		if err := step.CheckJSONB(state, env.Limits.PayloadBytes); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		return state, nil
	}}
}

// apply returns the new state of an instance.
func (c Change) apply(env *step.Env, i RawInstance) (json.RawMessage, error) {
	if c.of == nil {
		return i.State, nil
	}
	return c.of(env, i)
}
