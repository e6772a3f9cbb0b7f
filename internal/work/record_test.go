package work

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ from, to, want string }{
		{`{"a": 1}`, `{"a":1}`, ``},
		{`{"a": 1, "b": {"c": 2, "d": 3}}`, `{"a": 1, "b": {"c": 2, "d": 4}}`, `{"b":{"d":4}}`},
		{`{"a": 1, "b": 2}`, `{"b": 2}`, `{"a":null}`},
		{`{"a": [1]}`, `{"a": [1, 2]}`, `{"a":[1,2]}`},
		{`{"a": {"b": 1}}`, `{"a": 1}`, `{"a":1}`},
		{`{"a": 12345678901234567890}`, `{"a": 12345678901234567891}`, `{"a":12345678901234567891}`},
		{`1`, `2`, `2`},
		{`"encrypted"`, `"again"`, `"again"`},
		{`{"a": 1}`, `null`, `null`},
		{`no JSON`, `{}`, ``},
		{`{}`, `no JSON`, ``},
	} {
		require.Equal(t, x.want, string(mergePatch(json.RawMessage(x.from), json.RawMessage(x.to))), "%s to %s", x.from, x.to)
	}
}

// Redact may return anything. A text that Postgres would refuse is not kept, nor one that is too
// long.
func TestDiffsAreStorable(t *testing.T) {
	t.Parallel()
	const from, to = `{"a": 1}`, `{"a": 2}`
	diff := func(kept string) string {
		p := process{config: Config{Redact: func(string, json.RawMessage) json.RawMessage { return json.RawMessage(kept) }}}
		return string(p.diff("m", json.RawMessage(from), json.RawMessage(to)))
	}
	require.Equal(t, `{"a":2}`, diff(`{"a":2}`))
	require.Equal(t, `{"b": "kept"}`, diff(`{"b": "kept"}`))
	for _, bad := range []string{``, `{`, `{"a": "\u0000"}`, `{"a": 1e999999}`, `{"a": "\ud800"}`, strings.Repeat("[", 6000) + strings.Repeat("]", 6000), "{\"a\": \"\xff\"}"} {
		require.Empty(t, diff(bad), bad)
	}
	long, err := json.Marshal(map[string]string{"a": string(make([]byte, step.KeptMost))})
	require.NoError(t, err)
	require.Empty(t, (&process{}).diff("m", json.RawMessage(from), long))
}
