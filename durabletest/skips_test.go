package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A node that is to be skipped begins nothing. So it waits neither for its delay, nor for the rate
// of a gate, nor for a queue or a key, and spends nothing of them; and the root goes on at once.
func TestSkipsWaitForNothing(t *testing.T) {
	t.Parallel()
	root, leaf := fsm.Declare[string, string]("root"), fsm.Declare[string, string]("leaf")
	for name, of := range map[string]func(fsm.Spec) fsm.Spec{
		"a delay":        func(s fsm.Spec) fsm.Spec { return s.After(24 * time.Hour) },
		"a rate":         func(s fsm.Spec) fsm.Spec { return s.Label("api", "bank") },
		"another queue":  func(s fsm.Spec) fsm.Spec { return s.Queue("elsewhere") },
		"a key":          func(s fsm.Spec) fsm.Spec { return s.PartitionKey("busy") },
		"a paused queue": func(s fsm.Spec) fsm.Spec { return s.Queue("paused") },
	} {
		plan := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			nodes := []fsm.GraphNode{fsm.Node("a", leaf.New(""))}
			for i := range 5 {
				nodes = append(nodes, fsm.Node(fmt.Sprint("b", i), of(leaf.New(""))).After("a"))
			}
			return v.ScheduleGraph("end", v.State, nodes...), nil
		}
		end := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done("over"), nil }
		bad := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Fail(errors.New("bad")), nil
		}
		kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{
			root.Define(fsm.Step("start", plan), fsm.Step("end", end)), leaf.Define(fsm.Step("start", bad))}})
		_, err := kit.Engine.Admin().SetGate(t.Context(), engine.Gate{Name: "bank", Label: "api", Rate: engine.Rate{N: 1, Per: time.Hour}})
		require.NoError(t, err)
		_, err = kit.Engine.Admin().PauseQueue(t.Context(), "paused")
		require.NoError(t, err)
		id, err := kit.Engine.Insert(t.Context(), root.New(""))
		require.NoError(t, err)
		d := durabletest.RequireDrain(t, kit)
		require.Equal(t, 3, d.Steps, "%s: plan, a and end", name)
		skipped := 0
		require.NoError(t, kit.Pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE parent_id = $1 AND failure = 'skipped'`, id).Scan(&skipped))
		require.Equal(t, 5, skipped, name)
		got, err := kit.Engine.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, fsm.StatusDone, got.Status, name)
	}
}
