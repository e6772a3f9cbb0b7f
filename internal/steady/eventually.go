package steady

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Patience is how long [Eventually] and [Progressing] wait, of the time in which the process runs.
// It is generous: only a fault exhausts it.
const Patience = 60 * time.Second

// Context returns a context of the test's that ends when the process has run for [Patience]: for
// a call that waits for something that only a fault prevents.
func Context(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	w := Begin()
	go func() {
		defer w.End()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for w.Ran() < Patience {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// Eventually requires that a condition holds at some time. It calls holds in the test's own
// goroutine, so that holds may use require; often at first, and ever more seldom, so that many
// tests can wait beside each other. A message may follow, a format with its arguments.
func Eventually(t testing.TB, holds func() bool, message ...any) {
	t.Helper()
	if !Happens(t, Patience, func() (struct{}, bool) { return struct{}{}, holds() }) {
		t.Fatal("it never happened" + said(message))
	}
}

// Progressing is Eventually for work that happens bit by bit: its patience counts from the last
// change of the progress that look returns.
func Progressing[P comparable](t testing.TB, look func() (progress P, done bool), message ...any) {
	t.Helper()
	if !Happens(t, Patience, look) {
		progress, _ := look()
		t.Fatalf("it does not go on%s\nat %+v", said(message), progress)
	}
}

// Happens is Progressing for a caller that chooses its patience, and has more to say if it was in
// vain.
func Happens[P comparable](t testing.TB, patience time.Duration, look func() (progress P, done bool)) bool {
	t.Helper()
	w := Begin()
	defer w.End()
	last, done := look()
	since := w.Ran()
	for rest := time.Millisecond; !done; rest = min(rest*3/2, 4*interval) {
		<-time.After(rest)
		var now P
		if now, done = look(); now != last {
			last, since = now, w.Ran()
		}
		if !done && w.Ran()-since > patience {
			return false
		}
	}
	return true
}

func said(message []any) string {
	if len(message) == 0 {
		return ""
	}
	if format, ok := message[0].(string); ok {
		return ": " + fmt.Sprintf(format, message[1:]...)
	}
	return ": " + fmt.Sprint(message...)
}
