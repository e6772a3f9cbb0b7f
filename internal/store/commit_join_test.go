package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

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

// endOf returns the end of a child: done, or failed.
func endOf(c *step.Claim, done bool) store.Entry {
	if done {
		return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}}
	}
	return store.Entry{Claim: c, Commit: &step.Commit{Kind: step.Stop, Err: "no", Failure: "stopped"}}
}

// counts returns a parent's counters: children that have not ended, that are done, that failed.
func (b bench) counts(parent int64) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(' ', children_pending, join_done, join_failed) FROM gendurable.gen_durable WHERE id = $1`, parent)
}

// Each row ends the children in this order: d is done, f fails, and what is joined by & ends in one
// commit. The parent wakes with the end that is in capitals, and before it sleeps.
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
		{"signals only", &step.Join{Names: []string{"go"}}, 2, "d D"},
	} {
		for _, slow := range []bool{false, true} {
			parent, kids := b.policedParent(c.n, c.join)
			next := 0
			for _, commit := range strings.Fields(c.ends) {
				require.Equal(t, "awaiting_children", b.status(parent), "%s before %s", c.name, commit)
				var batch []store.Entry
				for end := range strings.SplitSeq(commit, "&") {
					batch = append(batch, endOf(kids[next], strings.EqualFold(end, "d")))
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
			for _, kid := range kids[next:] { // those that it did not wait for wake nobody
				require.Empty(t, b.commit(newMark(), slow, endOf(kid, true)).Queues, c.name)
			}
			require.Equal(t, after, b.text(`SELECT to_jsonb(g)::text FROM gendurable.gen_durable g WHERE id = $1`, parent))
		}
	}
}

// A round without a policy takes no notice of that of the round before, and the children that the
// join before did not wait for are not counted.
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

// A signal wakes a parent that names it, whoever sends it, and whether it comes before the park or
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

// joinBefore is the join of the release before, which knows no policies.
const joinBefore = `WITH woken AS (
  UPDATE gendurable.gen_durable p SET children_pending = p.children_pending - d.n,
    status = CASE WHEN p.children_pending <= d.n THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN p.children_pending <= d.n THEN (SELECT clock_timestamp()) ELSE p.eligible_at END,
    updated_at = CASE WHEN p.children_pending <= d.n THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    pick_lane = 0
  FROM (SELECT k.parent_id, k.parent_round, count(*)::int AS n FROM unnest($1::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT x.parent_id, x.parent_round, x.joined FROM gendurable.gen_durable x WHERE x.id = u.id OFFSET 0) k
    WHERE k.joined = $2::uuid GROUP BY 1, 2) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM gendurable.gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE) l
  WHERE p.ctid = l.tid AND p.round = d.parent_round AND p.status = 'awaiting_children'
  RETURNING p.queue, p.status)
SELECT queue FROM woken WHERE status = 'runnable'`

// endBefore ends a child as a process of the release before does.
func (b bench) endBefore(kid *step.Claim, done bool) {
	b.t.Helper()
	mark, tx := newMark(), b.begin()
	b.inTx(tx, `SELECT FROM gendurable.gen_durable WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, []int64{kid.ID, kid.Parent})
	b.inTx(tx, `UPDATE gendurable.gen_durable SET status = CASE WHEN $3 THEN 'done' ELSE 'failed' END::gendurable.durable_status,
		failure = CASE WHEN NOT $3 THEN 'error' END, finished_at = now(), joined = $2::uuid, commit_id = $2::uuid, locked_by = NULL, lease_expires_at = NULL
		WHERE id = $1`, kid.ID, mark, done)
	b.inTx(tx, joinBefore, []int64{kid.ID}, mark)
	require.NoError(b.t, tx.Commit(b.t.Context()))
}

