package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// applying is a way to commit an outcome. It returns whether it was applied.
type applying func(ctx context.Context, b bench, mark string, e store.Entry) (store.Committed, error)

var applyings = map[string]applying{
	"at once": func(ctx context.Context, b bench, mark string, e store.Entry) (store.Committed, error) {
		return b.Commit(ctx, me, mark, []store.Entry{e}, 0)
	},
	"waiting": func(ctx context.Context, b bench, mark string, e store.Entry) (store.Committed, error) {
		return b.Commit(ctx, me, mark, []store.Entry{e}, 20*time.Second)
	},
	"in its own transaction": func(ctx context.Context, b bench, mark string, e store.Entry) (store.Committed, error) {
		got, err := b.transact(me, mark, e, nil)
		return got.Committed, err
	},
}

var deciding = map[string]func(c *step.Claim) store.Entry{
	"done": func(c *step.Claim) store.Entry { return endOf(c, true) },
	"stop": func(c *step.Claim) store.Entry { return endOf(c, false) },
	"next": func(c *step.Claim) store.Entry {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Next, Step: "t", State: []byte(`{"next": true}`)}}
	},
}

// decision makes a graph in which b waits for a, which executes, with a signal in its inbox and a
// live child.
func (b bench) decision() (root int64, a *step.Claim, child int64) {
	b.t.Helper()
	root, ids := b.arrange("a b<a", &step.Join{Failed: 2})
	a = b.claimOne()
	require.Equal(b.t, ids["a"], a.ID)
	_, err := b.Deliver(b.t.Context(), byID(a.ID), named("go"), 10)
	require.NoError(b.t, err)
	child = b.executing(nil).ID
	b.exec(`UPDATE gendurable.gen_durable SET parent_id = $2, parent_round = 7, depth = 2, status = 'runnable', eligible_at = now() + interval '1 d',
		locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, child, a.ID)
	b.exec(`UPDATE gendurable.gen_durable SET partition_key = 'k' WHERE id = $1`, a.ID)
	a.PartitionKey = "k"
	return root, a, child
}

// The root of a graph has ended when one of its nodes decides what to add. Nothing of the outcome
// is applied: the node is cancelled with its children, the nodes that wait for it are skipped, and
// once the root is restarted it decides anew.
func TestADecisionWhoseGraphIsOver(t *testing.T) {
	b := newWriter(t)
	for how, apply := range applyings {
		for kind, entry := range deciding {
			for _, recorded := range []bool{false, true} {
				t.Run(how+", "+kind, func(t *testing.T) {
					b := b
					b.t = t
					b.exec(`DELETE FROM gendurable.history`)
					require.NoError(t, b.SetRecorded(t.Context(), map[bool][]string{true: {"m"}}[recorded], map[bool][]string{false: {"m"}}[recorded]))
					root, a, child := b.decision()
					was := b.column(`SELECT concat_ws(' ', step, state, visit, attempt) FROM gendurable.gen_durable WHERE id = $1`, a.ID)
					b.operate(store.Order{Verb: store.Cancel}, root)
					e, mark := adding(entry(a), "x>b"), newMark()
					if recorded {
						e.Record = &store.Record{}
					}
					got, err := apply(t.Context(), b, mark, e)
					require.NoError(t, err)
					require.Empty(t, got.Applied)
					require.Equal(t, []string{"k"}, got.Missed, "the next of its key")
					require.True(t, got.Skips, "what waits for it")
					require.Zero(t, b.written(), "what its step has written is undone")
					require.Equal(t, "a cancelled, b runnable", b.states(root))
					require.Equal(t, was, b.column(`SELECT concat_ws(' ', step, state, visit, attempt) FROM gendurable.gen_durable WHERE id = $1`, a.ID))
					require.Equal(t, 1, b.signals(a.ID), "nothing is consumed")
					require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.lost_claims WHERE partition_key = 'k' AND claim_token = $1`, a.Token))
					verdicts, err := b.Resolve(t.Context(), me, eachOf([]store.Entry{e}, mark), []store.Entry{e}, 0)
					require.NoError(t, err)
					require.Equal(t, map[int64]store.Verdict{a.ID: store.Stale}, verdicts)
					history := []string{"admin.cancel join>- 0 - - -"}
					if recorded {
						history = append(history, "join.cancel start>- 0 cancelled cancelled: its parent does not wait for it any more -")
					}
					require.Equal(t, history, b.recorded())

					b.skip()
					require.Contains(t, b.cancelRest(), child)
					ran, _, _ := b.drive(root, "", "")
					require.Empty(t, ran)
					require.Equal(t, "a cancelled, b skipped", b.states(root))
					require.Empty(t, b.restart(root).Refused)
					require.Equal(t, "a runnable, b awaiting_children", b.states(root))
					again := b.claimOne()
					require.Equal(t, a.Step, again.Step)
					_, err = apply(t.Context(), b, newMark(), adding(endOf(again, true), "x>b"))
					require.NoError(t, err)
					require.Equal(t, "a done, b awaiting_children, x runnable", b.states(root))
					b.exact(root)
					ran, woken, _ := b.drive(root, "", "")
					require.Equal(t, "xb", ran)
					require.NotNil(t, woken)
				})
				b.forgetAll()
			}
		}
	}
}

