package fsm_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// inStep calls f in the middle of a step.
func inStep(t *testing.T, c *step.Claim, f func(ctx context.Context, v *cartVisit)) {
	t.Helper()
	_, err := runClaim(t, two(func(ctx context.Context, v *cartVisit) (fsm.Outcome, error) {
		f(ctx, v)
		return v.Done(""), nil
	}), c)
	require.NoError(t, err)
}

func TestAwaited(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	c.TimedOut = true
	c.Awaited = []step.Signal{
		{ID: 1, Name: "other", Payload: json.RawMessage(`"x"`)},
		{ID: 2, Name: "paid", Payload: json.RawMessage(`5`), DedupKey: "evt", At: time.Unix(1, 0)},
		{ID: 3, Name: "paid", Payload: json.RawMessage(`6`)},
	}
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		require.True(t, v.TimedOut())
		require.Len(t, v.Awaited(), 3)
		require.Equal(t, fsm.Received{ID: 2, Name: "paid", Payload: json.RawMessage(`5`), DedupKey: "evt", At: time.Unix(1, 0)}, v.Awaited()[1])

		first, ok, err := paid.First(v)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 5, first)
		all, err := paid.All(v)
		require.NoError(t, err)
		require.Equal(t, []int{5, 6}, all)

		_, ok, err = fsm.DeclareSignal[int]("never").First(v)
		require.NoError(t, err)
		require.False(t, ok)
		none, err := fsm.DeclareSignal[int]("never").All(v)
		require.NoError(t, err)
		require.Empty(t, none)

		inbox, err := v.Inbox(ctx)
		require.NoError(t, err)
		require.Equal(t, v.Awaited(), inbox, "without a database")
		text, err := other.Decode(v, inbox[0])
		require.NoError(t, err)
		require.Equal(t, "x", text)
		_, err = paid.Decode(v, inbox[0])
		require.ErrorAs(t, err, new(*fsm.DecodeError))
	})
}

func TestSignalThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	c.Awaited = []step.Signal{{ID: 2, Name: "paid", Payload: json.RawMessage(`1`)}, {ID: 3, Name: "paid", Payload: json.RawMessage(`"a lot"`)}}
	inStep(t, c, func(_ context.Context, v *cartVisit) {
		all, err := paid.All(v)
		var bad *fsm.DecodeError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, `payload of signal 3, "paid"`, bad.Field)
		require.Equal(t, []int{1}, all)
	})
	c.Awaited = c.Awaited[1:]
	inStep(t, c, func(_ context.Context, v *cartVisit) {
		_, ok, err := paid.First(v)
		require.ErrorAs(t, err, new(*fsm.DecodeError))
		require.False(t, ok)
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	c.Inbox = func(context.Context, int64) ([]step.Signal, bool, error) {
		return []step.Signal{{ID: 9, Name: "other", Payload: json.RawMessage(`"late"`)}}, false, nil
	}
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		inbox, err := v.Inbox(ctx)
		require.NoError(t, err)
		require.Equal(t, []fsm.Received{{ID: 9, Name: "other", Payload: json.RawMessage(`"late"`)}}, inbox)
	})
	c.Inbox = func(context.Context, int64) ([]step.Signal, bool, error) { return nil, false, errBroken }
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		_, err := v.Inbox(ctx)
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "inbox of instance 7")
	})
}

func TestChildren(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	c.Children = []step.Child{
		{ID: 1, Machine: "count", Version: 1, Status: "done", State: json.RawMessage(`"in"`), Result: json.RawMessage(`5`)},
		{ID: 2, Machine: "cart", Version: 1, Status: "done", State: json.RawMessage(`{}`), Result: json.RawMessage(`"x"`)},
		{ID: 3, Machine: "count", Version: 2, Status: "failed", State: json.RawMessage(`"in"`), Failure: "exhausted", LastError: "gone"},
		{ID: 4, Machine: "count", Version: 1, Status: "runnable", State: json.RawMessage(`"in"`)},
		{ID: 5, Machine: "count", Version: 1, Status: "done", State: json.RawMessage(`5`), Result: json.RawMessage(`"x"`)},
	}
	c.Dropped = []step.Dropped{{Index: 3, Key: "k", Occupant: 44}}
	count := fsm.Declare[string, int]("count")
	inStep(t, c, func(_ context.Context, v *cartVisit) {
		require.Len(t, v.Children(), 5)
		raw, err := v.Children()[1].Result()
		require.NoError(t, err)
		require.Equal(t, `"x"`, string(raw))
		require.Equal(t, []fsm.Dropped{{Index: 3, Key: "k", Occupant: 44}}, v.Dropped())

		of := count.Children(v)
		require.Len(t, of, 4, "of every version, of this machine")
		n, err := of[0].Result()
		require.NoError(t, err)
		require.Equal(t, 5, n)
		require.Equal(t, fsm.StatusDone, of[0].Status)
		var state string
		require.NoError(t, of[0].DecodeState(&state))
		require.Equal(t, "in", state)

		_, err = of[1].Result()
		require.Equal(t, &fsm.FailedError{ID: 3, Machine: "count", Failure: fsm.FailureExhausted, Message: "gone"}, err)
		_, err = of[2].Result()
		require.ErrorIs(t, err, fsm.ErrNotTerminal)
		_, err = of[3].Result()
		require.ErrorAs(t, err, new(*fsm.DecodeError))
		require.ErrorAs(t, of[3].DecodeState(&state), new(*fsm.DecodeError))
	})
	require.Error(t, fsm.Child[int]{}.DecodeState(new(int)))
	_, err := fsm.Child[int]{}.Result()
	require.ErrorIs(t, err, fsm.ErrNotTerminal)
}

// A visit made by hand does no harm, so that a host can test its own functions with one.
func TestZeroVisit(t *testing.T) {
	t.Parallel()
	v := &cartVisit{State: cart{ID: 1}}
	require.Empty(t, v.Awaited())
	require.Empty(t, v.Children())
	require.Empty(t, v.Dropped())
	require.False(t, v.TimedOut())
	_, ok, err := paid.First(v)
	require.NoError(t, err)
	require.False(t, ok)
	out, err := finish(t.Context(), v)
	require.NoError(t, err)
	require.NotNil(t, out)
}
