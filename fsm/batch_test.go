package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// The instances of each tenant are sent together, and none waits for others.
func ExampleByLabel() {
	notify := func(_ context.Context, visits []*fsm.Visit[int, fsm.None]) ([]fsm.Outcome, error) {
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			outcomes[i] = v.Done(fsm.None{})
		}
		return outcomes, nil
	}
	fsm.Declare[int, fsm.None]("notice").Define(fsm.BatchStep("start", notify, fsm.ByLabel("tenant"), fsm.Within(0)))
}

type (
	cartVisits = []*cartVisit
	cartBatch  = fsm.BatchFunc[cart, string]
)

// together is a machine whose step "start" is a batch step, in two steps.
func together(f cartBatch, opts ...fsm.BatchOption) *fsm.Defined[cart, string] {
	return cartMachine.Define(fsm.BatchStep("start", f, opts...), fsm.Step("end", finish))
}

// runTogether runs the batch step for instances with these states.
func runTogether(t *testing.T, d fsm.Definition, states ...string) []step.Decided {
	t.Helper()
	m := hidden.Machine(d)
	require.Empty(t, m.Faults)
	members := make([]step.Member, len(states))
	for i, state := range states {
		c := claim(state)
		c.ID = int64(i + 1)
		members[i] = step.Member{Context: t.Context(), Claim: c}
	}
	return m.Steps["start"].Batch.Run(t.Context(), members)
}

// doneEach ends all instances.
func doneEach(visits cartVisits) []fsm.Outcome {
	outcomes := make([]fsm.Outcome, len(visits))
	for i, v := range visits {
		outcomes[i] = v.Done(fmt.Sprint(v.ID))
	}
	return outcomes
}

