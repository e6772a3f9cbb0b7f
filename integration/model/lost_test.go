package model_test

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// live makes a worker's process connect, which takes its liveness lock, or go away.
func (p *pair) live(worker string, on bool) {
	p.logf("live(%s, %t)", worker, on)
	if p.alive[worker] == on {
		return
	}
	p.alive[worker] = on
	ctx, cancel := p.context()
	defer cancel()
	verb := "pg_advisory_unlock_shared"
	if on {
		verb = "pg_advisory_lock_shared"
	}
	_, err := p.keeper.Exec(ctx, `SELECT `+verb+`(hashtextextended('gendurable gendurable ' || $1::text, 0))`, worker)
	require.NoError(p, err)
}

func (p *pair) lives(worker string) bool { return p.alive[worker] }

// ask asks who lingers under keys, as a worker does whose claim has to wait.
func (p *pair) ask(worker string, keys ...string) {
	p.logf("ask(%s, %q)", worker, keys)
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.Lingering(ctx, worker, keys)
	require.NoError(p, err)
	require.ElementsMatch(p, p.model.Lingering(worker, keys, p.lives), got, "who lingers")
}

// land reports that the step of a lost claim has ended.
func (p *pair) land(l model.Lost) {
	p.logf("land(%s, claim %d)", l.Worker, l.Token)
	ctx, cancel := p.context()
	defer cancel()
	require.NoError(p, p.Landed(ctx, l.Worker, []int64{p.realToken(l.Token)}))
	p.model.Landed(l.Worker, l.Token)
}

func (p *pair) realToken(of int64) int64 {
	for in, token := range p.tokens {
		if token == of {
			return in
		}
	}
	return 0
}

// forget sweeps the keys for a worker that has these claims in flight. The clock of the histories
// is years ahead of the clock of the notes, so none is too new.
func (p *pair) forget(worker string, flying []claim) {
	p.logf("forget(%s, %d in flight)", worker, len(flying))
	own := &store.InFlight{Worker: worker, Tokens: []int64{}, Lease: time.Minute}
	var tokens []int64
	for _, c := range flying {
		own.Tokens, tokens = append(own.Tokens, c.real.Token), append(tokens, c.Token)
	}
	ctx, cancel := p.context()
	defer cancel()
	_, got, err := p.Sweep(ctx, "", 1000, own)
	require.NoError(p, err)
	p.miss(got.Missed)
	p.model.Forget(worker, tokens, p.lives)
}

// lingers does something about lost claims.
func (h *history) lingers() bool {
	a := one(h, h.actors, "worker")
	switch lost := h.model.Lost(); one(h, []string{"live", "ask", "land", "forget"}, "about lost claims") {
	case "live":
		h.live(a.name, h.flip("alive"))
	case "ask":
		h.ask(a.name, "north", "south")
	case "land":
		if len(lost) == 0 {
			return false
		}
		h.land(one(h, lost, "lost claim"))
	case "forget":
		h.forget(a.name, slices.Concat(a.held, a.spent))
	}
	return true
}
