// Package send sends signals: it resolves the address, delivers into the target's inbox, and
// repeats a delivery that failed by a transient fault of Postgres. It needs no running engine: both
// engine and signal send by it.
//
// It imports fsm, internal/pace, internal/step and internal/store; never ent or engine.
//
// Comments cite docs/hazards.txt by number, as T99, and docs/specification.md by section, as spec
// §1.
package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Inboxes takes signals: a store.Store delivers each in a separate transaction, a store.Hosted
// delivers in the transaction of its host.
type Inboxes interface {
	Deliver(ctx context.Context, to store.Address, m *step.Signal, inbox int) (store.Delivery, error)
	DeliverMany(ctx context.Context, list []store.Letter, inbox int) ([]store.Answer, error)
	Keep(ctx context.Context, to store.Address, m *step.Signal, inbox int) (store.Delivery, error)
	DeliverOrInsert(ctx context.Context, x *step.Spec, m *step.Signal, inbox int) (store.Delivery, error)
}

// Sender delivers signals. It is safe for concurrent use.
type Sender struct {
	Inboxes Inboxes
	Inbox   int  // how many unconsumed signals an instance may hold
	Once    bool // repeat nothing: a statement that failed has aborted the host's transaction
	Logger  *slog.Logger
}

// Send delivers m to the instance at an address. It repeats a delivery that failed by a transient
// fault, with a growing pause, until ctx ends. Such a fault is also a target whose row another
// transaction keeps locked; the log then names the pid of the holder (T9).
//
// It returns store.ErrNoTarget, store.ErrInboxFull, or store.ErrUnknown. The last says that the
// commit got no answer, and that the message has no dedup key, so that a repetition might deliver
// it twice. A message with a dedup key is repeated, and may turn out to be its own duplicate. If
// the repetition finds no target, the target may have ended by this very signal: that is an
// ErrUnknown, too.
//
// A message to a key that is to be kept is kept if there is no target, unless that may be so since
// an attempt before has delivered it.
func (s *Sender) Send(ctx context.Context, to fsm.Target, m *step.Signal) (store.Delivery, error) {
	address, err := Resolve(to)
	if err != nil {
		return store.Delivery{}, fmt.Errorf("%w: %w", store.ErrNoTarget, err)
	}
	return s.repeat(ctx, []store.Letter{{To: address, Signal: m}}, func(doubt bool) (store.Delivery, error) {
		d, err := s.Inboxes.Deliver(ctx, address, m, s.Inbox)
		if m.Keep > 0 && address.Key != "" && !doubt && errors.Is(err, store.ErrNoTarget) {
			return s.Inboxes.Keep(ctx, address, m, s.Inbox)
		}
		return d, err
	})
}

// SendOrInsert delivers m to the instance that occupies the spec's key, or inserts the spec with m
// in its inbox. It returns the errors of Send, and a store.EndedError if the instance that has the
// key has ended and keeps the key.
func (s *Sender) SendOrInsert(ctx context.Context, x *step.Spec, m *step.Signal) (store.Delivery, error) {
	return s.repeat(ctx, []store.Letter{{To: store.Address{Key: x.Key}, Signal: m}}, func(bool) (store.Delivery, error) {
		return s.Inboxes.DeliverOrInsert(ctx, x, m, s.Inbox)
	})
}

// Letter is a signal with its target.
type Letter struct {
	To     fsm.Target
	Signal *step.Signal
}

