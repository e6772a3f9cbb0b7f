package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// policedParent commits a parent of n children under a policy, and makes these executing.
func (b bench) policedParent(n int, join *step.Join) (parent int64, kids []*step.Claim) {
	b.t.Helper()
	c := b.executing(nil)
	e := spawnOf(c, (&scene{}).nChildren(n))
	e.Commit.Join = join
	b.commit(newMark(), false, e)
	return c.ID, b.runKids(c.ID)
}

// runKids makes all children of a parent executing that have not ended.
func (b bench) runKids(parent int64) (kids []*step.Claim) {
	b.t.Helper()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, claim_token = 7, lease_expires_at = now() + interval '1 hour'
		WHERE parent_id = $1 AND finished_at IS NULL`, parent, me)
	for _, id := range b.column(`SELECT id::text FROM gendurable.gen_durable WHERE parent_id = $1 ORDER BY id`, parent) {
		var n int64
		_, err := fmt.Sscan(id, &n)
		require.NoError(b.t, err)
		kids = append(kids, &step.Claim{ID: n, Step: "start", Queue: "kids", Token: 7, Parent: parent, ParentRound: 1})
	}
	return kids
}

// endsAs returns the end of a child by its letter: d is done, f fails, s is skipped.
func endsAs(c *step.Claim, how string) store.Entry {
	e := endOf(c, strings.EqualFold(how, "d"))
	if strings.EqualFold(how, "s") {
		e.Commit.Failure = "skipped"
	}
	return e
}

// endOf returns the end of a child: done, or failed.
func endOf(c *step.Claim, done bool) store.Entry {
	if done {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}}
	}
	return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Fail, Err: "no", Failure: "decided"}}
}

// counts returns a parent's counters: children that have not ended, that are done, that failed.
func (b bench) counts(parent int64) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(' ', children_pending, join_done, join_failed) FROM gendurable.gen_durable WHERE id = $1`, parent)
}

// Each row ends the children in this order: d is done, f fails, s is skipped, and children joined
// by & end in one commit. The parent wakes with the end that is in capitals, and before it sleeps.
func TestPolicyWakesWithTheFirstEndThatMakesItTrue(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name string
		join *step.Join
		n    int
		ends string
	}{
		{"none", nil, 3, "d f D"},
		{"quorum", &step.Join{Done: 2}, 5, "d f D"},
		{"quorum in one commit", &step.Join{Done: 2}, 5, "f D&d&d"},
		{"quorum out of reach", &step.Join{Done: 4}, 5, "f d F"},
		{"quorum of all", &step.Join{Done: 3}, 3, "d d D"},
		{"quorum of all, one fails", &step.Join{Done: 3}, 3, "d F"},
		{"quorum and out of reach at once", &step.Join{Done: 1}, 2, "D&f"},
		{"race, done", &step.Join{Ended: 1}, 3, "D"},
		{"race, failed", &step.Join{Ended: 1}, 3, "F"},
		{"fail fast", &step.Join{Failed: 1}, 4, "d d F"},
		{"fail fast, none fails", &step.Join{Failed: 1}, 3, "d d D"},
		{"quorum or failures", &step.Join{Done: 3, Failed: 2}, 6, "d f d F"},
		{"quorum out of reach, some are skipped", &step.Join{Done: 4}, 6, "s d f S"},
		{"race, some are skipped", &step.Join{Ended: 1}, 5, "s s&s D"},
		{"race, all are skipped", &step.Join{Ended: 1}, 2, "s S"},
		{"two ends, some are skipped", &step.Join{Ended: 2}, 5, "s f s D"},
		{"fail fast, some are skipped", &step.Join{Failed: 1}, 6, "s d s&d F"},
		{"fail fast, only skips", &step.Join{Failed: 1}, 3, "d s S"},
		{"failures, in one commit with a skip", &step.Join{Failed: 2}, 5, "f&s F"},
		{"signals only", &step.Join{Names: []string{"go"}}, 2, "d D"},
	} {
		for _, slow := range []bool{false, true} {
			parent, kids := b.policedParent(c.n, c.join)
			next := 0
			for _, commit := range strings.Fields(c.ends) {
				require.Equal(t, "awaiting_children", b.status(parent), "%s before %s", c.name, commit)
				var batch []store.Entry
				for end := range strings.SplitSeq(commit, "&") {
					batch = append(batch, endsAs(kids[next], end))
					next++
				}
				got := b.commit(newMark(), slow, batch...)
				if commit != strings.ToLower(commit) {
					require.Equal(t, []string{"default"}, got.Queues, c.name)
					require.Equal(t, "runnable", b.status(parent), "%s after %s", c.name, commit)
				} else {
					require.Empty(t, got.Queues)
				}
			}
			after := b.text(`SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE id = $1`, parent)
			for _, kid := range kids[next:] { // those that it did not wait for
				require.Equal(t, []string{"default"}, b.commit(newMark(), slow, endOf(kid, true)).Queues, c.name)
			}
			require.Equal(t, after, b.text(`SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE id = $1`, parent))
		}
	}
}

