package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// everything returns the whole content of the engine's tables.
func (b bench) everything() string {
	b.t.Helper()
	return b.text(`SELECT coalesce((SELECT jsonb_agg(g ORDER BY g.id) FROM gendurable.gen_durable g), '[]')::text || E'\n' ||
		coalesce((SELECT jsonb_agg(s ORDER BY s.id) FROM gendurable.signals s), '[]')::text || E'\n' ||
		coalesce((SELECT jsonb_agg(h ORDER BY h.at, h.instance) FROM gendurable.history h), '[]')::text`)
}

// staleness is a way in which a claim may have ceased to be current.
type staleness struct {
	name   string
	worker string
	stale  func(s *scene)
}

var stalenesses = []staleness{
	{"an older token", me, func(s *scene) { s.claim.Token-- }},
	{"an older visit", me, func(s *scene) { s.claim.Visit-- }},
	{"a later visit", me, func(s *scene) { s.claim.Visit++ }},
	{"another worker", other, func(*scene) {}},
	{"given back", me, func(s *scene) {
		s.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', pick_lane = 0, locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, s.id)
	}},
	{"ended", me, func(s *scene) {
		s.exec(`UPDATE gendurable.gen_durable SET status = 'done', finished_at = now(), locked_by = NULL WHERE id = $1`, s.id)
	}},
	{"deleted", me, func(s *scene) { s.exec(`DELETE FROM gendurable.gen_durable WHERE id = $1`, s.id) }},
}

// T13, T14, T26, T84: a stale outcome of any kind changes nothing at all: not its row, no inbox, no
// children, no barrier, and nothing for its partition key.
func TestStaleOutcomesChangeNothing(t *testing.T) {
	b, picked := newBench(t), sampled(t, 3, 2)
	for _, how := range stalenesses {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow %t", how.name, slow), func(t *testing.T) {
				b.t = t
				for _, g := range outcomes {
					for _, x := range g.transitions {
						if !picked() {
							continue
						}
						full := tier.Long()
						if full || !slow {
							b.requireStale(&x, how, slow, nil)
						}
						if full || slow {
							b.requireStale(&x, how, slow, &store.Record{Took: time.Second})
						}
					}
				}
			})
		}
	}
}

func (b bench) requireStale(x *transition, how staleness, slow bool, record *store.Record) {
	b.t.Helper()
	b.exec(`DELETE FROM gendurable.gen_durable`)
	s := b.newScene(x)
	e := s.entry(x)
	e.Record = record
	how.stale(s)
	before := b.everything()
	got, err := b.Commit(b.t.Context(), how.worker, s.mark, []store.Entry{e}, inLane(slow))
	require.NoError(b.t, err, x.name)
	require.Equal(b.t, before, b.everything(), x.name)
	require.Empty(b.t, got.Applied, x.name)
	verdict, err := b.Resolve(b.t.Context(), how.worker, eachOf([]store.Entry{e}, s.mark), []store.Entry{e}, 0)
	require.NoError(b.t, err)
	require.Equal(b.t, map[int64]store.Verdict{s.id: store.Stale}, verdict, x.name)
}

// Stale outcomes in a batch take nothing from the others, and get nothing from them.
func TestStaleOutcomesAmongOthers(t *testing.T) {
	b := newBench(t)
	var stale, fresh []*scene
	var batch []store.Entry
	for _, how := range stalenesses[:2] {
		for _, g := range outcomes {
			for _, x := range g.transitions {
				s := b.newScene(&x)
				e := s.entry(&x)
				if e.Alone() {
					continue
				}
				how.stale(s)
				stale, batch = append(stale, s), append(batch, e)
				s = b.newScene(&x)
				fresh, batch = append(fresh, s), append(batch, s.entry(&x))
			}
		}
	}
	was := make([]image, len(stale))
	for i, s := range stale {
		was[i] = s.photograph()
	}
	got, err := b.Commit(t.Context(), me, newMark(), batch, 0)
	require.NoError(t, err)
	require.Len(t, got.Applied, len(fresh))
	for _, s := range fresh {
		require.True(t, got.Applied[s.id])
	}
	for i, s := range stale {
		require.Equal(t, was[i], s.photograph())
	}
}

