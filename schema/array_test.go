package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/schema"
)

func TestNamesSurviveTheTextForm(t *testing.T) {
	t.Parallel()
	for _, names := range []schema.Names{
		nil, {}, {""}, {"go"}, {"NULL"}, {"null", "a,b", `quo"te`, `back\slash`, "{brace}", " space ", "ümläut", "line\nbreak"},
	} {
		value, err := names.Value()
		require.NoError(t, err)
		var read schema.Names
		require.NoError(t, read.Scan(value))
		require.Equal(t, names, read)
	}
}

func TestNamesReadWhatPostgresWrites(t *testing.T) {
	t.Parallel()
	var names schema.Names
	require.NoError(t, names.Scan([]byte(`{go,"with space",NULL,"a\"b"}`)))
	require.Equal(t, schema.Names{"go", "with space", "", `a"b`}, names)
}

func TestMalformedArraysAreErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []any{"", "{", "go", `{"go}`, `{"go\`, `{"go\}`, "{{a},{b}}", "[0:1]={a,b}", 42} {
		var names schema.Names
		require.Error(t, names.Scan(text), "%v", text)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	value, err := schema.Statuses(nil).Value()
	require.NoError(t, err)
	require.Equal(t, "{}", value)

	var statuses schema.Statuses
	require.NoError(t, statuses.Scan("{runnable,done}"))
	require.Equal(t, schema.Statuses{fsm.StatusRunnable, fsm.StatusDone}, statuses)
	require.Error(t, statuses.Scan(1))
}
