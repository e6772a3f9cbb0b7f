package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
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

// The history and the audit have states as Postgres has them: sealed.
func TestHistoryIsSealed(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	codec, err := newSealed("new", map[string][]byte{"new": []byte("sixteen more byt")})
	require.NoError(t, err)
	visits := fsm.Declare[patient, string]("visits")
	eng, err := engine.New(engine.Config{Pool: pool, Codec: codec, History: fsm.KeepStates, Queues: map[string]engine.Queue{"default": {}},
		Machines: []fsm.Definition{visits.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[patient, string]) (fsm.Outcome, error) {
				return v.Next("second", patient{v.State.Name, "secret flu"}), nil
			}),
			fsm.Step("second", func(_ context.Context, v *fsm.Visit[patient, string]) (fsm.Outcome, error) {
				return v.Await("third", patient{v.State.Name, "secret fever"}, fsm.DeclareSignal[int]("go")), nil
			}),
			fsm.Step("third", func(_ context.Context, v *fsm.Visit[patient, string]) (fsm.Outcome, error) {
				return v.Done("secret"), nil
			}))}})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	defer func() { require.NoError(t, eng.Stop(context.Background())) }()
	id, err := eng.Insert(t.Context(), visits.New(patient{"secret Ada", "secret cold"}))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		i, err := eng.Get(t.Context(), id)
		return err == nil && i.Status == fsm.StatusAwaitingSignal
	}, time.Minute, 10*time.Millisecond)
	_, err = eng.Admin().Edit(t.Context(), id, visits.Change(func(p *patient) error { p.Diagnosis = "secret gout"; return nil }))
	require.NoError(t, err)
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.history WHERE diff ? 'box' OR after->'state' ? 'box'`).Scan(&rows))
	require.Equal(t, 3, rows, "what was kept is sealed")
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.history h WHERE h::text LIKE '%secret%'`).Scan(&rows))
	require.Zero(t, rows)
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
