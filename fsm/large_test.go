package fsm_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// A step that was not given all that it awaits may consume what it has, or await elsewhere; an
// Await that leads back to it, and consumes nothing, would spin.
func TestAwaitWhereMoreIsAwaitedThanFits(t *testing.T) {
	t.Parallel()
	for omitted, to := range map[bool]string{true: "end", false: "start"} {
		c := claim(`{}`)
		c.Omitted = omitted
		run := func(out func(v *cartVisit) fsm.Outcome) error {
			_, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
				require.Equal(t, omitted, v.MoreAwaited())
				return out(v), nil
			}), c)
			return err
		}
		require.NoError(t, run(func(v *cartVisit) fsm.Outcome { return v.Await(to, v.State, paid) }))
		require.NoError(t, run(func(v *cartVisit) fsm.Outcome { return v.Next("start", v.State) }))
		if !omitted {
			continue
		}
		err := run(func(v *cartVisit) fsm.Outcome { return v.Await("start", v.State, paid) })
		require.ErrorIs(t, err, fsm.ErrTooLarge)
		var fault *fsm.OutcomeError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, "to", fault.Field)
		require.ErrorContains(t, err, "Limits.AwaitedBytes")
	}
}

// pages of two signals each.
func pages(of []step.Signal) func(context.Context, int64) ([]step.Signal, bool, error) {
	return func(_ context.Context, after int64) ([]step.Signal, bool, error) {
		for len(of) > 0 && of[0].ID <= after {
			of = of[1:]
		}
		return of[:min(2, len(of))], len(of) > 2, nil
	}
}

func TestInboxInPages(t *testing.T) {
	t.Parallel()
	text := json.RawMessage(`"` + strings.Repeat("x", 300) + `"`)
	all := []step.Signal{{ID: 3, Payload: text}, {ID: 4, Payload: text}, {ID: 9, Payload: text}, {ID: 11, Payload: text}, {ID: 12, Payload: text}}
	for most, fits := range map[int]bool{5 * 402: true, 5*402 - 1: false} {
		c := claim(`{}`)
		c.Env = &step.Env{Limits: step.Limits{AwaitedBytes: most}.WithDefaults()}
		c.Inbox = pages(all)
		inStep(t, c, func(ctx context.Context, v *cartVisit) {
			var ids []int64
			for r, err := range v.EachSignal(ctx) {
				require.NoError(t, err)
				if ids = append(ids, r.ID); len(ids) == 4 {
					break
				}
			}
			require.Equal(t, []int64{3, 4, 9, 11}, ids)
			c.Inbox = pages(all)
		})
		inStep(t, c, func(ctx context.Context, v *cartVisit) {
			inbox, err := v.Inbox(ctx)
			if fits {
				require.NoError(t, err)
				require.Len(t, inbox, 5)
				return
			}
			require.ErrorIs(t, err, fsm.ErrTooLarge)
			require.ErrorContains(t, err, "Limits.AwaitedBytes")
		})
	}
	c := claim(`{}`)
	c.Env = &step.Env{Limits: step.Limits{AwaitedBytes: 1}.WithDefaults()}
	c.Inbox = pages(all[:1])
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		inbox, err := v.Inbox(ctx)
		require.NoError(t, err, "one comes, however large")
		require.Len(t, inbox, 1)
	})
}

func TestChildrenInPages(t *testing.T) {
	t.Parallel()
	count := fsm.Declare[string, int]("count")
	c := claim(`{}`)
	broken := false
	c.ReadRound = func(context.Context) func() ([]step.Child, error) {
		id := int64(0)
		return func() ([]step.Child, error) {
			if id++; id == 3 {
				if broken {
					return nil, errBroken
				}
				return nil, nil
			}
			return []step.Child{{ID: 2 * id, Machine: "count", Status: "done", Result: json.RawMessage(`5`)}, {ID: 2*id + 1, Machine: "cart"}}, nil
		}
	}
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		require.Empty(t, v.Children(), "they are read on demand")
		var ids []fsm.ID
		for child, err := range v.EachChild(ctx) {
			require.NoError(t, err)
			ids = append(ids, child.ID)
		}
		require.Equal(t, []fsm.ID{2, 3, 4, 5}, ids)
		sum := 0
		for child, err := range count.EachChild(ctx, v) {
			require.NoError(t, err)
			n, err := child.Result()
			require.NoError(t, err)
			sum += n
		}
		require.Equal(t, 10, sum)

		broken = true
		var last error
		for _, err := range v.EachChild(ctx) {
			last = err
		}
		require.ErrorIs(t, last, errBroken)
	})
	c.Children = []step.Child{{ID: 8}}
	inStep(t, c, func(ctx context.Context, v *cartVisit) {
		for child, err := range v.EachChild(ctx) {
			require.NoError(t, err)
			require.Equal(t, fsm.ID(8), child.ID, "what is read already")
		}
	})
	require.True(t, hidden.Machine(cartMachine.Define(fsm.Step("start", finish).ChildrenOnDemand())).Steps["start"].OnDemand)
}
