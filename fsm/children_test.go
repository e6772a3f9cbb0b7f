package fsm_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// Each method of a ChildrenOutcome is in the commit, in any order.
func TestJoining(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	two := func(v *cartVisit) *fsm.ChildrenOutcome {
		return v.ScheduleChildren("end", v.State, cartMachine.New(cart{}), cartMachine.New(cart{}))
	}
	for name, c := range map[string]struct {
		out  func(v *cartVisit) *fsm.ChildrenOutcome
		want *step.Join
	}{
		"none":           {two, nil},
		"quorum":         {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Quorum(2) }, &step.Join{Done: 2}},
		"race":           {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Race() }, &step.Join{Ended: 1}},
		"fail fast":      {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).FailFast() }, &step.Join{Failed: 1}},
		"quorum or fail": {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).FailFast().Quorum(1) }, &step.Join{Done: 1, Failed: 1}},
		"rest":           {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).CancelRest() }, &step.Join{Cancel: true}},
		"each end":       {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Race().Quorum(2) }, &step.Join{Done: 2, Ended: 1}},
		"race, rest":     {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Race().CancelRest() }, &step.Join{Ended: 1, Cancel: true}},
		"timeout":        {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Timeout(time.Minute) }, &step.Join{Timeout: time.Minute}},
		"until":          {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Until(soon) }, &step.Join{At: soon}},
		"stream":         {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Stream(100) }, &step.Join{Ended: 1, Stream: 100}},
		"stream, until": {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Or(paid).Stream(1).Timeout(time.Minute) },
			&step.Join{Ended: 1, Stream: 1, Names: []string{"paid"}, Timeout: time.Minute}},
		"or": {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Or(paid).Or(other, paid) },
			&step.Join{Names: []string{"paid", "other"}}},
		"all": {func(v *cartVisit) *fsm.ChildrenOutcome { return two(v).Or(paid).Timeout(1).FailFast().Quorum(2) },
			&step.Join{Done: 2, Failed: 1, Names: []string{"paid"}, Timeout: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, func(v *cartVisit) fsm.Outcome { return c.out(v) })
			require.NoError(t, err)
			require.Equal(t, c.want, got.Join)
			require.Len(t, got.Spawn, 2)
			require.Zero(t, got.Timeout)
			require.Zero(t, got.At)
		})
	}
}

// Round counts by status, whatever the machines of the children are.
func TestRound(t *testing.T) {
	t.Parallel()
	var got fsm.Round
	m := hidden.Machine(cartMachine.Define(fsm.Step("start", func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		got = v.Round()
		return v.Done(""), nil
	})))

	claim := &step.Claim{ID: 1, Machine: m.Name, Version: 1, Step: "start", State: json.RawMessage(`{}`), Children: []step.Child{
		{Machine: "a", Status: "done"}, {Machine: "b", Status: "done"}, {Machine: "a", Status: "failed"}, {Machine: "a", Status: "runnable"},
		{Node: "n", Machine: "a", Status: "failed", Failure: "skipped"}, {Node: "o", Machine: "a", Status: "failed", Failure: "error"},
		{Machine: "a", Status: "executing"}, {Machine: "b", Status: "awaiting_signal"}, {Machine: "b", Status: "awaiting_children"},
		{Machine: "a", Status: "runnable", Retried: true}, {Machine: "a", Status: "done", Retried: true}}}
	_, err := m.Steps["start"].Run(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, fsm.Round{Done: 3, Failed: 3, Skipped: 1, Left: 4}, got)
	require.Zero(t, (&cartVisit{}).Round())
}

