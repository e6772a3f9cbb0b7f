package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func labelledAs(name, value string) func(fsm.Spec) fsm.Spec {
	return func(s fsm.Spec) fsm.Spec { return s.Label(name, value) }
}

func keyed(key fsm.Key) func(fsm.Spec) fsm.Spec {
	return func(s fsm.Spec) fsm.Spec { return s.Key(key) }
}

func ids(page listed) (out []fsm.ID) {
	for _, i := range page.Instances {
		out = append(out, i.ID)
	}
	return out
}

func TestInstanceList(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	require.Equal(t, listed{Instances: []summary{}}, read[listed](h.run("instance", "list", "--json").is(codeDone)))
	h.run("instance", "list").is(codeDone).says("ID", "MACHINE")
	var all []fsm.ID
	for n := range 5 {
		all = append(all, h.insert(n, labelledAs("n", fmt.Sprint(n)), keyed(fsm.Key(fmt.Sprint("order:", n)))))
	}
	other := h.insert(9, func(s fsm.Spec) fsm.Spec { return s.Queue("other").PartitionKey("p") })
	h.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'exhausted', finished_at = now(), last_error = E'bad\x1b[2J luck'
		WHERE id = $1`, int64(all[0]))

	for _, one := range []struct {
		want []fsm.ID
		args []string
	}{
		{[]fsm.ID{other, all[4], all[3], all[2], all[1], all[0]}, nil},
		{all, []string{"--machine", "order", "--queue", "default", "--oldest-first"}},
		{[]fsm.ID{all[0]}, []string{"--status", "failed,done"}},
		{[]fsm.ID{all[0]}, []string{"--failure", "exhausted"}},
		{[]fsm.ID{all[3]}, []string{"--label", "n=3"}},
		{[]fsm.ID{all[3]}, []string{"--key-prefix", "order:3"}},
		{[]fsm.ID{other}, []string{"--partition", "p", "--step", "start", "--version", "1"}},
		{nil, []string{"--version", "2"}},
		{nil, []string{"--before", "1h"}},
		{[]fsm.ID{other}, []string{"--since", "1h", "--limit", "1"}},
		{nil, []string{"--parent", fmt.Sprint(other)}},
	} {
		got := read[listed](h.run(append([]string{"instance", "list", "--json"}, one.args...)...).is(codeDone))
		require.Equal(t, one.want, ids(got), "%v", one.args)
	}

	var seen []fsm.ID
	for after := []string(nil); ; {
		page := read[listed](h.run(append([]string{"instance", "list", "--json", "--limit", "4"}, after...)...).is(codeDone))
		seen = append(seen, ids(page)...)
		if page.Next == "" {
			break
		}
		after = []string{"--after", page.Next}
	}
	require.Len(t, seen, 6)
	h.run("instance", "list", "--limit", "2").is(codeDone).says("there may be more: --after ")

	h.width = 70
	text := h.run("instance", "list").is(codeDone).says("order/1", "failed (", "…").out
	require.NotContains(t, text, "\x1b", "what a stranger wrote does not reach the terminal as it is")
}

func TestInstanceGet(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(42, keyed("order:42"), labelledAs("tenant", "acme"))
	_, err := h.eng.Signal(t.Context(), id, paid.With(4200))
	require.NoError(t, err)
	for _, address := range []string{fmt.Sprint(id), "key:order:42"} {
		h.run("instance", "get", address).is(codeDone).says("key             order:42", "order/1", "labels          tenant=acme", "state",
			"\"n\": 42", "paid", "4200")
		got := read[detail](h.run("instance", "get", address, "--json").is(codeDone))
		require.Equal(t, id, got.ID)
		require.JSONEq(t, `{"n": 42}`, string(got.State))
		require.Empty(t, got.Errors)
		require.Len(t, got.Signals, 1)
		require.Equal(t, fsm.StatusRunnable, got.Status)
	}
	h.run("instance", "cancel", "key:order:42", "--reason", "bad luck").is(codeDone)
	h.run("instance", "get", fmt.Sprint(id)).is(codeDone).says("last error", "error at", "in step start, attempt 0: cancel", "bad luck")
	got := read[detail](h.run("instance", "get", fmt.Sprint(id), "--json").is(codeDone))
	require.Len(t, got.Errors, 1)
	require.Equal(t, fsm.AttemptCancelled, got.Errors[0].Kind)
	h.run("instance", "get", "999999").is(codeNotFound)
	h.run("instance", "get", "key:nobody").is(codeNotFound).complains("nobody")
}

func TestInstanceTree(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	root, left, right, leaf := h.insert(0), h.insert(1), h.insert(2), h.insert(3)
	for child, parent := range map[fsm.ID]fsm.ID{left: root, right: root, leaf: left} {
		h.exec(`UPDATE gendurable.gen_durable SET parent_id = $2 WHERE id = $1`, int64(child), int64(parent))
	}
	h.run("instance", "tree", fmt.Sprint(left)).is(codeDone).says(
		fmt.Sprintf("%d order/1 start runnable\n", root), fmt.Sprintf("  * %d order/1", left), fmt.Sprintf("    %d order/1", leaf))
	got := read[family](h.run("instance", "tree", fmt.Sprint(root), "--json").is(codeDone))
	require.Empty(t, got.Parents)
	require.Len(t, got.Tree.Children, 2)
	require.Equal(t, leaf, got.Tree.Children[0].Children[0].ID)
	require.False(t, got.Tree.More)

	shallow := read[family](h.run("instance", "tree", fmt.Sprint(root), "--depth", "1", "--json").is(codeDone))
	require.True(t, shallow.Tree.Children[0].More)
	require.Empty(t, shallow.Tree.Children[0].Children)
	few := read[family](h.run("instance", "tree", fmt.Sprint(root), "--limit", "2", "--json").is(codeDone))
	require.Len(t, few.Tree.Children, 1)
	require.True(t, few.Tree.More)
	h.run("instance", "tree", fmt.Sprint(root), "--limit", "2").is(codeDone).says("…")
	h.run("instance", "tree", "999999").is(codeNotFound)
}

func TestInstanceWhyAndWait(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1)
	address := fmt.Sprint(id)
	h.run("instance", "why", address).is(codeDone).says("no worker: no live worker serves its queue")
	h.run("instance", "why", "999999").is(codeNotFound)
	h.run("instance", "wait", address, "--for", "100ms").is(codeTimeout).complains("not ended within 100ms: gendurable instance why " + address)
	h.run("instance", "wait", "999999").is(codeNotFound)

	h.work()
	h.until(id, fsm.StatusAwaitingSignal)
	type document struct {
		Causes []cause `json:"causes"`
	}
	why := read[document](h.run("instance", "why", address, "--json").is(codeDone))
	require.Equal(t, []string{"paid"}, why.Causes[0].Names)

	require.Equal(t, delivered{To: id}, read[delivered](h.run("instance", "signal", address, "paid", "4200", "--dedup", "e1", "--json").is(codeDone)))
	h.run("instance", "wait", address).is(codeDone).says("done", `"shipped"`)
	got := read[ended](h.run("instance", "wait", address, "--json").is(codeDone))
	require.JSONEq(t, `"shipped"`, string(got.Result))
	h.run("instance", "signal", address, "paid", "4200").is(codeNotFound)

	unpaid := h.insert(2)
	h.stdin = "0\n"
	h.run("instance", "signal", fmt.Sprint(unpaid), "paid", "-").is(codeDone).says("delivered to instance")
	h.run("instance", "wait", fmt.Sprint(unpaid)).is(codeUnmet).says("failed (decided)", "context canceled")
}

func TestInstanceSignalTwice(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := fmt.Sprint(h.insert(1))
	h.run("instance", "signal", id, "paid", "1", "--dedup", "e1").is(codeDone).says("delivered")
	h.run("instance", "signal", id, "paid", "1", "--dedup", "e1").is(codeDone).says("has it already")
	h.run("instance", "signal", id, "").is(codeUsage).complains("name")
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1, keyed("order:1"), func(s fsm.Spec) fsm.Spec { return s.After(time.Hour) })
	address := fmt.Sprint(id)
	h.run("instance", "pause", address).is(codeDone).says(fmt.Sprintf("paused %d, which was runnable", id))
	h.run("instance", "pause", address).is(codeConflict)
	h.run("instance", "resume", "key:order:1").is(codeDone).says("resumed")
	h.run("instance", "reschedule", address, "--at", "3h").is(codeDone).says("rescheduled")
	i, err := h.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(3*time.Hour), i.EligibleAt, time.Minute)
	h.run("instance", "reschedule", address, "--at", "2050-01-01T00:00:00Z").is(codeDone)
	h.run("instance", "run-now", address).is(codeDone).says("made eligible")
	h.run("instance", "cancel", address, "--reason", "the customer called").is(codeDone).says("cancelled")
	h.run("instance", "get", address).is(codeDone).says("failed (cancelled)", "the customer called")

	type document struct {
		Verb      string    `json:"verb"`
		Instances []changed `json:"instances"`
	}
	several := h.run("instance", "retry", address, "999999", "--json").is(codeNotFound)
	got := read[document](several)
	require.Equal(t, changed{Target: address, ID: id, Was: fsm.StatusFailed, Is: fsm.StatusRunnable}, got.Instances[0])
	require.Equal(t, "not_found", got.Instances[1].Kind)
	require.Contains(t, several.errs, `"kind": "not_found"`)
}

func TestVerbsInBulk(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for n := range 25 {
		h.insert(n, labelledAs("tenant", "acme"))
	}
	h.insert(99)
	statuses := func(status string) int {
		var n int
		require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status::text = $1`, status).Scan(&n))
		return n
	}
	acme := []string{"--label", "tenant=acme"}
	h.run(append([]string{"instance", "cancel", "--dry-run"}, acme...)...).is(codeDone).says("cancel applies to 25 instances", "order/1", "… and 5 more")
	h.run(append([]string{"instance", "cancel"}, acme...)...).is(codeUnconfirmed).says("cancel applies to 25").complains("--yes")
	h.interactive, h.stdin = true, "no\n"
	h.run(append([]string{"instance", "cancel"}, acme...)...).is(codeUnconfirmed).complains("Carry out cancel on 25 instances? [y/N]")
	require.Zero(t, statuses("failed"))
	h.stdin = "yes\n"
	h.run(append([]string{"instance", "cancel", "--descendants"}, acme...)...).is(codeDone).says("applies to 25", "cancelled 25, skipped 0, failed 0")
	require.Equal(t, 25, statuses("failed"))

	h.interactive = false
	plan := read[bulk](h.run("instance", "retry", "--failure", "cancelled", "--dry-run", "--json").is(codeDone))
	require.EqualValues(t, 25, plan.Matched)
	require.Len(t, plan.Sample, 20)
	require.Nil(t, plan.Applied)
	require.Equal(t, applied{Changed: 25}, *read[bulk](h.run("instance", "retry", "--failure", "cancelled", "--yes", "--json").is(codeDone)).Applied)
	h.run("instance", "retry", "--failure", "cancelled", "--yes").is(codeUnmet).says("applies to 0").complains("nothing matched")
	require.Zero(t, read[bulk](h.run("instance", "retry", "--status", "failed", "--yes", "--json").is(codeUnmet)).Matched)

	h.run("instance", "pause", "--all", "--yes").is(codeDone).says("paused 26")
	h.interactive, h.stdin = true, "y\n"
	asked := h.run("instance", "resume", "--machine", "order", "--json").is(codeDone).complains("resume applies to 26")
	require.Equal(t, applied{Changed: 26}, *read[bulk](asked).Applied)
	h.interactive = false
	h.run("instance", "run-now", "--queue", "default", "--yes").is(codeUnmet)
}

