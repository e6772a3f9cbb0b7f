package durabletest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

func TestRunStep(t *testing.T) {
	t.Parallel()
	d := shop{}.Definition()
	out, err := durabletest.RunStep(t.Context(), d, "start", durabletest.Visit{State: order{ID: 42}})
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeAwait, out.Kind)
	require.Equal(t, []string{"paid", "refused"}, out.Names)
	require.Equal(t, 24*time.Hour, out.Timeout)
	require.Equal(t, "settle", out.Step)

	out, err = durabletest.RunStep(t.Context(), d, "settle",
		durabletest.Visit{State: order{ID: 42}, Awaited: []fsm.Message{refused.With("no"), paid.With(100)}})
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeNext, out.Kind)
	var state order
	require.NoError(t, out.DecodeState(&state))
	require.Equal(t, order{ID: 42, Cents: 100}, state)
	require.ErrorContains(t, out.DecodeResult(&state), "has no result")

	out, err = durabletest.RunStep(t.Context(), d, "settle", durabletest.Visit{TimedOut: true})
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeFail, out.Kind)
	require.Equal(t, fsm.FailureDecided, out.Failure)
	require.Equal(t, errUnpaid.Error(), out.Err)

	out, err = durabletest.RunStep(t.Context(), d, "ship", durabletest.Visit{State: order{}})
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeChildren, out.Kind)
	require.Len(t, out.Children, 2)
	require.Equal(t, "parcels", out.Children[1].Queue)
	require.Equal(t, 3, out.Children[1].Priority)
	require.JSONEq(t, `"right"`, string(out.Children[1].State))
}

func TestRunStepThatJoins(t *testing.T) {
	t.Parallel()
	d := shop{}.Definition()
	out, err := durabletest.RunStep(t.Context(), d, "end", durabletest.Visit{
		State: order{Cents: 100}, Children: []durabletest.Child{durabletest.DoneChild(parcel, "left", "12345")}})
	require.NoError(t, err)
	var sum int64
	require.NoError(t, out.DecodeResult(&sum))
	require.EqualValues(t, 105, sum)

	_, err = durabletest.RunStep(t.Context(), d, "end", durabletest.Visit{
		Children: []durabletest.Child{durabletest.FailedChild(parcel, "left", fsm.FailureExhausted, "no van")}})
	var failed *fsm.FailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, fsm.FailureExhausted, failed.Failure)
}

// RunStep finds the faults of a step or its outcome, as production does.
func TestRunStepFindsFaults(t *testing.T) {
	t.Parallel()
	run := func(f fsm.StepFunc[order, int64], v durabletest.Visit) error {
		_, err := durabletest.RunStep(t.Context(), checkout.Define(fsm.Step("start", f).To().Timeout(time.Hour)), "start", v)
		return err
	}
	var outcome *fsm.OutcomeError
	require.ErrorAs(t, run(func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Next("nowhere", v.State), nil },
		durabletest.Visit{}), &outcome)
	require.ErrorAs(t, run(func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Next("start", v.State), nil },
		durabletest.Visit{}), &outcome, "the step's own To")
	require.ErrorAs(t, run(func(context.Context, *visit) (fsm.Outcome, error) { return nil, nil }, durabletest.Visit{}), &outcome)
	var panicked *fsm.PanicError
	require.ErrorAs(t, run(func(context.Context, *visit) (fsm.Outcome, error) { panic("no") }, durabletest.Visit{}), &panicked)
	var decode *fsm.DecodeError
	require.ErrorAs(t, run(func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(1), nil },
		durabletest.Visit{State: "no order"}), &decode)
	var message *fsm.MessageError
	require.ErrorAs(t, run(func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(1), nil },
		durabletest.Visit{Awaited: []fsm.Message{{}}}), &message)
	var limits durabletest.Visit
	limits.State = order{ID: 1}
	limits.Limits.PayloadBytes = 3
	require.ErrorIs(t, run(func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(12345), nil }, limits), fsm.ErrTooLarge)

	_, err := durabletest.RunStep(t.Context(), shop{}.Definition(), "sip", durabletest.Visit{})
	require.ErrorContains(t, err, `no step "sip", only ["end" "settle" "ship" "start"]`)
	_, err = durabletest.RunStep(t.Context(), checkout.Define(), "start", durabletest.Visit{})
	var definition *fsm.DefinitionError
	require.ErrorAs(t, err, &definition)
	_, err = durabletest.RunStep(t.Context(), nil, "start", durabletest.Visit{})
	require.ErrorContains(t, err, "nil")
}

