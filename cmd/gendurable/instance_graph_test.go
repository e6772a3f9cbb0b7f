package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
)

func TestInstanceGraph(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	root := h.insert(1, keyed("root"))
	h.run("instance", "graph", "key:root").is(codeDone).says("are no nodes of a graph")
	h.exec(`UPDATE gendurable.gen_durable SET round = 1 WHERE id = $1`, int64(root))
	h.exec(`WITH n AS (INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round, node, status, children_pending)
			SELECT 'order', 'start', $1, 1, k.name, k.status::gendurable.durable_status, k.pending
			FROM (VALUES ('a', 'runnable', 0), ('b"', 'awaiting_children', 1)) AS k(name, status, pending) RETURNING id, node)
		INSERT INTO gendurable.edges SELECT a.id, b.id, 2 FROM n a, n b WHERE a.node = 'a' AND b.node <> 'a'`, int64(root))
	h.run("instance", "graph", "key:root").is(codeDone).says("flowchart", "a<br/>runnable", "waits for 1, if a failed", "s0 --> s1")
	h.run("instance", "graph", "key:root", "--format", "dot").is(codeDone).says("digraph", "s0 -> s1")
	got := read[nodes](h.run("instance", "graph", fmt.Sprint(root), "--json").is(codeDone))
	require.Equal(t, []engine.GraphEdge{{From: "a", To: `b"`, Needs: "failed"}}, got.Edges)
	require.Equal(t, 1, got.Nodes[1].Waits)
	h.run("instance", "graph", "999999").is(codeNotFound)

	// Why says what to restart where a retry is refused.
	h.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE node = 'a' OR id = $1`, int64(root))
	h.exec(`UPDATE gendurable.gen_durable SET visit = 1 WHERE id = $1`, int64(root))
	a := fmt.Sprint(got.Nodes[0].ID)
	h.run("instance", "retry", a).is(codeConflict)
	h.run("instance", "why", a).is(codeDone).says(fmt.Sprintf("gendurable instance restart %d runs it again", root))
	h.run("instance", "why", fmt.Sprint(root)).is(codeDone).says(fmt.Sprintf("gendurable instance restart %d runs it again", root))
	h.exec(`UPDATE gendurable.gen_durable SET status = 'done', failure = NULL WHERE id = $1`, int64(root))
	h.run("instance", "why", a).is(codeDone).says("nobody waits for it any more", fmt.Sprintf("→ gendurable instance get %s has its errors", a))
}
