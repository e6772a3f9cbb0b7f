package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A cancel of a node changes what is beside it, so within bounds it looks at all beneath the
// parent, the parent and ended ones included. If these are more than it may look at, it changes
// nothing.
func TestTooWideToLookWhetherItStaysWithinBounds(t *testing.T) {
	b := newBench(t)
	mine := columns{"queue": `'mine'`}
	root := b.insert(columns{"fsm": `'m'`, "step": `'s'`}.with(mine).with(waitsFor(4)))
	var nodes []int64
	for _, name := range []string{"a", "b", "c", "d"} {
		nodes = append(nodes, b.child(root, 1, columns{"node": `'` + name + `'`}.with(mine)))
	}
	b.child(root, 1, columns{"node": `'e'`, "status": `'done'`, "finished_at": `now()`, "joined": `gen_random_uuid()`}.with(mine))
	alone := b.insert(columns{"fsm": `'m'`, "step": `'s'`}.with(mine))
	cancel := store.Order{Verb: store.Cancel, Filter: store.Filter{Within: store.Bounds{Queues: []string{"mine"}}}}
	before := b.everything()

	cancel.Most = 5
	got := b.operate(cancel, nodes[:2]...)
	require.Empty(t, got.Changed)
	require.Equal(t, []store.Refusal{
		{ID: nodes[0], Status: "runnable", Why: store.ErrTooWide}, {ID: nodes[1], Status: "runnable", Why: store.ErrTooWide},
	}, got.Refused)
	require.Equal(t, before, b.everything())

	got = b.operate(cancel, nodes[0], alone)
	require.Equal(t, []store.Change{{ID: alone, Was: "runnable", Is: "failed", Asked: true}}, got.Changed, "which is related to no other")

	cancel.Most = 6
	got = b.operate(cancel, nodes[:2]...)
	require.Empty(t, got.Refused)
	require.Len(t, got.Changed, 2)

	cancel.Most, cancel.Filter.Within = 2, store.Bounds{}
	require.Len(t, b.operate(cancel, nodes[2]).Changed, 1, "without bounds it need not look")
}
