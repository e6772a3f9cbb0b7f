package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// died registers a worker whose last heartbeat is a while ago.
func (h *host) died() {
	h.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'gone', 1, '', '{"default": 4}', '{order/1}', now() - interval '1 minute')`)
}

func TestQueues(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	type document struct {
		Queues []queue `json:"queues"`
	}
	require.Empty(t, read[document](h.run("queue", "list", "--json").is(codeDone)).Queues)
	h.insert(1)
	h.insert(2, func(s fsm.Spec) fsm.Spec { return s.After(time.Hour) })
	failed := h.insert(3, func(s fsm.Spec) fsm.Spec { return s.Queue("other") })
	_, err := h.eng.Admin().Cancel(t.Context(), failed)
	require.NoError(t, err)
	h.died()

	h.run("queue", "pause", "idle").is(codeDone).says("paused \"idle\"")
	h.run("queue", "pause", "idle").is(codeDone).says("was paused already")
	h.run("queue", "pause", "").is(codeUsage)
	got := read[document](h.run("queue", "list", "--json").is(codeDone)).Queues
	require.Len(t, got, 3)
	require.Equal(t, "default", got[0].Queue)
	require.EqualValues(t, 1, got[0].Due)
	require.EqualValues(t, 1, got[0].Delayed)
	require.EqualValues(t, 2, got[0].Counts[fsm.StatusRunnable])
	require.NotNil(t, got[0].OldestDue)
	require.Zero(t, got[0].Workers, "the dead do not count")
	require.NotNil(t, got[1].Since)
	require.EqualValues(t, 1, got[2].Counts[fsm.StatusFailed])
	require.False(t, got[0].AtLeast)
	h.run("queue", "list").is(codeDone).says("QUEUE", "FAILED", "default", "idle", "other", "counted at 20")
	bare := h.run("queue", "list", "--count", "0").is(codeDone).says("QUEUE", "default", "idle")
	require.NotContains(t, bare.out, "FAILED", "what was not counted is not zero")
	require.NotContains(t, bare.out, "counted")
	require.Nil(t, read[document](h.run("queue", "list", "--count", "0", "--json").is(codeDone)).Queues[0].Counts)
	h.run("queue", "resume", "idle").is(codeDone).says("resumed \"idle\"", "no live worker serves a queue of this name")
	h.run("queue", "pause", "idle", "--json").is(codeDone).says(`"changed": true`)
	h.run("queue", "resume", "idle", "--json").is(codeDone).says(`"changed": true`, `"workers": 0`)
	h.run("queue", "resume", "idle").is(codeDone).says("was resumed already")
}

// A count that is cut off takes no longer than its time, and the answer says that it is missing.
func TestCountsThatAreCutOff(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	h.until(h.insert(1), fsm.StatusAwaitingSignal)
	h.insert(2, func(s fsm.Spec) fsm.Spec { return s.After(time.Hour) })
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step) SELECT 'order', 'start' || n % 100 FROM generate_series(1, 50000) n`)
	for _, list := range []string{"queue", "machine"} {
		cut := h.run(list, "list", "--count", "1ms").is(codeDone).says("cut off after 1ms; --count 10ms gives it longer")
		require.NotContains(t, cut.out, "FAILED")
		require.Contains(t, h.run(list, "list", "--count", "1ms", "--json").is(codeDone).out, `"counted": null`)
	}
	h.run("machine", "graph", "order", "--count", "1ms").is(codeDone).says("without counts", `s0(["start"])`)
	h.run("machine", "graph", "order", "--count", "0").is(codeDone).says("without counts", `s0(["start"])`)
	h.run("machine", "graph", "other", "--count", "1ms").is(codeTimeout).complains("--count 10ms gives it longer")
	h.run("machine", "graph", "other", "--count", "0").is(codeTimeout).complains("--count 0 does not look")
	h.run("queue", "list", "--count", "1h").is(codeUsage).complains("1ms to 10m0s")
}