// SendMany delivers letters in one transaction, as so many calls of Send would, one after the
// other, but it keeps none. It returns an answer for each, in order: a delivery, or an error of
// Send. It repeats the whole transaction as Send does. If the commit got no answer, and a letter
// has no dedup key, it returns an ErrUnknown.
func (s *Sender) SendMany(ctx context.Context, list []Letter) ([]store.Answer, error) {
	answers := make([]store.Answer, len(list))
	var sent []store.Letter
	var places []int
	for i, l := range list {
		address, err := Resolve(l.To)
		if err != nil {
			answers[i].Err = fmt.Errorf("%w: %w", store.ErrNoTarget, err)
			continue
		}
		sent, places = append(sent, store.Letter{To: address, Signal: l.Signal}), append(places, i)
	}
	if len(sent) == 0 {
		return answers, nil
	}
	_, err := s.repeat(ctx, sent, func(doubt bool) (store.Delivery, error) {
		got, err := s.Inboxes.DeliverMany(ctx, sent, s.Inbox)
		for i, a := range got {
			if doubt && errors.Is(a.Err, store.ErrNoTarget) {
				a.Err = doubted(a.Err)
			}
			answers[places[i]] = a
		}
		return store.Delivery{}, err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// doubted is an ErrNoTarget after an attempt without an answer, which may have ended the target.
func doubted(err error) error {
	return fmt.Errorf("%w: an earlier attempt got no answer, and this one failed: %s", store.ErrUnknown, err) //nolint:errorlint // not an ErrNoTarget
}

func (s *Sender) repeat(ctx context.Context, list []store.Letter, send func(doubt bool) (store.Delivery, error)) (store.Delivery, error) {
	doubt := false
	var fault error // of the attempt before
	for n := 1; ; n++ {
		d, err := send(doubt)
		if doubt && errors.Is(err, store.ErrNoTarget) {
			return d, doubted(err)
		}
		doubt = doubt || store.Unknown(err)
		if err == nil || s.Once || !repeatable(err) {
			if err != nil && fault != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w; the attempt before: %w", err, fault) // the end of ctx says nothing
			}
			return d, err
		}
		fault = err
		s.complain(ctx, n, list, err)
		if !pace.Sleep(ctx, pace.Backoff(n, firstPause, lastPause)) {
			return d, fmt.Errorf("%w; given up after %d attempts: %w", err, n, context.Cause(ctx))
		}
	}
}

func repeatable(err error) bool {
	for _, final := range []error{store.ErrNoTarget, store.ErrInboxFull, store.ErrUnknown} {
		if errors.Is(err, final) {
			return false
		}
	}
	return store.Classify(err) == store.FaultTransient
}

// complain logs the first failed attempt, the second, the fourth, and so on at each power of two.
// Of several letters it does not know which one was held up.
func (s *Sender) complain(ctx context.Context, n int, list []store.Letter, err error) {
	if n&(n-1) != 0 {
		return
	}
	attributes := []slog.Attr{slog.Int("attempt", n), slog.Any("error", err)}
	if len(list) > 1 {
		attributes = append(attributes, slog.Int("signals", len(list)))
	} else {
		attributes = append(attributes, slog.String("to", list[0].To.String()), slog.String("signal", list[0].Signal.Name))
		if known, ok := s.Inboxes.(store.Holders); ok {
			if holder, ok := store.HeldBy(ctx, known, list[0].To, err); ok {
				attributes = append(attributes, holder.Attr())
			}
		}
	}
	s.Logger.LogAttrs(ctx, slog.LevelWarn, "signal not delivered yet, trying again", attributes...)
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Resolve turns a target into an address of the store. An error means that no instance can have it.
func Resolve(t fsm.Target) (store.Address, error) {
	switch t := t.(type) {
	case fsm.ID:
		if t <= 0 {
			return store.Address{}, fmt.Errorf("id %d: ids are positive", t)
		}
		return store.Address{ID: int64(t)}, nil
	case fsm.Key:
		switch {
		case t == "":
			return store.Address{}, fmt.Errorf("the key is empty, want 1 to %d bytes", fsm.MaxNameBytes)
		case len(t) > fsm.MaxNameBytes:
			return store.Address{}, fmt.Errorf("the key has %d bytes, at most %d", len(t), fsm.MaxNameBytes)
		case !utf8.ValidString(string(t)) || strings.ContainsRune(string(t), 0):
			return store.Address{}, fmt.Errorf("the key %.80q is not a text that Postgres takes", string(t))
		}
		return store.Address{Key: string(t)}, nil
	default:
		return store.Address{}, fmt.Errorf("the target is a %T, want fsm.ID or fsm.Key", t)
	}
}
