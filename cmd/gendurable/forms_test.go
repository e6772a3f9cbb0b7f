package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
)

// Scripts read these forms, and people compare them line by line.
func TestFormsAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 5, 4, 5, 0, time.FixedZone("", 2*60*60))
	key, tenant, boom := "order:7", "tenant", "boom"
	row := &ent.Instance{
		ID: 7, CorrelationKey: &key, Machine: "checkout", Version: 2, Step: "pay", Status: fsm.StatusFailed, Paused: true, Queue: "mail", Priority: 3,
		PartitionKey: &tenant, Visit: 4, Attempt: 5, Crashes: 6, Failure: fsm.FailureDecided, LastError: &boom, EligibleAt: at, InsertedAt: at,
		FinishedAt: &at, Deadline: &at, Labels: map[string]string{"a": "b"}, Progress: json.RawMessage(`{"p":1}`), State: json.RawMessage(`"secret"`),
	}
	const head = `{"id":7,"key":"order:7","machine":"checkout","version":2,"step":"pay","status":"failed","paused":true,"queue":"mail","priority":3,` +
		`"partition_key":"tenant","visit":4,"attempt":5,"crashes":6,"failure":"decided","last_error":"boom","eligible_at":"2026-01-02T03:04:05Z",` +
		`"inserted_at":"2026-01-02T03:04:05Z","finished_at":"2026-01-02T03:04:05Z","deadline":"2026-01-02T03:04:05Z","labels":{"a":"b"},"progress":{"p":1}`
	const bare = `{"id":8,"machine":"m","version":1,"step":"s","status":"runnable","paused":false,"queue":"q","priority":0,"visit":0,"attempt":0,"crashes":0,` +
		`"eligible_at":"0001-01-01T00:00:00Z","inserted_at":"0001-01-01T00:00:00Z","finished_at":null,"deadline":null`
	const verb = `{"at":"2026-01-02T03:04:05Z","verb":"cancel","actor":"ada","reason":"r","instance":7,"machine":"m","version":1,"subject":"s","before":{}}`
	entry := engine.AuditEntry{At: at.UTC(), Verb: "cancel", Actor: "ada", Reason: "r", Instance: 7, Machine: "m", Version: 1, Subject: "s", Before: json.RawMessage(`{}`)}
	for want, form := range map[string]any{
		head + `}`:                               summarizeRow(row),
		bare + `}`:                               summarizeRow(&ent.Instance{ID: 8, Machine: "m", Version: 1, Step: "s", Status: fsm.StatusRunnable, Queue: "q"}),
		head + `,"result":null}`:                 ended{summary: summarizeRow(row)},
		head + `,"children":[],"more":false}`:    node{summary: summarizeRow(row), Children: []*node{}},
		`{"entries":[` + verb + `],"next":null}`: audited{Entries: []engine.AuditEntry{entry}},
	} {
		text, err := json.Marshal(form)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	require.Equal(t, summarizeRow(row), summarize(&fsm.RawInstance{
		ID: 7, Key: "order:7", Machine: "checkout", Version: 2, Step: "pay", Status: fsm.StatusFailed, Paused: true, Queue: "mail", Priority: 3,
		PartitionKey: "tenant", Visit: 4, Attempt: 5, Crashes: 6, Failure: fsm.FailureDecided, LastError: "boom", EligibleAt: at, InsertedAt: at,
		FinishedAt: at, Deadline: at, Labels: map[string]string{"a": "b"}, Progress: json.RawMessage(`{"p":1}`),
	}))
}
