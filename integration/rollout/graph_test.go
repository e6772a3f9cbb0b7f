package rollout

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrate"
)

// olderVariable names a program, built from cmd at a release that knows no graphs.
const olderVariable = "ROLLOUT_OLDER"

// While a process of the release before runs, which would end a node and leave those that wait for
// it asleep, no graph is made. The step that makes one runs again until that process is gone.
func TestAGraphWaitsForTheReleaseBefore(t *testing.T) {
	t.Parallel()
	path := os.Getenv(olderVariable)
	if path == "" {
		t.Skip(olderVariable + " names no program of a release that knows no graphs: make rollout builds one")
	}
	url := pgtest.Database(t)
	pool := pgtest.Pool(t, url)
	older, said := run(t, path, "-url", url, "-machines", Old, "-migrate")
	require.Equal(t, "ready", said)
	_, err := pool.Exec(t.Context(), TracesDDL)
	require.NoError(t, err)
	_, err = (migrate.Migrator{Pool: pool}).Up(t.Context())
	require.NoError(t, err)

	planned := fsm.Declare[Order, string]("planned")
	plan := func(_ context.Context, v *fsm.Visit[Order, string]) (fsm.Outcome, error) {
		return v.ScheduleGraph("end", v.State, fsm.Node("a", Item1.New(Order{})), fsm.Node("b", Item1.New(Order{})).After("a")), nil
	}
	end := func(_ context.Context, v *fsm.Visit[Order, string]) (fsm.Outcome, error) {
		return v.Done(fmt.Sprint(v.Round().Done, " nodes")), nil
	}
	log := &transcript{also: t.Output()}
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: append(Machines(Old, Traces{Pool: pool}), planned.Define(fsm.Step("start", plan), fsm.Step("end", end))),
		Queues: map[string]engine.Queue{"default": {PollMin: 20 * time.Millisecond, PollMax: 200 * time.Millisecond}},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })
	id, err := eng.Insert(t.Context(), planned.New(Order{}))
	require.NoError(t, err)
	steady.Eventually(t, func() bool { return log.has("make a graph") })
	var nodes int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE parent_id IS NOT NULL`).Scan(&nodes))
	require.Zero(t, nodes)

	older.stop()
	got, err := planned.Wait(t.Context(), eng, id)
	require.NoError(t, err)
	require.Equal(t, "2 nodes", got)
}