// A Rejoin has the methods of a first join. Its numbers are of the children that the step has seen
// live, and it says what the step has seen.
func TestRejoin(t *testing.T) {
	t.Parallel()
	children := []step.Child{{Status: "done"}, {Status: "failed"}, {Status: "failed"}, {Status: "runnable"}, {Status: "executing"}}
	seen := &step.Seen{Done: 1, Failed: 2}
	again := []step.Child{{Status: "done"}, {Status: "done", Retried: true}, {Status: "executing", Retried: true}, {Status: "runnable"}}
	skips := []step.Child{{Status: "done"}, {Status: "failed", Failure: "skipped"}, {Status: "failed", Failure: "error"}, {Status: "runnable"}}
	rejoin := func(v *cartVisit) *fsm.ChildrenOutcome { return v.Rejoin("end", v.State) }
	for name, c := range map[string]struct {
		children []step.Child
		out      func(v *cartVisit) *fsm.ChildrenOutcome
		want     *step.Join
		fault    string
	}{
		"none":             {children, rejoin, &step.Join{Seen: seen}, ""},
		"quorum":           {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Quorum(2) }, &step.Join{Done: 2, Seen: seen}, ""},
		"race, rest":       {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Race().CancelRest() }, &step.Join{Ended: 1, Cancel: true, Seen: seen}, ""},
		"fail fast, or":    {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).FailFast().Or(paid) }, &step.Join{Failed: 1, Names: []string{"paid"}, Seen: seen}, ""},
		"timeout":          {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Timeout(time.Hour) }, &step.Join{Timeout: time.Hour, Seen: seen}, ""},
		"retried":          {again, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Race() }, &step.Join{Ended: 1, Seen: &step.Seen{Done: 1, Failed: 2}}, ""},
		"retried, quorum":  {again, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Quorum(2) }, nil, "quorum: 2, at most the number of children that are left, 1"},
		"some are skipped": {skips, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).FailFast() }, &step.Join{Failed: 1, Seen: &step.Seen{Done: 1, Failed: 1}}, ""},
		"not looked":       {nil, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Quorum(9) }, &step.Join{Done: 9}, ""},
		"too many":         {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Quorum(3) }, nil, "quorum: 3, at most the number of children that are left, 2"},
		"none to be done":  {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Quorum(0) }, nil, "quorum: 0, at least 1"},
		"nothing to await": {children, func(v *cartVisit) *fsm.ChildrenOutcome { return rejoin(v).Or() }, nil, "signals: none: name at least one signal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := claim(`{"id":1}`)
			of.Round, of.JoinsAt, of.Children = 1, of.Visit, c.children
			got, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return c.out(v), nil }), of)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, &step.Commit{Kind: step.Rejoin, Step: "end", State: json.RawMessage(`{"id":1}`), Join: c.want}, got)
		})
	}
	_, err := run(t, func(v *cartVisit) fsm.Outcome { return v.Rejoin("end", v.State) })
	require.ErrorContains(t, err, "rejoin: the instance never had children")
	_, err = run(t, func(v *cartVisit) fsm.Outcome { return v.Rejoin("nowhere", v.State) })
	require.ErrorContains(t, err, "no step")
}

// A stream is one from its beginning, and what it is shown says nothing of the children that it is
// not shown.
func TestStream(t *testing.T) {
	t.Parallel()
	both := func(v *cartVisit) *fsm.ChildrenOutcome {
		return v.ScheduleChildren("end", v.State, cartMachine.New(cart{}), cartMachine.New(cart{}))
	}
	again := func(v *cartVisit) *fsm.ChildrenOutcome { return v.Rejoin("end", v.State) }
	streams := &step.Join{Ended: 1, Stream: 3}
	for name, c := range map[string]struct {
		round int64
		out   func(v *cartVisit) *fsm.ChildrenOutcome
		want  *step.Join
		fault string
	}{
		"again":            {-1, func(v *cartVisit) *fsm.ChildrenOutcome { return again(v).Stream(3) }, streams, ""},
		"the whole round":  {-1, func(v *cartVisit) *fsm.ChildrenOutcome { return again(v).Quorum(9).CancelRest() }, &step.Join{Done: 9, Cancel: true}, ""},
		"not from its":     {1, func(v *cartVisit) *fsm.ChildrenOutcome { return again(v).Stream(3) }, nil, "stream: the children were not scheduled as a stream"},
		"none at a time":   {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).Stream(0) }, nil, "stream: 0, at least 1 and at most 2147483647"},
		"too many":         {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).Stream(1 << 31) }, nil, "stream: 2147483648, at least 1"},
		"with a race":      {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).Stream(3).Race() }, nil, "stream: both Race and Stream: use one"},
		"with a quorum":    {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).Quorum(1).Stream(3) }, nil, "stream: both Quorum and Stream: use one"},
		"with a failure":   {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).FailFast().Stream(3) }, nil, "stream: both FailFast and Stream: use one"},
		"without the rest": {1, func(v *cartVisit) *fsm.ChildrenOutcome { return both(v).Stream(3).CancelRest() }, nil, "stream: both CancelRest and Stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := claim(`{"id":1}`)
			of.Round, of.JoinsAt, of.Children = c.round, of.Visit, []step.Child{{Status: "done"}}
			if c.round < 0 {
				of.Portion = &step.Portion{Left: 7}
			}
			got, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
				if c.round < 0 {
					require.Equal(t, fsm.Round{Done: 1, Left: 7}, v.Round())
				}
				return c.out(v), nil
			}), of)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Join)
		})
	}
}
