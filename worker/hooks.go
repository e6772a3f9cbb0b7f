package worker

import (
	"context"

	"github.com/gendurable/gendurable/internal/survive"
)

// Hooks are functions that the engine calls after an event. Each gets one event, a struct, so that
// events may get further fields. A nil hook costs nothing. The engine waits for each hook, so a
// slow hook slows the engine. If a hook panics or calls runtime.Goexit, the engine logs that and
// goes on. Hosts know Hooks as engine.Hooks.
type Hooks struct {
	// Step is called when a step has run and its outcome is durable, or its claim was given back.
	Step func(ctx context.Context, e StepEvent)
	// Pick is called when a claim was answered.
	Pick func(ctx context.Context, e PickEvent)
	// Saturation is called after each pick.
	Saturation func(ctx context.Context, e SaturationEvent)
	// Contended is called when claims wait for their partition key, which another process holds.
	Contended func(ctx context.Context, e ContendedEvent)
	// Batch is called when the call of a batch step has ended.
	Batch func(ctx context.Context, e BatchEvent)
	// Commit is called when a batch of outcomes was committed.
	Commit func(ctx context.Context, e CommitEvent)
	// Reap is called after each sweep of expired leases.
	Reap func(ctx context.Context, e ReapEvent)
	// Expire is called after each sweep of instances over their deadline.
	Expire func(ctx context.Context, e ExpireEvent)
	// Cancel is called when an operator's verb of this engine has cancelled instances.
	Cancel func(ctx context.Context, e CancelEvent)
	// Zombie is called once for each step that ignores the end of its context.
	Zombie func(ctx context.Context, e ZombieEvent)
	// Stale is called when an outcome came too late and changed nothing.
	Stale func(ctx context.Context, e StaleEvent)
	// Drain is called at the end of Stop.
	Drain func(ctx context.Context, e DrainEvent)
	// Prune is called when instances past their retention were deleted.
	Prune func(ctx context.Context, e PruneEvent)
	// Unread is called when an instance is done and signals that no step had consumed were deleted
	// with its inbox.
	Unread func(ctx context.Context, e UnreadEvent)
	// Fire is called when a schedule was advanced.
	Fire func(ctx context.Context, e FireEvent)
}

// listeners holds the hooks that are not nil, by event. An event without a hook costs nothing.
type listeners struct {
	step       []func(ctx context.Context, e StepEvent)
	pick       []func(ctx context.Context, e PickEvent)
	saturation []func(ctx context.Context, e SaturationEvent)
	contended  []func(ctx context.Context, e ContendedEvent)
	batch      []func(ctx context.Context, e BatchEvent)
	commit     []func(ctx context.Context, e CommitEvent)
	reap       []func(ctx context.Context, e ReapEvent)
	expire     []func(ctx context.Context, e ExpireEvent)
	zombie     []func(ctx context.Context, e ZombieEvent)
	stale      []func(ctx context.Context, e StaleEvent)
	drain      []func(ctx context.Context, e DrainEvent)
	prune      []func(ctx context.Context, e PruneEvent)
	unread     []func(ctx context.Context, e UnreadEvent)
	fire       []func(ctx context.Context, e FireEvent)
}

func listen(hooks []Hooks) (l listeners) {
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
