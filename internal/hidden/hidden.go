// Package hidden has the functions of package fsm that the engine's packages need and programs do
// not: they are no part of what fsm exports. Package fsm sets them in step.Hidden while it is
// initialised.
//
// It imports fsm and internal/step.
package hidden

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

//nolint:forcetypeassert // fsm is initialised before: the start of any program shows it
var (
	// Machine returns a definition without its types. Its Faults say what is wrong with it, each as a
	// *fsm.DefinitionError.
	Machine = step.Hidden.Machine.(func(fsm.Definition) *step.Machine)
	// Declared returns what the declaration of a *fsm.Machine says; false for anything else, and for
	// nil.
	Declared = step.Hidden.Declared.(func(machine any) (step.Declared, bool))
	// Definition makes a definition of what a function returns.
	Definition = step.Hidden.Definition.(func(func() *step.Machine) fsm.Definition)
	// Commit validates and encodes an outcome of the execution that the claim belongs to. Its errors
	// are of type *fsm.OutcomeError.
	Commit = step.Hidden.Commit.(func(fsm.Outcome, *step.Claim) (*step.Commit, error))
	// Outcome makes an outcome of which Commit calls the function.
	Outcome = step.Hidden.Outcome.(func(func(*step.Claim) (*step.Commit, error)) fsm.Outcome)
	// Spec validates a spec and encodes its state. Its errors are of type *fsm.SpecError.
	Spec = step.Hidden.Spec.(func(fsm.Spec, *step.Env) (*step.Spec, error))
	// InQueue sets the queue of a spec unless the spec or its machine names one.
	InQueue = step.Hidden.InQueue.(func(fsm.Spec, string) fsm.Spec)
	// Signal validates a message and encodes its payload. Its errors are of type *fsm.MessageError.
	Signal = step.Hidden.Signal.(func(fsm.Message, *step.Env) (*step.Signal, error))
	// Change returns the state that a change makes of an instance's.
	Change = step.Hidden.Change.(func(fsm.Change, *step.Env, fsm.RawInstance) (json.RawMessage, error))
	// InfoOf returns the Info of a claim.
	InfoOf = step.Hidden.InfoOf.(func(*step.Claim) fsm.Info)
	// WithClaim returns a context from which fsm.InfoFrom and fsm.Logger answer. Steps and handlers
	// get such a context anyway; the engine makes one for functions that it runs around them.
	WithClaim = step.Hidden.WithClaim.(func(context.Context, *step.Claim) context.Context)
	// WithExecution is WithClaim for middleware, which surrounds a step. It returns a context, and a
	// function that records the outcome's kind for fsm.OutcomeFrom.
	WithExecution = step.Hidden.WithExecution.(func(context.Context, *step.Claim) (context.Context, func(fsm.OutcomeKind)))
	// Restore returns the spec that a stored one was erased from, except for the key and the time; its
	// state stays encoded.
	Restore = step.Hidden.Restore.(func(*step.Spec) (fsm.Spec, error))
	// Snoozed returns the delay that an error of fsm.Again asks for; false for any other error.
	Snoozed = step.Hidden.Snoozed.(func(error) (time.Duration, bool))
	// ThrottledFor returns the time of an error of fsm.Throttled; false for any other error.
	ThrottledFor = step.Hidden.ThrottledFor.(func(error) (time.Duration, bool))
)
