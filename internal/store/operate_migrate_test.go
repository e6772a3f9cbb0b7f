package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// An eager migration reads an instance, converts it, and writes. Each change of the instance in
// between comes first, and is not overwritten: a claim, an outcome, a pause that another takes
// back, a lock that is kept. Without any of that the write counts once.
func TestMoveComparesAndSets(t *testing.T) {
	b := newBench(t)
	claim := func(id int64) *step.Claim {
		got, err := b.Claim(t.Context(), store.ClaimParams{Queue: "moved", Worker: me, Machines: []string{"m/1"}, Limit: 1, Window: 10, Lease: lease})
		require.NoError(t, err)
		require.Len(t, got.Claims, 1)
		require.Equal(t, id, got.Claims[0].ID)
		return got.Claims[0]
	}
	for name, c := range map[string]struct {
		between func(id int64)
		moved   int
		state   string
		version int
	}{
		"nothing": {func(int64) {}, 1, `{"new": 1}`, 2},
		"a claim": {func(id int64) { claim(id) }, 0, `{"old": 1}`, 1},
		"a claim and its outcome": {func(id int64) {
			b.commit(newMark(), false, store.Entry{Claim: claim(id), Commit: &step.Commit{Kind: step.Retry, State: []byte(`{"old": 2}`)}})
		}, 0, `{"old": 2}`, 1},
		"a claim that was given back": {func(id int64) {
			_, err := b.Release(t.Context(), me, []*step.Claim{claim(id)})
			require.NoError(t, err)
		}, 0, `{"old": 1}`, 1},
		"another's edit": {func(id int64) {
			o := b.copied(store.Edits, id)
			require.Len(t, b.operate(o, id).Changed, 1)
		}, 0, `{"new": true}`, 1},
		"another's migration": {func(id int64) {
			b.exec(`UPDATE gendurable.gen_durable SET state = '{"newest": 1}', fsm_version = 3 WHERE id = $1`, id)
		}, 0, `{"newest": 1}`, 3},
		"its end": {func(id int64) {
			b.commit(newMark(), false, store.Entry{Claim: claim(id), Commit: &step.Commit{Kind: step.Done}})
		}, 0, `{"old": 1}`, 1},
		"a stranger's lock": {func(id int64) {
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
			_, err = tx.Exec(t.Context(), byHand(`SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`), id)
			require.NoError(t, err)
		}, 0, `{"old": 1}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b.exec(`DELETE FROM gendurable.gen_durable WHERE id IN (SELECT id FROM gendurable.gen_durable WHERE queue = 'moved' FOR UPDATE SKIP LOCKED)`)
			id := b.row("queue, state", `'moved', '{"old": 1}'`)
			found, err := b.Unmoved(t.Context(), []int64{id}, "m", 1)
			require.NoError(t, err)
			require.Len(t, found, 1)
			c.between(id)
			n, refused, err := b.Move(t.Context(), "m", 1, 2, []store.Moved{{Unmoved: found[0], Step: "s2", State: []byte(`{"new": 1}`)}},
				store.By{Actor: "deploy"})
			require.NoError(t, err)
			require.Empty(t, refused)
			require.Equal(t, c.moved, n)
			var state string
			var version, audits int
			require.NoError(t, b.pool.QueryRow(t.Context(), byHand(`SELECT state::text, fsm_version, (SELECT count(*) FROM gendurable.history h
				WHERE h.instance = g.id AND h.kind = 'admin.migrate') FROM gendurable.gen_durable g WHERE id = $1`), id).Scan(&state, &version, &audits))
			require.JSONEq(t, c.state, state)
			require.Equal(t, []int{c.version, c.moved}, []int{version, audits})
		})
	}
}

// A pause for a state that could not be converted ends with the conversion. An operator's stays.
func TestMoveEndsThePauseOfAFaultyConversion(t *testing.T) {
	b := newBench(t)
	for fault, paused := range map[string]bool{"cannot become version 2 of machine m": false, "a fault of a step": true, "": true} {
		id := b.row("paused, pick_lane, partition_key, last_error", "true, 1, 'k', nullif($1, '')", fault)
		found, err := b.Unmoved(t.Context(), []int64{id}, "m", 1)
		require.NoError(t, err)
		n, refused, err := b.Move(t.Context(), "m", 1, 2, []store.Moved{{Unmoved: found[0], Step: "s2", State: []byte(`{}`)}}, store.By{Actor: "deploy"})
		require.NoError(t, err)
		require.Empty(t, refused)
		require.Equal(t, 1, n)
		left := fault
		if !paused {
			left = ""
		}
		require.Equal(t, []string{fmt.Sprint(paused, " ", left)},
			b.column(`SELECT paused || ' ' || coalesce(last_error, '') FROM gendurable.gen_durable WHERE id = $1`, id))
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}
