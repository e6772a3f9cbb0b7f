package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// listed is a Lister of one page.
type listed struct {
	page  fsm.RawPage
	err   error
	asked *fsm.Query
}

func (l listed) List(_ context.Context, q fsm.Query) (fsm.RawPage, error) {
	*l.asked = q
	return l.page, l.err
}

func (l listed) All(_ context.Context, q fsm.Query) iter.Seq2[fsm.RawInstance, error] {
	*l.asked = q
	return func(yield func(fsm.RawInstance, error) bool) {
		for _, i := range l.page.Instances {
			if !yield(i, nil) {
				return
			}
		}
		if l.err != nil {
			yield(fsm.RawInstance{}, l.err)
		}
	}
}

func (l listed) Codec() fsm.Codec { return fsm.JSON{} }

// carts returns a done instance, one whose state does not fit, and a live one.
func carts() listed {
	misfit := full()
	misfit.ID, misfit.State = 8, json.RawMessage(`[]`)
	live := full()
	live.ID, live.Status, live.Result = 9, fsm.StatusRunnable, nil
	return listed{page: fsm.RawPage{Instances: []fsm.RawInstance{full(), misfit, live}, Next: "next"}, asked: &fsm.Query{}}
}

func TestMachineList(t *testing.T) {
	t.Parallel()
	from := carts()
	q := fsm.Query{Filter: fsm.Filter{Step: "end"}, Limit: 3, After: "here", OldestFirst: true}
	page, err := cartTwo.List(t.Context(), from, q)
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.ErrorContains(t, err, "instance 8")
	require.Equal(t, "next", page.Next)
	require.Len(t, page.Instances, 3, "one that does not fit hides none of the others")
	require.Equal(t, fsm.ID(8), page.Instances[1].ID)
	require.Equal(t, cart{ID: 1}, page.Instances[2].State)
	require.Equal(t, "r", page.Instances[0].Result)
	q.Machine = "cart"
	require.Equal(t, q, *from.asked)

	from.err = errBroken
	page, err = cartTwo.List(t.Context(), from, q)
	require.ErrorIs(t, err, errBroken)
	require.Zero(t, page)
}

func TestMachineAll(t *testing.T) {
	t.Parallel()
	from := carts()
	from.err = errBroken
	var ids []fsm.ID
	var errs []error
	for i, err := range cartTwo.All(t.Context(), from, fsm.Query{}) {
		ids = append(ids, i.ID)
		errs = append(errs, err)
	}
	require.Equal(t, []fsm.ID{7, 8, 9, 0}, ids)
	require.ErrorAs(t, errs[1], new(*fsm.DecodeError))
	require.Equal(t, []error{nil, nil, errBroken}, []error{errs[0], errs[2], errs[3]})
	require.Equal(t, "cart", from.asked.Machine)
	for range cartTwo.All(t.Context(), from, fsm.Query{}) {
		break
	}
}

// An outline has no states, which a typed list would take for states that do not fit.
func TestATypedListIsNoOutline(t *testing.T) {
	t.Parallel()
	q := fsm.Query{Outline: true}
	_, err := cartTwo.List(t.Context(), carts(), q)
	wrong, ok := errors.AsType[*fsm.QueryError](err)
	require.True(t, ok)
	require.Equal(t, "Outline", wrong.Field)
	for _, err := range cartTwo.All(t.Context(), carts(), q) {
		require.ErrorAs(t, err, new(*fsm.QueryError))
	}
}

func TestListOfAnotherMachine(t *testing.T) {
	t.Parallel()
	q := fsm.Query{Filter: fsm.Filter{Machine: "other"}}
	_, err := cartTwo.List(t.Context(), carts(), q)
	wrong, ok := errors.AsType[*fsm.QueryError](err)
	require.True(t, ok)
	require.Equal(t, "Machine", wrong.Field)
	require.ErrorContains(t, err, `query: Machine: "other", but the list is of machine "cart"`)
	require.ErrorIs(t, err, wrong.Err)
	for _, err := range cartTwo.All(t.Context(), carts(), q) {
		require.ErrorAs(t, err, new(*fsm.QueryError))
	}
}
