package store_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// endings are outcomes that end unless a signal "go" waits.
func endings() []step.Commit {
	unless := &step.Unless{Names: []string{"go"}, Step: "late"}
	return []step.Commit{
		{Kind: step.Done, Result: json.RawMessage(`{}`), Unless: unless},
		{Kind: step.Fail, Err: "no", Failure: "decided", Unless: unless},
	}
}

// A delivery came first and is still open. The fast lane leaves the outcome out; the slow lane
// waits. Both then see the signal, and the instance goes on with it.
func TestUnlessBehindADelivery(t *testing.T) {
	b := newBench(t)
	for _, o := range endings() {
		for _, slow := range []bool{false, true} {
			id := b.row("", "")
			c := b.claimOne()
			deliver := b.openDelivery(id)
			entry := []store.Entry{{Claim: c, Commit: &o}}
			var got store.Committed
			if slow {
				result := make(chan store.Committed, 1)
				go func() {
					done, err := b.Commit(t.Context(), me, newMark(), entry, patient)
					if err != nil {
						t.Error(err)
					}
					result <- done
				}()
				b.waiting(1)
				deliver()
				got = <-result
			} else {
				left, err := b.Commit(t.Context(), me, newMark(), entry, 0)
				require.NoError(t, err)
				require.Empty(t, left.Applied, "left out")
				deliver()
				got = b.commit(newMark(), false, entry...)
			}
			require.True(t, got.Applied[id])
			require.True(t, got.Turned[id])
			require.Empty(t, got.Unread)
			require.Equal(t, "runnable", b.status(id))
			require.Equal(t, 1, b.signals(id))
			next := b.claimOne()
			require.Equal(t, "late", next.Step)
			require.Len(t, next.Awaited, 1)
			require.Equal(t, c.Visit+1, next.Visit)
			b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, id)
		}
	}
}

// The end came first: its transaction has the row, and has yet to look at the inbox when the
// delivery begins, which waits for it. If the instance ends, the sender is told so. Where another
// signal was there already, the instance goes on, and gets both.
func TestDeliverBehindAnUnless(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`)
	b.exec(`CREATE TRIGGER wait AFTER UPDATE ON gendurable.gen_durable FOR EACH ROW WHEN (NEW.status IN ('done', 'failed')) EXECUTE FUNCTION wait()`)
	for _, o := range endings() {
		for _, early := range []bool{false, true} {
			id := b.row("", "")
			c := b.claimOne()
			if early {
				b.deliver(id, named("go"))
			}
			stranger := b.begin()
			b.inTx(stranger, `SELECT pg_advisory_xact_lock(1)`) // the commit waits for it between its end and its look
			committed := make(chan error, 1)
			go func() {
				_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: c, Commit: &o}}, patient)
				committed <- err
			}()
			b.waiting(1)
			sent := b.delivering(byID(id), named("go"))
			b.waiting(2)
			require.NoError(t, stranger.Commit(t.Context()))
			require.NoError(t, <-committed)
			got := <-sent
			if !early {
				require.ErrorIs(t, got.err, store.ErrNoTarget)
				require.Zero(t, b.signals(id))
			} else {
				require.NoError(t, got.err)
				require.Equal(t, "runnable", b.status(id))
				require.Len(t, b.claimOne().Awaited, 2)
			}
			b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, id)
		}
	}
}

// Signals that the execution was given do not keep it: the end consumes them, or going on does. The
// outcome of a claim that is over changes nothing.
func TestUnlessCountsWhatTheExecutionWasNotGiven(t *testing.T) {
	b := newBench(t)
	for _, o := range endings() {
		for _, late := range []bool{false, true} {
			id := b.parked("go")
			b.deliver(id, deduped("go", "one"))
			b.deliver(id, named("go"))
			c := b.claimOne()
			require.Len(t, c.Awaited, 2)
			if late {
				b.deliver(id, named("go"))
			}
			zombie := *c
			zombie.Token++
			stale, err := b.Commit(t.Context(), me, newMark(), []store.Entry{{Claim: &zombie, Commit: &o}}, 0)
			require.NoError(t, err)
			require.Empty(t, stale.Applied)
			require.Empty(t, stale.Turned)
			require.Equal(t, "executing", b.status(id))
			got := b.commit(newMark(), false, store.Entry{Claim: c, Commit: &o})
			require.True(t, got.Applied[id])
			require.Equal(t, late, got.Turned[id])
			if late {
				require.Len(t, b.claimOne().Awaited, 1)
				require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.signals`), "the new one, and the memory of the dedup key")
			}
			b.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, id)
		}
	}
}

