package store

import (
	"context"
	"log/slog"
)

// Holders looks who holds a row now: a Store does.
type Holders interface {
	Holder(ctx context.Context, of Address) (h Holder, ok bool, err error)
}

// HeldBy says who holds the row that err has waited for in vain; ok is false where err is of another
// kind, or nobody can be named.
func HeldBy(ctx context.Context, in Holders, of Address, err error) (h Holder, ok bool) {
	if !IsLockTimeout(err) {
		return Holder{}, false
	}
	h, ok, err = in.Holder(ctx, of)
	return h, ok && err == nil
}

// Attr is the holder for a log line.
func (h Holder) Attr() slog.Attr {
	return slog.Group("held_by", slog.Int("pid", int(h.PID)), slog.String("state", h.State), slog.String("application", h.Application))
}
