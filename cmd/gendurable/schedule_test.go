package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// schedules stores schedules. No engine fires them, since this one has no queues.
func (h *host) schedules(all ...engine.Schedule) {
	h.t.Helper()
	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(h.t, h.url), Schedules: all})
	require.NoError(h.t, err)
	require.NoError(h.t, eng.Start(h.t.Context()))
	require.NoError(h.t, eng.Stop(context.Background()))
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	require.Empty(t, read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules)
	h.schedules(
		engine.Cron("nightly", "0 3 * * *", orders.New(order{1}).Queue("reports")).In("Europe/Berlin").Overlap(engine.OverlapSkip),
		engine.Every("pulse", time.Hour, orders.New(order{2})).CatchUp(engine.CatchUpNone).Jitter(1500*time.Millisecond),
	)
	h.run("schedule", "list").is(codeDone).says("SCHEDULE", "nightly", "0 3 * * *", "Europe/Berlin", "order/1", "reports", "pulse", "UTC", "default")
	got := read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules
	require.Len(t, got, 2)
	require.True(t, got[0].Next.After(time.Now()))
	require.Equal(t, schedule{Schedule: "nightly", Expression: "0 3 * * *", Zone: "Europe/Berlin", CatchUp: engine.CatchUpLatest,
		Overlap: engine.OverlapSkip, Machine: "order", Version: 1, Queue: "reports", Next: got[0].Next}, got[0])
	require.InDelta(t, 1.5, got[1].Jitter, 0)

	h.run("schedule", "list", "--limit", "1").is(codeDone).says("nightly", `there is more: --after "nightly"`)
	page := read[schedulesListed](h.run("schedule", "list", "--limit", "1", "--json").is(codeDone))
	require.Equal(t, got[:1], page.Schedules)
	require.Equal(t, schedulesListed{Schedules: got[1:]}, read[schedulesListed](h.run("schedule", "list", "--after", page.Next, "--json").is(codeDone)))
	h.run("schedule", "list", "--limit", "0").is(codeUsage)

	h.run("schedule", "pause", "nightly").is(codeDone).says("paused \"nightly\"")
	h.run("schedule", "pause", "nightly").is(codeDone).says("was paused already")
	require.NotNil(t, read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules[0].Since)
	h.run("schedule", "resume", "nightly", "--json").is(codeDone).says(`"changed": true`)
	h.run("schedule", "resume", "nightly").is(codeDone).says("was resumed already")
}

func TestScheduleRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.schedules(engine.Cron("alone", "@daily", orders.New(order{1})).Overlap(engine.OverlapSkip))
	type ran struct {
		Schedule string `json:"schedule"`
		Instance fsm.ID `json:"instance"`
	}
	got := read[ran](h.run("schedule", "run", "alone", "--json").is(codeDone))
	i, err := orders.Get(t.Context(), h.eng, got.Instance)
	require.NoError(t, err)
	require.Equal(t, order{1}, i.State)
	require.Equal(t, got.Instance, read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules[0].Instance)

	h.run("schedule", "run", "alone").is(codeConflict).complains("has OverlapSkip")
	require.Contains(t, h.run("schedule", "run", "alone", "--json").is(codeConflict).errs, `"kind": "conflict"`)
	h.run("instance", "cancel", fmt.Sprint(got.Instance)).is(codeDone)
	h.run("schedule", "run", "alone").is(codeDone).says("inserted instance ")
}

func TestScheduleDelete(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.schedules(engine.Cron("one", "@daily", orders.New(order{1})), engine.Cron("two", "@daily", orders.New(order{2})))
	h.run("schedule", "delete", "one").is(codeUnconfirmed).complains("--yes")
	h.interactive, h.stdin = true, "no\n"
	h.run("schedule", "delete", "one").is(codeUnconfirmed).complains("Delete the schedule \"one\"")
	require.Len(t, read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules, 2)
	h.stdin = "yes\n"
	h.run("schedule", "delete", "one").is(codeDone).says("deleted \"one\"")
	h.interactive = false
	h.run("schedule", "delete", "two", "--yes", "--json").is(codeDone).says(`"deleted": true`)
	require.Empty(t, read[schedulesListed](h.run("schedule", "list", "--json").is(codeDone)).Schedules)
}

func TestSchedulesThatAreNot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, verb := range []string{"pause", "resume", "run", "delete"} {
		h.run("schedule", verb, "nobody").is(codeNotFound).complains("\"nobody\"")
		require.Contains(t, h.run("schedule", verb, "nobody", "--json").is(codeNotFound).errs, `"kind": "not_found"`)
	}
	h.run("schedule", "pause", "").is(codeUsage)
}
