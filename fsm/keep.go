package fsm

import "github.com/gendurable/gendurable/internal/step"

// Keep says what the history keeps of a machine's transitions: see [Defined.History] and
// engine.Config.History. Rows of the history outlive their instance.
type Keep = step.Keep

// The values of Keep.
const (
	// KeepNothing records no transitions.
	KeepNothing = step.KeepNothing
	// KeepTransitions records each committed transition: when, from which step to which, the kind of
	// the outcome, the attempt, how long the step waited and ran, and its error.
	KeepTransitions = step.KeepTransitions
	// KeepStates also records what changed in the state, as an RFC 7386 merge patch of at most 8 KiB.
	// It leaves out larger patches, and patches of states of more than 1 MiB. Personal data in a
	// state is then also in the history: see engine.Config.Redact.
	KeepStates = step.KeepStates
)
