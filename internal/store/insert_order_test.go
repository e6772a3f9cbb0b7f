package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Specs of several messages are inserted in the order of their keys all the same: a session that
// waits for a key holds none behind it. A process that inserts the same keys in another order could
// else wait for one that waits for it.
func TestInsertOfManyMessagesInKeyOrder(t *testing.T) {
	b := newBench(t)
	manyBytes(t)
	text := json.RawMessage(`"` + strings.Repeat("x", 9<<20) + `"`) // a message each
	var list []*step.Spec
	for _, key := range []string{"z", "é", "", "a", "Z", "a"} {
		s := newSpec(key)
		s.State = text
		list = append(list, s)
	}
	stranger := b.begin()
	b.inTx(stranger, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', 'a', `+liveScope+`)`)
	done := make(chan []store.Inserted, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := b.Insert(t.Context(), list)
		done <- got
		failed <- err
	}()
	b.waiting(1)
	other := b.begin()
	b.inTx(other, `SET LOCAL lock_timeout = '1s'`)
	for _, free := range []string{"z", "é"} {
		b.inTx(other, `INSERT INTO gendurable.gen_durable (fsm, step, correlation_key, correlation_scope) VALUES ('m', 's', $1, `+liveScope+`)`, free)
	}
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, stranger.Rollback(t.Context()))
	got := <-done
	require.NoError(t, <-failed)
	for i := range got {
		require.Equal(t, i == 5, got[i].Duplicate, "of equal keys the first wins")
		if i > 0 && i < 5 {
			require.Greater(t, got[i].ID, got[i-1].ID, "ids are in input order")
		}
	}
	require.Equal(t, got[3].ID, got[5].ID)
	require.Equal(t, 5, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
}
