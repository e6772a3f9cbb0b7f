package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// resolve reads the fate of outcomes from the rows, until it gets an answer, and answers the
// outcomes that are decided. It returns those that were not applied and may be committed again. It
// puts aside those whose row is locked. With wait, which is for one outcome alone, it first waits
// for the row.
func (c *committer) resolve(batch []*pending, wait time.Duration) (current []*pending) {
	batch, repeated := distinct(batch)
	if len(repeated) > 0 {
		current = c.resolve(repeated, wait)
	}
	marks, entries := make([][]string, len(batch)), make([]store.Entry, len(batch))
	for i, p := range batch {
		marks[i], entries[i] = p.marks, p.entry
	}
	for n := 0; pace.Sleep(c.base, pace.Backoff(n, 50*time.Millisecond, 5*time.Second)); n++ {
		ctx, cancel := context.WithTimeout(c.base, statementTimeout)
		verdicts, err := c.db.Resolve(ctx, c.id, marks, entries, wait)
		cancel()
		switch {
		case err == nil:
			c.deeds.commit.succeeded(c.process) // it has locked rows, which takes what a commit takes
			return append(current, c.decide(batch, verdicts)...)
		case wait > 0 && store.IsLockTimeout(err):
			c.putAside(batch, attempt{wait: wait}, err)
			return current
		}
		c.trouble("resolve a commit", err)
	}
	c.abandon(batch)
	return current
}

// decide answers outcomes according to their verdicts.
func (c *committer) decide(batch []*pending, verdicts map[int64]store.Verdict) (current []*pending) {
	var mine, held []*pending
	for _, p := range batch {
		switch verdicts[p.entry.Claim.ID] {
		case store.Mine:
			mine = append(mine, p)
		case store.Current:
			current = append(current, p)
		case store.Held:
			held = append(held, p)
		case store.Stale:
			if p.doubt {
				// Where the row was not to be kept, it took effect all the same if the row is gone.
				c.log.Warn("a commit whose answer was lost cannot be told from a stale one any more",
					slog.Int64("instance", p.entry.Claim.ID), slog.Int64("visit", p.entry.Claim.Visit))
			}
			c.answer(p, commitReply{stale: true})
		}
	}
	c.found(mine)
	c.held.add(held, byRow)
	return current
}

// found answers outcomes that turned out to be durable, and acts like their commit's answer would
// have made this process act. The lost answer also said whether a parent has joined, and which row
// of a key is the next, and the entries do not know that. It may be in any queue, so found nudges
// all of them: a COMMIT seldom loses its answer, and a nudge in vain costs a claim that finds
// nothing.
func (c *committer) found(mine []*pending) {
	if len(mine) == 0 {
		return
	}
	done := store.Committed{Applied: make(map[int64]bool, len(mine))}
	entries := make([]store.Entry, len(mine))
	var ended []int64
	for i, p := range mine {
		entries[i] = p.entry
		done.Applied[p.entry.Claim.ID] = true
		if p.terminal() {
			ended = append(ended, p.entry.Claim.ID)
		}
		if key := p.entry.Claim.PartitionKey; key != "" && !p.entry.Keep {
			done.Missed = append(done.Missed, key) // perhaps missed, if its head was locked
		}
	}
	done.Runnable(entries)
	for name := range c.queues {
		done.Queues = append(done.Queues, name)
	}
	for _, p := range mine {
		c.answer(p, commitReply{})
	}
	c.ended(ended)
	c.woke(&done)
}

// probe finds out whether outcomes took effect that must not be committed again.
func (c *committer) probe(batch []*pending, wait time.Duration) {
	for _, p := range c.resolve(c.unvoided(batch), wait) {
		c.answer(p, commitReply{undone: true})
	}
}
