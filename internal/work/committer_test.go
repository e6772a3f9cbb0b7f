package work

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// strict is a database that knows the current token of each instance, and refuses a batch in which
// one instance occurs twice.
type strict struct {
	backend
	t       *testing.T
	current map[int64]int64
}

func (s strict) Commit(_ context.Context, _, _ string, entries []store.Entry, _ time.Duration) (store.Committed, error) {
	out := store.Committed{Applied: map[int64]bool{}}
	met := map[int64]bool{}
	for _, e := range entries {
		require.False(s.t, met[e.Claim.ID], "instance %d twice in one batch", e.Claim.ID)
		met[e.Claim.ID] = true
		if s.current[e.Claim.ID] == e.Claim.Token {
			out.Applied[e.Claim.ID] = true
		}
	}
	return out, nil
}

func (strict) Resolve(_ context.Context, _ string, _ [][]string, entries []store.Entry, _ time.Duration) (map[int64]store.Verdict, error) {
	out := map[int64]store.Verdict{}
	for _, e := range entries {
		out[e.Claim.ID] = store.Stale
	}
	return out, nil
}

// A step that has lost its lease still commits, together with the next claim of the same instance
// in the same process. In one batch the riders, which go by the batch's mark, would consume, spawn
// and drop for both.
func TestTwoClaimsOfOneInstanceNeverShareABatch(t *testing.T) {
	t.Parallel()
	w := assemble(Config{Logger: slog.New(slog.DiscardHandler)}, strict{t: t, current: map[int64]int64{7: 2, 8: 3, 9: 4}}, func(string) beater { return nil })
	var batch []*pending
	for _, c := range []step.Claim{{ID: 7, Token: 1}, {ID: 8, Token: 3}, {ID: 7, Token: 2}, {ID: 9, Token: 4}} {
		batch = append(batch, &pending{entry: store.Entry{Claim: &c, Commit: &step.Commit{Kind: step.Retry}}, to: make(answerOnce, 1)})
	}
	w.commits.commitBatch(batch, shared)
	for n, stale := range []bool{true, false, false, false} {
		answer := batch[n].to.(answerOnce)
		require.Len(t, answer, 1)
		require.Equal(t, commitReply{stale: stale}, <-answer, "outcome %d", n)
	}
}

// answerOnce holds an answer.
type answerOnce chan commitReply

func (a answerOnce) answered(r commitReply) { a <- r }
func (answerOnce) leave()                   {}