func TestRunStepIsThatVisit(t *testing.T) {
	t.Parallel()
	var seen []fsm.Info
	d := checkout.Define(fsm.Step("start", func(ctx context.Context, v *visit) (fsm.Outcome, error) {
		info, _ := fsm.InfoFrom(ctx)
		seen = append(seen, info)
		require.Len(t, v.Dropped(), 1)
		inbox, err := v.Inbox(ctx)
		require.NoError(t, err)
		require.Len(t, inbox, 1)
		return v.Retry(v.State, time.Second), nil
	}))
	v := durabletest.Visit{ID: 7, Number: 3, Attempt: 2, Crashes: 1, Key: "k", PartitionKey: "p", Priority: 4, FencingToken: 9, Parent: 5,
		Depth: 1, Awaited: []fsm.Message{paid.With(1)}, Dropped: []fsm.Dropped{{Index: 1, Key: "k"}}}
	for range 2 {
		out, err := durabletest.RunStep(t.Context(), d, "start", v)
		require.NoError(t, err)
		require.Equal(t, time.Second, out.Delay)
	}
	require.Equal(t, seen[0].IdempotencyKey("x"), seen[1].IdempotencyKey("x"))
	require.EqualValues(t, 7, seen[0].ID)
	require.Equal(t, "default", seen[0].Queue)
	require.Equal(t, 2, seen[0].Attempt)
	v.Number++
	_, err := durabletest.RunStep(t.Context(), d, "start", v)
	require.NoError(t, err)
	require.NotEqual(t, seen[0].IdempotencyKey("x"), seen[2].IdempotencyKey("x"))
}

func TestRunOnError(t *testing.T) {
	t.Parallel()
	broke := errors.New("the van broke down")
	out, err := durabletest.RunOnError(t.Context(), shop{}.Definition(), "ship", durabletest.Visit{State: order{ID: 1}, Attempt: 1}, broke)
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeRetry, out.Kind)
	require.Equal(t, broke.Error(), out.Err)
	require.Positive(t, out.Delay)
	out, err = durabletest.RunOnError(t.Context(), shop{}.Definition(), "ship", durabletest.Visit{State: order{ID: 1}, Attempt: 2}, broke)
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeFail, out.Kind)
	require.Equal(t, fsm.FailureExhausted, out.Failure)
	_, err = durabletest.RunOnError(t.Context(), shop{}.Definition(), "sip", durabletest.Visit{}, broke)
	require.ErrorContains(t, err, "no step")
}

func TestRunStepOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	type older struct{ Cents int }
	one := fsm.Declare[older, int]("fare")
	two := fsm.Declare[int, int]("fare", fsm.Version(2))
	d := two.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(v.State + 1), nil })).
		From(fsm.Migrate(one, two, func(o older) (int, error) {
			if o.Cents < 0 {
				return 0, errors.New("a debt")
			}
			return o.Cents, nil
		}, fsm.StepNames{"begin": "start"}))
	out, err := durabletest.RunStep(t.Context(), d, "begin", durabletest.Visit{From: 1, State: older{5}})
	require.NoError(t, err)
	var sum int
	require.NoError(t, out.DecodeResult(&sum))
	require.Equal(t, 6, sum)
	_, err = durabletest.RunStep(t.Context(), d, "begin", durabletest.Visit{From: 1, State: older{-5}})
	require.ErrorContains(t, err, "convert the state from version 1 to 2: a debt")
	_, err = durabletest.RunStep(t.Context(), d, "pay", durabletest.Visit{From: 1, State: older{5}})
	require.ErrorContains(t, err, `no migration from version 1 at step "pay"`)
}

// cents encodes itself by a method of its pointer, as many types do.
type cents struct{ n int }

func (c *cents) MarshalJSON() ([]byte, error) { return json.Marshal(c.n) }

func (c *cents) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &c.n) }

// What a value's pointer encodes comes to the step, and back: states, results of children, signals.
func TestRunStepKeepsWhatPointersEncode(t *testing.T) {
	t.Parallel()
	type purse struct{ In cents }
	m, child, coin := fsm.Declare[purse, cents]("purse"), fsm.Declare[int, cents]("purse.child"), fsm.DeclareSignal[cents]("coin")
	d := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[purse, cents]) (fsm.Outcome, error) {
		sum := v.State.In.n
		for _, c := range child.Children(v) {
			got, err := c.Result()
			if err != nil {
				return nil, err
			}
			sum += got.n
		}
		paid, _, err := coin.First(v)
		return v.Done(cents{sum + paid.n}), err
	}))
	for _, codec := range []fsm.Codec{nil, plainJSON{}} {
		out, err := durabletest.RunStep(t.Context(), d, "start", durabletest.Visit{State: purse{cents{1}}, Codec: codec,
			Children: []durabletest.Child{durabletest.DoneChild(child, 0, cents{20})}, Awaited: []fsm.Message{coin.With(cents{300})}})
		require.NoError(t, err)
		require.JSONEq(t, "321", string(out.Result))
	}
}

// plainJSON is a codec of a host, which encodes what it gets.
type plainJSON struct{}

func (plainJSON) Encode(v any) (json.RawMessage, error)       { return json.Marshal(v) }
func (plainJSON) Decode(text json.RawMessage, into any) error { return json.Unmarshal(text, into) }
