package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

var cartTwo = fsm.Declare[cart, string]("cart", fsm.Version(2))

// stored is a Reader of one instance.
type stored struct {
	i   fsm.RawInstance
	err error
}

func (s stored) Get(context.Context, fsm.Target) (fsm.RawInstance, error)  { return s.i, s.err }
func (s stored) Wait(context.Context, fsm.Target) (fsm.RawInstance, error) { return s.i, s.err }
func (s stored) Codec() fsm.Codec                                          { return fsm.JSON{} }

func full() fsm.RawInstance {
	at := time.Unix(1, 0)
	return fsm.RawInstance{
		ID: 7, Machine: "cart", Version: 2, Step: "end", Queue: "q", Priority: 1, Status: fsm.StatusDone, State: json.RawMessage(`{"id":1}`),
		Result: json.RawMessage(`"r"`), Attempt: 2, Crashes: 3, Visit: 4, Failure: "f", LastError: "e", Key: "k", PartitionKey: "p", Paused: true,
		EligibleAt: at, InsertedAt: at, FinishedAt: at,
		Deadline: at, Labels: map[string]string{"customer": "7"}, Progress: json.RawMessage(`{"pages":3}`),
	}
}

func TestInstanceAsJSON(t *testing.T) {
	t.Parallel()
	i := full()
	i.EligibleAt, i.InsertedAt, i.FinishedAt, i.Deadline = i.EligibleAt.UTC(), i.InsertedAt.UTC(), i.FinishedAt.UTC(), i.Deadline.UTC()
	text, err := json.Marshal(fsm.RawPage{Instances: []fsm.RawInstance{i}, Next: "c"})
	require.NoError(t, err)
	require.JSONEq(t, `{"instances": [{"id": 7, "machine": "cart", "version": 2, "step": "end", "queue": "q", "priority": 1, "status": "done",
		"state": {"id": 1}, "result": "r", "attempt": 2, "crashes": 3, "visit": 4, "failure": "f", "last_error": "e", "key": "k",
		"partition_key": "p", "paused": true, "eligible_at": "1970-01-01T00:00:01Z", "inserted_at": "1970-01-01T00:00:01Z",
		"finished_at": "1970-01-01T00:00:01Z", "deadline": "1970-01-01T00:00:01Z", "labels": {"customer": "7"}, "progress": {"pages": 3}}], "next": "c"}`, string(text))
	text, err = json.Marshal(fsm.RawInstance{ID: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"id": 1, "machine": "", "version": 0, "step": "", "queue": "", "priority": 0, "status": "", "state": null, "result": null,
		"attempt": 0, "crashes": 0, "visit": 0, "paused": false, "eligible_at": "0001-01-01T00:00:00Z", "inserted_at": "0001-01-01T00:00:00Z"}`,
		string(text))
}

func TestGet(t *testing.T) {
	t.Parallel()
	raw := full()
	got, err := cartTwo.Get(t.Context(), stored{i: raw}, raw.ID)
	require.NoError(t, err)
	require.Equal(t, cart{ID: 1}, got.State)
	require.Equal(t, "r", got.Result)
	from, to := reflect.ValueOf(raw), reflect.ValueOf(got)
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		require.False(t, from.Field(i).IsZero(), "the test does not cover %s", name)
		if name != "State" && name != "Result" {
			require.Equal(t, from.Field(i).Interface(), to.FieldByName(name).Interface(), name)
		}
	}

	raw.Status, raw.Result = fsm.StatusRunnable, nil
	got, err = cartTwo.Get(t.Context(), stored{i: raw}, raw.Key)
	require.NoError(t, err)
	require.Empty(t, got.Result)

	raw.Status, raw.State = fsm.StatusFailed, json.RawMessage(`[]`)
	got, err = cartTwo.Get(t.Context(), stored{i: raw}, raw.ID)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.Equal(t, fsm.StatusFailed, got.Status, "the rest is there")

	raw = full()
	raw.Result = json.RawMessage(`5`)
	_, err = cartTwo.Get(t.Context(), stored{i: raw}, raw.ID)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
}

func TestWait(t *testing.T) {
	t.Parallel()
	raw := full()
	raw.State = json.RawMessage(`[]`)
	result, err := cartTwo.Wait(t.Context(), stored{i: raw}, raw.ID)
	require.NoError(t, err, "waiting needs no state")
	require.Equal(t, "r", result)

	raw.Status, raw.Failure, raw.LastError = fsm.StatusFailed, fsm.FailureCrashes, "gone"
	_, err = cartTwo.Wait(t.Context(), stored{i: raw}, raw.ID)
	require.Equal(t, &fsm.FailedError{ID: 7, Machine: "cart", Failure: fsm.FailureCrashes, Message: "gone"}, err)
	require.EqualError(t, err, `instance 7 of machine "cart" failed (crashes): gone`)

	raw = full()
	raw.Result = json.RawMessage(`{}`)
	_, err = cartTwo.Wait(t.Context(), stored{i: raw}, raw.ID)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.ErrorContains(t, err, "instance 7")

	raw.Status = fsm.StatusRunnable
	_, err = cartTwo.Wait(t.Context(), stored{i: raw}, raw.ID)
	require.ErrorIs(t, err, fsm.ErrNotTerminal)
}

func TestReadsOfAnotherMachine(t *testing.T) {
	t.Parallel()
	raw := full()
	raw.Machine, raw.Status = "order", fsm.StatusFailed
	want := &fsm.MachineError{ID: 7, Want: "cart", Got: "order"}
	_, err := cartTwo.Wait(t.Context(), stored{i: raw}, raw.ID)
	require.Equal(t, want, err)
	_, err = cartTwo.Get(t.Context(), stored{i: raw}, raw.ID)
	require.Equal(t, want, err)
	require.EqualError(t, err, `instance 7 is of machine "order", not "cart"`)
}

func TestReaderFails(t *testing.T) {
	t.Parallel()
	_, err := cartTwo.Wait(t.Context(), stored{err: errBroken}, fsm.ID(1))
	require.ErrorIs(t, err, errBroken)
	_, err = cartTwo.Get(t.Context(), stored{err: errBroken}, fsm.ID(1))
	require.ErrorIs(t, err, errBroken)
}

func TestPanicError(t *testing.T) {
	t.Parallel()
	require.EqualError(t, &fsm.PanicError{Value: "boom"}, "panic: boom")
	require.ErrorIs(t, &fsm.PanicError{Value: errBroken}, errBroken)
	require.ErrorIs(t, &fsm.PanicError{Value: fsm.ErrGoexit}, fsm.ErrGoexit)
	require.NoError(t, errors.Unwrap(&fsm.PanicError{Value: 5}))
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`machine "m" version 2: name: broken`: &fsm.DefinitionError{Machine: "m", Version: 2, Field: "name", Err: errBroken},
		"outcome: delay: broken":              &fsm.OutcomeError{Field: "delay", Err: errBroken},
		"spec: key: broken":                   &fsm.SpecError{Field: "key", Err: errBroken},
		"signal: payload: broken":             &fsm.MessageError{Field: "payload", Err: errBroken},
		"decode state: broken":                &fsm.DecodeError{Field: "state", Err: errBroken},
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, errBroken)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, s := range fsm.Statuses() {
		require.Equal(t, s == "done" || s == "failed", s.Terminal())
	}
	require.Equal(t, []string{"runnable", "executing", "awaiting_signal", "awaiting_children", "done", "failed"}, fsm.Status("").Values())
}
