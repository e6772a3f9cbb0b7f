package worker

import (
	"context"
	"log/slog"

	"github.com/google/uuid"
)

// expireMost bounds one statement: less than of awaits, for it also holds the instances' parents.
const expireMost = 200

// expiry fails instances that are over their deadline.
type expiry struct {
	*process
	promotions *promotions
}

// sweep fails what is over its deadline by now; poisoned: Postgres refused a row.
func (e *expiry) sweep(ctx context.Context) (poisoned bool, err error) {
	for {
		r, err := e.db.Expire(ctx, uuid.NewString(), expireMost)
		if err != nil {
			return poisoned, err
		}
		if len(r.Failed) > 0 {
			e.log.Info("failed instances over their deadline", slog.Int("failed", len(r.Failed)))
		}
		for _, id := range r.Poisoned {
			poisoned = true
			e.log.Error("Postgres refuses to fail an instance over its deadline: it stays as it is until it is repaired by hand", slog.Int64("instance", id))
		}
		e.Nudge(r.Queues...)
		e.promotions.add(r.Missed)
		e.ended(r.Failed)
		tell(e.base, e.process, e.hooks.expire, ExpireEvent{Failed: len(r.Failed)})
		if len(r.Failed) < expireMost {
			return poisoned, nil
		}
	}
}
