package model_test

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// hold makes another session lock rows, and keep them until letGo.
func (p *pair) hold(ids ...model.ID) {
	p.logf("hold(%d)", ids)
	rows := make([]int64, len(ids))
	for n, id := range ids {
		rows[n] = p.ids[id]
		p.model.Hold(id)
	}
	ctx, cancel := p.context()
	defer cancel()
	if p.stranger.PgConn().TxStatus() == 'I' {
		_, err := p.stranger.Exec(ctx, `BEGIN`)
		require.NoError(p, err)
	}
	_, err := p.stranger.Exec(ctx, `SELECT FROM gendurable.gen_durable WHERE id = ANY($1) FOR NO KEY UPDATE`, rows)
	require.NoError(p, err)
}

// letGo ends the other session's transaction. Then it promotes the keys that were missed because of
// it, as a worker does from memory.
func (p *pair) letGo() {
	p.logf("letGo()")
	p.model.LetGo()
	p.rollBack()
	p.settle()
	require.Empty(p, p.missed)
}

// settle promotes missed keys, as a worker does again and again.
func (p *pair) settle() {
	if len(p.missed) == 0 {
		return
	}
	keys := slices.Sorted(maps.Keys(p.missed))
	clear(p.missed)
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.Promote(ctx, keys)
	require.NoError(p, err)
	p.miss(got.Missed)
}

func (p *pair) rollBack() {
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.stranger.Exec(ctx, `ROLLBACK`)
	require.NoError(p, err)
}

// miss notes keys whose head could not be promoted, since another session holds it.
func (p *pair) miss(keys []string) {
	for _, key := range keys {
		require.NotEmpty(p, p.model.Instances(func(i *model.Instance) bool { return i.PartitionKey == key && p.model.Held(i.ID) }),
			"nobody holds a row of key %q", key)
		p.missed[key] = true
	}
}

// missBehind notes keys whose head no commit of these outcomes has promoted. Nodes that give way
// leave that to Promote, also if no row is held: see store's freed.
func (p *pair) missBehind(decisions []decision, keys []string) {
	p.miss(slices.DeleteFunc(keys, func(key string) bool {
		left := slices.ContainsFunc(decisions, func(d decision) bool {
			return d.real.PartitionKey == key && d.outcome.Unbegun && d.Node != "" && d.Visit == 0
		})
		if left {
			p.missed[key] = true
		}
		return left
	}))
}

// arrive sends a signal with start.
func (p *pair) arrive(spec model.Spec, name, payload, dedupKey string) {
	spec.UID = p.uid()
	p.logf("arrive(%s, %q, %q)", brief(spec), name, dedupKey)
	ctx, cancel := p.context()
	defer cancel()
	want, occupant, wantErr := p.model.Arrive(spec, name, payload, dedupKey, inboxCap)
	got, err := p.DeliverOrInsert(ctx, realSpec(&spec), &step.Signal{Name: name, Payload: []byte(payload), DedupKey: dedupKey}, inboxCap)
	ended, over := errors.AsType[*store.EndedError](err)
	switch {
	case occupant != 0:
		require.True(p, over, "%v", err)
		require.Equal(p, occupant, p.models[ended.Occupant])
	case errors.Is(wantErr, model.ErrInboxFull):
		require.ErrorIs(p, err, store.ErrInboxFull)
	default:
		require.NoError(p, err)
		p.met(want.Target, got.Target)
		require.Equal(p, want, model.Arrival{Inserted: got.Inserted, Delivery: model.Delivery{
			Target: p.models[got.Target], Woken: got.Woken, Duplicate: got.Duplicate,
		}})
	}
}

