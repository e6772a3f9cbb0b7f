package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// moveScript is the guide's script. It is run between a stop of all processes and their next
// start.
const moveScript = `set -eo pipefail
pg_dump --schema place_1 "$NORTH" | psql --quiet --set ON_ERROR_STOP=1 --single-transaction "$SOUTH"
psql --quiet "$NORTH" --command 'ALTER SCHEMA place_1 RENAME TO place_1_moved'`

// ofGuide returns how to run a script of the guide between two servers.
func ofGuide(t *testing.T, script string) (run func(north, south string)) {
	t.Helper()
	for _, program := range []string{"bash", "pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	guide, err := os.ReadFile("../docs/guide/cluster.md")
	require.NoError(t, err)
	require.Contains(t, string(guide), "```sh\n"+script+"\n```")
	return func(north, south string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "bash", "-c", script)
		command.Env = append(os.Environ(), "NORTH="+north, "SOUTH="+south)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// A place moves to another server with what it holds, and the cluster goes on.
func TestAPlaceMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	run := ofGuide(t, moveScript)
	before := onSchemas(t, 2)
	c := working(t, before)
	key := keyOf(1, 2, 0)
	id, err := c.Insert(t.Context(), ticket.New("A").Key(key))
	require.NoError(t, err)
	_, err = ticket.WaitParked(within(t), c, id, -1)
	require.NoError(t, err)
	require.NoError(t, c.Stop(context.Background()))

	south := pgtest.Database(t)
	run(before[0].Pool.Config().ConnString(), south)

	after := []cluster.Place{before[0], {Pool: pgtest.Pool(t, south), Schema: "place_1"}}
	require.NoError(t, cluster.Init(t.Context(), after), "nothing is left to do")
	only(t, open(t, after).Check(t.Context()), cluster.FaultWorkers)
	moved := working(t, after)
	_, err = moved.Signal(t.Context(), key, paid.With(1))
	require.NoError(t, err)
	result, err := ticket.Wait(within(t), moved, id)
	require.NoError(t, err)
	require.Equal(t, "A paid", result)
	next, err := moved.Insert(t.Context(), ticket.New("B").Key(key))
	require.NoError(t, err)
	require.Equal(t, id+fsm.ID(1), next)

	// A process that still has the old address finds nothing to work on.
	stale := open(t, before)
	fault(t, stale.Check(t.Context()), cluster.FaultSchema, 1)
	_, err = stale.Insert(t.Context(), ticket.New("C").Key(key))
	require.ErrorIs(t, err, engine.ErrSchema)
}
