package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// rolled is a machine of which one program has a step more than another: a deploy that was rolled
// back, or a step that was added without a new version.
var rolled = fsm.Declare[[]string, []string]("rolled")

type rolledVisit = fsm.Visit[[]string, []string]

// rolledOut defines rolled with the steps start and end, and between them more.
func rolledOut(on string, more ...string) fsm.Definition {
	steps := append([]string{"start"}, more...)
	var defs []fsm.StepDef[[]string, []string]
	for _, name := range steps {
		defs = append(defs, fsm.Step(name, func(_ context.Context, v *rolledVisit) (fsm.Outcome, error) {
			state := append(v.State, name+" on "+on)
			switch name {
			case "start":
				return v.Next("ship", state).After(time.Millisecond), nil
			case "ship":
				return v.Next("check", state).After(time.Millisecond), nil
			}
			return v.Done(state), nil
		}))
	}
	return rolled.Define(defs...)
}

// TestStepsThatOneProgramDoesNotKnow runs two programs with different steps on one queue. An
// instance at a step that only one of them knows is set aside by the other, costs no attempt, fails
// nowhere, and goes on.
func TestStepsThatOneProgramDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		key  bool
		gate bool
	}{{name: "plain"}, {name: "with partition keys", key: true}, {name: "behind a gate", gate: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conf := hasty(config(t, rolledOut("new", "ship", "check")))
			older := hasty(configOn(t, conf.Pool.Config().ConnString(), rolled.Define(fsm.Step("start",
				func(_ context.Context, v *rolledVisit) (fsm.Outcome, error) {
					return v.Retry(v.State, time.Millisecond), nil // it leaves that to the new one
				}))))
			var mu sync.Mutex
			failures := 0
			older.Hooks = []engine.Hooks{{Step: func(_ context.Context, e engine.StepEvent) {
				mu.Lock()
				defer mu.Unlock()
				if e.Err != nil {
					failures++
				}
			}}}
			one := start(t, older)
			if c.gate {
				_, err := one.Admin().SetGate(t.Context(), engine.Gate{Name: "few", Machine: "rolled", Places: 3})
				require.NoError(t, err)
			}
			asks := client(t, older.Pool) // an engine refuses a step that its own machine does not have
			var ids []fsm.ID
			for n := range 20 {
				spec := rolled.New(nil).Step("ship")
				if n%4 == 0 {
					spec = rolled.New(nil)
				}
				if c.key {
					spec = spec.PartitionKey(fmt.Sprint("key ", n%3))
				}
				ids = append(ids, insert(t, asks, spec))
			}
			eventually(t, func() bool {
				var n int
				require.NoError(t, older.Pool.QueryRow(t.Context(),
					`SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 4 AND aside_step = 'ship'`).Scan(&n))
				return n > 0
			})
			two := start(t, conf)
			for n, id := range ids {
				done, err := rolled.Wait(t.Context(), two, id)
				require.NoError(t, err)
				require.Contains(t, done, "ship on new")
				require.Equal(t, "check on new", done[len(done)-1], n)
			}
			mu.Lock()
			defer mu.Unlock()
			require.Zero(t, failures)
		})
	}
}
