package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/neighbours"
	"github.com/gendurable/gendurable/internal/tier"
)

// unbindable are the commands that --within refuses, each with the reason.
var unbindable = map[string]string{
	"instance children": "it counts all children", "gate set": "a gate may be of all", "gate drop": "a gate may be of all", "gate close": "a gate may be of all",
	"gate open": "a gate may be of all", "gate weight": "a gate may be of all", "gate places": "a gate may be of all", "schedule pause": "as in the dashboard", "schedule resume": "as in the dashboard",
	"schedule run": "as in the dashboard", "schedule delete": "as in the dashboard", "window list": "windows are of all", "worker list": "workers work for all",
	"doctor": "of the whole server", "top": "of all instances", "bench": "in a schema of its own", "dev": "of the whole server",
	"migrate up": "of the schema", "migrate down": "of the schema", "migrate export": "of the schema", "migrate dir": "of the schema", "migrate sql": "of the schema",
}

// boundArgs are the command lines of each command that keeps to --within; TARGET stands for each
// instance. Those that change something come last.
var boundArgs = [][]string{
	{"instance list"}, {"instance list", "--queue", "theirs"}, {"instance list", "--error", "hidden"}, {"instance list", "--limit", "1"},
	{"instance list", "--parent", "7700000000000003"}, {"instance get", "TARGET"}, {"instance tree", "TARGET"}, {"instance graph", "TARGET"}, {"instance inbox", "TARGET"},
	{"instance why", "TARGET"}, {"instance history", "TARGET"}, {"instance wait", "TARGET", "--parked", "--for", "1m"},
	{"queue list", "--count", "0"}, {"queue list"}, {"gate list"}, {"gate keys", "hidden-gate"}, {"schedule list"},
	{"machine list", "--count", "0"}, {"machine list"}, {"machine graph", "our", "--count", "0"}, {"machine graph", "their"}, {"machine times", "our"}, {"machine failures", "their"},
	{"machine edges", "their"}, {"overview"}, {"failures"}, {"audit"}, {"audit", "--instance", "7700000000000005"}, {"audit", "--instance", "1001"},
	{"migrate status"}, {"version"}, {"completion", "bash"},
	{"instance insert", "our", "1", "--unknown", "--queue", "ours", "--label", "tenant=ours"}, {"instance insert", "their", "1", "--unknown", "--queue", "theirs"},
	{"instance insert", "our", "1", "--unknown", "--queue", "ours", "--label", "tenant=ours", "--key", "hidden-key"},
	{"queue pause", "ours"}, {"queue resume", "ours"}, {"queue pause", "theirs"}, {"queue resume", "theirs"},
	{"instance signal", "TARGET", "go", `"x"`}, {"instance run-now", "TARGET"}, {"instance pause", "TARGET"}, {"instance resume", "TARGET"}, {"instance retry", "TARGET"},
	{"instance cancel", "--status", "runnable", "--yes"}, {"instance restart", "TARGET"},
	{"instance reschedule", "TARGET", "--at", "1h"}, {"instance edit", "TARGET", "--state", `"y"`}, {"instance rewind", "TARGET", "--to", "start"},
	{"instance cancel", "TARGET", "--descendants"}, {"instance pause", "--all", "--yes"}, {"instance cancel", "--queue", "theirs", "--yes"}, {"instance cancel", "--all", "--yes"},
}

// served are the commands that bind what they serve and run; other tests do.
var served = []string{"ui", "cluster ui", "cluster run", "mcp", "vet", "new"}

// withinFlags are the bounds of a tenant as flags.
var withinFlags = map[string][]string{
	"queue": {"--within", "queue=ours"}, "all three": {"--within", "queue=ours,queue=others,machine=our", "--within", "label=tenant=ours"},
}

// A command that is added is refused within bounds. To keep to them, it goes into bindable and into
// the table.
func TestEachCommandTakesASide(t *testing.T) {
	t.Parallel()
	var all commands
	helped := false
	parser, err := newParser(&all, &console{out: io.Discard, errs: io.Discard}, &helped)
	require.NoError(t, err)
	h := &host{t: t, url: "postgres://nowhere.invalid/x"}
	for _, leaf := range parser.Model.Leaves(false) {
		path := pathOf(leaf)
		in := slices.ContainsFunc(boundArgs, func(args []string) bool { return args[0] == path }) || slices.Contains(served, path) || path == "complete"
		require.Equal(t, slices.Contains(bindable, path), in, "%s: is it in the table?", path)
		require.NotEqual(t, in, unbindable[path] != "" || strings.HasPrefix(path, "cluster ") && !in, "%s: why does it not keep to bounds?", path)
	}
	for _, path := range bindable {
		require.NotPanics(t, func() { commandAt(parser.Model.Node, path) }, path)
	}
	for _, path := range []string{"doctor", "worker list", "top", "window list", "migrate up"} { // before they reach the database
		h.run(append([]string{"--within", "queue=ours"}, strings.Fields(path)...)...).is(codeUsage).complains("does not keep to bounds")
	}
	for _, wrong := range []string{"ours", "queue=", "label=x", "label==x", "tenant=x"} {
		h.run("--within", wrong, "instance", "list").is(codeUsage).complains("is none of queue=NAME")
	}
	h.run("--within", "label=a=1,label=a=2", "instance", "list").is(codeUsage).complains("two values")
}

func TestWithinIsRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given []string
		want  engine.Bounds
	}{
		{nil, engine.Bounds{}},
		{[]string{"queue=a", "queue=b=c"}, engine.Bounds{Queues: []string{"a", "b=c"}}},
		{[]string{"machine=m", "label=tenant=a=b", "label=empty="}, engine.Bounds{Machines: []string{"m"}, Labels: map[string]string{"tenant": "a=b", "empty": ""}}},
	} {
		got, err := (&options{Within: c.given}).bounds()
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// Within bounds, no command tells of instances outside, and none changes them.
func TestNoCommandLeadsOutOfBounds(t *testing.T) {
	t.Parallel()
	for name, flags := range withinFlags {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "queue" {
				tier.Needs(t, tier.CI) // some 450 commands
			}
			n := neighbours.New(t)
			h := &host{t: t, url: n.URL}
			before := n.Hidden(t)
			hides := hiddenOf(n)
			targets := []string{"7700000000009999", "key:hidden-key", "key:shared-key"}
			for _, of := range []map[string]fsm.ID{n.Ours, n.Theirs} {
				for _, role := range []string{"parked", "failed", "graph", "own graph", "runnable"} {
					if id := of[role]; id != 0 {
						targets = append(targets, fmt.Sprint(id))
					}
				}
			}
			answered := map[string]int{}
			for _, args := range boundArgs {
				forms := []string{"--json"}
				if slices.Contains([]string{"instance get", "instance why", "instance tree", "overview"}, args[0]) {
					forms = append(forms, "--timeout=30s") // as people read it
				}
				for _, form := range forms {
					for _, target := range targets {
						if args[0] == "instance wait" && target == fmt.Sprint(n.Ours["runnable"]) {
							continue // it would wait
						}
						line := slices.Concat(flags, []string{form}, strings.Fields(args[0]), args[1:])
						at := slices.Index(line, "TARGET")
						if at >= 0 {
							line[at] = target
						}
						a := h.run(line...)
						if a.code == codeDone || a.code == codeUnmet && a.out != "" {
							answered[args[0]]++
						}
						for _, secret := range hides {
							if !strings.Contains(strings.Join(line, " "), secret) { // its own words are repeated
								assert.NotContains(t, a.out+a.errs, secret, line)
							}
						}
						if at < 0 {
							break
						}
					}
				}
			}
			for _, args := range boundArgs {
				if strings.HasPrefix(args[0], "queue ") && name != "queue" || args[0] == "gate list" && name != "queue" || args[0] == "gate keys" && name != "queue" ||
					slices.Contains([]string{"machine times", "machine failures", "machine edges"}, args[0]) {
					require.Zero(t, answered[args[0]], "%s: it does not tell them apart", args[0])
					continue
				}
				require.Positive(t, answered[args[0]], args[0])
			}
			require.Equal(t, before, n.Hidden(t), "nothing outside was changed")
		})
	}
}

// hiddenOf are the texts and ids of which a caller who is bound must not hear.
func hiddenOf(n *neighbours.Neighbours) []string {
	hides := slices.Clone(neighbours.Secrets)
	for _, id := range n.Theirs {
		hides = append(hides, fmt.Sprint(id))
	}
	return hides
}

// The server offers agents the tools that keep to its bounds, and no call leads out of them.
func TestNoToolLeadsOutOfBounds(t *testing.T) {
	t.Parallel()
	n := neighbours.New(t)
	a := (&host{t: t, url: n.URL}).agent("--allow-write", "--within", "label=tenant=ours")
	before := n.Hidden(t)
	var want []string
	for _, path := range slices.Concat(readingTools, writingTools) {
		if slices.Contains(bindable, path) {
			want = append(want, path)
		}
	}
	require.Equal(t, sortedNames(want), a.names())
	require.NotContains(t, a.names(), "doctor")
	answered := 0
	for _, tool := range a.tools() {
		schema, err := json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.NotContains(t, string(schema), `"within"`)
		var input struct {
			Properties map[string]struct{ Type any }
			Required   []string
		}
		require.NoError(t, json.Unmarshal(schema, &input))
		given := map[string]any{}
		for name, value := range map[string]any{"machine": "our", "queue": "theirs", "gate": "hidden-gate", "name": "go", "payload": `"x"`, "at": "1h", "to": "start", "state": `"y"`} {
			if slices.Contains(input.Required, name) {
				given[name] = value
			}
		}
		if tool.Name == "instance_edit" {
			given["state"] = `"y"`
		}
		targets := []fsm.ID{n.Theirs["parked"], n.Theirs["failed"], n.Theirs["graph"], n.Ours["parked"], n.Ours["graph"], n.Ours["family"], n.Ours["failed"]}
		for _, target := range targets {
			of := input.Properties["target"]
			if list := of.Type == "array"; list {
				given["target"] = []string{fmt.Sprint(target)}
			} else if of.Type != nil {
				given["target"] = fmt.Sprint(target)
			}
			text, failed := a.call(tool.Name, given)
			if !failed {
				answered++
			}
			for _, secret := range hiddenOf(n) {
				if secret != fmt.Sprint(target) && !strings.Contains(fmt.Sprint(given), secret) {
					assert.NotContains(t, text, secret, "%s %v", tool.Name, given)
				}
			}
		}
	}
	require.Greater(t, answered, 50)
	require.Equal(t, before, n.Hidden(t), "nothing outside was changed")
	a.refuses("queue_pause", map[string]any{"queue": "theirs"}, codeUsage, "beyond the bounds")
}
