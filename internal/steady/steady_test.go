package steady_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

// stub is a test that the helpers end, and that this one looks at.
type stub struct {
	testing.TB

	mu      sync.Mutex
	ctx     context.Context
	cleanup []func()
	failed  string
	skipped string
}

func (s *stub) Helper()                  {}
func (s *stub) Context() context.Context { return s.ctx }
func (s *stub) Cleanup(f func())         { s.cleanup = append(s.cleanup, f) }

func (s *stub) end(into *string, text string) {
	s.mu.Lock()
	*into = text
	s.mu.Unlock()
	panic(s)
}
func (s *stub) Fatal(args ...any)            { s.end(&s.failed, fmt.Sprint(args...)) }
func (s *stub) Fatalf(f string, args ...any) { s.end(&s.failed, fmt.Sprintf(f, args...)) }
func (s *stub) Skipf(f string, args ...any)  { s.end(&s.skipped, fmt.Sprintf(f, args...)) }

// run runs the body of a test, and returns why it failed or was skipped: "" if neither happened.
func run(t *testing.T, body func(testing.TB)) (failed, skipped string) {
	t.Helper()
	s := &stub{ctx: t.Context()}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(s) {
				panic(r)
			}
			for _, f := range s.cleanup {
				f()
			}
		}()
		body(s)
	}()
	return s.failed, s.skipped
}

func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const forever = 24 * time.Hour

func TestAPromiseIsHeldAgainstItsControl(t *testing.T) {
	t.Parallel()
	const bound = 2 * time.Second
	for _, row := range []struct {
		name              string
		control, promised time.Duration
		want              string
	}{
		{"at once", time.Millisecond, time.Millisecond, ""},
		{"in time", time.Millisecond, bound, ""},
		{"late", time.Millisecond, 3 * time.Second, "failed"},
		{"never", time.Millisecond, forever, "failed"},
		{"late, as the control", time.Second, 4 * time.Second, ""},
		{"later than five controls", time.Second, 6 * time.Second, "failed"},
		{"in time beside a slow control", 10 * time.Second, time.Second, ""},
		{"late beside a slow control", 3 * time.Second, 14 * time.Second, ""},
		{"much later than a slow control", 3 * time.Second, 16 * time.Second, "skipped"},
		{"never beside a slow control", 3 * time.Second, forever, "skipped"},
		{"never beside a very slow control", 30 * time.Second, forever, "skipped"},
		{"neither ends", forever, forever, "failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failed, skipped := run(t, func(t testing.TB) { steady.Within(t, bound, takes(row.control), takes(row.promised)) })
				require.Equal(t, row.want == "failed", failed != "", failed)
				require.Equal(t, row.want == "skipped", skipped != "", skipped)
			})
		})
	}
}

// A machine that stands still does so for the control as well, which may have ended just before.
func TestAStallIsNotTakenForABrokenPromise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		stalled := func(d time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				if since := time.Since(began); since > time.Second && since < 5*time.Second {
					d += 5*time.Second - since
				}
				return takes(d)(ctx)
			}
		}
		failed, skipped := run(t, func(t testing.TB) {
			steady.Within(t, 2*time.Second, stalled(time.Millisecond), takes(5100*time.Millisecond))
		})
		require.Empty(t, failed+skipped)
	})
}

func TestAnErrorOfEitherFails(t *testing.T) {
	t.Parallel()
	fails := func(context.Context) error { return errors.New("refused") }
	for _, pair := range [][2]func(context.Context) error{{fails, takes(forever)}, {takes(time.Millisecond), fails}} {
		synctest.Test(t, func(t *testing.T) {
			failed, _ := run(t, func(t testing.TB) { steady.Within(t, time.Second, pair[0], pair[1]) })
			require.Equal(t, "refused", failed)
		})
	}
}

func TestPatienceCountsFromProgress(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		every time.Duration // in which the progress changes
		end   time.Duration
		want  string
	}{
		{"at once", forever, 0, ""},
		{"without progress, in time", forever, steady.Patience / 2, ""},
		{"without progress", forever, 2 * steady.Patience, "it does not go on: 7 of them\nat 0"},
		{"with progress", steady.Patience / 2, 10 * steady.Patience, ""},
		{"with too little", steady.Patience * 2, 10 * steady.Patience, "it does not go on: 7 of them\nat 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				failed, _ := run(t, func(t testing.TB) {
					steady.Progressing(t, func() (int, bool) {
						return int(time.Since(began) / row.every), time.Since(began) >= row.end
					}, "%d of them", 7)
				})
				require.Equal(t, row.want, failed)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		failed, _ := run(t, func(t testing.TB) { steady.Eventually(t, func() bool { return false }, "nor will it") })
		require.Equal(t, "it never happened: nor will it", failed)
		require.GreaterOrEqual(t, time.Since(began), steady.Patience)
	})
}

func TestAContextEndsWhenPatienceDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := steady.Context(t)
		defer cancel()
		<-ctx.Done()
		require.InDelta(t, steady.Patience, time.Since(began), float64(time.Second))
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := steady.Context(t)
		cancel()
		<-ctx.Done()
	})
}

// The test stops its own process for a second, as a machine does that stands still.
func TestAStallIsMeasured(t *testing.T) {
	const stall = time.Second
	w := steady.Watch(t)
	failed, skipped := run(t, func(t testing.TB) { steady.Watch(t).SkipIfStood(time.Hour) })
	require.Empty(t, failed+skipped)
	failed, skipped = run(t, func(t testing.TB) {
		w := steady.Watch(t)
		began := time.Now()
		pid := strconv.Itoa(os.Getpid())
		out, err := exec.Command("sh", "-c", "kill -STOP "+pid+"; sleep 1; kill -CONT "+pid).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		w.SkipIfStood(stall / 2)
		t.Fatalf("it stood for %v of %v", w.Stood(), time.Since(began))
	})
	require.Empty(t, failed)
	require.Contains(t, skipped, "the machine stood still for")
	require.GreaterOrEqual(t, w.Stood(), stall*3/4)
	before := w.Ran()
	steady.Eventually(t, func() bool { return w.Ran() > before }, "it runs again")
}
