package worker

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// stubborn is after how many transient failures in a row one entry is taken to cause them, and is
// isolated.
const stubborn = 3

// commitBatch commits a batch until every outcome in it is decided. Transient trouble is retried
// here, with the leases beaten meanwhile: it never reaches a step (T30). A data error bisects the
// batch down to the culprit; the others commit (T65). Trouble that one entry may cause each time
// does not keep the others for long, either: after a few tries each is committed alone, and that one
// goes on alone. A configuration error fails nothing, unless it turns out to be the entry's own: see
// convicts.
//
// Two outcomes of one instance may meet here: of a claim whose lease was lost while its step went
// on, and of its successor in this same process. They must not share a batch: the riders go by the
// batch's mark, so that the stale one would consume, spawn and drop along with the other.
func (c *committer) commitBatch(batch []*pending, slow bool) {
	batch, repeated := distinct(batch)
	if len(repeated) > 0 {
		defer c.commitBatch(repeated, slow)
	}
	var suspicion suspicion
	for n := 0; len(batch) > 0; n++ {
		if !pace.Sleep(c.base, pace.Backoff(n, 10*time.Millisecond, 5*time.Second)) {
			abandon(batch) // stopped for good: the lease decides
			return
		}
		if n > 0 || slow {
			if batch = c.unvoided(batch); len(batch) == 0 {
				return
			}
		}
		mark := uuid.NewString()
		entries := make([]store.Entry, len(batch))
		for i, p := range batch {
			p.marks = append(p.marks, mark)
			entries[i] = p.entry
		}
		began, proof := c.since(), c.worked[entries[0].Needs()].Load()
		done, err := c.send(mark, entries, slow)
		switch fault := store.Classify(err); {
		case err == nil:
			c.applied(&done, c.since()-began)
			batch = c.settle(batch, done.Applied, slow)
		case store.Unknown(err):
			c.trouble("commit", err)
			batch = c.resolve(batch, true)
		case fault == store.FaultData && len(batch) > 1:
			half := len(batch) / 2
			c.commitBatch(batch[:half], slow)
			batch, n = batch[half:], -1
		case fault == store.FaultData:
			batch[0].to.answered(commitReply{refused: err})
			return
		default:
			c.trouble("commit", err)
			if slow {
				c.reportHolder(batch[0].entry.Claim, err)
			}
			switch {
			case slow && store.IsLockTimeout(err):
				n = -1 // it has waited: back into the row's queue, before a reaper that does not wait
			case fault == store.FaultConfig && slow && len(batch) == 1 && suspicion.convicts(proof):
				batch[0].to.answered(commitReply{refused: err})
				return
			case n+1 < stubborn || !store.MayNeverPass(err):
			case !slow:
				c.apart(batch)
				return
			case len(batch) > 1:
				for _, p := range batch {
					c.slowly([]*pending{p})
				}
				return
			}
		}
	}
}

// suspicion is of one outcome that meets a configuration error though it is alone.
type suspicion struct {
	proofs int    // tries that failed though another outcome had been committed since the one before
	worked uint32 // how many had been, before the last try
	begun  bool
}

// convicts takes down a try that failed, and says whether the error is the entry's own doing: a
// trigger or a policy of the host that meets something missing for the sake of this row only.
// worked counts the others that were committed by the same statements before this try was sent. While
// none is, or the role lacks a right, all fail alike, and it stays a matter of the installation.
func (s *suspicion) convicts(worked uint32) bool {
	if s.begun && worked != s.worked {
		s.proofs++
	}
	s.begun, s.worked = true, worked
	return s.proofs >= stubborn
}

// send commits a batch, once. In the slow lane a turn is for one try only: what stays held for
// hours must not keep others from theirs.
func (c *committer) send(mark string, entries []store.Entry, slow bool) (store.Committed, error) {
	if slow {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-c.base.Done():
			return store.Committed{}, c.base.Err()
		}
	}
	ctx, cancel := context.WithTimeout(c.base, statementTimeout)
	defer cancel()
	return c.db.Commit(ctx, c.id, mark, entries, slow)
}

// unvoided drops the outcomes of claims that a newer one of this process has voided while they were
// on their way.
func (c *committer) unvoided(batch []*pending) []*pending {
	return slices.DeleteFunc(slices.Clone(batch), func(p *pending) bool {
		if c.flights.current(p.flight) {
			return false
		}
		p.to.answered(commitReply{stale: true})
		return true
	})
}

// distinct splits off the outcomes of instances that have one before them in the batch.
func distinct(batch []*pending) (first, repeated []*pending) {
	if len(batch) < 2 {
		return batch, nil
	}
	seen := make(map[int64]bool, len(batch))
	for i, p := range batch {
		id := p.entry.Claim.ID
		switch {
		case !seen[id] && repeated != nil:
			first = append(first, p)
		case seen[id] && repeated == nil:
			first, repeated = slices.Clone(batch[:i]), []*pending{p}
		case seen[id]:
			repeated = append(repeated, p)
		}
		seen[id] = true
	}
	if repeated == nil {
		first = batch
	}
	return first, repeated
}

func (c *committer) applied(done *store.Committed, took time.Duration) {
	c.last.commit.now(c.process)
	c.heard()
	c.woke(done)
	tell(c.base, c.process, c.hooks.commit, CommitEvent{Outcomes: len(done.Applied), Took: took})
}

// woke sees to what a commit has made runnable.
func (c *committer) woke(done *store.Committed) {
	c.Nudge(done.Queues...)
	for queue, in := range done.Soon {
		if q := c.queues[queue]; q != nil {
			q.expect(in)
		}
	}
	c.promotions.add(done.Missed)
}

// settle answers the outcomes that were applied. The others were stale, or left out because someone
// held their row or their parent's: those go to the slow lane, unless this is it; then they are
// returned, to be tried again.
func (c *committer) settle(batch []*pending, applied map[int64]bool, slow bool) (again []*pending) {
	var ended []int64
	var rest []*pending
	for _, p := range batch {
		if !applied[p.entry.Claim.ID] {
			rest = append(rest, p)
			continue
		}
		if p.terminal() {
			ended = append(ended, p.entry.Claim.ID)
		}
		c.worked[p.entry.Needs()].Add(1)
		p.to.answered(commitReply{})
	}
	c.ended(ended)
	if len(rest) == 0 {
		return nil
	}
	current := c.resolve(rest, false)
	if slow {
		return current
	}
	c.apart(current)
	return nil
}
