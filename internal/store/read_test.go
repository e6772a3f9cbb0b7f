package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func TestGet(t *testing.T) {
	b := newBench(t)
	id := b.row(`fsm_version, queue, priority, status, state, result, attempt, crashes, visit, correlation_key, correlation_scope,
		partition_key, finished_at, eligible_at, inserted_at`,
		`3, 'q', -4, 'done', '{"a": 1}', '[2]', 5, 6, 7, 'k', '{runnable,executing,awaiting_signal,awaiting_children,done}',
		'p', '2026-01-03Z', '2026-01-02Z', '2026-01-01Z'`)
	want := fsm.RawInstance{
		ID: fsm.ID(id), Machine: "m", Version: 3, Step: "s", Queue: "q", Priority: -4, Status: "done", State: json.RawMessage(`{"a": 1}`),
		Result: json.RawMessage(`[2]`), Attempt: 5, Crashes: 6, Visit: 7, Key: "k", PartitionKey: "p",
	}
	for _, of := range []store.Address{byID(id), byKey("k")} {
		got, err := b.Get(t.Context(), of)
		require.NoError(t, err)
		for day, at := range []*time.Time{&got.InsertedAt, &got.EligibleAt, &got.FinishedAt} {
			require.True(t, at.Equal(time.Date(2026, 1, day+1, 0, 0, 0, 0, time.UTC)), at)
			*at = time.Time{}
		}
		require.Equal(t, want, got)
	}

	failed := b.row("status, finished_at, failure, last_error, correlation_key, correlation_scope",
		"'failed', now(), 'error', 'oops', 'left', "+liveScope)
	got, err := b.Get(t.Context(), byID(failed))
	require.NoError(t, err)
	require.Equal(t, fsm.FailureError, got.Failure)
	require.Equal(t, "oops", got.LastError)
	require.Nil(t, got.Result)
	for _, of := range []store.Address{byKey("left"), byKey("nobody's"), byID(1 << 40)} {
		_, err := b.Get(t.Context(), of)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorContains(t, err, of.String())
	}
}

func TestEndedTellsTerminalAndGone(t *testing.T) {
	b := newBench(t)
	var ids, want []int64
	for _, status := range []string{"runnable", "executing", "awaiting_signal", "awaiting_children"} {
		ids = append(ids, b.row("status, awaits, locked_by, lease_expires_at", "$1, '{go}', 'w', now()", status))
	}
	want = append(want, b.row("status, finished_at", "'done', now()"), b.row("status, finished_at, failure", "'failed', now(), 'error'"), 1<<40)
	got, err := b.Ended(t.Context(), append(ids, want...))
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
}

func TestRestingTellsParkedTerminalAndGone(t *testing.T) {
	b := newBench(t)
	var ids, past []int64
	var want []int64
	for _, status := range []string{"runnable", "executing", "awaiting_signal", "awaiting_children"} {
		id := b.row("status, awaits, locked_by, lease_expires_at, visit", "$1, '{go}', 'w', now(), 5", status)
		for _, visit := range []int64{-1, 4, 5} {
			if (status == "awaiting_signal" || status == "awaiting_children") && visit < 5 {
				want = append(want, int64(len(ids)))
			}
			ids, past = append(ids, id), append(past, visit)
		}
	}
	for _, id := range []int64{b.row("status, finished_at", "'done', now()"), 1 << 40} {
		want = append(want, int64(len(ids)))
		ids, past = append(ids, id), append(past, 9)
	}
	got, err := b.Resting(t.Context(), ids, past)
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
}

func TestInboxHoldsWhatIsNotConsumed(t *testing.T) {
	b := newBench(t)
	id, other := b.parked("x"), b.parked("x")
	for n, m := range []*step.Signal{named("b"), deduped("a", "evt"), named("b"), named("gone")} {
		_, err := b.Deliver(t.Context(), byID(id), m, cap10)
		require.NoError(t, err, n)
	}
	_, err := b.Deliver(t.Context(), byID(other), named("b"), cap10)
	require.NoError(t, err)
	b.exec(`UPDATE gendurable.signals SET consumed_at = now() WHERE name = 'gone'`)

	inbox, _, err := b.Inbox(t.Context(), id, 0)
	require.NoError(t, err)
	require.Len(t, inbox, 3)
	for i, want := range []step.Signal{{Name: "b", Payload: json.RawMessage(`{"n": 1}`)},
		{Name: "a", Payload: json.RawMessage(`{}`), DedupKey: "evt"}, {Name: "b", Payload: json.RawMessage(`{"n": 1}`)}} {
		require.Positive(t, inbox[i].ID)
		require.WithinDuration(t, time.Now(), inbox[i].At, time.Minute)
		want.ID, want.At = inbox[i].ID, inbox[i].At
		require.Equal(t, want, inbox[i])
	}
	require.Less(t, inbox[0].ID, inbox[2].ID)

	b.exec(`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'error', finished_at = now() WHERE id = $1`, id)
	inbox, _, err = b.Inbox(t.Context(), id, 0)
	require.NoError(t, err)
	require.Empty(t, inbox, "the end of an instance is the end of its inbox, though the rows stay")
}

// T49: Round lists only the children of the given round, in spawn order, over more than a page.
func TestChildrenOfARound(t *testing.T) {
	b := newBench(t)
	parent := b.row("round, status, children_pending", "7, 'awaiting_children', 1")
	insert := `INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, parent_id, parent_round, status, state, result, finished_at)
		SELECT 'c', 2, 's', $1, $2, 'done', to_jsonb(n), to_jsonb(-n), now() FROM generate_series(1, $3) n`
	b.exec(insert, parent, 5, 3)
	b.exec(insert, parent, 7, 2500)
	b.exec(insert, b.row("", ""), 7, 3)
	failed := b.row("parent_id, parent_round, status, failure, last_error, finished_at", "$1, 7, 'failed', 'decided', 'no', now()", parent)

	children, err := b.round(parent, 7)
	require.NoError(t, err)
	require.Len(t, children, 2501)
	for i, c := range children[:2500] {
		require.Equal(t, step.Child{ID: c.ID, Machine: "c", Version: 2, Status: "done", State: json.RawMessage(fmt.Sprint(i + 1)),
			Result: json.RawMessage(fmt.Sprint(-i - 1))}, c)
	}
	require.Equal(t, step.Child{ID: failed, Machine: "m", Version: 1, Status: "failed", State: json.RawMessage(`{}`), Failure: "decided",
		LastError: "no"}, children[2500])
}

func TestReadOnly(t *testing.T) {
	b := newBench(t)
	for _, is := range []bool{false, true} {
		b.exec(fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_read_only = %v`, b.pool.Config().ConnConfig.Database, is))
		b.pool.Reset()
		got, err := b.ReadOnly(t.Context())
		require.NoError(t, err)
		require.Equal(t, is, got)
	}
}

func TestDurability(t *testing.T) {
	b := newBench(t)
	unsafe, err := b.Durability(t.Context())
	require.NoError(t, err)
	require.Equal(t, b.text(`SHOW fsync`) == "off", len(unsafe) > 0 && unsafe[0] == "fsync")

	b.exec(`ALTER DATABASE ` + b.pool.Config().ConnConfig.Database + ` SET synchronous_commit = off`)
	b.pool.Reset()
	unsafe, err = b.Durability(t.Context())
	require.NoError(t, err)
	require.Contains(t, unsafe, "synchronous_commit")
}