// No outcome applies twice. The second attempt to commit it learns that the first took effect
// (T28).
func TestTheSameOutcomeTwice(t *testing.T) {
	b := newBench(t)
	for _, g := range outcomes {
		for _, x := range g.transitions {
			s := b.newScene(&x)
			e := s.entry(&x)
			b.commit(s.mark, false, e)
			after := b.everything()
			for _, lane := range []bool{false, true} {
				again := newMark()
				got, err := b.Commit(t.Context(), me, again, []store.Entry{e}, inLane(lane))
				require.NoError(t, err)
				require.Empty(t, got.Applied, x.name)
				require.Equal(t, after, b.everything(), x.name)
				verdict, err := b.Resolve(t.Context(), me, eachOf([]store.Entry{e}, s.mark, again), []store.Entry{e}, 0)
				require.NoError(t, err)
				want := store.Mine
				if b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1`, s.id) == 0 {
					want = store.Stale // the row went with its Done, and the mark with it
				}
				require.Equal(t, want, verdict[s.id], x.name)
			}
		}
	}
}

func TestStaleHeartbeatAndRelease(t *testing.T) {
	b := newBench(t)
	x := transition{from: "executing"}
	for _, how := range stalenesses {
		s := b.newScene(&x)
		how.stale(s)
		if how.name == "an older visit" || how.name == "a later visit" { // a kept claim has moved on: it is still the same claim
			continue
		}
		before := b.everything()
		line := b.Line()
		beaten, err := line.Beat(t.Context(), how.worker, []*step.Claim{s.claim}, lease)
		require.NoError(t, err)
		require.Equal(t, store.Beaten{Lost: []int64{s.id}}, beaten, how.name)
		require.NoError(t, line.Close(t.Context()))
		s.claim.PartitionKey = "" // a release tries its key in any case
		done, err := b.Release(t.Context(), how.worker, []*step.Claim{s.claim})
		require.NoError(t, err)
		require.Equal(t, store.Released{}, done, how.name)
		require.Equal(t, before, b.everything(), how.name)
	}
}

func TestAStaleClaimInsistsInVain(t *testing.T) {
	b := newBench(t)
	line := b.Line()
	defer func() { require.NoError(t, line.Close(context.Background())) }()
	for _, how := range stalenesses {
		s := b.newScene(&transition{from: "executing"})
		how.stale(s)
		if how.name == "an older visit" || how.name == "a later visit" {
			continue
		}
		before := b.everything()
		beaten, err := line.Insist(t.Context(), how.worker, s.claim, lease, time.Second)
		require.NoError(t, err)
		require.Equal(t, store.Beaten{}, beaten, how.name)
		require.Equal(t, before, b.everything(), how.name)
	}
}

// One transaction after the other has the row. A heartbeat that skips locked rows never gets it,
// and one that waits gets it in turn. A heartbeat that waited for a row that was reaped meanwhile
// extends nothing.
func TestHeartbeatOfABusyRow(t *testing.T) {
	const lock = `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`
	b := newBench(t)
	for _, reaped := range []bool{false, true} {
		s := b.newScene(&transition{from: "executing"})
		line := b.Line()
		first, second := b.begin(), b.begin()
		b.inTx(first, lock, s.id)
		queued := make(chan error, 1)
		go func() {
			_, err := second.Exec(t.Context(), lock, s.id)
			queued <- err
		}()
		b.waiting(1)
		skipped, err := line.Beat(t.Context(), me, []*step.Claim{s.claim}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, store.Beaten{}, skipped)

		extended := make(chan store.Beaten, 1)
		go func() {
			got, err := line.Insist(t.Context(), me, s.claim, time.Hour, time.Minute)
			if assert.NoError(t, err) {
				extended <- got
			}
			close(extended)
		}()
		b.waiting(2)
		require.NoError(t, first.Commit(t.Context()))
		require.NoError(t, <-queued)
		third := b.Line()
		skipped, err = third.Beat(t.Context(), me, []*step.Claim{s.claim}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, store.Beaten{}, skipped, "the second has it now")
		require.NoError(t, third.Close(t.Context()))
		if reaped {
			b.inTx(second, `UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL WHERE id = $1`, s.id)
		}
		require.NoError(t, second.Commit(t.Context()))
		got := <-extended
		require.NoError(t, line.Close(t.Context()))
		if reaped {
			require.Equal(t, store.Beaten{}, got)
			continue
		}
		require.Equal(t, []int64{s.id}, got.Extended)
		require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1 AND lease_expires_at > now() + interval '59 min'`, s.id))
	}
}

