package fsm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Unlimited as MaxAttempts sets no bound.
const Unlimited = -1

// The defaults of a RetryPolicy, for fields that are zero.
const (
	defaultMaxAttempts = 20
	defaultBase        = time.Second
	defaultMax         = 5 * time.Minute
)

// RetryPolicy says when to retry and when to give up (spec §3). It retries after min(Max, Base ·
// 2^attempt) ± 20 %, for at most MaxAttempts runs of a visit. The zero value has the defaults that
// its fields name. A [Permanent] error is not retried, nor an [OutcomeError] of the step, which is
// a fault of the program, unless it belongs to a whole batch ([BatchError]); an error of
// [RetryAfter] brings its own delay.
type RetryPolicy struct {
	MaxAttempts int           // how many runs, crashes included; 0: 20; or Unlimited
	Base        time.Duration // the delay before the first retry; 0: 1 s
	Max         time.Duration // the longest delay, before the ± 20 %; 0: 5 min, or Base if that is more
	// Delay replaces the formula unless nil: attempt is 0 after the first run. Its result is not
	// randomised. It must not be negative, nor over 100 years.
	Delay func(attempt int) time.Duration
}

// fault returns the first field that is out of bounds, and how; "" and nil if there is none.
func (p RetryPolicy) fault() (field string, err error) {
	switch {
	case p.MaxAttempts < Unlimited || p.MaxAttempts > math.MaxInt32:
		return "MaxAttempts", fmt.Errorf("%d, want Unlimited (%d) or 0 to %d", p.MaxAttempts, Unlimited, math.MaxInt32)
	case p.Base < 0 || p.Base > MaxDelay:
		return "Base", checkDelay(p.Base)
	case p.Max < 0 || p.Max > MaxDelay:
		return "Max", checkDelay(p.Max)
	case p.Max > 0 && p.Base > p.Max:
		return "Base", fmt.Errorf("%v is over Max, %v", p.Base, p.Max)
	}
	return "", nil
}

// maxAttempts returns the bound as internal/step has it: 0 is unlimited.
func (p RetryPolicy) maxAttempts() int {
	if p.MaxAttempts == Unlimited {
		return 0
	}
	return cmp.Or(p.MaxAttempts, defaultMaxAttempts)
}

// delay returns the time to wait before the run that follows attempt.
func (p RetryPolicy) delay(attempt int) time.Duration {
	if p.Delay != nil {
		return p.Delay(attempt)
	}
	base := cmp.Or(p.Base, defaultBase)
	limit := cmp.Or(p.Max, max(defaultMax, base))
	d := limit
	if attempt < 63 && base <= limit>>attempt { // base << attempt neither overflows nor exceeds the limit
		d = base << attempt
	}
	return min(MaxDelay, time.Duration(float64(d)*(0.8+0.4*rand.Float64()))) //nolint:gosec // jitter
}

// commit decides what follows a run that failed with err: a retry, or the end. The state is stored
// as it is, encoded.
func (p RetryPolicy) commit(attempt int, state json.RawMessage, err error) (*step.Commit, error) {
	if field, fault := p.fault(); fault != nil {
		return nil, outcomeFault("policy."+field, fault)
	}
	if err == nil {
		return nil, outcomeFault("error", errors.New("nil: RetryBy needs the error that the step met"))
	}
	_, shared := errors.AsType[*BatchError](err)
	if _, ok := errors.AsType[*permanentError](err); (ok || isProgramFault(err)) && !shared {
		return failure(FailureError, err), nil
	}
	if limit := p.maxAttempts(); limit > 0 && attempt+1 >= limit {
		return failure(FailureExhausted, err), nil
	}
	var delay time.Duration
	if own, ok := errors.AsType[*delayedError](err); ok {
		delay = max(0, own.delay)
	} else {
		delay = p.delay(attempt)
	}
	if fault := checkDelay(delay); fault != nil {
		return nil, outcomeFault("delay", fault)
	}
	return &step.Commit{Kind: step.Retry, State: state, Delay: delay, Err: step.SanitizeError(err)}, nil
}

// isProgramFault reports whether an outcome is wrong by itself: a retry would return the same. A
// refusal of Postgres may pass, and a value that a batch lacks may be there when the instance runs
// alone.
func isProgramFault(err error) bool {
	fault, ok := errors.AsType[*OutcomeError](err)
	return ok && fault.Field != "commit" && !strings.HasPrefix(fault.Field, "outcomes[")
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

type delayedError struct {
	error
	delay time.Duration
}

func (e *delayedError) Unwrap() error { return e.error }

// Permanent wraps err to say that no retry can cure it: a [RetryPolicy] then fails the instance at
// once. The text is err's; nil stays nil. Permanent outranks [RetryAfter].
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter wraps err to say that a retry makes sense after d, like a server's Retry-After. A
// [RetryPolicy] then waits for d, not randomised. The run still counts as an attempt, and at the
// last one the instance fails: [Again] is for runs that do not count. A negative d, of a moment
// that has passed, is 0. The text is err's; nil stays nil. If one chain has several, the outermost
// counts.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayedError{err, d}
}