// Signals of a recorded instance that are deleted unread are in the history, and no other signals.
func TestUnreadSignalsAreRecorded(t *testing.T) {
	b := newBench(t)
	for range 2 {
		id := b.parked("go")
		for _, name := range []string{"go", "paid", "paid", "late"} {
			b.deliver(id, named(name))
		}
	}
	var entries []store.Entry
	for _, c := range b.claim(most(2)).Claims {
		require.Len(t, c.Awaited, 1, "consumed by its end")
		entries = append(entries, store.Entry{Claim: c, Commit: ending(step.Done)})
	}
	entries[0].Record = &store.Record{}
	got, err := b.Commit(t.Context(), uuid.NewString(), newMark(), entries, 0)
	require.NoError(t, err)
	require.Empty(t, got.Applied, "of another worker")
	got = b.commit(newMark(), false, entries...)
	require.Len(t, got.Unread, 4)
	require.Equal(t, "1 × late, 2 × paid", b.text(`SELECT string_agg(error, ', ' ORDER BY error) FROM gendurable.history
		WHERE kind = 'signal.unread' AND instance = $1 AND visit = $2 AND worker IS NOT NULL`, entries[0].Claim.ID, entries[0].Claim.Visit))
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.history WHERE kind = 'signal.unread'`))
}

// In one batch each outcome goes by its own names and its own inbox. Signals that are deleted
// unread are counted.
func TestUnlessInABatch(t *testing.T) {
	b := newBench(t)
	var entries []store.Entry
	ids := map[int64]string{}
	parent := b.joiner(4)
	for i, signal := range []string{"go", "other", "go", "other", "", "go", "other", "more"} {
		id := b.row("", "")
		if i%2 == 0 {
			b.exec(`UPDATE gendurable.gen_durable SET parent_id = $2, parent_round = 3 WHERE id = $1`, id, parent)
		}
		ids[id] = signal
		if signal != "" {
			b.deliver(id, named(signal))
		}
	}
	for _, c := range b.claim(most(len(ids))).Claims {
		o := &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`), Unless: &step.Unless{Names: []string{"go"}, Step: "late"}}
		if ids[c.ID] == "more" {
			o.Unless = &step.Unless{Names: []string{"x", "more", "y"}, Step: "later"}
		}
		entries = append(entries, store.Entry{Claim: c, Commit: o})
	}
	got := b.commit(newMark(), false, entries...)
	require.Len(t, got.Applied, len(ids))
	ended := 0
	for id, signal := range ids {
		goes := signal == "go" || signal == "more"
		require.Equal(t, goes, got.Turned[id], signal)
		if goes {
			require.Equal(t, "runnable", b.status(id))
			require.Equal(t, 1, b.signals(id))
			continue
		}
		require.Equal(t, "done", b.status(id))
		require.Zero(t, b.signals(id))
		if b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND joined IS NOT NULL`, id) > 0 {
			ended++
		}
	}
	require.Equal(t, 4-ended, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, parent))
	unread := map[string]int{}
	for _, u := range got.Unread {
		unread[u.Name] += u.Number
	}
	require.Equal(t, map[string]int{"other": 3}, unread)
}
