package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Hooks are told what happened, after the fact. Nil ones cost nothing. The engine waits for each: a
// slow hook slows the engine; one that panics, or calls runtime.Goexit, is logged and forgotten.
// Hosts know them as engine.Hooks.
type Hooks struct {
	// Step ran: its outcome, fsm.OutcomeNone where its claim was given back, and, where the handler
	// was called, the error that led there.
	Step func(ctx context.Context, info fsm.Info, outcome fsm.OutcomeKind, took time.Duration, err error)
	// Pick claimed from a queue: how many rows were wanted and how many came.
	Pick func(ctx context.Context, queue string, wanted, got int, took time.Duration)
	// Saturation of a queue's slots in this process, after each pick.
	Saturation func(ctx context.Context, queue string, running, buffered, slots int)
	// Contended: claims that wait for their partition key's lock, which a stalled process elsewhere
	// still holds.
	Contended func(ctx context.Context, claims int)
	// Commit of a batch of outcomes.
	Commit func(ctx context.Context, outcomes int, took time.Duration)
	// Reap swept expired leases: rows that will run again, rows over their crash limit.
	Reap func(ctx context.Context, released, failed int)
	// Expire failed instances over their deadline.
	Expire func(ctx context.Context, failed int)
	// Zombie: a step, as it was claimed, that goes on 10 s after its context has ended: it does not
	// listen. Told once per step; its slot stays taken until it returns.
	Zombie func(ctx context.Context, info fsm.Info)
	// Stale: an outcome that came too late and changed nothing.
	Stale func(ctx context.Context, info fsm.Info)
	// Drain ended: claims given back unstarted, and steps that were still running.
	Drain func(ctx context.Context, released, abandoned int)
	// Prune deleted terminal instances past their retention.
	Prune func(ctx context.Context, deleted int)
	// Fire moved a schedule on: occurrences that were inserted; those that its catch-up policy
	// dropped (at least so many), or its overlap policy; and how long after its time the newest of
	// the inserted was.
	Fire func(ctx context.Context, schedule string, inserted, missed, skipped int, late time.Duration)
}

// listeners are the hooks that there are, by what they are told of: where there is none, nothing is
// paid for it.
type listeners struct {
	step       []func(ctx context.Context, info fsm.Info, outcome fsm.OutcomeKind, took time.Duration, err error)
	pick       []func(ctx context.Context, queue string, wanted, got int, took time.Duration)
	saturation []func(ctx context.Context, queue string, running, buffered, slots int)
	contended  []func(ctx context.Context, claims int)
	commit     []func(ctx context.Context, outcomes int, took time.Duration)
	reap       []func(ctx context.Context, released, failed int)
	expire     []func(ctx context.Context, failed int)
	zombie     []func(ctx context.Context, info fsm.Info)
	stale      []func(ctx context.Context, info fsm.Info)
	drain      []func(ctx context.Context, released, abandoned int)
	prune      []func(ctx context.Context, deleted int)
	fire       []func(ctx context.Context, schedule string, inserted, missed, skipped int, late time.Duration)
}

func listen(hooks []Hooks) (l listeners) {
	for _, h := range hooks {
		add(&l.step, h.Step, h.Step == nil)
		add(&l.pick, h.Pick, h.Pick == nil)
		add(&l.saturation, h.Saturation, h.Saturation == nil)
		add(&l.contended, h.Contended, h.Contended == nil)
		add(&l.commit, h.Commit, h.Commit == nil)
		add(&l.reap, h.Reap, h.Reap == nil)
		add(&l.expire, h.Expire, h.Expire == nil)
		add(&l.zombie, h.Zombie, h.Zombie == nil)
		add(&l.stale, h.Stale, h.Stale == nil)
		add(&l.drain, h.Drain, h.Drain == nil)
		add(&l.prune, h.Prune, h.Prune == nil)
		add(&l.fire, h.Fire, h.Fire == nil)
	}
	return l
}

func add[F any](to *[]F, hook F, none bool) {
	if !none {
		*to = append(*to, hook)
	}
}

// survive calls a hook, on a goroutine of its own, since runtime.Goexit ends the one that it is
// called on (T73), and with it a scheduler or a lane.
func (p *process) survive(hook func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if r := recover(); r != nil {
				p.log.Error("a hook panicked", slog.String("panic", step.SanitizeError(&fsm.PanicError{Value: r})))
			} else if !returned {
				p.log.Error("a hook called runtime.Goexit")
			}
		}()
		hook()
		returned = true
	}()
	<-over
}
