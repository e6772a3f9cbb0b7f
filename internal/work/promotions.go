package work

import (
	"context"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// Most locks last for a moment, and some as long as a host's transaction. So a key is first
	// promoted after promoteSoon, then half as often each time, down to once per promoteLate. A
	// promotion costs the server some 25 µs per key. So if there are many keys, each is promoted once
	// per promoteEach × their number, at the latest once per promoteLast, and even 10,000 keys do no
	// harm.
	promoteSoon = 2 * time.Millisecond
	promoteLate = 100 * time.Millisecond
	promoteEach = 500 * time.Microsecond
	promoteLast = 2 * time.Second
	promoteMost = 1000 // keys of one statement
)

// promotions holds partition keys that this process has to promote, since no transaction does:
// their next row was locked when it should have come forward, or a claim has moved a row aside
// behind a locked one. It promotes each again until store.Promote no longer misses it. If this
// process dies, the sweep of the keys finds them.
type promotions struct {
	*process

	mu   sync.Mutex
	keys map[string]retry
	wake chan struct{}
}

// retry tells when to promote a key again.
type retry struct {
	tries int
	pause time.Duration // the pause before it
	at    time.Duration // by process.since
}

func newPromotions(p *process) *promotions {
	return &promotions{process: p, keys: map[string]retry{}, wake: make(chan struct{}, 1)}
}

// add adds keys. A key that is here already keeps its pace, however often it is missed.
func (p *promotions) add(keys []string) { p.addAfter(keys, nil) }

// addAfter is add for keys that were tried before, as often as tried says.
func (p *promotions) addAfter(keys []string, tried map[string]int) {
	if len(keys) == 0 {
		return
	}
	now := p.since()
	p.mu.Lock()
	late := min(max(promoteLate, promoteEach*time.Duration(len(p.keys)+len(keys))), promoteLast)
	for _, k := range keys {
		if _, here := p.keys[k]; !here {
			n := tried[k] + 1
			pause := pace.Backoff(n, promoteSoon, late)
			p.keys[k] = retry{tries: n, pause: pause, at: now + pause}
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run promotes keys when they are due.
func (p *promotions) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.draining:
			return
		case <-p.wake:
		case <-timer.C:
		}
		in, some := p.again(p.looking)
		if !some {
			in = time.Hour
		}
		timer.Reset(in)
	}
}

// again promotes the keys that are due. It reports whether there are others, and in how long the
// next of them is due.
func (p *promotions) again(ctx context.Context) (in time.Duration, some bool) {
	if in, some = p.next(); in > 0 || !some {
		return in, some
	}
	tried := map[string]int{}
	var keys []string
	now := p.since()
	p.mu.Lock()
	for k, r := range p.keys {
		// Keys whose pause is more than half over go along. Otherwise each would have a statement to
		// itself.
		if r.at-r.pause/2 <= now && len(keys) < promoteMost {
			keys, tried[k] = append(keys, k), r.tries
			delete(p.keys, k) // a promotion that misses it adds it again
		}
	}
	p.mu.Unlock()
	p.promote(ctx, keys, tried)
	return p.next()
}

func (p *promotions) promote(ctx context.Context, keys []string, tried map[string]int) {
	var done store.Promotion
	took, err := p.slice(ctx, func(ctx context.Context) (err error) {
		done, err = p.db.Promote(ctx, keys)
		return err
	})
	if err != nil {
		p.trouble("promote partition keys", err)
		done.Missed = keys
	}
	p.reportRefused("bring a partition key's next instance forward", done.Refused)
	p.Nudge(done.Queues...)
	p.addAfter(done.Missed, tried)
	p.room(took, promoteLate)
}

// next returns in how long the next key is due.
func (p *promotions) next() (in time.Duration, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in = promoteLast
	now := p.since()
	for _, r := range p.keys {
		in = min(in, max(0, r.at-now))
	}
	return in, len(p.keys) > 0
}
