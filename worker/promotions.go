package worker

import (
	"context"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
)

// promotions are partition keys whose next row someone had locked when it should have come forward:
// without another try the key would stand still until the sweep.
type promotions struct {
	*process
	mu    sync.Mutex
	tries map[string]int
	wake  chan struct{}
}

func newPromotions(p *process) *promotions {
	return &promotions{process: p, tries: map[string]int{}, wake: make(chan struct{}, 1)}
}

func (p *promotions) add(keys []string) {
	if len(keys) == 0 {
		return
	}
	p.mu.Lock()
	for _, k := range keys {
		if _, ok := p.tries[k]; !ok {
			p.tries[k] = 0
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *promotions) run() {
	for {
		select {
		case <-p.draining:
			return
		case <-p.wake:
		}
		for n := 1; ; n++ {
			if !p.pause(pace.Backoff(n, 2*time.Millisecond, 100*time.Millisecond)) {
				return
			}
			if !p.again() {
				break
			}
		}
	}
}

// again tries all keys once, and reports whether some are left.
func (p *promotions) again() bool {
	p.mu.Lock()
	keys := make([]string, 0, len(p.tries))
	for k := range p.tries {
		keys = append(keys, k)
	}
	clear(p.tries)
	p.mu.Unlock()
	if len(keys) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(p.looking, statementTimeout)
	defer cancel()
	done, err := p.db.Promote(ctx, keys)
	if err != nil {
		p.trouble("promote partition keys", err)
		p.add(keys)
		return true
	}
	p.Nudge(done.Queues...)
	p.add(done.Missed)
	return len(done.Missed) > 0
}
