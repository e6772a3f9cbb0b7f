package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestInstanceInsert(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("instance", "insert", "order", `{"n": 1}`).is(codeNotFound).complains(`no worker has registered a machine yet`)
	h.work()
	one := read[inserted](h.run("instance", "insert", "order", `{"n": 9007199254740993}`, "--json").is(codeDone))
	require.Equal(t, inserted{ID: one.ID, Machine: "order", Version: 1, Step: "start"}, one)
	h.until(one.ID, fsm.StatusAwaitingSignal)
	got, err := h.eng.Get(t.Context(), one.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"n": 9007199254740993}`, string(got.State))

	h.stdin = `{"n": 2}`
	full := []string{"instance", "insert", "order", "-", "--queue", "other", "--priority=-3", "--key", "order:2", "--label", "tenant=acme", "--label", "a=b=c",
		"--partition", "p", "--delay", "1h", "--deadline", "2h", "--retain-done", "none", "--retain-failed", "720h", "--step", "ship", "--json"}
	two := read[inserted](h.run(full...).is(codeDone))
	stored := read[detail](h.run("instance", "get", fmt.Sprint(two.ID), "--json").is(codeDone))
	require.Equal(t, "other", stored.Queue)
	require.Equal(t, -3, stored.Priority)
	require.Equal(t, fsm.Key("order:2"), stored.Key)
	require.Equal(t, map[string]string{"tenant": "acme", "a": "b=c"}, stored.Labels)
	require.Equal(t, "p", stored.PartitionKey)
	require.Equal(t, "ship", stored.Step)
	require.WithinDuration(t, stored.InsertedAt.Add(time.Hour), stored.EligibleAt, time.Minute)
	require.WithinDuration(t, stored.InsertedAt.Add(2*time.Hour), *stored.Deadline, time.Minute)
	require.Equal(t, &fsm.Retention{Done: fsm.RetainNone, Failed: 720 * time.Hour}, stored.Retention)

	h.run(full...).is(codeConflict).complains(fmt.Sprintf("taken by instance %d", two.ID))
	replaced := read[inserted](h.run(append(full, "--on-conflict", "replace")...).is(codeDone))
	require.Equal(t, two.ID, replaced.ID)
	require.True(t, replaced.Replaced)

	for _, bad := range []struct {
		code exitCode
		text string
		args []string
	}{
		{codeUsage, "the state is not JSON", []string{"order", "hello"}},
		{codeUsage, `has no step "fly", only "start", "ship"`, []string{"order", "--step", "fly"}},
		{codeUsage, "--retain-done", []string{"order", "--retain-done", "soon"}},
		{codeUsage, "priority", []string{"order", "--priority", "40000"}},
		{codeUsage, "both After and At", []string{"order", "--delay", "1h", "--at", "1h"}},
		{codeUsage, "--at", []string{"order", "--at", "soon"}},
		{codeUsage, "--scope", []string{"order", "--scope", "forever"}},
		{codeNotFound, "no worker has registered version 7", []string{"order", "--version", "7"}},
		{codeNotFound, `only "order"`, []string{"ordre"}},
	} {
		h.run(append([]string{"instance", "insert"}, bad.args...)...).is(bad.code).complains(bad.text)
	}
	h.run("instance", "insert", "ordre", "--unknown").is(codeDone).says("ordre/1 at step start")
}

// The command cannot make a key that a program declares, so it has to be given.
func TestInstanceInsertOfADeclaredKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	machine := fsm.Declare[int, int]("account", fsm.KeyBy(func(n int) fsm.Key { return fsm.Key(fmt.Sprint("account:", n)) }))
	eng, err := engine.New(engine.Config{Pool: h.pool, Queues: map[string]engine.Queue{"elsewhere": {}},
		Machines: []fsm.Definition{machine.Job(func(_ context.Context, n int) (int, error) { return n, nil })}})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	defer func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) }()

	h.run("instance", "insert", "account", "7").is(codeUsage).complains("--key: instances of account/1 have the key that their program declares")
	h.run("instance", "insert", "account", "7", "--unknown").is(codeUsage).complains("--key")
	one := read[inserted](h.run("instance", "insert", "account", "7", "--key", "account:7", "--json").is(codeDone))
	got, err := eng.GetOrInsert(t.Context(), machine.New(7))
	require.NoError(t, err)
	require.Equal(t, engine.Inserted{ID: one.ID, Duplicate: true}, got)
}

// A list by error text, the names of statuses, and failed instances.
func TestFailuresAndOverview(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, failure, last_error, finished_at)
		SELECT 'order', 'ship', 'failed', 'error', E'no stock of \x1b[2J ' || n, now() FROM generate_series(1, 5) n`)
	h.insert(1)
	h.work()
	require.Len(t, read[listed](h.run("instance", "list", "--error", "NO STOCK", "--json").is(codeDone)).Instances, 5)
	require.Empty(t, read[listed](h.run("instance", "list", "--error", "no.stock", "--json").is(codeDone)).Instances)
	h.run("instance", "retry", "--error", "no stock", "--dry-run").is(codeDone).says("applies to 5 instances")
	for _, verb := range []string{"list", "retry"} {
		h.run("instance", verb, "--status", "running").is(codeUsage).
			complains(`--status: there is no "running"; there are runnable, executing, awaiting_signal, awaiting_children, done, failed`)
		h.run("instance", verb, "--failure", "timeout").is(codeUsage).complains("there are decided, error, exhausted, crashes, cancelled, deadline")
	}

	found := read[engine.Failures](h.run("failures", "--json").is(codeDone))
	require.Len(t, found.Groups, 1)
	require.EqualValues(t, 5, found.Groups[0].Count)
	text := h.run("failures", "--machine", "order").is(codeDone).says("5", "order/1", "no stock of")
	require.NotContains(t, text.out, "\x1b")
	h.run("failures", "--since", "soon").is(codeUsage)

	h.run("queue", "pause", "mail").is(codeDone)
	all := read[overview](h.run("overview", "--json").is(codeDone))
	require.Len(t, all.Queues, 2)
	require.Equal(t, 3, all.Queues[0].Slots)
	require.Len(t, all.Failures.Groups, 1)
	require.Len(t, all.Warnings, 1)
	require.Equal(t, "paused-queues", all.Warnings[0].Check)
	h.run("overview").is(codeDone).says("default", "mail", "1 live workers", "no stock", "paused-queues")
}