// An outcome of a claim that is over cancels no instance.
func TestAStaleDecisionWhoseGraphIsOver(t *testing.T) {
	b := newWriter(t)
	root, a, _ := b.decision()
	b.operate(store.Order{Verb: store.Cancel}, root)
	for how, apply := range applyings {
		stale := *a
		stale.Visit++
		got, err := apply(t.Context(), b, newMark(), adding(endOf(&stale, true), "x>b"))
		require.NoError(t, err, how)
		require.Empty(t, got.Applied, how)
		require.Equal(t, "a executing, b awaiting_children", b.states(root), how)
	}
}

// A root ends while one of its nodes decides. Whichever of them has the root's lock first, the
// other sees what it did: the decision is cancelled, or what it added is there, and is skipped.
func TestARootEndsWhileANodeDecides(t *testing.T) {
	b := newWriter(t)
	for _, how := range []string{"waiting", "in its own transaction"} {
		root, a, _ := b.decision()
		tx := b.begin() // the root's end, up to its COMMIT
		b.inTx(tx, `UPDATE gendurable.gen_durable SET status = 'failed', failure = 'deadline', finished_at = now() WHERE id = $1`, root)
		decided := b.deciding(applyings[how], a)
		b.waiting(1)
		require.NoError(t, tx.Commit(t.Context()))
		require.False(t, <-decided, how)
		require.Equal(t, "a cancelled, b runnable", b.states(root), how)
		require.Zero(t, b.written())
		b.forgetAll()

		root, a, _ = b.decision()
		tx = b.begin() // holds up the decision, which has the root
		b.inTx(tx, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, b.nodes(root)["b"])
		decided = b.deciding(applyings[how], a)
		b.waiting(1)
		cancelled := b.operating(store.Order{Verb: store.Cancel, Mark: newMark()}, root)
		b.waiting(2)
		require.NoError(t, tx.Rollback(t.Context()))
		require.True(t, <-decided, how)
		require.NoError(t, (<-cancelled).err)
		require.Equal(t, "failed", b.status(root))
		require.Equal(t, "a done, b awaiting_children, x runnable", b.states(root), how)
		ran, _, _ := b.drive(root, "", "")
		require.Empty(t, ran)
		require.Equal(t, "a done, b skipped, x skipped", b.states(root), how)
		b.forgetAll()
	}
}

func (b bench) forgetAll() {
	b.t.Helper()
	for _, table := range []string{"public.written", "gendurable.edges", "gendurable.signals", "gendurable.lost_claims", "gendurable.gen_durable"} {
		b.exec(`DELETE FROM ` + table)
	}
}

// deciding commits the end of a node that adds x in a separate session, and reports whether it was
// applied.
func (b bench) deciding(apply applying, a *step.Claim) <-chan bool {
	decided := make(chan bool, 1)
	go func() {
		got, err := apply(b.t.Context(), b, newMark(), adding(endOf(a, true), "x>b"))
		if err != nil {
			b.t.Error(err)
		}
		decided <- got.Applied[a.ID]
	}()
	return decided
}
