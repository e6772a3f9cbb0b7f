// Package worker has the types in which an engine describes how a process works: its queues, the
// hooks that the engine calls after events, and what the process is doing. Package engine has them
// under the same names. Code that only listens imports this package, which links neither Postgres'
// driver nor ent:
//
//	// SlowSteps logs steps that take longer than they may.
//	func SlowSteps(log *slog.Logger, most time.Duration) worker.Hooks {
//		return worker.Hooks{
//			Step: func(ctx context.Context, e worker.StepEvent) {
//				if e.Took > most {
//					log.WarnContext(ctx, "slow", slog.String("step", e.Instance.Step))
//				}
//			},
//		}
//	}
//
// The program that runs the engine adds the hooks to its engine.Config:
//
//	Hooks: []engine.Hooks{SlowSteps(log, time.Second)},
//
// It imports fsm only. The code that claims, runs and commits steps is in internal/work.
package worker

import "context"

// Hooks are functions that the engine calls after an event. Each gets one event, a struct, so that
// events may get further fields. A nil hook costs nothing. The engine waits for each hook, so a
// slow hook slows the engine. If a hook panics or calls runtime.Goexit, the engine logs that and
// goes on.
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
