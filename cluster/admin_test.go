package cluster_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// An operator's verbs of one instance go to its place, whichever that is.
func TestVerbsGoToThePlaceOfTheInstance(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 3).places, func(config *cluster.Config) { config.Engine.Machines = definitions() })
	admin := c.Admin()
	for place := range 3 {
		key := keyOf(place, 3, 0)
		id, err := c.Insert(t.Context(), ticket.New("A").Key(key).After(time.Hour))
		require.NoError(t, err)
		for name, verb := range map[string]func() (engine.Changed, error){
			"RunNow":     func() (engine.Changed, error) { return admin.RunNow(t.Context(), key) },
			"Reschedule": func() (engine.Changed, error) { return admin.Reschedule(t.Context(), id, time.Now().Add(time.Hour)) },
			"Edit": func() (engine.Changed, error) {
				return admin.Edit(t.Context(), id, ticket.Change(func(s *string) error { *s = "B"; return nil }))
			},
			"Rewind": func() (engine.Changed, error) { return admin.Rewind(t.Context(), id, "start", fsm.Change{}) },
		} {
			if name == "RunNow" {
				continue // after the others have rescheduled it
			}
			changed, err := verb()
			require.NoError(t, err, name)
			require.Equal(t, id, changed.ID, name)
		}
		_, err = admin.Reschedule(t.Context(), id, time.Now().Add(time.Hour))
		require.NoError(t, err)
		for _, verb := range []func() (engine.Changed, error){
			func() (engine.Changed, error) { return admin.RunNow(t.Context(), key) },
			func() (engine.Changed, error) { return admin.Pause(t.Context(), key) },
			func() (engine.Changed, error) { return admin.Resume(t.Context(), key) },
			func() (engine.Changed, error) { return admin.Cancel(t.Context(), key) },
			func() (engine.Changed, error) { return admin.Retry(t.Context(), id) },
			func() (engine.Changed, error) { return admin.Cancel(t.Context(), id) },
			func() (engine.Changed, error) { return admin.Restart(t.Context(), id) },
		} {
			changed, err := verb()
			require.NoError(t, err)
			require.Equal(t, id, changed.ID)
		}
		causes, err := admin.Why(t.Context(), id)
		require.NoError(t, err)
		require.NotEmpty(t, causes)
		got, err := ticket.Get(t.Context(), c, id)
		require.NoError(t, err)
		require.Equal(t, "B", got.State)
	}
}

func TestBulkVerbsGoEverywhere(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 3).places)
	admin := c.Admin()
	for n := range 30 {
		_, err := c.Insert(t.Context(), ticket.New("").Key(keyOf(n%3, 3, n)).After(time.Hour))
		require.NoError(t, err)
	}
	plan, err := admin.Bulk(t.Context(), engine.VerbCancel, engine.Filter{Machine: "ticket"})
	require.NoError(t, err)
	require.EqualValues(t, 30, plan.Matched)
	require.Len(t, plan.Sample, 20)
	for n, i := range plan.Sample {
		require.Equal(t, n%3, cluster.PlaceOfID(i.ID))
	}
	_, err = plan.Apply(t.Context(), engine.At(time.Now()))
	require.ErrorContains(t, err, "an option of Reschedule only")
	var seen atomic.Int64
	applied, err := plan.Apply(t.Context(), engine.Watching(func(engine.Applied) { seen.Add(1) }))
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: 30}, applied)
	require.EqualValues(t, 3, seen.Load())
	applied, err = plan.Apply(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Skipped: 30}, applied)
	_, err = admin.Bulk(t.Context(), "none", engine.Filter{All: true})
	require.ErrorContains(t, err, "is no verb of Bulk")

	counts, err := c.Counts(t.Context(), engine.CountsOptions{})
	require.NoError(t, err)
	require.True(t, counts.Complete)
	require.Empty(t, counts.Lacks)
	require.Equal(t, []engine.Count{{Machine: "ticket", Version: 1, Step: "start", Queue: "default", Status: fsm.StatusFailed, Count: 30}}, counts.Counts.Counts)
	_, err = c.Counts(t.Context(), engine.CountsOptions{MaxAge: -1})
	require.ErrorContains(t, err, "MaxAge")
}

func TestQueuesArePausedEverywhere(t *testing.T) {
	t.Parallel()
	c := open(t, initialised(t, 2).places)
	changed, err := c.Admin().PauseQueue(t.Context(), "q")
	require.NoError(t, err)
	require.True(t, changed)
	for place := range c.Places() {
		paused, err := c.Engine(place).Admin().PausedQueues(t.Context())
		require.NoError(t, err)
		require.Len(t, paused, 1)
	}
	changed, err = c.Admin().PauseQueue(t.Context(), "q")
	require.NoError(t, err)
	require.False(t, changed)
	changed, err = c.Admin().ResumeQueue(t.Context(), "q")
	require.NoError(t, err)
	require.True(t, changed)
	_, err = c.Admin().PauseQueue(t.Context(), "")
	require.ErrorContains(t, err, "queue")
}
