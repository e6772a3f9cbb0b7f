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
		"state of": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			s, err := m.StateOf(stored{i: raw}, raw)
			return "state", s, money{}, err
		},
		"result of": func(m *fsm.Machine[money, money], raw fsm.RawInstance) (string, money, money, error) {
			r, err := m.ResultOf(stored{i: raw}, raw)
			return "result", money{}, r, err
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

// StateOf and ResultOf refuse an instance that was read in part, or is of another machine.
func TestReadsOfARowNeedWhatSaysHow(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[money, money]("checkout")
	done := fsm.RawInstance{ID: 7, Machine: "checkout", Version: 1, Status: fsm.StatusDone,
		State: json.RawMessage(`{"Total":{"Amount":5}}`), Result: json.RawMessage(`{"Total":{"Amount":6}}`)}
	state, err := m.StateOf(stored{}, done)
	require.NoError(t, err)
	require.Equal(t, 5, state.Total.Amount)
	result, err := m.ResultOf(stored{}, done)
	require.NoError(t, err)
	require.Equal(t, 6, result.Total.Amount)

	for what, lacks := range map[string]func(*fsm.RawInstance){
		"machine": func(i *fsm.RawInstance) { i.Machine = "" },
		"version": func(i *fsm.RawInstance) { i.Version = 0 },
		"values":  func(i *fsm.RawInstance) { i.State, i.Result = nil, nil },
	} {
		partial := done
		lacks(&partial)
		var wrong *fsm.DecodeError
		_, err = m.StateOf(stored{}, partial)
		require.ErrorAs(t, err, &wrong, what)
		require.ErrorContains(t, err, "it needs machine, version and state")
		_, err = m.ResultOf(stored{}, partial)
		require.ErrorAs(t, err, &wrong, what)
		require.ErrorContains(t, err, "it needs machine, version, status, result")
	}
	unknown := done
	unknown.Status = ""
	_, err = m.ResultOf(stored{}, unknown)
	require.ErrorAs(t, err, new(*fsm.DecodeError))

	another, failed, live, broken := done, done, done, done
	another.Machine, failed.Status, failed.LastError, live.Status = "refund", fsm.StatusFailed, "broken", fsm.StatusRunnable
	broken.State, broken.Result = json.RawMessage(`{"Total":5}`), json.RawMessage(`[]`)
	_, err = m.StateOf(stored{}, another)
	require.ErrorAs(t, err, new(*fsm.MachineError))
	_, err = m.ResultOf(stored{}, another)
	require.ErrorAs(t, err, new(*fsm.MachineError))
	_, err = m.ResultOf(stored{}, failed)
	require.ErrorAs(t, err, new(*fsm.FailedError))
	_, err = m.ResultOf(stored{}, live)
	require.ErrorIs(t, err, fsm.ErrNotTerminal)
	_, err = m.StateOf(stored{}, broken)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.ErrorContains(t, err, "instance 7: decode state")
	_, err = m.ResultOf(stored{}, broken)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
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