func TestWhatABatchReturnsCountsForEachInstanceAlone(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		f    cartBatch
		want []string // a result, or an error
	}{
		"all end": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) { return doneEach(vs), nil }, []string{`"1"`, `"2"`, `"3"`}},
		"an error": {func(context.Context, cartVisits) ([]fsm.Outcome, error) { return nil, broken },
			[]string{"in a batch of 3: broken", "in a batch of 3: broken", "in a batch of 3: broken"}},
		"an error beside outcomes": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[1] = nil
			return out[:2], broken
		}, []string{`"1"`, "in a batch of 3: broken", "in a batch of 3: broken"}},
		"a panic": {func(context.Context, cartVisits) ([]fsm.Outcome, error) { panic(broken) },
			[]string{"in a batch of 3: panic: broken", "in a batch of 3: panic: broken", "in a batch of 3: panic: broken"}},
		"missing ones": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[0] = nil
			return out[:2], nil
		}, []string{"outcome: outcomes[0]: nil, without an error: return an outcome for each visit, or an error", `"2"`, "outcome: outcomes[2]: nil, without an error: return an outcome for each visit, or an error"}},
		"none": {func(context.Context, cartVisits) ([]fsm.Outcome, error) { return nil, nil },
			[]string{"outcome: outcomes[0]: nil", "outcome: outcomes[1]: nil", "outcome: outcomes[2]: nil"}},
		"one too many": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			return append(doneEach(vs), vs[0].Done("again")), nil
		}, []string{"outcomes[3]: 4 outcomes for 3 visits", "outcomes[3]", "outcomes[3]"}},
		"too many, and an error": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			return append(doneEach(vs), vs[0].Done("again")), broken
		}, []string{"broken\noutcome: outcomes[3]", "broken", "broken"}},
		"in another order": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[0], out[2] = out[2], out[0]
			return out, nil
		}, []string{"outcome: outcomes[0]: made by another visit: return an outcome that a method of this visit has made", `"2"`, "outcome: outcomes[2]: made by another visit: return an outcome that a method of this visit has made"}},
		"a nil of an outcome's type": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[1] = (*fsm.NextOutcome)(nil)
			return out, nil
		}, []string{`"1"`, "outcome: outcomes[1]: nil, without an error: return one of the two", `"3"`}},
		"a fault of one": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[1] = vs[1].Next("nowhere", cart{})
			return out, nil
		}, []string{`"1"`, `outcome: step: machine "cart" version 1 has no step "nowhere"`, `"3"`}},
		"a failure of one": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[1], out[2] = vs[1].Raise(broken), vs[2].Raise(nil)
			return out, nil
		}, []string{`"1"`, "broken", "outcome: error: nil"}},
		"one state panics when encoded": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			out[1] = vs[1].Next("end", cart{Extra: mine{}})
			return out, nil
		}, []string{`"1"`, "panic: not me", `"3"`}},
		"the slice is the step's": {func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
			out := doneEach(vs)
			clear(vs)
			return out, nil
		}, []string{`"1"`, `"2"`, `"3"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, d := range runTogether(t, together(c.f), `{"id":1}`, `{"id":2}`, `{"id":3}`) {
				if d.Err != nil {
					require.Nil(t, d.Commit)
					require.ErrorContains(t, d.Err, c.want[i])
				} else {
					require.Equal(t, c.want[i], string(d.Commit.Result))
				}
			}
		})
	}
}

// mine panics when it is encoded.
type mine struct{}

func (mine) MarshalJSON() ([]byte, error) { panic("not me") }

// A state that does not decode is the error of its instance, and the call is for the others.
func TestABatchIsCalledForThoseThatDecode(t *testing.T) {
	t.Parallel()
	var seen []int64
	d := together(func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) {
		for _, v := range vs {
			seen = append(seen, v.State.ID)
		}
		return doneEach(vs), nil
	})
	decided := runTogether(t, d, `{"id":1}`, `{"id":"one"}`, `{"id":3}`)
	require.Equal(t, []int64{1, 3}, seen)
	var bad *fsm.DecodeError
	require.ErrorAs(t, decided[1].Err, &bad)
	require.Equal(t, `"3"`, string(decided[2].Commit.Result))
	require.ErrorAs(t, runTogether(t, d, `7`)[0].Err, &bad)
	require.Len(t, seen, 2, "no call for nobody")
}

// An instance alone gets the error as it is. For several, the ready-made policy does not believe
// that one error is the last word on each.
func TestTheErrorOfABatchIsNobodysOwn(t *testing.T) {
	t.Parallel()
	d := together(func(context.Context, cartVisits) ([]fsm.Outcome, error) { return nil, fsm.Permanent(errors.New("no")) }).
		Retry(fsm.RetryPolicy{MaxAttempts: 3})
	m := hidden.Machine(d)
	alone := runTogether(t, d, `{}`)[0].Err
	var shared *fsm.BatchError
	require.NotErrorAs(t, alone, &shared)
	_, same := runClaim(t, d, claim(`{}`))
	require.EqualError(t, same, alone.Error())
	out, err := m.OnError(t.Context(), claim(`{}`), alone)
	require.NoError(t, err)
	require.Equal(t, step.Fail, out.Kind)

	failed := runTogether(t, d, `{}`, `{}`)[0].Err
	require.ErrorAs(t, failed, &shared)
	require.Equal(t, 2, shared.Size)
	out, err = m.OnError(t.Context(), claim(`{}`), failed)
	require.NoError(t, err)
	require.Equal(t, step.Retry, out.Kind)
}

func TestBatchSize(t *testing.T) {
	t.Parallel()
	noop := func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) { return doneEach(vs), nil }
	size := func(d *fsm.Defined[cart, string], attempt int) int {
		m := hidden.Machine(d)
		return m.BatchSize(m.Steps["start"].Batch, attempt)
	}
	for _, c := range []struct {
		of   *fsm.Defined[cart, string]
		want []int
	}{
		{together(noop), []int{100, 25, 6, 1, 1}},
		{together(noop, fsm.BatchOf(1000)).Retry(fsm.RetryPolicy{}), []int{1000, 250, 62, 15, 3, 1}},
		{together(noop).Retry(fsm.RetryPolicy{MaxAttempts: 3}), []int{100, 25, 1}},
		{together(noop).Retry(fsm.RetryPolicy{MaxAttempts: 1}), []int{100, 1}},
		{together(noop, fsm.BatchOf(1)), []int{1, 1}},
		{together(noop).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited}), []int{100, 25}},
	} {
		for attempt, want := range c.want {
			require.Equal(t, want, size(c.of, attempt), "attempt %d", attempt)
		}
	}
	require.Equal(t, 1, size(together(noop), 1000))
}

func TestBatchKeys(t *testing.T) {
	t.Parallel()
	noop := func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) { return doneEach(vs), nil }
	batch := func(opts ...fsm.BatchOption) *step.Batch {
		return hidden.Machine(together(noop, opts...)).Steps["start"].Batch
	}
	plain := batch(nil...)
	require.Nil(t, plain.Key)
	require.Empty(t, plain.Alike)
	require.Equal(t, []any{fsm.DefaultBatchSize, fsm.DefaultBatchWait}, []any{plain.Most, plain.Within})

	keyOf := func(b *step.Batch, state string, labels map[string]string) string {
		c := claim(state)
		c.Labels = labels
		key, err := b.Key(c)
		require.NoError(t, err)
		return key
	}
	b := batch(fsm.ByLabel("a"), fsm.ByState(func(c struct{ ID int }) string { return fmt.Sprint(c.ID % 2) }))
	require.Equal(t, []string{"a"}, b.Alike)
	same := keyOf(b, `{"id":1}`, map[string]string{"a": "x", "b": "y"})
	require.Equal(t, same, keyOf(b, `{"id":3}`, map[string]string{"a": "x"}))
	require.NotEqual(t, same, keyOf(b, `{"id":2}`, map[string]string{"a": "x"}))
	require.NotEqual(t, same, keyOf(b, `{"id":1}`, map[string]string{"a": ""}))
	require.NotEqual(t, keyOf(b, `{"id":1}`, nil), keyOf(b, `{"id":1}`, map[string]string{"a": ""}), "no label is not an empty one")

	_, err := b.Key(claim(`[]`))
	var bad *fsm.DecodeError
	require.ErrorAs(t, err, &bad)
	_, err = batch(fsm.ByState(func(cart) string { panic("no") })).Key(claim(`{}`))
	var panicked *fsm.PanicError
	require.ErrorAs(t, err, &panicked)
}

func TestBatchFaults(t *testing.T) {
	t.Parallel()
	noop := func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) { return doneEach(vs), nil }
	for field, c := range map[string]struct {
		of   fsm.Definition
		says string
	}{
		`steps["start"]`:          {together(nil), "nil function"},
		`steps["start"].batch_of`: {together(noop, fsm.BatchOf(0)), "0, want 1 to 1000"},
		`steps["start"].within`:   {together(noop, fsm.Within(-1)), "-1ns, want 0 to 1m0s"},
		`steps["start"].by[1]`:    {together(noop, fsm.ByLabel("a"), fsm.ByLabel("")), "empty name"},
		`steps["start"].by[0]`:    {together(noop, fsm.ByState[cart](nil)), "nil function"},
		`steps["start"].options`:  {together(noop, nil), "nil option"},
	} {
		faults := hidden.Machine(c.of).Faults
		require.Len(t, faults, 1, field)
		var bad *fsm.DefinitionError
		require.ErrorAs(t, faults[0], &bad)
		require.Equal(t, field, bad.Field)
		require.ErrorContains(t, bad, c.says)
	}
	require.Len(t, hidden.Machine(together(noop, fsm.BatchOf(fsm.MaxBatchSize+1), fsm.Within(fsm.MaxBatchWait+1))).Faults, 2)
	require.Empty(t, hidden.Machine(together(noop, fsm.BatchOf(fsm.MaxBatchSize), fsm.Within(fsm.MaxBatchWait))).Faults)
}

// Each instance has a separate context beside the call's.
func TestTheContextsOfABatch(t *testing.T) {
	t.Parallel()
	type of struct{}
	m := hidden.Machine(together(func(ctx context.Context, vs cartVisits) ([]fsm.Outcome, error) {
		_, ok := fsm.InfoFrom(ctx)
		require.False(t, ok)
		require.NotNil(t, fsm.Logger(ctx))
		require.Equal(t, fsm.OutcomeNone, fsm.OutcomeFrom(ctx))
		require.Equal(t, "call", ctx.Value(of{}))
		for i, v := range vs {
			info, ok := fsm.InfoFrom(v.Context())
			require.True(t, ok)
			require.EqualValues(t, i+1, info.ID)
			require.Equal(t, i, v.Context().Value(of{}))
		}
		return doneEach(vs), nil
	}))

	var members []step.Member
	for i := range 3 {
		c := claim(`{}`)
		c.ID = int64(i + 1)
		members = append(members, step.Member{Context: context.WithValue(t.Context(), of{}, i), Claim: c})
	}
	m.Steps["start"].Batch.Run(context.WithValue(t.Context(), of{}, "call"), members)
	require.NoError(t, (&cartVisit{}).Context().Err(), "of a visit that a test has made")
}

func TestGraphsShowBatchSteps(t *testing.T) {
	t.Parallel()
	g := fsm.DiagramOf(together(func(_ context.Context, vs cartVisits) ([]fsm.Outcome, error) { return doneEach(vs), nil }, fsm.BatchOf(50)))
	require.Equal(t, 50, g.Steps[0].Batch)
	require.Zero(t, g.Steps[1].Batch)
	g.Steps[0].Note = "7 waiting"
	require.Contains(t, g.Mermaid(), `s0(["start<br/>up to 50 at once<br/>7 waiting"])`)
	require.Contains(t, g.DOT(), `s0 [label="start\nup to 50 at once\n7 waiting", peripheries=2]`)
	text, err := json.Marshal(g.Steps[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"start","batch":50,"anywhere":true,"note":"7 waiting"}`, string(text))
}