func TestWorkersAndMachines(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	type workers struct {
		Workers []process `json:"workers"`
	}
	type machines struct {
		Machines []machine `json:"machines"`
		Counted  *counted  `json:"counted"`
	}
	require.Empty(t, read[workers](h.run("worker", "list", "--json").is(codeDone)).Workers)
	h.died()
	h.work()
	id := h.insert(1)
	h.until(id, fsm.StatusAwaitingSignal)
	h.exec(`UPDATE gendurable.workers SET draining = false`)
	states := map[string]process{}
	for _, w := range read[workers](h.run("worker", "list", "--json").is(codeDone)).Workers {
		states[w.State] = w
	}
	require.Equal(t, "gone", states["dead"].Host)
	require.Equal(t, map[string]int{"default": 3}, states["live"].Queues)
	require.Equal(t, []string{"order/1"}, states["live"].Machines)
	h.run("worker", "list").is(codeDone).says("STATE", "default:3", "order/1")

	h.exec(`INSERT INTO gendurable.gen_durable (fsm, fsm_version, step) VALUES ('order', 10, 'start'), ('order', 2, 'start'), ('orde', 11, 'start')`)
	got := read[machines](h.run("machine", "list", "--json").is(codeDone)).Machines
	require.Len(t, got, 4)
	require.Equal(t, "orde", got[0].Machine)
	got = got[1:]
	require.Equal(t, []int{1, 2, 10}, []int{got[0].Version, got[1].Version, got[2].Version}, "versions are numbers")
	require.Equal(t, machine{"order", 1, 1, 2, map[fsm.Status]int64{"runnable": 0, "executing": 0, "awaiting_signal": 1, "awaiting_children": 0,
		"done": 0, "failed": 0}}, got[0])
	require.Zero(t, got[1].Workers)
	h.run("machine", "list").is(codeDone).says("MACHINE", "order", "order")
}

func TestTopOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	id := h.insert(1)
	h.until(id, fsm.StatusAwaitingSignal)
	h.insert(2, func(s fsm.Spec) fsm.Spec { return s.After(time.Hour).PartitionKey("p") })
	h.insert(3, func(s fsm.Spec) fsm.Spec { return s.Queue("nobody") })
	h.run("top", "--once", "--every", "100ms").is(codeDone).says("schema gendurable", "per second: inserted", "QUEUE", "default", "WORKER", "default:3")
	got := read[frame](h.run("top", "--once", "--every", "100ms", "--json").is(codeDone))
	require.NotNil(t, got.Rates)
	require.Len(t, got.Queues, 2)
	require.EqualValues(t, 1, got.Queues[0].Delayed)
	require.Equal(t, 3, got.Queues[0].Slots)
	require.EqualValues(t, 1, got.Queues[1].Due)
	require.Len(t, got.Workers, 1)
}

// A key or a signal ends top; neither is an error.
func TestTopWatches(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.insert(1)
	for name, end := range map[string]func(keys io.Writer, cancel func()){
		"q":      func(keys io.Writer, _ func()) { fmt.Fprint(keys, "xq") },
		"ctrl-c": func(keys io.Writer, _ func()) { fmt.Fprint(keys, "\x03") },
		"signal": func(_ io.Writer, cancel func()) { cancel() },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		in, keys := io.Pipe()
		var out buffer
		restored := false
		c := &console{in: in, out: &out, errs: &out, size: func() (int, int) { return 40, 6 }, raw: func() (func(), error) {
			return func() { restored = true }, nil
		}}
		ended := make(chan exitCode)
		go func() { ended <- run(ctx, []string{"top", "--every", "100ms", "--database-url", h.url}, c) }()
		require.Eventually(t, func() bool { return len(out.String()) > 500 }, patience, 10*time.Millisecond, name)
		end(keys, cancel)
		require.Equal(t, codeDone, <-ended, "%s: %s", name, out.String())
		require.NoError(t, keys.Close())
		cancel()
		require.True(t, restored)
		require.Contains(t, out.String(), goHome)
		require.Contains(t, out.String(), "default ", "in columns, however narrow it is")
		require.Contains(t, out.String(), "QUEUE   DUE OLDEST DELAYED")
		require.Equal(t, leaveScreen, out.String()[len(out.String())-len(leaveScreen):])
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	got := read[measured](h.run("bench", "--jobs", "1500", "--singles", "5", "--json").is(codeDone))
	require.Equal(t, 1500, got.Jobs)
	require.Positive(t, got.JobsPer)
	require.Equal(t, 5, got.Latency.Count)
	require.LessOrEqual(t, got.Latency.P50, got.Latency.Max)
	h.run("bench", "--jobs", "10", "--singles", "0", "--concurrency", "2").is(codeDone).says("10 jobs: inserted at")
	var left int
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'gendurable_bench%'`).Scan(&left))
	require.Zero(t, left, "it goes with its schema")
}

// A role, or a database, may show times in another style.
func TestForeignStylesOfDates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.pool.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = %L', current_database(), 'German'); END $$`)
	require.NoError(t, err)
	for _, command := range []string{"queue list", "worker list", "instance list", "schedule list"} {
		h.run(strings.Fields(command)...).is(codeDone)
	}
	a := h.run("doctor")
	require.NotContains(t, a.errs+a.out, "parsing time")
}
