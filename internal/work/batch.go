package work

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// stubborn is the number of failures in a row after which the committer assumes that one entry
// causes them, and isolates it.
const stubborn = 3

// attempt defines how to commit a batch.
type attempt struct {
	wait  time.Duration // how long to wait for rows that others hold
	alone bool          // try once only, and put aside what fails
}

var (
	shared = attempt{}
	alone  = attempt{alone: true}
)

// commitBatch commits a batch until every outcome in it is decided, or put aside because a lock
// holds it up. It retries transient failures, here or later, while the heartbeat extends the
// leases, so they never reach a step (T30). After a data error it bisects the batch down to the
// culprit, and commits the others (T65). One entry may also cause a failure at each try that looks
// transient. It does not delay the others for long: after a few tries each outcome is committed
// alone, and only that one is tried again and again. A configuration error fails no instance,
// unless it turns out to be the entry's own: see convicts.
//
// A batch may contain two outcomes of one instance: one of a claim whose lease was lost while its
// step went on, and one of its successor in this same process. They must not be committed together.
// The riders go by the batch's mark, so they would consume, spawn and drop for the stale outcome,
// too.
func (c *committer) commitBatch(batch []*pending, how attempt) {
	batch, repeated := distinct(batch)
	if len(repeated) > 0 {
		defer c.commitBatch(repeated, how)
	}
	unknown := 0
	for n := 0; len(batch) > 0; n++ {
		if !pace.Sleep(c.base, pace.Backoff(n, 10*time.Millisecond, 5*time.Second)) {
			c.abandon(batch) // stopped for good: the lease decides
			return
		}
		if n > 0 || how.alone {
			if batch = c.unvoided(batch); len(batch) == 0 {
				return
			}
		}
		proof := c.worked[batch[0].entry.Needs()].Load()
		err := c.commitOnce(batch, how.wait)
		fault := store.Classify(err)
		suspicious := n+1 >= stubborn && store.MayNeverPass(err)
		switch {
		case err == nil:
			return
		case store.Unknown(err):
			c.setBack("commit", err)
			for _, p := range batch {
				p.doubt = true
			}
			batch = c.resolve(batch, 0)
			if unknown++; how.alone {
				c.held.add(batch, byItself)
				return
			} else if unknown >= stubborn {
				c.apart(batch, byItself)
				return
			}
		case fault == store.FaultData && len(batch) > 1:
			half := len(batch) / 2
			c.commitBatch(batch[:half], how)
			batch, n = batch[half:], -1
		case fault == store.FaultData:
			c.answer(batch[0], commitReply{refused: err})
			return
		case how.alone && fault == store.FaultConfig && len(batch) == 1 && batch[0].suspicion.convicts(proof):
			c.answer(batch[0], commitReply{refused: err})
			return
		case how.alone:
			c.putAside(batch, how, err)
			return
		default:
			c.setBack("commit", err)
			switch {
			case store.IsLockTimeout(err):
				c.apart(batch, byLock)
				return
			case suspicious:
				c.apart(batch, byItself)
				return
			}
		}
	}
}

// suspicion belongs to one outcome that gets a configuration error although it is committed alone.
type suspicion struct {
	proofs int    // tries that failed although another outcome had been committed since the try before
	worked uint32 // how many others had been committed before the last try
	begun  bool
}

// convicts counts a failed try, and reports whether the error is the entry's own doing: a trigger
// or a policy of the host may miss something that only this row needs. worked is the number of
// others that the same statements had committed before this try was sent. While that number stays,
// or the role lacks a right, all entries fail alike, and the installation is to blame.
func (s *suspicion) convicts(worked uint32) bool {
	if s.begun && worked != s.worked {
		s.proofs++
	}
	s.begun, s.worked = true, worked
	return s.proofs >= stubborn
}

// putAside hands outcomes that were tried alone, and failed, to held.
func (c *committer) putAside(batch []*pending, how attempt, err error) {
	by := byItself
	switch {
	case !store.IsLockTimeout(err):
		c.setBack("commit", err)
	case how.wait == 0:
		by = byLock
	default:
		if by = byRow; c.since()-batch[0].held.since >= reportAfter {
			c.reportHolder(batch[0].entry.Claim, err)
		}
	}
	c.held.add(batch, by)
}

// reportAfter is how long a lock may hold an outcome up before the worker logs it.
const reportAfter = 2 * time.Second

// probeLater finds out, after a pause and once its row is free, whether an outcome took effect that
// must not be committed again.
func (c *committer) probeLater(p *pending, pause time.Duration) {
	p.bytes = p.entry.Bytes()
	c.held.delay(p, byRow, pause)
}

// apart makes each outcome of a batch go alone, since one of them seems to hold up the others.
func (c *committer) apart(batch []*pending, by hinderer) {
	for _, p := range batch {
		c.held.delay(p, by, 0)
	}
}

