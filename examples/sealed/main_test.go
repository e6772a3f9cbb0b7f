package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	var out strings.Builder
	require.NoError(t, write(t.Context(), &out, &run.Database{Pool: pool, Schema: "gendurable"}))
	require.Contains(t, out.String(), "the host reads: Dear Ada, it is only a cold.\n")
	require.Contains(t, out.String(), `the table has: {"`)
}

func TestRotation(t *testing.T) {
	t.Parallel()
	keys := map[string][]byte{"old": []byte("sixteen byte key"), "new": []byte("sixteen more byt")}
	old, err := newSealed("old", map[string][]byte{"old": keys["old"]})
	require.NoError(t, err)
	both, err := newSealed("new", keys)
	require.NoError(t, err)
	want := patient{"Ada", "cold"}
	sealedByOld, err := old.Encode(want)
	require.NoError(t, err)
	sealedByNew, err := both.Encode(want)
	require.NoError(t, err)
	again, err := both.Encode(want)
	require.NoError(t, err)
	require.NotEqual(t, sealedByNew, again, "equal values look different")

	for _, raw := range []json.RawMessage{sealedByOld, sealedByNew, json.RawMessage(`{"Name": "Ada", "Diagnosis": "cold"}`)} {
		var got patient
		require.NoError(t, both.Decode(raw, &got))
		require.Equal(t, want, got)
	}
	var got patient
	require.ErrorContains(t, old.Decode(sealedByNew, &got), `"new", which is not here`)
	renamed := json.RawMessage(strings.Replace(string(sealedByNew), `"new"`, `"old"`, 1))
	require.ErrorContains(t, both.Decode(renamed, &got), "open it")
	require.ErrorContains(t, both.Decode(json.RawMessage(`{"key":"new","nonce":"AA==","box":""}`), &got), "damaged")
}

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	_, err := newSealed("a", nil)
	require.ErrorContains(t, err, `no key "a"`)
	_, err = newSealed("a", map[string][]byte{"a": []byte("short")})
	require.ErrorContains(t, err, "key")
}
