package work

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// The function that tells groups apart blocks for some instances, for ever. They run alone, the
// others run together, other work is held up for a second of ten at most, and Stop does not wait
// for it.
func TestAByStateThatBlocksHoldsUpNobody(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		calls := batched(s, 10, time.Second, nil)
		open := make(chan struct{})
		var entered atomic.Int32
		s.batch.Key = func(c *step.Claim) (string, error) {
			if c.Priority == 1 {
				entered.Add(1)
				<-open
			}
			return strconv.Itoa(c.Priority), nil
		}
		defer close(open)
		blocked := []*row{s.db.insert(atBatch, priority(1)), s.db.insert(atBatch, priority(1))}
		p := s.start()
		began := time.Now()
		s.ended(10 * time.Second)
		require.LessOrEqual(t, time.Since(began), groupFor+time.Second)
		s.note(func() { require.Len(t, *calls, len(blocked), "each alone") })
		require.Equal(t, int32(1), entered.Load(), "it is not asked again for a while")
		require.Len(t, s.journal.saying("ByState does not return"), 1)

		// For ten minutes they come, two a second, beside steps of the same queue. Most of these begin at
		// once, and none waits for longer than two such calls.
		late := 0
		for range 600 {
			s.db.insert(atBatch, priority(1))
			s.db.insert(atBatch, priority(1))
			other := s.db.insert()
			p.Nudge("q")
			s.pass(time.Second)
			if s.db.look(other.ID).status != fsm.StatusDone {
				late++
				s.pass(2 * groupFor)
				require.Equal(t, fsm.StatusDone, s.db.look(other.ID).status)
			}
		}
		require.Less(t, late, 70)
		require.LessOrEqual(t, int(entered.Load()), groupStuck, "no more of them are stuck")

		// One that is stuck now does not keep Stop.
		p.forgetStuck()
		s.db.insert(atBatch, priority(1))
		was := entered.Load()
		p.Nudge("q")
		s.until(time.Minute, func() bool { return entered.Load() > was }, "it blocks")
		took, err := p.stop()
		require.NoError(t, err)
		require.Less(t, took, groupFor)
		require.NotEmpty(t, s.left(), "it was given back")
	})
}

// Once it returns, instances share calls again.
func TestAByStateThatReturnsLate(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		calls := batched(s, 10, time.Second, nil)
		open := make(chan struct{})
		s.batch.Key = func(*step.Claim) (string, error) { <-open; return "", nil }
		s.db.insert(atBatch)
		p := s.start()
		s.ended(10 * time.Second)
		close(open)
		s.pass(groupAgain)
		for range 10 {
			s.db.insert(atBatch)
		}
		p.Nudge("q")
		s.ended(10 * time.Second)
		require.Len(t, *calls, 2)
		require.Len(t, (*calls)[1].ids, 10)
	})
}

// forgetStuck makes the scene's batch step forget the calls that have not returned.
func (p *player) forgetStuck() {
	g := p.groupings[p.config.Machines[0].Steps["b"].Batch]
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuck = 0
}
