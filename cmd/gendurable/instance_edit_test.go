package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

func TestEditAndRewind(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.work()
	id := h.insert(1)
	h.until(id, fsm.StatusAwaitingSignal)
	target := fmt.Sprint(id)

	h.run("instance", "edit", target, "--patch", `{"n": 7}`, "--at-visit", "1", "--reason", "ticket 7").is(codeDone).says("edited "+target, "awaiting_signal")
	i, err := orders.Get(t.Context(), h.eng, id)
	require.NoError(t, err)
	require.Equal(t, 7, i.State.N)
	h.run("instance", "edit", target, "--state", `{"n": 8}`, "--at-visit", "9").is(codeConflict).complains("at visit 1, not at 9")
	h.run("instance", "edit", "--machine", "order", "--state", `{"n": 8}`, "--yes").is(codeDone).says("edited 1, skipped 0, failed 0")
	h.run("instance", "rewind", target, "--to", "gone").complains("has no step")
	h.run("instance", "rewind", target, "--to", "start", "--patch", `{"n": 9}`).is(codeDone).says("rewound " + target)
	h.until(id, fsm.StatusAwaitingSignal)
	i, err = orders.Get(t.Context(), h.eng, id)
	require.NoError(t, err)
	require.Equal(t, 9, i.State.N)
	require.Greater(t, i.Visit, int64(1))
	h.run("instance", "rewind", "--machine", "order", "--to", "start", "--dry-run").is(codeDone).says("rewind applies to 1")
	h.run("audit", "--verb", "rewind").is(codeDone).says("rewind", `state: {"n": 8} → {"n": 9}`, `step: "ship" → "start"`)

	h.run("instance", "edit", target).is(codeUsage).complains("--state or --patch")
	h.run("instance", "edit", target, "--state", "{").is(codeUsage).complains("--state: not JSON")
	h.run("instance", "edit", target, "--state", "1", "--patch", "1").is(codeUsage).complains("--state and --patch exclude each other")
	h.run("instance", "rewind", target, "--to", "start", "--at-visit=-2").is(codeUsage).complains("at least 0")
}

// The examples of RFC 7386.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`}, {`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`}, {`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`}, {`{"a":"b"}`, `["c"]`, `["c"]`}, {`{"a":"foo"}`, `null`, `null`}, {`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`}, {`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`}, {`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":12345678901234567890}`, `{"a":1.50}`, `{"a":1.50,"n":12345678901234567890}`},
	} {
		got, err := merged(json.RawMessage(c[0]), json.RawMessage(c[1]))
		require.NoError(t, err)
		require.Equal(t, c[2], string(got), "%s with %s", c[0], c[1])
	}
}
