package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// waiters are the callers of Wait, or of WaitParked; K says what each waits for. The committer
// reports what happens in this process, after the commit. For the others one goroutine looks, as
// long as there are waiters, with one statement for all that are due.
type waiters[K comparable] struct {
	look   func(ctx context.Context, keys []K) (over []K, err error)
	logger *slog.Logger
	quit   chan struct{} // closed by stop

	number  atomic.Int64 // of callers: most commits find nobody waiting, and take no lock
	mu      sync.Mutex
	waiting map[K]*waited
	stopped bool
	cancel  context.CancelFunc // of the goroutine that looks; nil: there is none
	fresh   chan struct{}      // tells it that somebody new waits
}

// waited is the instance that callers wait for.
type waited struct {
	callers int
	over    chan struct{} // closed when it has happened
	pause   time.Duration
	next    time.Time // when to look
}

const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

func newWaiters[K comparable](look func(context.Context, []K) ([]K, error), logger *slog.Logger) *waiters[K] {
	return &waiters[K]{look: look, logger: logger, quit: make(chan struct{}), waiting: map[K]*waited{}}
}

// wait returns nil when what id waits for has happened, or may have.
func (w *waiters[K]) wait(ctx context.Context, id K) error {
	over, err := w.join(id)
	if err != nil {
		return err
	}
	defer w.leave(id, over)
	select {
	case <-over:
		return nil
	case <-w.quit:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiters[K]) join(id K) (over chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil, ErrStopped
	}
	i := w.waiting[id]
	if i == nil {
		i = &waited{over: make(chan struct{})}
		w.waiting[id] = i
	}
	i.callers++
	i.pause, i.next = firstLook, time.Now().Add(firstLook)
	w.number.Add(1)
	if w.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // leave calls it
		w.cancel, w.fresh = cancel, make(chan struct{}, 1)
		go w.watch(ctx, w.fresh)
	}
	select {
	case w.fresh <- struct{}{}:
	default:
	}
	return i.over, nil
}

// leave ends a call of wait. The last one ends the goroutine that looks.
func (w *waiters[K]) leave(id K, over chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number.Add(-1)
	if i := w.waiting[id]; i != nil && i.over == over {
		if i.callers--; i.callers == 0 {
			delete(w.waiting, id)
		}
	}
	if w.number.Load() == 0 && w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// ended wakes the callers that wait for these instances. The committer calls it after each commit.
func (w *waiters[K]) ended(ids []K) {
	if w.number.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if i := w.waiting[id]; i != nil {
			close(i.over)
			delete(w.waiting, id)
		}
	}
}

// some wakes the callers whose keys meet a condition, which it asks of each key.
func (w *waiters[K]) some(of func(K) bool) {
	if w.number.Load() == 0 {
		return
	}
	var ids []K
	w.mu.Lock()
	for id := range w.waiting {
		if of(id) {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	w.ended(ids)
}

// stop ends all calls of wait, present and future, with ErrStopped.
func (w *waiters[K]) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.stopped = true
		close(w.quit)
	}
}

// watch polls for ends as long as there are waiters.
func (w *waiters[K]) watch(ctx context.Context, fresh <-chan struct{}) {
	failed := false
	for ctx.Err() == nil {
		ids, sleep := w.due(time.Now())
		awake := fresh
		if len(ids) > 0 {
			ended, err := w.look(ctx, ids)
			if err != nil && ctx.Err() == nil && !failed {
				w.logger.LogAttrs(ctx, slog.LevelWarn, "cannot look whether instances have ended, trying again", slog.Any("error", err))
			}
			failed = err != nil
			w.ended(ended)
			sleep, awake = firstLook, nil // however many come: no more statements than this
		}
		timer := time.NewTimer(sleep)
		select {
		case <-ctx.Done():
		case <-awake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due returns the instances to look after now, and how long until the next one is due. It looks
// after each ever less often.
func (w *waiters[K]) due(now time.Time) (ids []K, sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sleep = lastLook
	for id, i := range w.waiting {
		if left := i.next.Sub(now); left > 0 {
			sleep = min(sleep, left)
			continue
		}
		i.pause = min(2*i.pause, lastLook)
		i.next = now.Add(i.pause)
		ids = append(ids, id)
	}
	return ids, sleep
}
