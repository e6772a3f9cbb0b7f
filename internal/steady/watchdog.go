// Package steady makes tests independent of the machine's speed. A test that compares a duration
// with a number fails on a busy machine, and one that waits for nothing to happen passes on a
// machine that stands still. This package has three things instead:
//
//   - [Watch] measures for how long the process stood still, so that a test can skip itself, with
//     a word, where that has spoiled it.
//   - [Within] holds a promise of progress, "within two seconds", against a control that waits for
//     nothing and runs beside it.
//   - [Eventually], [Progressing] and [Context] wait for something that only a fault prevents.
//     Their patience counts from the last progress, and only the time in which the process ran.
//
// A test that needs the machine to itself belongs into a package that the Makefile runs alone.
package steady

import (
	"sync"
	"testing"
	"time"
)

// interval is how often a watchdog looks at the clock: often enough for the shortest bound that a
// test has, and seldom enough to cost nothing beside many parallel tests.
const interval = 20 * time.Millisecond

// Watchdog measures how late a ticker fires in this process. It is late where the process has no
// processor: the machine is busy, swaps, or stands still.
type Watchdog struct {
	t     testing.TB // nil: a program's
	began time.Time
	ended chan struct{}
	done  sync.WaitGroup

	mu   sync.Mutex
	last time.Time     // of the newest tick
	ran  time.Duration // see Ran
	late time.Duration // see Stood
}

// Watch starts a watchdog, which ends with the test.
func Watch(t testing.TB) *Watchdog {
	w := Begin()
	w.t = t
	t.Cleanup(w.End)
	return w
}

// Begin starts a watchdog that lasts until End. It is for programs; it skips no test.
func Begin() *Watchdog {
	now := time.Now()
	w := &Watchdog{began: now, last: now, ended: make(chan struct{})}
	w.done.Go(w.run)
	return w
}

// End ends the watchdog. Its figures stay.
func (w *Watchdog) End() {
	close(w.ended)
	w.done.Wait()
}

func (w *Watchdog) run() {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-tick.C:
			w.note(time.Now())
		}
	}
}

// note counts the time since the last tick. It takes no more than one interval for time in which
// the process ran.
func (w *Watchdog) note(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := between(w.last, now)
	w.ran += min(gap, interval)
	w.late = max(w.late, gap-interval)
	w.last = now
}

// between returns the longer of the times that the two clocks show: the monotonic one stops while
// the machine is suspended, and leases on a server may go by the other.
func between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Stood returns the longest time at once, since the watchdog started, for which the process stood
// still.
func (w *Watchdog) Stood() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.late, between(w.last, time.Now())-interval)
}

// Ran returns for how long the process has run since the watchdog started. On a busy machine it is
// slower than the clock, and it stops while the machine stands still.
func (w *Watchdog) Ran() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran
}

// SkipIfStood skips the test if the process stood still for longer than a duration at once. Call
// it where such a stall spoils what was tested, and before the assertion: where a bound was
// exceeded, and where nothing was to happen for a while. It has to be called by the test's own
// goroutine.
func (w *Watchdog) SkipIfStood(longer time.Duration) {
	w.t.Helper()
	if stood := w.Stood(); stood > longer {
		w.t.Skipf("the machine stood still for %v of %v: this run shows nothing", stood.Round(time.Millisecond),
			time.Since(w.began).Round(time.Millisecond))
	}
}