// A heartbeat waits for a row that is held for long no longer than its limit, and the line remains
// usable.
func TestAHeartbeatInsistsOnlySoLong(t *testing.T) {
	b := newBench(t)
	s := b.newScene(&transition{from: "executing"})
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, s.id)
	line := b.Line()
	defer func() { require.NoError(t, line.Close(context.Background())) }()
	got, err := line.Insist(t.Context(), me, s.claim, lease, 20*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, store.Beaten{}, got)
	require.NoError(t, stranger.Rollback(t.Context()))
	beaten, err := line.Beat(t.Context(), me, []*step.Claim{s.claim}, lease)
	require.NoError(t, err)
	require.Equal(t, []int64{s.id}, beaten.Extended)
}

// A kept claim keeps its token: a heartbeat that was sent with the previous visit still counts.
func TestHeartbeatOfAKeptClaim(t *testing.T) {
	b := newBench(t)
	s := b.newScene(&transition{from: "executing"})
	b.commit(s.mark, false, store.Entry{Claim: s.claim, Commit: to(step.Next)(s), Keep: true})
	line := b.Line()
	beaten, err := line.Beat(t.Context(), me, []*step.Claim{s.claim}, lease)
	require.NoError(t, err)
	require.Equal(t, []int64{s.id}, beaten.Extended)
	require.NoError(t, line.Close(t.Context()))
}

// T86: a row that another session holds is left out, and its outcome stays current. The others do
// not wait for it. In the slow lane the commit waits for it.
func TestARowHeldByAStrangerIsLeftOut(t *testing.T) {
	b := newBench(t)
	for _, held := range []string{"own row", "parent"} {
		x := transition{from: "executing"}
		s, free := b.newScene(&x), b.newScene(&x)
		done := &step.Commit{Kind: step.Done, Result: []byte(`{}`)}
		batch := []store.Entry{{Claim: s.claim, Commit: done}, {Claim: free.claim, Commit: done}}
		stranger := b.begin()
		id := map[string]int64{"own row": s.id, "parent": s.parent}[held]
		b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, id)

		before := s.photograph()
		first := newMark()
		got, err := b.Commit(t.Context(), me, first, batch, 0)
		require.NoError(t, err)
		require.Equal(t, map[int64]bool{free.id: true}, got.Applied, held)
		require.Equal(t, before[itsInbox], s.photograph()[itsInbox])
		verdict, err := b.Resolve(t.Context(), me, eachOf(batch, first), batch, 0)
		require.NoError(t, err)
		require.Equal(t, map[int64]store.Verdict{s.id: store.Held, free.id: store.Mine}, verdict)

		result := make(chan error, 1)
		go func() {
			again, err := b.Commit(t.Context(), me, newMark(), batch[:1], patient)
			if err == nil && !again.Applied[s.id] {
				err = fmt.Errorf("left out: %v", again)
			}
			result <- err
		}()
		b.waiting(1)
		require.NoError(t, stranger.Rollback(t.Context()))
		require.NoError(t, <-result, held)
		require.Equal(t, "done", b.status(s.id))
		require.Equal(t, 1, b.number(`SELECT children_pending FROM gendurable.gen_durable WHERE id = $1`, s.parent))
	}
}
