package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// TestPlacesOnCitus distributes the places of a cluster, initialises and moves them.
func TestPlacesOnCitus(t *testing.T) {
	t.Parallel()
	nodes := pgtest.Citus(t)
	name := pgclone.Name()
	require.NoError(t, nodes.Join(t.Context(), name))
	h := &clusterHost{host: &host{t: t}}
	coordinator := nodes.Coordinator.URL(name)
	h.places = []string{coordinator + "#place_0", coordinator + "#place_1"}
	h.cluster("distribute", h.places).is(codeSchema).complains("--migrate")
	h.cluster("init", h.places, "--migrate").is(codeDone)
	to := fmt.Sprintf("127.0.0.1:%d", nodes.Workers[0].Port())
	h.cluster("move", h.places, "1", "--to", to).is(codeConflict).complains("Another server")
	for range 2 {
		got := read[map[string][]distributedPlace](h.cluster("distribute", h.places, "--json").is(codeDone))["places"]
		require.Len(t, got, 2)
		require.Contains(t, got[1].Node, "127.0.0.1:")
	}
	h.cluster("status", h.places).is(codeDone).says(" ok ", "0 of 2", " ok ", "1 of 2")
	h.cluster("init", h.places).is(codeDone)
	for _, worker := range nodes.Workers {
		to = fmt.Sprintf("127.0.0.1:%d", worker.Port())
		moved := read[movedPlace](h.cluster("move", h.places, "1", "--to", to, "--json").is(codeDone))
		require.Equal(t, to, moved.To)
		h.cluster("move", h.places, "1", "--to", to, "--block").is(codeDone).says("place 1 (schema \"place_1\") is at " + to)
	}
	for _, line := range read[placeLines](h.cluster("status", h.places, "--json").is(codeDone)).Places {
		require.Empty(t, line.Wrong)
		require.Equal(t, cluster.Record{Place: line.Place, Of: 2, Cluster: line.Record.Cluster}, *line.Record)
	}
	found := read[clusterDiagnosis](h.cluster("check", h.places, "--json", "--skip", "durability"))
	for _, f := range found.Findings {
		require.NotEqual(t, gradeFail, f.Grade, "%v", f)
	}

	for _, wrong := range [][]string{{"7", "--to", to}, {"1", "--to", "nowhere"}, {"1", "--to", ":5432"}, {"1"}} {
		h.cluster("move", h.places, wrong...).is(codeUsage)
	}
	h.cluster("move", h.places, "1", "--to", "127.0.0.1:1").is(codeConflict).complains("no such worker")
}
