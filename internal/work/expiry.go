package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/worker"
)

// expireMost bounds one statement. It is lower than for awaits, since the statement also locks the
// instances' parents.
const expireMost = 200

// expiry fails instances that are over their deadline.
type expiry struct {
	*process
	promotions *promotions
}

// sweep fails the instances that are over their deadline.
func (e *expiry) sweep(ctx context.Context) (last time.Duration, err error) {
	round := -1
	return e.slices(ctx, func(ctx context.Context) (bool, error) {
		r, err := e.db.Expire(ctx, uuid.NewString(), expireMost)
		if err != nil {
			return false, err
		}
		round++
		if len(r.Failed) > 0 {
			e.log.Info("failed instances over their deadline", slog.Int("failed", len(r.Failed)))
		}
		e.reportRefused("fail an instance over its deadline", r.Refused)
		e.Nudge(r.Queues...)
		e.sweepsAreDue(r.Rest, r.Skips)
		e.promotions.add(r.Missed)
		if e.ended(r.Failed); len(r.Failed) > 0 {
			e.lookSoon() // runs may have given up their places
		}
		tell(e.base, e.process, e.hooks.expire, worker.ExpireEvent{Failed: len(r.Failed)})
		return more(len(r.Failed), expireMost, len(r.Refused), round), nil
	})
}
