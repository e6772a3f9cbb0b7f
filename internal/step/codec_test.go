package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

// Whatever SQL of others puts where texts belong, the other texts stay readable.
func TestTexts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]map[string]string{
		``:                          nil,
		`null`:                      nil,
		`[1]`:                       nil,
		`{}`:                        {},
		`{"a": "b"}`:                {"a": "b"},
		`{"a": "null", "": ""}`:     {"a": "null", "": ""},
		`{"a": 1, "b": "c"}`:        {"a": "1", "b": "c"},
		`{"a": null, "b": "c"}`:     {"b": "c"},
		`{"a": true, "b": [1, {}]}`: {"a": "true", "b": "[1, {}]"},
		`{"a": 1e400, "b": "c"}`:    {"a": "1e400", "b": "c"},
	} {
		require.Equal(t, want, step.Texts([]byte(raw)), raw)
	}
}

func TestAddressed(t *testing.T) {
	t.Parallel()
	n, none := 1, (*int)(nil)
	require.Equal(t, &n, step.Addressed(1))
	require.Same(t, &n, step.Addressed(&n))
	require.Equal(t, none, step.Addressed(none))
	require.Nil(t, step.Addressed(nil))
}