// In bulk, all instances get the same time.
func TestRescheduleInBulk(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for n := range 3 {
		h.insert(n, labelledAs("tenant", "acme"))
	}
	h.insert(99)
	ended := h.insert(100, labelledAs("tenant", "acme"))
	_, err := h.eng.Admin().Cancel(t.Context(), ended)
	require.NoError(t, err)
	args := []string{"instance", "reschedule", "--label", "tenant=acme", "--at"}
	times := func() (distinct, later int) {
		require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT count(DISTINCT eligible_at), count(*) FROM gendurable.gen_durable
			WHERE status = 'runnable' AND eligible_at > now() + interval '1 hour'`).Scan(&distinct, &later))
		return distinct, later
	}

	h.run(append(args, "3h", "--dry-run")...).is(codeDone).says("reschedule applies to 3 instances")
	h.run(append(args, "3h")...).is(codeUnconfirmed).complains("Carry out reschedule on 3 instances?")
	_, later := times()
	require.Zero(t, later)
	require.Equal(t, applied{Changed: 3}, *read[bulk](h.run(append(args, "3h", "--yes", "--json")...).is(codeDone)).Applied)
	distinct, later := times()
	require.Equal(t, 1, distinct)
	require.Equal(t, 3, later)
	h.run(append(args, "2050-01-01T00:00:00Z", "--yes")...).is(codeDone).says("rescheduled 3, skipped 0, failed 0")

	h.run(append(args, "9999-01-01T00:00:00Z", "--yes")...).is(codeUsage).complains("100 years")
	h.run("instance", "reschedule", "--at", "3h").is(codeUsage).complains("which instances?")
	h.run("instance", "reschedule", "--machine", "nothing", "--at", "3h", "--yes").is(codeUnmet)
	h.run("instance", "reschedule", fmt.Sprint(ended), "--at", "3h").is(codeConflict)
}

// The remedies are commands that the program has.
func TestWhySaysWhatToDo(t *testing.T) {
	t.Parallel()
	const odd = "it's a queue; rm"
	h := newHost(t)
	type document struct {
		ID     fsm.ID  `json:"id"`
		Causes []cause `json:"causes"`
	}
	why := func(id fsm.ID) map[engine.CauseKind]string {
		got := read[document](h.run("instance", "why", fmt.Sprint(id), "--json").is(codeDone))
		require.Equal(t, id, got.ID)
		out := map[engine.CauseKind]string{}
		for _, c := range got.Causes {
			out[c.Kind] = c.Do
		}
		return out
	}
	obey := func(do string) {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `gendurable() { printf '%s\0' "$@"; }; `+do).Output()
		require.NoError(t, err)
		h.run(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")...).is(codeDone)
	}
	id := h.insert(1, func(s fsm.Spec) fsm.Spec { return s.Queue(odd).After(time.Hour) })
	h.run("instance", "pause", fmt.Sprint(id)).is(codeDone)
	h.run("queue", "pause", odd).is(codeDone)
	before := why(id)
	require.Contains(t, before[engine.CauseNoWorker], odd)
	obey(before[engine.CausePaused])
	obey(before[engine.CauseQueuePaused])
	obey(strings.TrimPrefix(before[engine.CauseDelayed], "if it should not wait: "))
	require.Equal(t, map[engine.CauseKind]string{engine.CauseNoWorker: before[engine.CauseNoWorker]}, why(id))

	h.run("instance", "cancel", fmt.Sprint(id)).is(codeDone)
	_, again, found := strings.Cut(why(id)[engine.CauseEnded], "; ")
	require.True(t, found)
	obey(strings.TrimSuffix(again, " runs it again"))
	require.NotContains(t, why(id), engine.CauseEnded)

	parent := h.insert(2)
	h.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_children', children_pending = 1 WHERE id = $1`, int64(parent))
	h.run("instance", "why", fmt.Sprint(parent)).is(codeDone).says("children: ", fmt.Sprintf("→ gendurable instance tree %d", parent))
	first, second := h.insert(3, func(s fsm.Spec) fsm.Spec { return s.PartitionKey("p") }), h.insert(4, func(s fsm.Spec) fsm.Spec { return s.PartitionKey("p") })
	require.Equal(t, fmt.Sprintf("gendurable instance why %d", first), why(second)[engine.CauseKeyBehind])
	h.work()
	h.until(first, fsm.StatusAwaitingSignal)
	obey(strings.Replace(strings.TrimSuffix(strings.TrimPrefix(why(first)[engine.CauseSignals], "if it should not wait: "), ", or cancel it"), "PAYLOAD", "1", 1))
	h.until(first, fsm.StatusDone)
	require.Empty(t, why(first)[engine.CauseEnded], "nothing is to be done about what is done")
}

// Commands that show an instance find the newest that had a key. The others find none
// by it, and the error says how to find it.
func TestKeysThatWereReleased(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1, keyed("order 7"))
	h.run("instance", "cancel", "key:order 7").is(codeDone)
	h.run("instance", "get", "key:order 7").is(codeDone).says("order 7, until it ended", "failed (cancelled)")
	require.Equal(t, id, read[detail](h.run("instance", "get", "key:order 7", "--json").is(codeDone)).ID)
	for _, args := range [][]string{{"tree"}, {"why"}, {"history"}, {"inbox"}} {
		h.run("instance", args[0], "key:order 7").is(codeDone)
	}
	for _, args := range [][]string{{"wait"}, {"retry"}, {"signal", "paid"}} {
		h.run(append([]string{"instance", args[0], "key:order 7"}, args[1:]...)...).is(codeNotFound).
			complains("gendurable instance list --key-prefix 'order 7'")
	}
	require.Equal(t, []fsm.ID{id}, ids(read[listed](h.run("instance", "list", "--key-prefix", "order 7", "--json").is(codeDone))))
}