// A process of the release before runs beside. What it ends is not counted for the policy at once:
// the parent neither sleeps for ever nor wakes for the wrong reason.
func TestReleaseBeforeEndsChildren(t *testing.T) {
	b := newBench(t)
	recount := func() store.Recounted {
		got, err := b.Recount(t.Context(), 0, 10, true)
		require.NoError(t, err)
		return got
	}
	for _, c := range []struct {
		name         string
		join         *step.Join
		n            int
		before, then string // ends by the release before, and by this one after them
		wakes        bool
	}{
		{"quorum", &step.Join{Done: 2}, 5, "dd", "", true},
		{"half of a quorum", &step.Join{Done: 2}, 5, "d", "", false},
		{"half of a quorum, then the other half", &step.Join{Done: 2}, 5, "d", "d", true},
		{"not out of reach, though uncounted", &step.Join{Done: 2}, 3, "d", "f", false},
		{"out of reach", &step.Join{Done: 3}, 4, "ff", "", true},
		{"race", &step.Join{Ended: 1}, 3, "f", "", true},
		{"fail fast", &step.Join{Failed: 1}, 3, "f", "", true},
		{"fail fast, none failed", &step.Join{Failed: 1}, 3, "d", "d", false},
	} {
		parent, kids := b.policedParent(c.n, c.join)
		for _, end := range c.before {
			b.endBefore(kids[0], end == 'd')
			kids = kids[1:]
		}
		for _, end := range c.then {
			b.commit(newMark(), false, endOf(kids[0], end == 'd'))
			require.Equal(t, "awaiting_children", b.status(parent), "%s: nobody has counted yet", c.name)
		}
		got := recount()
		require.Equal(t, c.wakes, b.status(parent) == "runnable", c.name)
		require.Equal(t, c.wakes, slices.Equal([]string{"default"}, got.Queues), c.name)
		ended := c.before + c.then
		require.Equal(t, fmt.Sprintf("%d %d %d", c.n-len(ended), strings.Count(ended, "d"), strings.Count(ended, "f")), b.counts(parent), c.name)
		require.Zero(t, recount(), "%s: nothing is left to count", c.name)
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}

	// It wakes a parent by itself when all children have ended. A signal that it delivers wakes none.
	parent, kids := b.policedParent(2, &step.Join{Done: 1, Names: []string{"go"}})
	b.endBefore(kids[0], false)
	b.exec(`INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'noise')`, parent)
	require.Empty(t, recount().Queues)
	b.exec(`INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, parent)
	require.Equal(t, []string{"default"}, recount().Queues)
	parent, kids = b.policedParent(2, &step.Join{Failed: 2})
	b.endBefore(kids[0], true)
	b.endBefore(kids[1], true)
	require.Equal(t, "runnable", b.status(parent))
}

// A process of the release before wakes a parent by its last child, and leaves its timeout behind.
// No poll takes that for an await that is over, nor does it hide one behind it.
func TestPollPassesByATimeoutThatIsLeft(t *testing.T) {
	b := newBench(t)
	poll := func() store.Polled {
		got, err := b.Poll(t.Context(), nil, nil, nil)
		require.NoError(t, err)
		return got
	}
	parent, kids := b.policedParent(1, &step.Join{Done: 1, Timeout: time.Hour})
	require.True(t, poll().Awaits)
	b.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() - interval '1 s' WHERE id = $1`, parent)
	b.endBefore(kids[0], true)
	require.Equal(t, "runnable", b.status(parent))
	require.Equal(t, 1, b.number(`SELECT count(await_deadline) FROM gendurable.gen_durable`))
	require.False(t, poll().Awaits)
	b.policedParent(1, &step.Join{Timeout: time.Hour})
	require.Greater(t, poll().Deadline, 50*time.Minute)
}

// Without always it looks only while a worker of a release before is live.
func TestRecountWhileAnOlderWorkerLives(t *testing.T) {
	b := newBench(t)
	recount := func(always bool) []string {
		got, err := b.Recount(t.Context(), 0, 10, always)
		require.NoError(t, err)
		return got.Queues
	}
	older := func(lives bool) {
		_, kids := b.policedParent(3, &step.Join{Ended: 1})
		b.endBefore(kids[0], true)
		b.exec(`DELETE FROM gendurable.workers`)
		b.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, graphs, expires_at) VALUES
			(gen_random_uuid(), 'new', 41, '', '{}', '{}', true, now() + interval '1 minute'),
			(gen_random_uuid(), 'old', 42, '', '{}', '{}', false, now() + CASE WHEN $1 THEN interval '1 minute' ELSE '-1 s' END)`, lives)
	}
	older(true)
	require.Equal(t, []string{"default"}, recount(false))
	older(false)
	require.Empty(t, recount(false))
	require.Equal(t, []string{"default"}, recount(true))
	b.exec(`DELETE FROM gendurable.workers`)
}

// A stranger's parent is passed by, and those behind it are not.
func TestRecountWaitsForNobody(t *testing.T) {
	b := newBench(t)
	var parents []int64
	for range 3 {
		parent, kids := b.policedParent(3, &step.Join{Ended: 1})
		b.endBefore(kids[0], true)
		parents = append(parents, parent)
	}
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, parents[1])
	var after int64
	for _, want := range []string{"runnable", "runnable"} {
		got, err := b.Recount(t.Context(), after, 1, true)
		require.NoError(t, err)
		require.Equal(t, []string{"default"}, got.Queues)
		after = got.Last
		require.Equal(t, want, b.status(after))
	}
	require.Equal(t, parents[2], after)
	require.NoError(t, stranger.Rollback(t.Context()))
	got, err := b.Recount(t.Context(), 0, 10, true)
	require.NoError(t, err)
	require.Equal(t, store.Recounted{Queues: []string{"default"}}, got)
}

// Four workers end the children of random rounds side by side, while a stranger holds the parent.
// Every change of the parent is looked at: it wakes once, with the first change that makes its
// condition true, and its counts add up throughout.
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
	for _, e := range entries {
		for try := range 100 {
			got, err := b.Commit(b.t.Context(), me, uuid.NewString(), []store.Entry{e}, inLane(try > 0))
			if err != nil {
				return err
			}
			if got.Applied[e.Claim.ID] {
				break
			}
			if try == 99 {
				return errors.New("left out again and again")
			}
		}
	}
	return nil
}
