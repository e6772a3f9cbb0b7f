package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The end of a child is free unless another transaction has its parent locked, or a row that waits
// for it. The look never waits, and keeps nothing locked.
func TestEndIsFree(t *testing.T) {
	b := newBench(t)
	parent, kids := b.policedParent(2, nil)
	root := b.executing(nil)
	b.commit(newMark(), false, graphOf(root, "a b<a c d<c"))
	ids := b.nodes(root.ID)
	free := func(c int, held ...int64) bool {
		stranger := b.begin()
		defer func() { require.NoError(t, stranger.Rollback(t.Context())) }()
		for _, id := range held {
			b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)
		}
		got, err := b.EndIsFree(t.Context(), kids[c])
		require.NoError(t, err)
		return got
	}
	require.True(t, free(0))
	require.False(t, free(0, parent))
	require.True(t, free(0, kids[0].ID, kids[1].ID), "its own row, and its siblings'")
	for _, c := range b.claim().Claims {
		if c.Node != "" {
			kids = append(kids, c)
		}
	}
	require.Len(t, kids, 4)
	require.Equal(t, "a", kids[2].Node)
	require.True(t, free(2))
	require.False(t, free(2, root.ID))
	require.False(t, free(2, ids["b"]), "it waits for the node")
	require.True(t, free(2, ids["c"], ids["d"]))

	stranger := b.begin() // a foreign key's lock is none
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR KEY SHARE`, parent)
	got, err := b.EndIsFree(t.Context(), kids[0])
	require.NoError(t, err)
	require.True(t, got)
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE NOWAIT`, parent) // it keeps no lock
	require.NoError(t, stranger.Rollback(t.Context()))
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, parent)
	require.True(t, free(1), "a parent that is gone is nobody's")
}