// The end of a child locks its parent. A claim meanwhile passes by a parent that is due, so the
// commit reports its queue; so does a sweep. Nothing is reported of one that no claim would take.
func TestAnEndReportsAParentThatIsDue(t *testing.T) {
	b := newBench(t)
	for set, want := range map[string][]string{
		`paused = false`: {"default"}, `paused = true`: nil, `eligible_at = now() + interval '1 hour'`: nil,
		`status = 'executing', locked_by = 'w', lease_expires_at = now() + interval '1 h'`: nil, `status = 'failed', finished_at = now(), failure = 'decided'`: nil,
	} {
		parent, kids := b.policedParent(4, &step.Join{Ended: 1})
		b.commit(newMark(), false, endOf(kids[0], true))
		b.exec(`UPDATE gendurable.gen_durable SET `+set+` WHERE id = $1`, parent)
		require.Equal(t, want, b.commit(newMark(), false, endOf(kids[1], true)).Queues, set)
		require.Equal(t, want, b.commit(newMark(), true, endOf(kids[2], false)).Queues, set)
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL, deadline = now() - interval '1 s'
			WHERE id = $1`, kids[3].ID)
		swept, err := b.Expire(t.Context(), newMark(), 10)
		require.NoError(t, err)
		require.Equal(t, []int64{kids[3].ID}, swept.Failed)
		require.Equal(t, want, swept.Queues, set)
	}
}

// A round without a policy ignores the policy of the round before, and the children that the join
// before did not wait for are not counted.
func TestLaterRoundForgetsThePolicy(t *testing.T) {
	b := newBench(t)
	parent, first := b.policedParent(3, &step.Join{Ended: 1, Names: []string{"go"}, Timeout: time.Hour})
	b.commit(newMark(), false, endOf(first[0], true))
	c := b.claimOne()
	require.Equal(t, parent, c.ID)
	b.commit(newMark(), false, spawnOf(c, kids(3)))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND (awaits IS NOT NULL OR await_deadline IS NOT NULL)`, parent))
	b.commit(newMark(), false, endOf(first[1], false), endOf(first[2], false))
	second := b.runKids(parent)[3:]
	for i, kid := range second {
		require.Equal(t, "awaiting_children", b.status(parent))
		kid.ParentRound = 2
		require.Equal(t, i == 2, len(b.commit(newMark(), false, endOf(kid, i == 1)).Queues) > 0)
	}
}

// A signal wakes a parent that names it, from any sender, and whether it comes before the park or
// after. A timeout does. What woke it is the last thing that does.
func TestSignalsAndTimesWakeAParent(t *testing.T) {
	b := newBench(t)
	policy := func() *step.Join { return &step.Join{Done: 2, Names: []string{"go"}, Timeout: time.Hour} }
	for name, wake := range map[string]func(parent int64){
		"delivery": func(parent int64) { require.True(t, b.deliver(parent, named("go")).Woken) },
		"function": func(parent int64) { b.exec(`SELECT gendurable.gen_durable_signal('go', target => $1)`, parent) },
		"timeout": func(parent int64) {
			b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id = $1`, parent)
			got, err := b.TimeOut(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, []string{"default"}, got.Queues)
		},
	} {
		parent, kids := b.policedParent(3, policy())
		require.False(t, b.deliver(parent, named("noise")).Woken)
		b.exec(`SELECT gendurable.gen_durable_signal('noise', target => $1)`, parent)
		require.Equal(t, "awaiting_children", b.status(parent))
		wake(parent)
		require.Equal(t, "runnable", b.status(parent), name)
		b.commit(newMark(), false, endOf(kids[0], true), endOf(kids[1], true))
		require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE await_deadline IS NOT NULL`))
		c := b.claimOne()
		require.Equal(t, name == "timeout", c.TimedOut)
		require.Equal(t, name != "timeout", len(c.Awaited) == 1)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
	c := b.executing(nil)
	b.deliver(c.ID, named("go"))
	e := spawnOf(c, kids(2))
	e.Commit.Join = policy()
	require.Contains(t, b.commit(newMark(), false, e).Queues, "default")
	require.Equal(t, "runnable", b.status(c.ID), "it was there before")
}

