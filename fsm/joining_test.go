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

// Each method of a Joining is in the commit, in any order.
func TestJoining(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	two := func(v *cartVisit) *fsm.Joining {
		return v.ScheduleChildren("end", v.State, cartMachine.New(cart{}), cartMachine.New(cart{}))
	}
	for name, c := range map[string]struct {
		out  func(v *cartVisit) *fsm.Joining
		want *step.Join
	}{
		"none":           {two, nil},
		"quorum":         {func(v *cartVisit) *fsm.Joining { return two(v).Quorum(2) }, &step.Join{Done: 2}},
		"race":           {func(v *cartVisit) *fsm.Joining { return two(v).Race() }, &step.Join{Ended: 1}},
		"fail fast":      {func(v *cartVisit) *fsm.Joining { return two(v).FailFast() }, &step.Join{Failed: 1}},
		"quorum or fail": {func(v *cartVisit) *fsm.Joining { return two(v).FailFast().Quorum(1) }, &step.Join{Done: 1, Failed: 1}},
		"rest":           {func(v *cartVisit) *fsm.Joining { return two(v).CancelRest() }, &step.Join{Cancel: true}},
		"race, rest":     {func(v *cartVisit) *fsm.Joining { return two(v).Race().CancelRest() }, &step.Join{Ended: 1, Cancel: true}},
		"timeout":        {func(v *cartVisit) *fsm.Joining { return two(v).Timeout(time.Minute) }, &step.Join{Timeout: time.Minute}},
		"until":          {func(v *cartVisit) *fsm.Joining { return two(v).Until(soon) }, &step.Join{At: soon}},
		"or": {func(v *cartVisit) *fsm.Joining { return two(v).Or(paid).Or(other, paid) },
			&step.Join{Names: []string{"paid", "other"}}},
		"all": {func(v *cartVisit) *fsm.Joining { return two(v).Or(paid).Timeout(1).FailFast().Quorum(2) },
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
	m := cartMachine.Define(fsm.Step("start", func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		got = v.Round()
		return v.Done(""), nil
	})).Erase()
	claim := &step.Claim{ID: 1, Machine: m.Name, Version: 1, Step: "start", State: json.RawMessage(`{}`), Children: []step.Child{
		{Machine: "a", Status: "done"}, {Machine: "b", Status: "done"}, {Machine: "a", Status: "failed"}, {Machine: "a", Status: "runnable"},
		{Machine: "a", Status: "executing"}, {Machine: "b", Status: "awaiting_signal"}, {Machine: "b", Status: "awaiting_children"}}}
	_, err := m.Steps["start"].Run(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, fsm.Round{Done: 2, Failed: 1, Left: 4}, got)
	require.Zero(t, (&cartVisit{}).Round())
}
