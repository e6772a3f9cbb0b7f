package steady

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// slack is how many times as long as its control a promise may take, where that is more than its
// bound.
const slack = 5

// Within requires that promised returns within a bound, however busy the machine is. Beside it
// runs control, over and over: the same kind of work, that waits for nothing. The slowest run of
// the control tells how fast the machine was.
//
//   - The test goes on if promised takes no longer than the bound, or than five times the control.
//   - It is skipped, with a word, if the control itself was not in time.
//   - Else it fails.
//
// Both functions have to return when their context ends, which happens as soon as the outcome is
// clear. An error of either fails the test. Within has to be called by the test's own goroutine,
// and may be called where the test runs in parallel with others.
func Within(t testing.TB, bound time.Duration, control, promised func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &controls{began: time.Now()}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	kept, failed := make(chan time.Duration, 1), make(chan error, 2)
	running.Go(func() {
		began := time.Now()
		if err := promised(ctx); err != nil {
			failed <- err
			return
		}
		kept <- time.Since(began)
	})
	running.Go(func() {
		if err := c.run(ctx, control); err != nil {
			failed <- err
		}
	})
	patience := Begin()
	defer patience.End()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case err := <-failed:
			t.Fatal(err)
		case took := <-kept:
			judge(t, bound, c.slowest(), took)
			return
		case <-tick.C:
			// A stall may have come between a control and the bound: one has to begin after it.
			if took := time.Since(c.began); took > max(bound, slack*c.slowest()) && c.beganAfter(bound) {
				judge(t, bound, c.slowest(), took)
				return
			}
			if most := max(Patience, slack*bound); c.current() > most && patience.Ran() > most {
				t.Fatalf("the control itself does not end within %v", most)
			}
		}
	}
}

func judge(t testing.TB, bound, control, took time.Duration) {
	t.Helper()
	if why := Late(t, bound, control, took); why != "" {
		t.Fatalf("%s", why)
	}
}

// Late decides about one promise that the caller has measured, as [Within] does: control is how
// long the same kind of work took beside it, at most, that waited for nothing. It returns why the
// promise was not kept, or "".
func Late(t testing.TB, bound, control, took time.Duration) (why string) {
	t.Helper()
	switch {
	case took <= max(bound, slack*control):
		return ""
	case control > bound:
		t.Skipf("the machine was too slow to tell: the control took %v of %v itself", control, bound)
	}
	return fmt.Sprintf("it was to happen within %v, and has not within %v; the control took %v", bound, took, control)
}

// controls are the runs of a control.
type controls struct {
	began time.Time

	mu     sync.Mutex
	worst  time.Duration // of those that have ended
	since  time.Time     // when the current one began; zero between two
	newest time.Time     // when the newest one that has ended began
}

// run runs the control until ctx ends. Between two runs it rests as long as the last one took, so
// that it is no load by itself.
func (c *controls) run(ctx context.Context, control func(context.Context) error) error {
	for ctx.Err() == nil {
		began := time.Now()
		c.mu.Lock()
		c.since = began
		c.mu.Unlock()
		if err := control(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was interrupted, since the outcome is clear
			}
			return err
		}
		took := time.Since(began)
		c.mu.Lock()
		c.worst, c.since, c.newest = max(c.worst, took), time.Time{}, began
		c.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(min(max(took, interval), time.Second)):
		}
	}
	return nil
}

// slowest returns how long the slowest run took, with the one that has not ended.
func (c *controls) slowest() time.Duration {
	current := c.current()
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.worst, current)
}

// current returns how long the run that has not ended has taken so far; 0 between two runs.
func (c *controls) current() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// beganAfter reports whether a run has ended that began after the bound was over.
func (c *controls) beganAfter(bound time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest.Sub(c.began) >= bound
}
