package fsm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// A test of a machine can refuse what engine.New only warns of.
func ExampleCheck() {
	machine := fsm.Declare[int, fsm.None]("order")
	err := fsm.Check(machine.Define(drawn("start", "ship"), drawn("ship").To(), drawn("refund", "ship")))
	fmt.Println(err)
	warning, is := errors.AsType[fsm.Warning](err)
	fmt.Println(warning.Step, warning.Kind, is)
	// Output:
	// machine "order" version 1: steps["refund"]: no way leads to it from the initial step
	// refund unreachable true
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[int, fsm.None]("m")
	unreachable := func(step string) fsm.Warning {
		return fsm.Warning{Machine: "m", Version: 1, Step: step, Kind: fsm.WarningUnreachable}
	}
	deadEnd := func(step string) fsm.Warning {
		return fsm.Warning{Machine: "m", Version: 1, Step: step, Kind: fsm.WarningDeadEnd}
	}
	for name, c := range map[string]struct {
		steps []fsm.StepDef[int, fsm.None]
		want  []fsm.Warning
	}{
		"a line":                    {[]fsm.StepDef[int, fsm.None]{drawn("start", "b"), drawn("b").To()}, nil},
		"nothing is declared":       {[]fsm.StepDef[int, fsm.None]{drawn("start"), drawn("b")}, nil},
		"unreachable":               {[]fsm.StepDef[int, fsm.None]{drawn("start").To(), drawn("b").To()}, []fsm.Warning{unreachable("b")}},
		"an island":                 {[]fsm.StepDef[int, fsm.None]{drawn("start").To(), drawn("b", "c"), drawn("c").To()}, []fsm.Warning{unreachable("b"), unreachable("c")}},
		"behind one that is free":   {[]fsm.StepDef[int, fsm.None]{drawn("start", "b"), drawn("b"), drawn("c").To()}, nil},
		"what is free is an island": {[]fsm.StepDef[int, fsm.None]{drawn("start").To(), drawn("b")}, []fsm.Warning{unreachable("b")}},
		"a trap":                    {[]fsm.StepDef[int, fsm.None]{drawn("start", "b", "end"), drawn("b", "c"), drawn("c", "b"), drawn("end").To()}, []fsm.Warning{deadEnd("b"), deadEnd("c")}},
		"a loop without an end":     {[]fsm.StepDef[int, fsm.None]{drawn("start", "b"), drawn("b", "start")}, nil},
	} {
		require.Equal(t, c.want, fsm.DiagramOf(machine.Define(c.steps...)).Warnings(), name)
	}
	older, newer := fsm.Declare[int, fsm.None]("m"), fsm.Declare[int, fsm.None]("m", fsm.Version(2))
	entered := newer.Define(drawn("start").To(), drawn("old", "end"), drawn("end").To()).
		From(fsm.Migrate(older, newer, func(n int) (int, error) { return n, nil }, fsm.StepNames{"start": "start", "settle": "old"}))
	require.Empty(t, fsm.DiagramOf(entered).Warnings(), "a migration leads there")
	require.NoError(t, fsm.Check(entered))
	require.Empty(t, fsm.Diagram{}.Warnings())
	require.Error(t, fsm.Check(nil))
	require.NoError(t, fsm.Check(machine.Define(drawn("start"))))
	var fault *fsm.DefinitionError
	require.ErrorAs(t, fsm.Check(machine.Define(drawn("start", "gone"))), &fault)
}

func TestGraphLeads(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[int, fsm.None]("m")
	line := fsm.DiagramOf(machine.Define(drawn("start", "b"), drawn("b", "c"), drawn("c").To()))
	require.True(t, line.Leads("start", "c"))
	require.True(t, line.Leads("b", "b"))
	require.False(t, line.Leads("c", "b"))
	free := fsm.DiagramOf(machine.Define(drawn("start", "b"), drawn("b")))
	require.True(t, free.Leads("start", "start"))
	require.True(t, free.Leads("b", "start"))
}
