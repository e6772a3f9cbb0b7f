package steps

import (
	"context"

	"github.com/gendurable/gendurable/fsm"
)

// Two machines share a function: each leads to a step that only the other one lacks.
var (
	Left  = fsm.Declare[Order, string]("left")
	Right = fsm.Declare[Order, string]("right")
)

func shared(_ context.Context, v *visit) (fsm.Outcome, error) {
	if v.Machine == "left" {
		return v.Next("only left", v.State), nil
	}
	return v.Next("only right", v.State), nil
}

func end(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }

func both() []fsm.Definition {
	return []fsm.Definition{
		Left.Define(fsm.Step("start", shared), fsm.Step("only left", end)),
		Right.Define(fsm.Step("start", shared), fsm.Step("only right", end)),
	}
}

// The steps of these are not all here, or not all known.
var Extended = fsm.Declare[Order, string]("extended")

func extended(name string, more ...fsm.StepDef[Order, string]) []fsm.Definition {
	return []fsm.Definition{
		Extended.Define(append(more, fsm.Step("start", elsewhere))...),
		Extended.Define(fsm.Step("start", elsewhere), fsm.Step(name, end)),
		Extended.Define(fsm.Step("start", elsewhere), common()),
	}
}

func common() fsm.StepDef[Order, string] { return fsm.Step("common", end) }

func elsewhere(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Next("common", v.State), nil
}

// Exported may be a step of a machine of another package.
func Exported(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Next("of another package", v.State), nil
}

var Uses = fsm.Declare[Order, string]("uses")

func uses() fsm.Definition {
	return Uses.Define(fsm.Step("start", Exported).To("start"))
}

// passed may be called for the machine of whoever gets it.
func passed(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Next("of somebody", v.State), nil
}

var (
	Passes = fsm.Declare[Order, string]("passes")
	Table  = map[string]fsm.StepFunc[Order, string]{"passed": passed}
)

func passes() fsm.Definition { return Passes.Define(fsm.Step("start", passed)) }

// An Unless need not be in To, and a step that only a spec begins at is not forgotten.
var Late = fsm.Declare[Order, string]("late")

func lately() fsm.Definition {
	return Late.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Done("").Unless("afterwards", Paid), nil
		}).To(),
		fsm.Step("afterwards", end).To(),
		fsm.Step("by hand", end).To(),
	)
}

func byHand() fsm.Spec { return Late.New(Order{}).Step("by hand") }

// A machine that is not declared here may begin anywhere.
func generic(m *fsm.Machine[Order, string]) fsm.Definition {
	return m.Define(fsm.Step("first", end).To(), fsm.Step("other", end).To())
}

// The visit goes to code that is not seen, so a step without To may lead anywhere.
type plugin interface {
	Decide(v *visit) (fsm.Outcome, error)
}

var Plugged = fsm.Declare[Order, string]("plugged")

func plugged(p plugin) fsm.Definition {
	return Plugged.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return p.Decide(v) }),
		fsm.Step("by the plugin", end),
	)
}

var Lent = fsm.Declare[string, string]("lent")

func lent() fsm.Definition {
	return Lent.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return Lend(v), nil }))
}

// Lend is a helper for machines of any package whose state is a text.
func Lend(v *fsm.Visit[string, string]) fsm.Outcome { return v.Next("elsewhere", v.State) }