func TestInstanceChildren(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	parent := h.insert(1, keyed("parent"))
	h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round) SELECT 'order', 'start', $1, 1 FROM generate_series(1, 3)`, int64(parent))
	h.run("instance", "children", "key:parent").is(codeDone).says("ROUND", "order", "runnable", "3")
	require.EqualValues(t, 3, read[engine.ChildCounts](h.run("instance", "children", fmt.Sprint(parent), "--json").is(codeDone)).Counts[0].Count)
	h.run("instance", "children", "999999").is(codeNotFound)
}

// A list whose time is up shows what it has found, and where to go on; but an error is an error.
func TestAListThatIsCutOff(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, one := range []struct {
		ctx  context.Context
		fail int // the page that fails
		cut  bool
		ids  []fsm.ID
	}{
		{over, 2, true, []fsm.ID{1, 2}}, {over, 0, false, nil}, {t.Context(), 2, false, nil},
	} {
		c, n := instanceList{Limit: 10}, 0
		out, cut, err := c.pages(one.ctx, engine.Filter{}, func(context.Context, engine.Query) (engine.Page, error) {
			if n++; n > one.fail {
				return engine.Page{}, context.DeadlineExceeded
			}
			return engine.Page{Instances: []fsm.RawInstance{{ID: fsm.ID(n)}}, Next: fmt.Sprint("behind ", n)}, nil
		})
		require.Equal(t, one.cut, cut)
		if !one.cut {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, one.ids, ids(out))
		require.Equal(t, "behind 2", out.Next)
	}
}

func TestInstanceInbox(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1, keyed("order:1"))
	for n := range 5 {
		_, err := h.eng.Signal(t.Context(), id, paid.With(n))
		require.NoError(t, err)
	}
	var seen []string
	for after := "0"; ; {
		page := read[inbox](h.run("instance", "inbox", "key:order:1", "--limit", "2", "--after", after, "--json").is(codeDone))
		for _, s := range page.Signals {
			seen = append(seen, string(s.Payload))
		}
		if page.Next == 0 {
			break
		}
		after = fmt.Sprint(page.Next)
	}
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, seen)
	h.run("instance", "inbox", fmt.Sprint(id), "--limit", "2", "--name", "paid").is(codeDone).says("paid", "there are more: --after ")
	require.Empty(t, read[inbox](h.run("instance", "inbox", fmt.Sprint(id), "--name", "other", "--json").is(codeDone)).Signals)
	h.run("instance", "inbox", "999999").is(codeNotFound)
	h.run("instance", "inbox", "1", "--limit", "0").is(codeUsage)
}
