package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// cart is a state with every kind of field that a state may have.
type cart struct {
	ID    int64          `json:"id"`
	Items map[string]int `json:"items,omitempty"`
	Extra any            `json:"extra,omitempty"`
}

type (
	cartVisit = fsm.Visit[cart, string]
	cartStep  = fsm.StepFunc[cart, string]
)

var cartMachine = fsm.Declare[cart, string]("cart")

// two is a machine of a step start, which is f, and a step end.
func two(f cartStep) *fsm.Defined[cart, string] {
	return cartMachine.Define(fsm.Step("start", f), fsm.Step("end", finish))
}

func finish(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return v.Done("ended"), nil }

func claim(state string) *step.Claim {
	return &step.Claim{ID: 7, Machine: "cart", Version: 1, Step: "start", Queue: "default", State: json.RawMessage(state), Visit: 3, Token: 11}
}

func runClaim(t *testing.T, d fsm.Definition, c *step.Claim) (*step.Commit, error) {
	t.Helper()
	m := hidden.Machine(d)
	require.Empty(t, m.Faults)
	require.Contains(t, m.Steps, c.Step)
	return m.Steps[c.Step].Run(t.Context(), c)
}

// run runs a step that only returns the outcome that out makes.
func run(t *testing.T, out func(v *cartVisit) fsm.Outcome) (*step.Commit, error) {
	t.Helper()
	return runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return out(v), nil }), claim(`{"id":1}`))
}

func handle(t *testing.T, d fsm.Definition, c *step.Claim, failed error) *step.Commit {
	t.Helper()
	m := hidden.Machine(d)
	require.Empty(t, m.Faults)
	out, err := m.OnError(t.Context(), c, failed)
	require.NoError(t, err)
	return out
}

var errBroken = errors.New("broken")

func failing(context.Context, *cartVisit) (fsm.Outcome, error) { return nil, errBroken }

func long(n int) string { return strings.Repeat("x", n) }
