package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/send"
)

// MaxSignals bounds the messages of one SignalMany, which keeps the rows of all targets locked
// until its transaction ends.
const MaxSignals = 1_000

// Letter is a message with its address, for SignalMany.
type Letter struct {
	To      fsm.Target
	Message fsm.Message
}

// Signalled says what SignalMany did with one letter.
type Signalled struct {
	Delivery

	// Err is why the message was not delivered: an ErrNoTarget or an ErrInboxFull, or an ErrUnknown
	// where an attempt before got no answer. Nil: it was delivered, or is a Duplicate.
	Err error `json:"-"`
}

// SignalMany delivers at most [MaxSignals] messages in one transaction, in three statements however
// many there are. It returns what became of each, in input order. Each delivery is as by Signal,
// one after the other: of two messages to one instance the first comes first in its inbox, and of
// two with the same dedup key the second is a Duplicate. A message without a target, or for a full
// inbox, is no error of the call: its Signalled has the Err, and the others are delivered.
//
// SignalMany locks all targets before it writes, in order of their ids, so that two calls, each the
// first in its transaction, do not wait for each other in a circle, whatever the order of their
// letters. While it waits for one target, half a second at a time, the others are locked. It
// repeats transient faults as Signal does, all messages together: give ctx a deadline. If the
// connection breaks during the commit, it repeats only if all messages have dedup keys.
//
// Errors: a *[SignalError] for a letter that is wrong, one too many, or one with KeepFor to a key,
// which only Signal keeps; ErrUnknown. After a *SignalError nothing was sent.
func (w writer) SignalMany(ctx context.Context, letters []Letter) (done []Signalled, err error) {
	if len(letters) == 0 {
		return nil, nil
	}
	call := func() VerbCall {
		return VerbCall{Verb: "signal_many", Signal: letters[0].Message.Name(), Signals: len(letters)}
	}
	err = w.around(ctx, call, func(ctx context.Context) ([]fsm.ID, error) {
		var err error
		if done, err = w.sendMany(ctx, letters); err != nil {
			return nil, err
		}
		var ids []fsm.ID
		for _, one := range done {
			if one.Err == nil {
				ids = append(ids, one.To)
			}
		}
		return ids, nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (w writer) sendMany(ctx context.Context, letters []Letter) ([]Signalled, error) {
	if len(letters) > MaxSignals {
		return nil, &SignalError{Index: MaxSignals, Field: "letters", Err: fmt.Errorf("%d, at most %d in one call: send the others by another call", len(letters), MaxSignals)}
	}
	list := make([]send.Letter, len(letters))
	size := 0
	for i, l := range letters {
		erased, err := w.message(ctx, l.To, l.Message)
		if wrong, ok := errors.AsType[*fsm.MessageError](err); ok {
			return nil, &SignalError{Index: i, Field: wrong.Field, Err: wrong.Err}
		}
		if err != nil {
			return nil, &SignalError{Index: i, Field: "middleware", Err: err}
		}
		if _, keyed := l.To.(fsm.Key); keyed && erased.Keep > 0 {
			return nil, &SignalError{Index: i, Field: "keep_for", Err: errors.New("only Signal keeps a message for a key: send this one by Signal")}
		}
		if size += len(erased.Payload) + len(erased.Trace); size > w.engine.env.Limits.OutcomeBytes {
			return nil, &SignalError{Index: i, Field: "payload", Err: fmt.Errorf("over %d bytes together with those before it: %w",
				w.engine.env.Limits.OutcomeBytes, ErrTooLarge)}
		}
		list[i] = send.Letter{To: l.To, Signal: erased}
	}
	answers, err := w.sender.SendMany(ctx, list)
	if err != nil {
		return nil, err
	}
	done := make([]Signalled, len(answers))
	var queues []string
	for i, a := range answers {
		if done[i].Err = a.Err; a.Err != nil {
			continue
		}
		done[i].Delivery = Delivery{To: fsm.ID(a.Target), Duplicate: a.Duplicate}
		if a.Runnable && !slices.Contains(queues, a.Queue) {
			queues = append(queues, a.Queue)
		}
	}
	if len(queues) > 0 {
		w.wake(queues...)
	}
	return done, nil
}

// SignalError says what is wrong with a letter of SignalMany. Nothing of the whole call was sent.
type SignalError struct {
	Index int    // of the letter
	Field string // as of fsm.MessageError; "letters" if there are too many, or "middleware" if one refused the message
	Err   error  // what is wrong, with the bound
}

func (e *SignalError) Error() string {
	return fmt.Sprintf("gendurable: signal letter %d: %s: %v", e.Index, e.Field, e.Err)
}

// Unwrap returns what is wrong, e.g. an ErrTooLarge.
func (e *SignalError) Unwrap() error { return e.Err }
