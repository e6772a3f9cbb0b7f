package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestMachineGraph(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("machine", "graph", "order").is(codeNotFound).complains("no worker has registered a machine \"order\"")
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, queue) VALUES
		('order', 2, 'start', 'a'), ('order', 2, 'start', 'b'), ('order', 2, 'sh"ip', 'a'), ('order', 10, 'other', 'a'), ('orders', 2, 'none', 'a')`)
	h.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE step = 'start' AND queue = 'b'`)

	h.run("machine", "graph", "order", "--version", "2").is(codeDone).says("%%", "no worker has registered", "%% order/2\nflowchart TD\n",
		`s0["sh#34;ip<br/>1 runnable"]`, `s1["start<br/>1 runnable, 1 failed"]`)
	h.run("machine", "graph", "order", "--version", "2", "--format", "dot").is(codeDone).says("//", "digraph {", `s0 [label="sh\"ip\n1 runnable"]`)
	h.run("machine", "graph", "order").is(codeDone).says("%% order/10\n", "other")

	got := read[graph](h.run("machine", "graph", "order", "--version", "2", "--json").is(codeDone))
	require.Contains(t, got.Graph, "flowchart TD")
	require.NotNil(t, got.Counted)
	require.Equal(t, []int{2, 10}, got.Versions)
	require.False(t, got.Stored)
	require.Equal(t, []engine.StepCounts{{Step: `sh"ip`, Counts: map[fsm.Status]int64{fsm.StatusRunnable: 1}},
		{Step: "start", Counts: map[fsm.Status]int64{fsm.StatusRunnable: 1, fsm.StatusFailed: 1}}}, got.Steps)

	h.run("machine", "graph", "order", "--version", "3").is(codeNotFound).complains("known: [2 10]")
	h.run("machine", "graph", "order", "--version=-1").is(codeUsage).complains("at least 1")
	h.run("machine", "graph", "order", "--format", "png").is(codeUsage).complains("must be one of")
}

// The program draws a machine that it was not compiled with as the worker has stored it.
func TestMachineGraphOfAWorker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, paused) VALUES ('order', 'ship', true), ('order', 'gone', true)`)
	h.run("machine", "graph", "order").is(codeDone).says("%% order/1\nflowchart TD\n", `s0(["start"])`, `s1["ship<br/>1 runnable"]`,
		`s2["gone<br/>not defined, 1 runnable"]`, "s0 --> s1")
	got := read[graph](h.run("machine", "graph", "order", "--format", "dot", "--json").is(codeDone))
	require.True(t, got.Stored)
	require.Len(t, got.Steps, 3)
	require.Contains(t, got.Graph, "s0 -> s1")
}
