package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// keep sends a signal to a key, to be kept for its first occupant.
func (p *pair) keep(key, name, payload, dedupKey string, lasts time.Duration) {
	p.logf("keep(%q, %q, %q, for %v)", key, name, dedupKey, lasts)
	ctx, cancel := p.context()
	defer cancel()
	want, kept, ended, wantErr := p.model.Keep(key, name, payload, dedupKey, lasts, inboxCap)
	got, err := p.Keep(ctx, store.Address{Key: key}, &step.Signal{Name: name, Payload: []byte(payload), DedupKey: dedupKey, Keep: lasts}, inboxCap)
	var occupied *store.EndedError
	switch {
	case ended != 0:
		require.ErrorAs(p, err, &occupied)
		require.Equal(p, ended, p.models[occupied.Occupant])
	case wantErr != nil:
		require.ErrorIs(p, err, store.ErrInboxFull)
	default:
		require.NoError(p, err)
		require.Equal(p, kept, got.Kept, "kept")
		require.Equal(p, want, model.Delivery{Target: p.models[got.Target], Woken: got.Woken, Duplicate: got.Duplicate})
	}
}

// handOver does what the polls do while signals are kept.
func (p *pair) handOver() {
	p.logf("handOver()")
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.HandOver(ctx, "")
	require.NoError(p, err)
	require.Empty(p, got.Last, "one page has them all")
	var want []string
	for _, id := range p.model.HandOver() {
		want = append(want, p.model.Get(id).Queue)
	}
	require.Empty(p, got.Refused)
	require.ElementsMatch(p, want, got.Queues, "queues of who woke")
}

func (p *pair) compareKept() {
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, `SELECT key, name, payload::text, coalesce(dedup_key, ''), expires_at FROM gendurable.kept_signals ORDER BY id`)
	require.NoError(p, err)
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k model.Kept, err error) {
		var expiry time.Time
		err = row.Scan(&k.Key, &k.Name, &k.Payload, &k.DedupKey, &expiry)
		k.Expiry = moment(&expiry)
		return k, err
	})
	require.NoError(p, err)
	want := p.model.Kept()
	for n := range want {
		want[n].ID = 0
	}
	if !slices.Equal(want, got) {
		require.Equal(p, want, got, "kept signals")
	}
}

// keeps sends a signal to a key that is mostly free.
func (h *history) keeps() bool {
	key := one(h, keys[2:], "key")
	if i := h.model.Occupant(key); i != nil && (h.model.Held(i.ID) || !h.rarely("though somebody has it")) {
		return false
	}
	h.keep(key, one(h, names, "name"), h.payload(), one(h, dedupKeys, "dedup key"), one(h, lives, "kept for"))
	return true
}

// insertUnknowing inserts an instance by a process that does not know of kept signals.
func (p *pair) insertUnknowing(s model.Spec) {
	s.UID = p.uid()
	p.logf("insert unknowing(%s)", brief(s))
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.unknowing.Insert(ctx, []*step.Spec{realSpec(&s)})
	require.NoError(p, err)
	want := p.model.InsertUnknowing(s)
	require.Equal(p, want.Duplicate, got[0].Duplicate)
	p.met(want.ID, got[0].ID)
}

// meets keeps a signal for a free key. An insert by a process that does not know of it takes the
// key, and the instance parks on that signal, alone or beside children. Then it is handed over. Or
// a child takes the key, and the signal with it.
func (h *history) meets() bool {
	s := h.spec()
	s.Key, s.Scope, s.Delay, s.At, s.PartitionKey, s.Label = one(h, keys[2:], "key"), model.ScopeLive, 0, model.Never, "", ""
	if h.model.Occupant(s.Key) != nil {
		return false
	}
	name := one(h, names, "name")
	h.keep(s.Key, name, h.payload(), "", time.Hour)
	if a := h.busy(); a != nil && h.flip("as a child") {
		d := decision{claim: a.held[0], outcome: model.Outcome{Kind: model.ScheduleChildren, Step: steps[1], State: h.payload(), At: model.Never, Children: []model.Spec{s}}}
		if h.model.Holds(&d.Claim) && !h.stuck(&d) {
			a.held = append(a.held[1:], h.commit(true, d)...)
			a.spend(d.claim)
			return true
		}
	}
	h.insertUnknowing(s)
	if h.rarely("beyond its time") { // it came in time, so what was kept is still its own
		h.advance(2 * time.Hour)
		h.prune(retention, 1000)
	}
	if h.rarely("awaits another") {
		name = one(h, names, "name")
	}
	a := one(h, h.actors, "worker")
	a.held = append(a.held, h.claim(&a.worker, s.Queue, 1000, wide)...)
	for n, c := range a.held {
		if c.Key != s.Key || !h.model.Holds(&c.Claim) {
			continue
		}
		d := decision{claim: c, outcome: model.Outcome{Kind: model.Await, Step: steps[1], State: h.payload(), At: model.Never, Names: []string{name}}}
		if h.flip("with children") {
			d.outcome.Kind, d.outcome.Policy, d.outcome.Children = model.ScheduleChildren, &model.Policy{Quorum: 1}, []model.Spec{h.spec()}
			d.outcome.Children[0].Key = ""
		}
		a.held = slices.Delete(slices.Clone(a.held), n, n+1)
		a.held = append(a.held, h.commit(false, d)...)
		a.spend(c)
		break
	}
	h.handOver()
	return true
}

