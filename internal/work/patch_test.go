package work

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference is the definition: it decodes both documents.
func reference(from, to any) (patch any, changed bool) {
	a, ok := from.(map[string]any)
	b, also := to.(map[string]any)
	if !ok || !also {
		return to, !reflect.DeepEqual(from, to)
	}
	members := map[string]any{}
	for name, value := range b {
		old, had := a[name]
		if !had {
			members[name] = value
		} else if inner, differs := reference(old, value); differs {
			members[name] = inner
		}
	}
	for name := range a {
		if _, has := b[name]; !has {
			members[name] = nil
		}
	}
	return members, len(members) > 0
}

// document writes a random value in one of the ways in which it can be written: with spaces, in any
// order, escaped.
func document(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 3 && depth > 0:
		m := map[string]any{}
		for range r.IntN(4) {
			m[[]string{"a", "b", `q"\\`, "é<", ""}[r.IntN(5)]] = document(r, depth-1)
		}
		return m
	case n == 3 && depth > 0:
		list := []any{}
		for range r.IntN(3) {
			list = append(list, document(r, depth-1))
		}
		return list
	case n == 4:
		return []string{"", "x", `} " ] \\`, "é<"}[r.IntN(4)]
	case n == 5:
		return nil
	case n == 6:
		return r.IntN(2) == 0
	}
	return json.Number([]string{"0", "1", "-1.5e3"}[r.IntN(3)])
}

func written(r *rand.Rand, v any) string {
	space := []string{"", "", " ", "\n\t"}[r.IntN(4)]
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		var parts []string
		for _, name := range names {
			parts = append(parts, written(r, name)+space+":"+space+written(r, v[name]))
		}
		return "{" + space + strings.Join(parts, space+","+space) + space + "}"
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, written(r, x))
		}
		return "[" + space + strings.Join(parts, ","+space) + space + "]"
	case string:
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		if r.IntN(2) == 0 {
			return strings.NewReplacer("é", `\u00e9`, `\u003c`, "<").Replace(string(raw))
		}
		return string(raw)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestMergePatchIsTheDefinition(t *testing.T) {
	t.Parallel()
	changes := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		from, to := document(r, 3), document(r, 3)
		if r.IntN(3) == 0 {
			to = from
		}
		a, b := " "+written(r, from), written(r, to)+"\n"
		got := mergePatch(json.RawMessage(a), json.RawMessage(b))
		want, changed := reference(from, to)
		what := fmt.Sprintf("seed %d: %s to %s: %s", seed, a, b, got)
		require.Equal(t, changed, got != nil, what)
		if changed {
			changes++
			is, err := decoded(got)
			require.NoError(t, err, what)
			require.Equal(t, want, is, what)
		}
	}
	require.Greater(t, changes, 5000)

	large := func(n int) json.RawMessage { // has an index
		m := map[string]int{}
		for i := range 100 {
			m[fmt.Sprint(i)] = i / n
		}
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		return raw
	}
	require.JSONEq(t, `{"99": 0}`, string(mergePatch(large(99), large(100))))
	require.Equal(t, `{"a":3}`, string(mergePatch(json.RawMessage(`{"a": 1, "a": 2}`), json.RawMessage(`{"a": 2, "a": 3}`))))
}

func BenchmarkMergePatch(b *testing.B) {
	for name, s := range map[string][2]string{
		"small": {`{"n": 1}`, `{"n":2}`},
		"order": {`{"id": "4711", "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], "total": {"cents": 4200, "currency": "EUR"}, "address": {"street": "1 High Street", "city": "Ulm"}, "paid": false}`,
			`{"id":"4711","lines":[{"sku":"a","n":1},{"sku":"b","n":2}],"total":{"cents":4200,"currency":"EUR"},"address":{"street":"1 High Street","city":"Ulm"},"paid":true}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				mergePatch(json.RawMessage(s[0]), json.RawMessage(s[1]))
			}
		})
	}
}
