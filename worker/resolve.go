package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// resolve asks the rows themselves what became of outcomes, until it gets an answer, and answers
// those that are decided. It returns those that were not applied and may be committed again.
// settle: a commit of theirs is unknown.
func (c *committer) resolve(batch []*pending, settle bool) (current []*pending) {
	var marks []string
	entries := make([]store.Entry, len(batch))
	for i, p := range batch {
		marks, entries[i] = append(marks, p.marks...), p.entry
	}
	for n := 0; pace.Sleep(c.base, pace.Backoff(n, 50*time.Millisecond, 5*time.Second)); n++ {
		ctx, cancel := context.WithTimeout(c.base, statementTimeout)
		verdicts, err := c.db.Resolve(ctx, c.id, marks, entries, settle)
		cancel()
		if err != nil {
			c.trouble("resolve a commit", err)
			continue
		}
		var ended []int64
		for _, p := range batch {
			switch verdicts[p.entry.Claim.ID] {
			case store.Mine:
				if p.terminal() {
					ended = append(ended, p.entry.Claim.ID)
				}
				p.to.answered(commitReply{})
			case store.Current:
				current = append(current, p)
			case store.Stale:
				if settle {
					c.log.Warn("a commit whose answer was lost cannot be told from a stale one any more",
						slog.Int64("instance", p.entry.Claim.ID), slog.Int64("visit", p.entry.Claim.Visit))
				}
				p.to.answered(commitReply{stale: true})
			}
		}
		c.ended(ended)
		return current
	}
	abandon(batch)
	return nil
}
