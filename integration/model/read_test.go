package model_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/store"
)

// read compares the readable state of an instance: the instance, its inbox, and when something is
// next to do.
func (p *pair) read(of model.Address) {
	ctx, cancel := p.context()
	defer cancel()
	want := p.model.Find(of)
	got, err := query.New(p.Store).Get(ctx, store.Address{ID: p.ids[of.ID], Key: of.Key})
	if want == nil {
		require.ErrorIs(p, err, store.ErrNotFound)
		return
	}
	require.NoError(p, err)
	require.Equal(p, []any{want.ID, string(want.Status), want.Visit, want.State, want.Result, want.Failure, want.LastError},
		[]any{p.models[int64(got.ID)], string(got.Status), got.Visit, string(got.State), string(got.Result), string(got.Failure), got.LastError})

	inbox, _, err := p.Inbox(ctx, int64(got.ID), 0)
	require.NoError(p, err)
	signals := p.model.Inbox(want.ID)
	require.Len(p, inbox, len(signals), "inbox of instance %d", want.ID)
	for n, s := range signals {
		require.Equal(p, []string{s.Name, s.Payload, s.DedupKey}, []string{inbox[n].Name, string(inbox[n].Payload), inbox[n].DedupKey})
	}
	p.poll()
}

// poll compares polls. A poll may report that a queue has something although it has not, but never
// the reverse.
func (p *pair) poll() {
	all := worker{machines: machines}
	ctx, cancel := p.context()
	defer cancel()
	var lines []string
	if p.gated {
		lines = queues
	}
	found, err := p.Poll(ctx, queues, all.ids(), lines)
	require.NoError(p, err)
	next := p.model.NextDeadline()
	require.Equal(p, next != model.Never, found.Awaits, "a deadline")
	if found.Awaits {
		require.Equal(p, time.Duration(next-p.model.Now), found.Deadline)
	}
	require.Equal(p, p.model.Overdue(), found.Overdue, "over a deadline")
	require.Equal(p, p.model.RestDue(), found.Rest, "a rest to cancel")
	require.Equal(p, p.model.SkipsDue(), found.Skips, "a node to be skipped")
	for _, q := range queues {
		if found.Lines[q] { // whether they may begin, a claim finds out
			continue
		}
		if len(p.left(&all, q)) > 0 {
			require.Contains(p, found.Due, q, "something is claimable")
			require.LessOrEqual(p, found.Due[q], time.Duration(0))
		} else if next := p.model.NextDue(q); next != model.Never {
			require.Contains(p, found.Due, q, "something becomes eligible")
			require.LessOrEqual(p, found.Due[q], time.Duration(next))
		}
	}
}