// stray makes a worker claim without an answer, and then find out which claims it holds. It gives
// back the claims that the worker does not know.
func (p *pair) stray(w *worker, queue string, known []claim) {
	p.claim(w, queue, 2, narrow)
	p.logf("stray(%s, %q)", w.name, queue)
	var models []model.Claim
	want := map[int64]int64{}
	for _, i := range p.model.Instances(func(i *model.Instance) bool {
		return i.Status == model.Executing && i.Worker == w.name && i.Queue == queue
	}) {
		want[p.ids[i.ID]] = i.Token
		known := slices.ContainsFunc(known, func(c claim) bool { return c.ID == i.ID && c.Token == i.Token })
		if !known {
			models = append(models, model.Claim{Instance: *i})
		}
	}
	ctx, cancel := p.context()
	defer cancel()
	held, err := p.Held(ctx, w.name, queue)
	require.NoError(p, err)
	got := map[int64]int64{}
	for _, c := range held {
		got[c.ID] = p.tokens[c.Token]
	}
	require.Equal(p, want, got, "what worker %s holds", w.name)
	held = slices.DeleteFunc(held, func(c *step.Claim) bool {
		return !slices.ContainsFunc(models, func(m model.Claim) bool { return p.ids[m.ID] == c.ID })
	})
	if len(held) == 0 {
		return
	}
	released, err := p.Release(ctx, w.name, held)
	require.NoError(p, err)
	p.miss(released.Missed)
	p.requireLocked(models, released)
	require.Equal(p, p.model.Release(models), released.Claims, "strays released")
}

// The one schedule is due every ten seconds.
const (
	pulse = "pulse"
	beat  = 10 * time.Second
)

func (p *pair) declare() {
	p.pulse = p.model.Now + model.Moment(beat)
	p.exec(`INSERT INTO gendurable.schedules (name, spec, expression, next_at) VALUES ($1,
		'{"machine": "a", "version": 1, "step": "first", "queue": "mail", "state": {}}', '@every 10s', $2)`, pulse, at(p.pulse))
}

// fire fires at most three due occurrences, each under a separate key.
func (p *pair) fire() {
	p.logf("fire()")
	var specs []model.Spec
	last := p.pulse
	for ; last <= p.model.Now; last += model.Moment(beat) {
		specs = append(specs, model.Spec{UID: p.uid(), Machine: machines[0], Step: "first", Queue: queues[0], State: "{}",
			Key: "schedule:pulse:" + at(last).Format(time.RFC3339), Scope: model.ScopeAll, At: model.Never})
	}
	specs = specs[max(0, len(specs)-3):]
	due := p.pulse <= p.model.Now
	ctx, cancel := p.context()
	defer cancel()
	asked := false
	got, err := p.Fire(ctx, pulse, time.Time{}, func(d store.Due) (f store.Firing, err error) {
		asked = true
		require.Equal(p, p.pulse, moment(&d.Next))
		require.Equal(p, at(p.model.Now), d.Now.UTC())
		for n := range specs {
			f.Specs = append(f.Specs, realSpec(&specs[n]))
		}
		f.Next, f.Last = at(last), at(last).Add(-beat)
		return f, nil
	})
	require.NoError(p, err)
	require.Equal(p, due, asked, "due at %v", p.pulse)
	p.pulse = last
	require.Len(p, got, len(specs))
	for n, want := range p.model.Insert(specs) {
		require.Equal(p, want.Duplicate, got[n].Duplicate)
		p.met(want.ID, got[n].ID)
	}
}

// pauseQueue pauses a queue, or resumes it, and compares which queues are paused.
func (p *pair) pauseQueue(queue string, on bool) {
	p.logf("pauseQueue(%q, %t)", queue, on)
	ctx, cancel := p.context()
	defer cancel()
	changed, err := p.PauseQueue(ctx, queue, on, store.By{Actor: "model"})
	require.NoError(p, err)
	require.Equal(p, p.model.PauseQueue(queue, on), changed)
	got, err := query.New(p.Store).PausedQueues(ctx)
	require.NoError(p, err)
	names := []string{}
	for _, q := range got {
		names = append(names, q.ID)
	}
	require.ElementsMatch(p, p.model.PausedQueues(), names)
}