// keepMutants break kept signals.
var keepMutants = []mutant{
	{"what had expired is taken", "signal_keep.go", "ON k.key = t.key AND k.expires_at > t.inserted_at", "ON k.key = t.key"},
	{"who takes late takes nothing", "signal_keep.go", "AND k.expires_at > t.inserted_at", "AND k.expires_at > (SELECT now FROM c)"},
	{"who takes does not wake", "signal_keep.go", "coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false) AS awaiting", "false AS awaiting"},
	{"who awaits children takes and sleeps", "signal_keep.go", "coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false) AS awaiting",
		"coalesce(g.status = 'awaiting_signal', false) AS awaiting"},
	{"any kept signal wakes", "signal_keep.go", "WHERE s.target_id = t.id AND s.name = ANY(t.awaits) LIMIT 1", "WHERE s.target_id = t.id LIMIT 1"},
	{"kept in disorder", "signal_keep.go", "k.trace, k.inserted_at FROM k ORDER BY k.id", "k.trace, k.inserted_at FROM k ORDER BY k.id DESC"},
	{"who has ended takes", "signal_keep.go", "AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR", "ORDER BY g.id FOR"},
	{"an expired one is a duplicate", "signal_keep.go", "AND d.dedup_key = $4::text AND d.expires_at > (SELECT now FROM c)", "AND d.dedup_key = $4::text"},
	{"expired ones fill", "signal_keep.go", "WHERE i.key = $1::text AND i.expires_at > (SELECT now FROM c) LIMIT", "WHERE i.key = $1::text LIMIT"},
	{"an expired one keeps its time", "signal_keep.go", "inserted_at = excluded.inserted_at, expires_at = excluded.expires_at", "inserted_at = excluded.inserted_at"},
	{"inserts take nothing", "signal_keep.go", "if len(keys) == 0 {\n\t\treturn nil", "if len(keys) < 1000 {\n\t\treturn nil"},
	{"children take nothing", "commit_spawn.go", "if len(b.kids) > 0 && s.keeping.Load() {", "if len(b.kids) > 1000 && s.keeping.Load() {"},
	{"expiry of what somebody has", "sweep_kept.go", "AND g.inserted_at < x.expires_at OFFSET 0", "AND false OFFSET 0"},
	{"no expiry beside a late occupant", "sweep_kept.go", "AND g.inserted_at < x.expires_at OFFSET 0", "OFFSET 0"},
}

// An expired signal is no duplicate and fills nothing, though it has not been swept yet.
func TestExpiredKeptSignals(t *testing.T) {
	p := newHistory(t)
	for n := range inboxCap {
		p.keep("red", "go", number(n), number(n), time.Second)
	}
	p.keep("red", "go", "7", "", time.Second)
	p.advance(time.Minute)
	p.keep("red", "go", "8", "", time.Hour)
	p.keep("red", "go", "9", "0", time.Hour)
	p.keep("red", "go", "10", "0", time.Hour)
	s := plain("1")
	s.Key = "red"
	p.insert(s)
}

// A signal with start is a duplicate of one that was kept, which its new instance takes first.
func TestAKeptTwinOfAnArrival(t *testing.T) {
	p := newHistory(t)
	p.keep("red", "go", "1", "x", time.Minute)
	s := plain("2")
	s.Key = "red"
	p.arrive(s, "tick", "3", "x")
}