// commitOnce makes one attempt to commit a batch. It answers the outcomes that were applied or are
// stale, and puts aside those that were left out. After an error it has answered none.
func (c *committer) commitOnce(batch []*pending, wait time.Duration) error {
	mark := uuid.NewString()
	entries := make([]store.Entry, len(batch))
	bytes := 0
	for i, p := range batch {
		p.marks = append(p.marks, mark)
		entries[i] = p.entry
		bytes += p.bytes
	}
	began := c.since()
	ctx, cancel := context.WithTimeout(c.base, commitTimeout(bytes))
	defer cancel()
	done, err := c.db.Commit(ctx, c.id, mark, entries, wait)
	if err != nil {
		return err
	}
	c.applied(&done, c.since()-began)
	c.unread(done.Unread, entries)
	c.settle(batch, &done)
	return nil
}

// commitTimeout is the time limit of a commit on the client's side: statementTimeout, and a second
// for each mebibyte.
func commitTimeout(bytes int) time.Duration {
	return statementTimeout + time.Duration(bytes>>20)*time.Second
}

// unvoided drops the outcomes of claims that a newer claim of this process has voided in the
// meantime.
func (c *committer) unvoided(batch []*pending) []*pending {
	kept, voided := c.sift(batch)
	c.drop(voided)
	return kept
}

// sift separates outcomes whose claim holds from those whose claim a newer one has voided.
func (c *committer) sift(batch []*pending) (kept, voided []*pending) {
	for _, p := range batch {
		if c.flights.current(p.flight) {
			kept = append(kept, p)
		} else {
			voided = append(voided, p)
		}
	}
	return kept, voided
}

// drop answers outcomes whose claim is voided. They are stale, unless an attempt that got no answer
// took effect: then the newer claim is a consequence of it.
func (c *committer) drop(voided []*pending) {
	var doubtful []*pending
	for _, p := range voided {
		if p.doubt {
			doubtful = append(doubtful, p)
		} else {
			c.answer(p, commitReply{stale: true})
		}
	}
	if len(doubtful) == 0 {
		return
	}
	for _, p := range c.resolve(doubtful, 0) {
		c.answer(p, commitReply{stale: true})
	}
}

// distinct splits off the outcomes of instances that occur earlier in the batch.
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

// setBack logs a commit that did not succeed, and notes it unless its outcomes may be to blame
// alone. A right that is missing may be missing for one row only, but nothing speaks for that until
// another commit succeeds, which ends the note.
func (c *committer) setBack(doing string, err error) {
	c.trouble(doing, err)
	if !store.MayNeverPass(err) || store.Classify(err) == store.FaultConfig {
		c.deeds.commit.failed(c.process, err)
	}
}

func (c *committer) applied(done *store.Committed, took time.Duration) {
	c.deeds.commit.succeeded(c.process)
	c.heard()
	c.woke(done)
	tell(c.base, c.process, c.hooks.commit, worker.CommitEvent{Outcomes: len(done.Applied), Took: took})
}

// unread calls the hook about signals that were deleted unconsumed.
func (c *committer) unread(deleted []store.Unread, entries []store.Entry) {
	if len(deleted) == 0 || len(c.hooks.unread) == 0 {
		return
	}
	byInstance := map[int64]map[string]int{}
	for _, u := range deleted {
		if byInstance[u.Instance] == nil {
			byInstance[u.Instance] = map[string]int{}
		}
		byInstance[u.Instance][u.Name] += u.Number
	}
	for i := range entries {
		if signals := byInstance[entries[i].Claim.ID]; signals != nil {
			tell(c.base, c.process, c.hooks.unread, worker.UnreadEvent{Instance: hidden.InfoOf(entries[i].Claim), Signals: signals})
		}
	}
}

// woke announces the queues and keys in which a commit has made something runnable.
func (c *committer) woke(done *store.Committed) {
	c.Nudge(done.Queues...)
	for queue, in := range done.Soon {
		if q := c.queues[queue]; q != nil {
			q.expect(in)
		}
	}
	c.promotions.add(done.Missed)
	c.sweepsAreDue(done.Rest, done.Skips)
}

// settle answers the outcomes that were applied. The others were stale, or were left out because
// their row or their parent's was locked. It resolves those, and puts the undecided ones aside.
func (c *committer) settle(batch []*pending, done *store.Committed) {
	var ended, parked []int64
	var rest []*pending
	for _, p := range batch {
		if !done.Applied[p.entry.Claim.ID] {
			rest = append(rest, p)
			continue
		}
		turned := done.Turned[p.entry.Claim.ID]
		if p.terminal() && !turned {
			ended = append(ended, p.entry.Claim.ID)
		}
		if p.entry.Commit.Kind.Parks() {
			parked = append(parked, p.entry.Claim.ID)
		}
		c.worked[p.entry.Needs()].Add(1)
		c.answer(p, commitReply{turned: turned})
	}
	c.ended(ended)
	c.parked(parked)
	if len(rest) > 0 {
		c.held.add(c.resolve(rest, 0), byRow)
	}
}
