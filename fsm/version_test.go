package fsm_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

type money struct {
	Total struct {
		Amount   int
		Currency string
	}
}

// shelf is a Lister of one instance.
type shelf struct{ stored }

func (l shelf) List(context.Context, fsm.Query) (fsm.RawPage, error) {
	return fsm.RawPage{Instances: []fsm.RawInstance{l.i}}, nil
}

func (l shelf) All(context.Context, fsm.Query) iter.Seq2[fsm.RawInstance, error] {
	return func(yield func(fsm.RawInstance, error) bool) { yield(l.i, nil) }
}

// TestTypedReadsKeepVersionsApart reads an instance of version 1, whose state and result decode
// into the types of version 2 as zero values, without an error.
func TestTypedReadsKeepVersionsApart(t *testing.T) {
	t.Parallel()
	raw := fsm.RawInstance{ID: 7, Machine: "checkout", Version: 1, Status: fsm.StatusDone, Step: "end",
		State: json.RawMessage(`{"Cents": 5}`), Result: json.RawMessage(`{"Paid": 5}`)}
	reads := map[string]func(m *fsm.Machine[money, money], raw fsm.RawInstance) (field string, state, result money, err error){
		"get": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			i, err := m.Get(t.Context(), stored{i: raw}, raw.ID)
			require.Equal(t, raw.Step, i.Step, "the rest is there")
			return "state", i.State, i.Result, err
		},
		"wait": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			r, err := m.Wait(t.Context(), stored{i: raw}, raw.ID)
			return "result", money{}, r, err
		},
		"list": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			page, err := m.List(t.Context(), shelf{stored{i: raw}}, fsm.Query{})
			require.Len(t, page.Instances, 1)
			return "state", page.Instances[0].State, page.Instances[0].Result, err
		},
		"all": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			for i, err := range m.All(t.Context(), shelf{stored{i: raw}}, fsm.Query{}) {
				return "state", i.State, i.Result, err
			}
			return "", money{}, money{}, nil
		},
		"child's result": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			r, err := m.Children(joining(t, raw))[0].Result()
			return "result", money{}, r, err
		},
		"child's state": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			var state money
			err := m.Children(joining(t, raw))[0].DecodeState(&state)
			return "state", state, money{}, err
		},
		"each child": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			for c, err := range m.EachChild(t.Context(), joining(t, raw)) {
				require.NoError(t, err)
				r, err := c.Result()
				return "result", money{}, r, err
			}
			return "", money{}, money{}, nil
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			two := fsm.Declare[money, money]("checkout", fsm.Version(2))
			field, state, result, err := read(two, raw)
			var wrong *fsm.VersionError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, fsm.VersionError{ID: 7, Machine: "checkout", Field: field, Got: 1, Want: 2}, *wrong)
			require.ErrorContains(t, err, "instance 7 is of machine \"checkout\" version 1")
			require.Empty(t, state)
			require.Empty(t, result)

			newer := raw
			newer.Version = 3
			_, _, _, err = read(two, newer)
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, "read it by the declaration of version 3")

			own := raw
			own.Version, own.State, own.Result = 2, json.RawMessage(`{"Total":{"Amount":5}}`), json.RawMessage(`{"Total":{"Amount":6}}`)
			_, state, result, err = read(two, own)
			require.NoError(t, err)
			require.Positive(t, state.Total.Amount+result.Total.Amount)

			since := fsm.Declare[money, money]("checkout", fsm.Version(2), fsm.StateSince(1), fsm.ResultSince(1))
			_, _, _, err = read(since, raw)
			require.NoError(t, err, "the declaration says that the types are the same")
		})
	}
}

// joining is a visit at which a child joins.
func joining(t *testing.T, child fsm.RawInstance) (v *cartVisit) {
	t.Helper()
	c := claim(`{}`)
	c.Round, c.Visit = 3, 3
	c.Children = []step.Child{{ID: int64(child.ID), Machine: child.Machine, Version: child.Version, Status: string(child.Status),
		State: child.State, Result: child.Result}}
	_, err := runClaim(t, two(func(_ context.Context, own *cartVisit) (fsm.Outcome, error) {
		v = own
		return own.Done(""), nil
	}), c)
	require.NoError(t, err)
	require.Equal(t, child.Version, v.Children()[0].Version)
	_, err = v.Children()[0].Result()
	require.NoError(t, err, "untyped, of whatever version")
	return v
}
