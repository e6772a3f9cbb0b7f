package work

import (
	"context"

	"github.com/gendurable/gendurable/internal/survive"
	"github.com/gendurable/gendurable/worker"
)

// listeners holds the hooks that are not nil, by event. An event without a hook costs nothing.
type listeners struct {
	step       []func(ctx context.Context, e worker.StepEvent)
	pick       []func(ctx context.Context, e worker.PickEvent)
	saturation []func(ctx context.Context, e worker.SaturationEvent)
	contended  []func(ctx context.Context, e worker.ContendedEvent)
	batch      []func(ctx context.Context, e worker.BatchEvent)
	commit     []func(ctx context.Context, e worker.CommitEvent)
	reap       []func(ctx context.Context, e worker.ReapEvent)
	expire     []func(ctx context.Context, e worker.ExpireEvent)
	zombie     []func(ctx context.Context, e worker.ZombieEvent)
	stale      []func(ctx context.Context, e worker.StaleEvent)
	drain      []func(ctx context.Context, e worker.DrainEvent)
	prune      []func(ctx context.Context, e worker.PruneEvent)
	unread     []func(ctx context.Context, e worker.UnreadEvent)
	fire       []func(ctx context.Context, e worker.FireEvent)
}

func listen(hooks []worker.Hooks) (l listeners) {
	for _, h := range hooks {
		add(&l.step, h.Step)
		add(&l.pick, h.Pick)
		add(&l.saturation, h.Saturation)
		add(&l.contended, h.Contended)
		add(&l.batch, h.Batch)
		add(&l.commit, h.Commit)
		add(&l.reap, h.Reap)
		add(&l.expire, h.Expire)
		add(&l.zombie, h.Zombie)
		add(&l.stale, h.Stale)
		add(&l.drain, h.Drain)
		add(&l.prune, h.Prune)
		add(&l.unread, h.Unread)
		add(&l.fire, h.Fire)
	}
	return l
}

func add[E any](to *[]func(context.Context, E), hook func(context.Context, E)) {
	if hook != nil {
		*to = append(*to, hook)
	}
}

// tell calls hooks with an event.
func tell[E any](ctx context.Context, p *process, hooks []func(context.Context, E), e E) {
	for _, hook := range hooks {
		p.survive(func() { hook(ctx, e) })
	}
}

func (p *process) survive(hook func()) { survive.Hook(p.log, hook) }
