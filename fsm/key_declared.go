package fsm

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
)

// KeyFromState gives every new instance of the machine the key of [Spec.KeyFromState], which is a
// hash of the machine's name and of the state. All else is as with [KeyBy].
func KeyFromState() DeclareOption {
	return func(d *declaration) { d.addKey(&declaredKey{of: stateKey, plain: true}) }
}

// KeyBy gives every new instance of the machine the correlation key that a function makes of its
// state, so that no caller has to give it: [Machine.New] calls the function, for specs to insert,
// for children and for the instances of dag.Call. Steps, operators and migrations that change the
// state later leave the key as it is. S is the state of the machine, or an interface that
// the state implements. All versions should make one key of the same work: keys are unique across
// versions.
//
// The function is called with states as the program has them, before the codec. It must return the
// same key for the same state in every process, and must be quick. An empty key, one over 512 bytes
// and a panic are a [KeyError], with which the insert of the spec fails. An insert also fails so if
// [Spec.Key] has set another key.
//
// Nodes of a graph and schedules take no such machine, since a node has a name, and a schedule
// gives each occurrence another key: let the node or the scheduled machine spawn it as a child.
func KeyBy[S any](key func(state S) Key) DeclareOption {
	k := &declaredKey{state: reflect.TypeFor[S]()}
	if key == nil {
		k.fault = errNilKeyFunction
	}
	k.of = func(_ string, state any) (Key, error) {
		s, _ := state.(S) // false only for a nil interface: addKey's caller compares the types
		return key(s), nil
	}
	return func(d *declaration) { d.addKey(k) }
}

// KeyScope sets how long the correlation keys of new instances are occupied, unless their [Spec]
// sets another [Scope]; ScopeLive unless given. It has no effect on instances without a key.
func KeyScope(c Scope) DeclareOption { return func(d *declaration) { d.scope = c } }

// KeyError is the fault of a spec's key, if its machine declares its keys by [KeyFromState] or
// [KeyBy]. A *[SpecError] of the field "key", or the error of an outcome or insert, wraps it.
type KeyError struct {
	Machine string
	Version int
	Err     error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("machine %.80q version %d declares its keys: %v", e.Machine, e.Version, e.Err)
}

// Unwrap returns the fault.
func (e *KeyError) Unwrap() error { return e.Err }

var (
	errNilKeyFunction = errors.New("nil function in KeyBy")
	errTwoKeys        = errors.New("declared more than once by KeyFromState and KeyBy: a machine has one kind of key")
	errKeyless        = errors.New("this spec has none, since it is made by a declaration without KeyFromState and KeyBy: " +
		"add the option there, or give the key")
	errNodeOfKeyed = errors.New("a node has a name and no correlation key: if another instance held the key, the node would be missing; " +
		"let a node spawn the instance as a child, as dag.Call does")
)

// declaredKey makes the correlation keys of a machine's instances.
type declaredKey struct {
	of    func(machine string, state any) (Key, error)
	state reflect.Type // that of takes; nil: any
	plain bool         // it encodes the state as plain JSON
	fault error
}

func (d *declaration) addKey(k *declaredKey) {
	if d.key != nil {
		k = &declaredKey{fault: errTwoKeys}
	}
	d.key = k
}

// keyFaults checks the options of keys.
func (d *declaration) keyFaults() (faults []error) {
	if d.scope > ScopeNone {
		faults = append(faults, d.fault("key_scope", fmt.Errorf("%d is no scope: use one from ScopeLive to ScopeNone", d.scope)))
	}
	if d.key == nil {
		return faults
	}
	if d.retain.Done == RetainNone && d.scope.outlivesDone() {
		faults = append(faults, d.fault("retain.done", errKeyWithoutRow))
	}
	switch k := d.key; {
	case k.fault != nil:
		faults = append(faults, d.fault("key", k.fault))
	case k.plain:
		if err := (JSON{}).CheckType(d.state); err != nil {
			faults = append(faults, d.fault("key", fmt.Errorf("KeyFromState: %w", err)))
		}
	case k.state != d.state && (k.state.Kind() != reflect.Interface || !d.state.Implements(k.state)):
		faults = append(faults, d.fault("key", fmt.Errorf("KeyBy takes a %v, and the state is a %v", k.state, d.state)))
	}
	return faults
}

// ownKey is the correlation key that a machine has made of a spec's state.
type ownKey struct {
	key Key
	err error
}

// keyed returns the spec with the key that its machine declares.
func (s Spec) keyed(k *declaredKey) Spec {
	s.own = k.make(s.o.Machine, s.state)
	s.o.Key, s.hasKey = s.own.key, true
	return s
}

// make never panics: New has no error, and is called with states that the function may not expect,
// such as the zero state of a graph that is being declared.
func (k *declaredKey) make(machine string, state any) (own *ownKey) {
	defer func() {
		if p := recover(); p != nil {
			own = &ownKey{err: &PanicError{Value: p, Stack: debug.Stack()}}
		}
	}()
	key, err := k.of(machine, state)
	if err == nil {
		err = checkName(string(key))
	}
	if err != nil {
		return &ownKey{err: fmt.Errorf("the key of this state: %w", err)}
	}
	return &ownKey{key: key}
}

// checkKey refuses a spec whose key is not the one that its machine declares. A Key of the spec
// does not win: senders and other inserters, who go by the declared key, would then miss this
// instance, and a second one of the same work could be live. The same key is no contradiction, so
// callers may drop their Key after the machine has declared it.
func (s Spec) checkKey() error {
	switch {
	case s.own == nil || s.keyFault != nil:
		return s.keyFault
	case s.own.err != nil:
		return s.wrongKey(s.own.err)
	case s.o.Key != s.own.key:
		return s.wrongKey(fmt.Errorf("of this state it is %.80q, and the spec says %.80q: leave the spec's Key out, "+
			"or make it by another machine", string(s.own.key), string(s.o.Key)))
	}
	return nil
}

func (s Spec) wrongKey(err error) error {
	return &KeyError{Machine: s.o.Machine, Version: s.o.Version, Err: err}
}

// nodeKeyFault is the fault of a node with a key.
func nodeKeyFault(s Spec) error {
	if s.own != nil {
		return s.wrongKey(errNodeOfKeyed)
	}
	return errNodeKey
}
