package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

func TestMachineGraph(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("machine", "graph", "order").is(codeNotFound).complains("no instance is of machine \"order\"")
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, queue) VALUES
		('order', 2, 'start', 'a'), ('order', 2, 'start', 'b'), ('order', 2, 'sh"ip', 'a'), ('order', 10, 'other', 'a'), ('orders', 2, 'none', 'a')`)
	h.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE step = 'start' AND queue = 'b'`)

	h.run("machine", "graph", "order", "--version", "2").is(codeDone).says("%%", "only the program knows", "%% order/2\nflowchart TD\n",
		`s0["sh#34;ip<br/>1 runnable"]`, `s1["start<br/>1 runnable, 1 failed"]`)
	h.run("machine", "graph", "order", "--version", "2", "--format", "dot").is(codeDone).says("//", "digraph {", `s0 [label="sh\"ip\n1 runnable"]`)
	h.run("machine", "graph", "order").is(codeDone).says("%% order/10\n", "other")

	got := read[graph](h.run("machine", "graph", "order", "--version", "2", "--json").is(codeDone))
	require.Contains(t, got.Graph, "flowchart TD")
	require.Equal(t, graph{"order", 2, []int{2, 10}, []graphStep{
		{`sh"ip`, map[fsm.Status]int64{fsm.StatusRunnable: 1}}, {"start", map[fsm.Status]int64{fsm.StatusRunnable: 1, fsm.StatusFailed: 1}},
	}, "mermaid", got.Graph}, got)

	h.run("machine", "graph", "order", "--version", "3").is(codeNotFound).complains("known: [2 10]")
	h.run("machine", "graph", "order", "--version=-1").is(codeUsage).complains("at least 1")
	h.run("machine", "graph", "order", "--format", "png").is(codeUsage).complains("must be one of")
}

// A machine that a worker registers is known before it has an instance.
func TestMachineGraphOfAWorker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	require.Eventually(t, func() bool { return h.run("machine", "graph", "order", "--json").code == codeDone }, patience, 10*time.Millisecond)
	require.Empty(t, read[graph](h.run("machine", "graph", "order", "--json").is(codeDone)).Steps)
}
