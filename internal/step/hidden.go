package step

import "reflect"

// Hidden holds functions of packages fsm and engine that other packages of the project need and
// programs do not. Each package sets its own while it is initialised. Their types are not known
// here: internal/hidden and internal/byhand have them typed.
var Hidden struct {
	InfoOf, WithClaim, WithExecution, Restore, Snoozed, ThrottledFor, ByHand any
	Machine, Commit, Spec, InQueue, Signal, Change, Definition, Outcome      any
	Declared                                                                 any
}

// Declared is what a machine's declaration says to code that is generated from it.
type Declared struct {
	Name                             string
	Version, StateSince, ResultSince int // 0: not said
	State, Result                    reflect.Type
}
