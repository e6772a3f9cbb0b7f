package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxShared is how many answers are kept for others.
	maxShared = 512
	// maxSharedBytes is how many bytes the large ones of them have together.
	maxSharedBytes = 32 << 20
)

// shared keeps answers of the database for all readers who ask the same within an interval: a page
// that is open in twenty tabs costs as much as in one. The zero value is ready.
type shared struct {
	mu      sync.Mutex
	answers map[string]*answer
}

// answer is one read. The fields are set before done is closed, and not changed after it.
type answer struct {
	done  chan struct{}
	value any
	err   error
	at    time.Time     // when it was there
	age   time.Duration // for how long whoever asked wanted it to be kept
	size  int           // about how many bytes value has, if it is large; guarded by shared.mu
}

// large is an answer that may be large.
type large interface{ size() int }

// once returns an answer that is at most maxAge old, or asks. Callers that come while the question
// is under way wait for its answer. The read has its own context, with the given time limit, so a
// caller that goes away does not disturb the others. Errors are not kept. The key has to name
// everything on which the answer depends. All callers share the answer, so none may change it, and
// each caller decides which part of it its reader may see.
func once[T any](ctx context.Context, s *shared, key string, maxAge, limit time.Duration, ask func(context.Context) (T, error)) (T, time.Time, error) {
	s.mu.Lock()
	a := s.answers[key]
	if a == nil || a.stale(maxAge) {
		a = &answer{done: make(chan struct{}), age: maxAge}
		s.keep(key, a)
		go func() {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			defer close(a.done)
			defer func() { // net/http guards its own goroutines only
				if fault := recover(); fault != nil {
					a.err = fmt.Errorf("a read panicked: %v", fault)
				}
			}()
			a.value, a.err = ask(own)
			a.at = time.Now()
			s.weigh(key, a)
		}()
	}
	s.mu.Unlock()
	var none T
	select {
	case <-a.done:
	case <-ctx.Done():
		return none, time.Time{}, context.Cause(ctx)
	}
	if a.err != nil {
		return none, time.Time{}, a.err
	}
	value, _ := a.value.(T)
	return value, a.at, nil
}

// weigh notes how large an answer is. An answer for which there is no room goes only to those who
// wait for it.
func (s *shared) weigh(key string, a *answer) {
	value, ok := a.value.(large)
	if !ok || a.err != nil {
		return
	}
	size := value.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := size
	for _, old := range s.answers {
		all += old.size
	}
	if a.size = size; all > maxSharedBytes && s.answers[key] == a {
		delete(s.answers, key)
	}
}

// stale reports whether an answer is too old for a caller who comes now. An answer that is still
// under way is not.
func (a *answer) stale(maxAge time.Duration) bool {
	select {
	case <-a.done:
		return a.err != nil || time.Since(a.at) >= maxAge
	default:
		return false
	}
}

// keep stores an answer, and forgets answers that are too old to use. Where too many are left, it
// forgets all: they only save reads.
func (s *shared) keep(key string, a *answer) {
	if s.answers == nil {
		s.answers = map[string]*answer{}
	}
	for k, old := range s.answers {
		if old.stale(old.age) {
			delete(s.answers, k)
		}
	}
	if len(s.answers) >= maxShared {
		clear(s.answers)
	}
	s.answers[key] = a
}
