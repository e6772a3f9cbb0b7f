package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/fsm"
)

// ran runs a command at places.
func (h *clusterHost) ran(places []string, command ...string) answer {
	h.t.Helper()
	args := []string{"cluster", "run", "--wait", "1s"}
	for _, place := range places {
		args = append(args, "--place", place)
	}
	return h.in(append(args, command...)...)
}

// everywhere is the JSON of a command that ran at several places.
type everywhere[T any] struct {
	Places []struct {
		Place  int      `json:"place"`
		Schema string   `json:"schema"`
		Output T        `json:"output"`
		Error  *failure `json:"error"`
	} `json:"places"`
}

func newRunHost(t *testing.T) (h *clusterHost, ids []fsm.ID) {
	t.Helper()
	h = newClusterHost(t, 2)
	h.cluster("init", h.places).is(codeDone)
	for place := range 2 {
		key := string(keyAt(place, 2))
		in := read[inserted](h.ran(h.places, "instance", "insert", "order", `{"n":7}`, "--version", "1", "--step", "start", "--unknown", "--key", key, "--json").is(codeDone))
		require.Equal(t, place, cluster.PlaceOfID(in.ID))
		ids = append(ids, in.ID)
	}
	return h, ids
}

func TestClusterRunOfWhatIsNamed(t *testing.T) {
	t.Parallel()
	h, ids := newRunHost(t)
	for place, id := range ids {
		for _, name := range []string{fmt.Sprint(id), keyMark + string(keyAt(place, 2))} {
			require.Equal(t, id, read[detail](h.ran(h.places, "instance", "get", name, "--json").is(codeDone)).ID)
		}
	}
	h.ran(h.places, "instance", "get", fmt.Sprint(ids[1])).is(codeDone).says("order")
	h.ran(h.places, "instance", "get", fmt.Sprint(ids[1]+1000)).is(codeNotFound).complains("no such instance")
	h.ran(h.places, "instance", "get", fmt.Sprint(int64(5)<<44+1)).is(codeUsage).complains("an id of place 5: there are 0 to 1")
	h.ran(h.places, "--only", "0", "instance", "get", fmt.Sprint(ids[1])).is(codeUsage).complains("--only leaves out place 1")
	h.ran(h.places, "--only", "2", "instance", "list").is(codeUsage).complains("--only: no place 2: there are 0 to 1")
	h.ran(h.places, "cluster", "status").is(codeUsage).complains(`"cluster" does not run at places; these do: instance, queue`)
	h.ran(h.places, "instance", "got").is(codeUsage).complains("see gendurable instance --help")
	h.ran(h.places, "instance", "get", "--help").is(codeDone).says("Usage: gendurable instance get")

	one := h.ran(h.places, "schedule", "pause", "nightly").is(codeNotFound).complains("nightly") // at the place of its name
	require.Empty(t, one.out)

	// Each place gets its own ids of several.
	h.ran(h.places, "instance", "cancel", fmt.Sprint(ids[0]), fmt.Sprint(ids[1])).is(codeDone).says("place 0", fmt.Sprint(ids[0]), "place 1", fmt.Sprint(ids[1]))
	h.ran(h.places, "--only", "1", "instance", "insert", "order", "--version", "1", "--step", "start", "--unknown").is(codeDone)
	got := read[everywhere[struct{ Instances []summary }]](h.ran(h.places, "--json", "instance", "list", "--status", "runnable").is(codeDone))
	require.Empty(t, got.Places[0].Output.Instances)
	require.Len(t, got.Places[1].Output.Instances, 1)
}

func TestClusterRunAtAllPlaces(t *testing.T) {
	t.Parallel()
	h, ids := newRunHost(t)
	h.ran(h.places, "queue", "pause", "mail").is(codeDone).says("place 0", "place 1")
	for _, line := range read[placeLines](h.cluster("status", h.places, "--json").is(codeDone)).Places {
		require.Equal(t, []string{"mail"}, line.Paused)
	}
	h.ran(h.places, "instance", "list").is(codeDone).says("place 0", fmt.Sprint(ids[0]), "place 1", fmt.Sprint(ids[1]))

	// A place that finds nothing is no failure beside one that does.
	prefix := string(keyAt(1, 2))
	h.ran(h.places, "instance", "cancel", "--key-prefix", prefix, "--yes").is(codeDone)
	h.ran(h.places, "instance", "cancel", "--key-prefix", "none of these", "--yes").is(codeUnmet)

	// A place that is down holds up nothing else, and is no answer for another.
	broken := []string{h.places[0], down}
	require.Equal(t, ids[0], read[detail](h.ran(broken, "instance", "get", fmt.Sprint(ids[0]), "--json").is(codeDone)).ID)
	h.ran(broken, "instance", "get", fmt.Sprint(ids[1])).is(codeNoConnection).complains("place 1")
	lacks := h.ran(broken, "instance", "list").is(codeNoConnection).says("place 0", fmt.Sprint(ids[0]), "place 1")
	require.NotContains(t, lacks.errs, "hidden")
	some := read[everywhere[json.RawMessage]](h.ran(broken, "instance", "list", "--json").is(codeNoConnection))
	require.Nil(t, some.Places[0].Error)
	require.Equal(t, codeNoConnection.String(), some.Places[1].Error.Kind)

	// The places are not what they are taken for.
	swapped := slices.Clone(h.places)
	slices.Reverse(swapped)
	h.ran(swapped, "instance", "get", fmt.Sprint(ids[0])).is(codeConflict).complains("it was recorded as place 1, and is given as place 0")
}