// Children that were not inserted may leave too few for a quorum.
func TestDroppedChildrenLeaveTooFew(t *testing.T) {
	b := newBench(t)
	b.keyed("taken")
	for done, want := range map[int]string{2: "awaiting_children", 3: "runnable"} {
		c := b.executing(nil)
		e := spawnOf(c, withKeys(kids(4), "", "taken", "taken", ""))
		e.Commit.Join = &step.Join{Done: done, Timeout: time.Hour}
		b.commit(newMark(), true, e)
		require.Equal(t, want, b.status(c.ID))
		require.Equal(t, 2, b.number(`SELECT join_size FROM gendurable.gen_durable WHERE id = $1`, c.ID))
		require.Equal(t, done == 2, b.number(`SELECT count(await_deadline) FROM gendurable.gen_durable WHERE id = $1`, c.ID) == 1)
	}
}

// A timeout that foreign SQL has left behind is none of an await: no poll takes it for one that is
// over, nor does it hide one behind it.
func TestPollPassesByATimeoutThatIsLeft(t *testing.T) {
	b := newBench(t)
	poll := func() store.Polled {
		got, err := b.Poll(t.Context(), nil, nil, nil)
		require.NoError(t, err)
		return got
	}
	parent, _ := b.policedParent(1, &step.Join{Done: 1, Timeout: time.Hour})
	require.True(t, poll().Awaits)
	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', await_deadline = now() - interval '1 s' WHERE id = $1`, parent)
	require.False(t, poll().Awaits)
	b.policedParent(1, &step.Join{Timeout: time.Hour})
	require.Greater(t, poll().Deadline, 50*time.Minute)
}

// Four workers end the children of random rounds side by side, while another session holds the
// parent. Every change of the parent is looked at: it wakes once, with the first change that makes
// its condition true, and its counts add up throughout.
func TestConcurrentEndsWakeOnce(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE public.seen (n bigserial, id bigint, was text, status text, pending int, done int, failed int)`)
	b.exec(`CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.seen (id, was, status, pending, done, failed) VALUES (NEW.id, OLD.status, NEW.status, NEW.children_pending, NEW.join_done, NEW.join_failed);
		RETURN NULL; END $$`)
	b.exec(`CREATE TRIGGER see AFTER UPDATE ON gendurable.gen_durable FOR EACH ROW WHEN (OLD.status = 'awaiting_children') EXECUTE FUNCTION public.see()`)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	for round := range 40 {
		n := 2 + rng.IntN(20)
		join := &step.Join{}
		for join.Done+join.Failed+join.Ended == 0 {
			join = &step.Join{Done: rng.IntN(2) * (1 + rng.IntN(n)), Failed: rng.IntN(2) * (1 + rng.IntN(n)), Ended: rng.IntN(2) * (1 + rng.IntN(n))}
		}
		parent, kids := b.policedParent(n, join)
		likely := rng.Float64()
		batches := make([][]store.Entry, 4)
		for _, kid := range kids {
			w := rng.IntN(len(batches))
			batches[w] = append(batches[w], endOf(kid, rng.Float64() < likely))
		}
		stranger := b.begin()
		b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, parent)
		var working sync.WaitGroup
		errs := make(chan error, len(batches))
		for _, batch := range batches {
			working.Go(func() { errs <- b.commitAtLast(batch) })
		}
		require.NoError(t, stranger.Rollback(t.Context()))
		working.Wait()
		for range batches {
			require.NoError(t, <-errs)
		}
		should := func(pending, done, failed int) bool {
			return pending == 0 || join.Done > 0 && (done >= join.Done || done+pending < join.Done) ||
				join.Failed > 0 && failed >= join.Failed || join.Ended > 0 && done+failed >= join.Ended
		}
		rows, err := b.pool.Query(t.Context(), `SELECT was, status, pending, done, failed FROM public.seen WHERE id = $1 ORDER BY n`, parent)
		require.NoError(t, err)
		wakes := 0
		for rows.Next() {
			var was, status string
			var pending, done, failed int
			require.NoError(t, rows.Scan(&was, &status, &pending, &done, &failed))
			require.Equal(t, n, pending+done+failed, "round %d", round)
			require.Equal(t, should(pending, done, failed), status == "runnable", "round %d: %+v, %d %d %d", round, join, pending, done, failed)
			if status == "runnable" {
				wakes++
			}
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 1, wakes, "round %d", round)
	}
}

// commitAtLast commits the entries one by one, first without waiting, then in the slow lane.
func (b bench) commitAtLast(entries []store.Entry) error {
	trying := steady.Begin()
	defer trying.End()
	for _, e := range entries {
		for slow := false; ; slow = true {
			got, err := b.Commit(b.t.Context(), me, uuid.NewString(), []store.Entry{e}, inLane(slow))
			if err != nil {
				return err
			}
			if got.Applied[e.Claim.ID] {
				break
			}
			if trying.Ran() > steady.Patience {
				return errors.New("left out again and again")
			}
		}
	}
	return nil
}
