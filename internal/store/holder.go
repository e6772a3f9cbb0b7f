package store

import (
	"context"
	"log/slog"
)

// Holders finds out who holds a row now. *Store implements it.
type Holders interface {
	Holder(ctx context.Context, of Address) (h Holder, ok bool, err error)
}

// HeldBy returns who holds the row that err's statement waited for in vain. ok is false if err is
// of another kind, or if the holder cannot be found.
func HeldBy(ctx context.Context, in Holders, of Address, err error) (h Holder, ok bool) {
	if !IsLockTimeout(err) {
		return Holder{}, false
	}
	h, ok, err = in.Holder(ctx, of)
	return h, ok && err == nil
}

// Attr renders the holder for a log line.
func (h Holder) Attr() slog.Attr {
	return slog.Group("held_by", slog.Int("pid", int(h.PID)), slog.String("state", h.State), slog.String("application", h.Application))
}
