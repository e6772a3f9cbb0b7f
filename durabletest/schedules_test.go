package durabletest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// marches is noon, before the night in which Berlin's clocks skip from 2 to 3.
var marches = time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC)

// planned returns a kit with schedules; each instance that they insert notes its key.
func planned(t *testing.T, d *diary, schedules func(spec func(busy time.Duration) fsm.Spec) []engine.Schedule) *durabletest.Kit {
	t.Helper()
	chore := fsm.Declare[time.Duration, fsm.None]("chore")
	return durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Calendar: marches,
		Machines: []fsm.Definition{chore.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[time.Duration, fsm.None]) (fsm.Outcome, error) {
				d.note(string(v.Key)[len("schedule:"):])
				return v.Next("end", v.State).After(v.State), nil
			}),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[time.Duration, fsm.None]) (fsm.Outcome, error) {
				return v.Done(fsm.None{}), nil
			})), d.ticking()},
		Options: func(c *engine.Config) {
			c.Schedules = schedules(func(busy time.Duration) fsm.Spec { return chore.New(busy) })
		},
	})
}

// Each occurrence within the time that passes fires when its turn comes, between the steps of the
// machines, and equally often whenever the test runs.
func TestAdvanceFiresSchedules(t *testing.T) {
	t.Parallel()
	var d diary
	kit := planned(t, &d, func(spec func(time.Duration) fsm.Spec) []engine.Schedule {
		return []engine.Schedule{
			engine.Cron("nightly", "30 2 * * *", spec(0)).In("Europe/Berlin"),
			engine.Every("pulse", 6*time.Hour, spec(0)).CatchUp(engine.CatchUpNone),
			engine.Every("late", 24*time.Hour, spec(0)).Jitter(time.Hour),
		}
	})
	insert(t, kit, ticker.New(tick{Name: "t"}).After(7*time.Hour))
	require.Zero(t, durabletest.RequireDrain(t, kit).Steps, "it is noon, and stays so")
	durabletest.RequireAdvance(t, kit, 6*time.Hour-time.Microsecond)
	require.Empty(t, d.all())
	durabletest.RequireAdvance(t, kit, time.Microsecond)
	require.Equal(t, "pulse:2027-03-27T18:00:00Z", d.all())
	durabletest.RequireAdvance(t, kit, 18*time.Hour)
	require.Equal(t, "pulse:2027-03-27T18:00:00Z t0 pulse:2027-03-28T00:00:00Z late:2027-03-28T00:00:00Z nightly:2027-03-28T01:00:00Z"+
		" pulse:2027-03-28T06:00:00Z pulse:2027-03-28T12:00:00Z", d.all())
	require.Zero(t, durabletest.RequireDrain(t, kit).Steps)
}

// The policies work as in production.
func TestAdvanceFiresByThePolicies(t *testing.T) {
	t.Parallel()
	var d diary
	kit := planned(t, &d, func(spec func(time.Duration) fsm.Spec) []engine.Schedule {
		return []engine.Schedule{
			engine.Every("busy", time.Hour, spec(90*time.Minute)).Overlap(engine.OverlapSkip),
			engine.Every("paused", time.Hour, spec(0)),
		}
	})
	_, err := kit.Engine.Admin().PauseSchedule(t.Context(), "paused")
	require.NoError(t, err)
	durabletest.RequireAdvance(t, kit, 4*time.Hour)
	require.Equal(t, "busy:2027-03-27T13:00:00Z busy:2027-03-27T15:00:00Z", d.all())
	require.NoError(t, kit.Engine.Admin().DeleteSchedule(t.Context(), "busy"))
	_, err = kit.Engine.Admin().ResumeSchedule(t.Context(), "paused")
	require.NoError(t, err)
	durabletest.RequireAdvance(t, kit, 10*time.Minute)
	require.Equal(t, "busy:2027-03-27T13:00:00Z busy:2027-03-27T15:00:00Z paused:2027-03-27T16:00:00Z", d.all(), "the latest of those that were missed")
	ran, ok, err := kit.DrainOne(t.Context())
	require.NoError(t, err)
	require.False(t, ok, "%v", ran)
	require.NoError(t, second(kit.Engine.Admin().RunSchedule(t.Context(), "paused")))
	ran, ok, err = kit.DrainOne(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "start", ran.Info.Step)
}

func second[T any](_ T, err error) error { return err }
