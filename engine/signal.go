package engine

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
)

// Delivery is what became of a signal. A duplicate inserted nothing and woke nobody.
type Delivery struct {
	To        fsm.ID
	Duplicate bool
}

// Signal puts a message into the inbox of a live instance, by id or by the correlation key that it occupies, and wakes it if it awaits
// that name. A message whose dedup key was delivered to this instance before, consumed or not, is no error but a Duplicate.
//
// A transient fault of Postgres is repeated until ctx ends, and so is a target whose row another transaction keeps locked: give ctx a
// deadline. Where the connection breaks during the commit, a message without a dedup key is not repeated, and the error says that it may
// have been delivered; one with a dedup key is, and may then be reported as the duplicate of itself.
//
// Errors: ErrNoTarget if there is no such instance or it has ended, ErrInboxFull, ErrTooLarge for a payload over the limit.
func (e *Engine) Signal(ctx context.Context, to fsm.Target, m fsm.Message) (Delivery, error) {
	m, err := e.signalMiddleware(ctx, to, m)
	if err != nil {
		return Delivery{}, fmt.Errorf("middleware of signal %.80q: %w", m.Name(), err)
	}
	erased, err := m.Erase(e.env)
	if err != nil {
		return Delivery{}, err
	}
	d, err := e.sender.Send(ctx, to, erased)
	if err != nil {
		return Delivery{}, err
	}
	if d.Runnable {
		e.nudge(d.Queue)
	}
	return Delivery{To: fsm.ID(d.Target), Duplicate: d.Duplicate}, nil
}
