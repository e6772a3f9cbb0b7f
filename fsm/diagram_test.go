package fsm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// A page can show the graph of a machine; Markdown renders it.
func ExampleDiagramOf() {
	fmt.Print(fsm.DiagramOf(checkout{fullWarehouse{}}.Definition()).Mermaid())
	// Output:
	// %% checkout/2
	// flowchart TD
	//   s0(["start"])
	//   s1["ship"]
	//   s2["archive"]
	//   s0 --> s1
	//   s1 --> s2
}

func drawn(name string, to ...string) fsm.StepDef[int, fsm.None] {
	s := fsm.Step(name, func(_ context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
		return v.Done(fsm.None{}), nil
	})
	if to != nil {
		s = s.To(to...)
	}
	return s
}

func TestDiagramOf(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[int, fsm.None]("m", fsm.Initial("z"))
	g := fsm.DiagramOf(machine.Define(drawn("b"), drawn("lost").To(), drawn("c", "c", "z"), drawn("z", "c", "b")))
	require.Equal(t, fsm.Diagram{Machine: "m", Version: 1, Initial: "z", Steps: []fsm.DiagramStep{
		{Name: "z", To: []string{"c", "b"}}, {Name: "c", To: []string{"c", "z"}}, {Name: "b", Anywhere: true}, {Name: "lost", To: []string{}},
	}}, g)
	require.Equal(t, `digraph {
  graph [label="m/1"]
  node [shape=box]
  s0 [label="z", peripheries=2]
  s1 [label="c"]
  s2 [label="b"]
  s3 [label="lost"]
  any [label="any step", shape=circle]
  s0 -> s1
  s0 -> s2
  s1 -> s1
  s1 -> s0
  s2 -> any [style=dotted]
}
`, g.DOT())
	require.Contains(t, g.Mermaid(), "  any((\"any step\"))\n  s0 --> s1\n")
	require.Contains(t, g.Mermaid(), "  s2 -.-> any\n")
}

func TestDiagramOfWhatIsOdd(t *testing.T) {
	t.Parallel()
	require.Equal(t, fsm.Diagram{}, fsm.DiagramOf(nil))
	var missing *fsm.Defined[int, fsm.None]
	require.Empty(t, fsm.DiagramOf(missing).Steps)
	require.Equal(t, "%% /0\nflowchart TD\n", fsm.Diagram{}.Mermaid())

	job := fsm.DiagramOf(fsm.Declare[int, fsm.None]("job").Job(func(context.Context, int) (fsm.None, error) { return fsm.None{}, nil }))
	require.Equal(t, []fsm.DiagramStep{{Name: "start"}}, job.Steps, "a job leads nowhere")

	undefined := fsm.DiagramOf(fsm.Declare[int, fsm.None]("m").Define(drawn("start", "gone")))
	require.Contains(t, undefined.DOT(), "  s1 [label=\"gone\"]\n  s0 -> s1\n")
}

// No text in a name acts as syntax, or as a command to a terminal.
func TestGraphEscapes(t *testing.T) {
	t.Parallel()
	evil := "a\"]; b --> c\n\x1b[2J <b>`&amp;`:#\\N"
	g := fsm.Diagram{Machine: evil, Version: 1, Steps: []fsm.DiagramStep{{Name: evil, To: []string{evil}, Note: "3 \"done\""}, {Name: "übrig_1"}}}
	inMermaid := "a#34;#93;#59; b #45;#45;#62; c\uFFFD\uFFFD#91;2J #60;b#62;#96;#38;amp#59;#96;#58;#35;#92;N"
	require.Equal(t, "%% "+inMermaid+"/1\nflowchart TD\n  s0[\""+inMermaid+"<br/>3 #34;done#34;\"]\n  s1[\"übrig_1\"]\n  s0 --> s0\n", g.Mermaid())
	inDOT := `a\"]; b --> c` + "\uFFFD\uFFFD" + "[2J <b>`&amp;amp;`:#\\\\N"
	require.Equal(t, "digraph {\n  graph [label=\""+inDOT+"/1\"]\n  node [shape=box]\n  s0 [label=\""+inDOT+`\n3 \"done\""]`+
		"\n  s1 [label=\"übrig_1\"]\n  s0 -> s0\n}\n", g.DOT())
}
