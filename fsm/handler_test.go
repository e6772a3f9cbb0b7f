package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func TestDefaultHandler(t *testing.T) {
	t.Parallel()
	got := handle(t, two(failing), claim(`{}`), errors.New("a\x00b"))
	require.Equal(t, &step.Commit{Kind: step.Fail, Err: "ab", Failure: "error"}, got)
}

// T96: the handler does not see what the step did to its state.
func TestHandlerDecodesAnew(t *testing.T) {
	t.Parallel()
	var seen cart
	d := two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		v.State.ID = 99
		v.State.Items["x"] = 99
		v.Awaited()[0].Payload[0] = '9'
		return nil, errBroken
	}).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
		seen = v.State
		n, ok, decodeErr := paid.First(v)
		return v.Fail(fmt.Errorf("%w %d %v %v", err, n, ok, decodeErr)), nil //nolint:errorlint // its text is nil
	})
	c := claim(`{"id":1,"items":{"x":1}}`)
	c.Awaited = []step.Signal{{ID: 1, Name: "paid", Payload: json.RawMessage(`5`)}}
	_, err := runClaim(t, d, c)
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, "broken 5 true <nil>", handle(t, d, c, err).Err)
	require.Equal(t, cart{ID: 1, Items: map[string]int{"x": 1}}, seen)
}

// aliasing is a codec whose values are the stored bytes themselves.
type aliasing struct{ fsm.JSON }

func (aliasing) Decode(raw json.RawMessage, v any) error {
	*v.(*json.RawMessage) = raw
	return nil
}

func TestHandlerDecodesAnewWhateverTheCodec(t *testing.T) {
	t.Parallel()
	var seen string
	m := fsm.Declare[json.RawMessage, fsm.None]("raw")
	d := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[json.RawMessage, fsm.None]) (fsm.Outcome, error) {
		v.State[0] = '9'
		return nil, errBroken
	})).OnError(func(_ context.Context, v *fsm.Visit[json.RawMessage, fsm.None], err error) (fsm.Outcome, error) {
		seen = string(v.State)
		return v.Fail(err), nil
	})
	c := claim(`1`)
	c.Env = &step.Env{Codec: aliasing{}}
	_, err := runClaim(t, d, c)
	require.ErrorIs(t, err, errBroken)
	handle(t, d, c, err)
	require.Equal(t, "1", seen)
}

func TestHandlersRetryRecordsTheError(t *testing.T) {
	t.Parallel()
	d := two(failing).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
		return v.Retry(v.State, time.Minute), nil
	})
	got := handle(t, d, claim(`{"id":4}`), errBroken)
	require.Equal(t, &step.Commit{Kind: step.Retry, State: json.RawMessage(`{"id":4}`), Delay: time.Minute, Err: "broken"}, got)
}

func TestHandlerFails(t *testing.T) {
	t.Parallel()
	m := hidden.Machine(two(failing).OnError(func(context.Context, *cartVisit, error) (fsm.Outcome, error) { return nil, errors.New("me too") }))
	_, err := m.OnError(t.Context(), claim(`{}`), errBroken)
	require.EqualError(t, err, "me too")

	m = hidden.Machine(two(failing).OnError(func(context.Context, *cartVisit, error) (fsm.Outcome, error) { return nil, nil }))
	_, err = m.OnError(t.Context(), claim(`{}`), errBroken)
	require.ErrorAs(t, err, new(*fsm.OutcomeError))
}

// A handler cannot return an outcome that the step made, though the execution is the same.
func TestHandlerReturnsTheStepsOutcome(t *testing.T) {
	t.Parallel()
	var kept fsm.Outcome
	d := two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		kept = v.Next("end", v.State)
		return nil, errBroken
	}).OnError(func(context.Context, *cartVisit, error) (fsm.Outcome, error) { return kept, nil })
	c := claim(`{}`)
	_, err := runClaim(t, d, c)
	require.ErrorIs(t, err, errBroken)
	_, err = hidden.Machine(d).OnError(t.Context(), c, err)
	require.ErrorContains(t, err, "another visit")
}

func TestStateThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	const stored = `{"id":"a string, since version 2","items":{"x":1}}`
	var seen []cart
	handler := func(out func(v *cartVisit, err error) fsm.Outcome) fsm.Definition {
		return two(finish).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
			seen = append(seen, v.State)
			return out(v, err), nil
		})
	}
	c := claim(stored)
	_, failed := runClaim(t, two(finish), c)
	var bad *fsm.DecodeError
	require.ErrorAs(t, failed, &bad)
	require.Equal(t, "state", bad.Field)

	for name, d := range map[string]fsm.Definition{
		"policy":            two(finish).Retry(fsm.RetryPolicy{}),
		"handler's policy":  handler(func(v *cartVisit, err error) fsm.Outcome { return v.RetryBy(fsm.RetryPolicy{}, err) }),
		"handler's retry":   handler(func(v *cartVisit, err error) fsm.Outcome { return v.Retry(v.State, time.Second) }),
		"handler moves on":  handler(func(v *cartVisit, err error) fsm.Outcome { return v.Next("end", v.State) }),
		"handler of a wait": handler(func(v *cartVisit, err error) fsm.Outcome { return v.Await("end", v.State, paid) }),
	} {
		require.Equal(t, stored, string(handle(t, d, c, failed).State), name)
	}
	repair := handler(func(v *cartVisit, err error) fsm.Outcome { return v.Next("start", cart{ID: 5}) })
	require.JSONEq(t, `{"id":5}`, string(handle(t, repair, c, failed).State))
	for _, s := range seen {
		require.Zero(t, s, "no half of a state")
	}
	require.Equal(t, "error", handle(t, two(finish), c, failed).Failure)

	// If the state does decode, its zero value is a state like any other.
	reset, err := run(t, func(v *cartVisit) fsm.Outcome { return v.Next("end", cart{}) })
	require.NoError(t, err)
	require.JSONEq(t, `{"id":0}`, string(reset.State))
}

// prickly is a state whose own method panics.
type prickly struct{ N int }

func (*prickly) UnmarshalJSON(raw []byte) error { panic("alarm: " + string(raw)) }

// A state that panics while it is decoded fails the step. Its handler, whose visit decodes the same
// state, is called all the same, and the stored state stays.
func TestStateThatPanicsWhileItIsDecoded(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[prickly, fsm.None]("prickly", fsm.Initial("start"))
	start := fsm.Step("start", func(_ context.Context, v *fsm.Visit[prickly, fsm.None]) (fsm.Outcome, error) {
		return v.Done(fsm.None{}), nil
	})
	c := claim(`{"N":1}`)
	c.Machine = "prickly"
	_, failed := runClaim(t, machine.Define(start), c)
	var alarm *fsm.PanicError
	require.ErrorAs(t, failed, &alarm)
	require.NotEmpty(t, alarm.Stack)
	require.ErrorAs(t, failed, new(*fsm.DecodeError))

	handled := machine.Define(start).OnError(func(_ context.Context, v *fsm.Visit[prickly, fsm.None], err error) (fsm.Outcome, error) {
		require.ErrorAs(t, err, new(*fsm.PanicError))
		return v.Retry(v.State, time.Second), nil
	})
	require.JSONEq(t, `{"N":1}`, string(handle(t, handled, c, failed).State))
	policy := handle(t, machine.Define(start).Retry(fsm.RetryPolicy{}), c, failed)
	require.Equal(t, step.Retry, policy.Kind)
	require.Contains(t, policy.Err, "alarm")
}

// An error without a text must not leave the text of an older one in last_error.
func TestAnErrorWithoutATextSaysSo(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	for name, d := range map[string]fsm.Definition{
		"retry": two(finish).Retry(fsm.RetryPolicy{}), "stop": two(finish),
		"handler": two(finish).OnError(func(_ context.Context, v *cartVisit, _ error) (fsm.Outcome, error) { return v.Retry(v.State, 0), nil }),
	} {
		require.Contains(t, handle(t, d, c, errors.New("")).Err, "without a text", name)
	}
}

// An instance may stand at a step that this version does not have. Its handler decides, and may
// lead it to any step.
func TestHandlerOfAnUnknownStep(t *testing.T) {
	t.Parallel()
	c := claim(`{}`)
	c.Step = "renamed"
	d := two(finish).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
		return v.Next("end", v.State), nil
	})
	require.Equal(t, "end", handle(t, d, c, errBroken).Step)
}
