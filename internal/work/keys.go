package work

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

const (
	// A holder that has just learned that its claim is lost ends within a moment. One that stands
	// still may do so for long.
	keyRetryLeast = 5 * time.Millisecond
	keyRetryMost  = time.Second
	keyLook       = 5 * time.Second  // how often the ring looks at waiting flights in any case
	keyTimeout    = 10 * time.Second // bounds a statement; none of them waits for anyone
)

// keyring hands partition keys to flights. The claim of the row has already decided who may run.
// The ring has to find out whether a step still runs under the key after its claim was taken away.
// In this process, a map from key to flight shows that. For other processes, the claim brings
// whether there are any such steps, and then the ring asks the database until there are none. See
// store.Lingering.
//
// Other processes rely on the same of this one. So no flight gets a key before the process has its
// liveness lock, unless only the lease guards keys.
//
// One goroutine talks to the database. mu guards the fields below it.
type keyring struct {
	*process

	mu      sync.Mutex
	alive   bool                     // this process has its liveness lock, as far as it knows, or needs none
	holder  map[string]*flight       // the flight that runs under a key in this process
	waiting map[string][]*flight     // flights that want a key, the next one first
	tries   map[string]int           // how often the ring has asked for a key in vain
	next    map[string]time.Duration // when to ask again
	landed  []int64                  // tokens of claims that were taken away and whose flights have landed

	wake chan struct{}
}

func newKeyring(p *process) *keyring {
	return &keyring{process: p, alive: p.config.LockByLease, holder: map[string]*flight{}, waiting: map[string][]*flight{},
		tries: map[string]int{}, next: map[string]time.Duration{}, wake: make(chan struct{}, 1)}
}

// acquire asks for the keys of flights, and returns the flights that get theirs at once, which
// usually are all. The others reach their schedulers through admitted.
func (k *keyring) acquire(fs []*flight) (granted []*flight) {
	k.mu.Lock()
	for _, f := range fs {
		key := f.beat.PartitionKey
		if k.alive && !f.beat.Lingers && k.holder[key] == nil && len(k.waiting[key]) == 0 {
			k.holder[key] = f
			granted = append(granted, f)
		} else {
			k.waiting[key] = append(k.waiting[key], f)
		}
	}
	k.mu.Unlock()
	if len(granted) < len(fs) {
		k.signal()
	}
	return granted
}

// release gives back the key of a flight that has ended, or its place in line for the key.
func (k *keyring) release(f *flight) {
	key := f.beat.PartitionKey
	if key == "" {
		return
	}
	k.mu.Lock()
	if k.holder[key] == f {
		delete(k.holder, key)
	} else {
		k.drop(f)
	}
	told := f.taken.Load() && !k.config.LockByLease
	if told {
		k.landed = append(k.landed, f.beat.Token)
	}
	told = told || len(k.waiting[key]) > 0
	k.mu.Unlock()
	if told {
		k.signal()
	}
}

// drop removes a flight from the line for its key. The caller holds mu.
func (k *keyring) drop(f *flight) {
	key := f.beat.PartitionKey
	for i, other := range k.waiting[key] {
		if other == f {
			k.waiting[key] = append(k.waiting[key][:i:i], k.waiting[key][i+1:]...)
			if f.aside {
				f.aside = false
				f.queue.aside.Add(-1)
			}
			break
		}
	}
	if len(k.waiting[key]) == 0 {
		delete(k.waiting, key)
		delete(k.tries, key)
		delete(k.next, key)
	}
}

func (k *keyring) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// lives tells the ring whether this process has its liveness lock. When it is lost, running steps
// go on: their rows execute, which keeps everybody else from their keys. Only if a claim were lost,
// too, before the process has the lock again, would no process wait for its step.
func (k *keyring) lives(alive bool) {
	k.mu.Lock()
	changed := k.alive != alive
	k.alive = alive
	k.mu.Unlock()
	if changed {
		k.signal()
	}
}

// inUse reports whether flights of this process hold keys.
func (k *keyring) inUse() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holder) > 0
}

// tokens returns the tokens of the claims of this process that hold keys, or wait for one.
func (k *keyring) tokens() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	tokens := make([]int64, 0, len(k.holder))
	for _, f := range slices.Concat(append(slices.Collect(maps.Values(k.waiting)), slices.Collect(maps.Values(k.holder)))...) {
		tokens = append(tokens, f.beat.Token)
	}
	return tokens
}

// inFlight returns the facts that a sweep needs about this process to delete only those notes of
// its lost claims of which nothing runs. It contains the flights that have or want a key. If an
// instance was claimed anew, that includes the older flight, while its step goes on.
func (k *keyring) inFlight() *store.InFlight {
	return &store.InFlight{Worker: k.id, Tokens: k.tokens(), Lease: k.config.Lease}
}

// run serves the ring until ctx ends.
func (k *keyring) run(ctx context.Context) {
	timer := time.NewTimer(keyLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		k.tell(ctx)
		k.try(ctx)
		timer.Reset(k.nap())
	}
}

// tell reports that steps have ended whose claims were taken away, to the processes that wait for
// that.
func (k *keyring) tell(ctx context.Context) {
	k.mu.Lock()
	tokens := k.landed
	k.landed = nil
	k.mu.Unlock()
	if len(tokens) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if err := k.db.Landed(ctx, k.id, tokens); err != nil {
		k.trouble("tell that lost steps have ended", err)
		k.mu.Lock()
		k.landed = append(k.landed, tokens...)
		k.mu.Unlock()
	}
}

// try hands out the keys that are available.
func (k *keyring) try(ctx context.Context) {
	var granted []*flight
	asked := map[string]*flight{}
	now := k.since()
	k.mu.Lock()
	for key, fs := range k.waiting {
		for _, f := range fs {
			if f.ctx.Err() != nil { // its claim is lost, or the worker drains: giving it back needs no key
				k.drop(f)
				granted = append(granted, f)
			}
		}
		if fs = k.waiting[key]; len(fs) == 0 {
			continue
		}
		switch {
		case k.holder[key] != nil, !k.alive: // its zombie runs here; or others could not know that this one would
			k.putAside(key)
		case !fs[0].beat.Lingers:
			granted = append(granted, k.grant(key))
		case k.next[key] <= now:
			asked[key] = fs[0]
		}
	}
	k.mu.Unlock()
	if len(asked) > 0 {
		granted = append(granted, k.ask(ctx, asked)...)
	}
	for _, f := range granted {
		select {
		case f.queue.admitted <- f:
		case <-k.draining: // its scheduler is gone; Stop gives it back
		}
	}
}

// putAside excludes the flights that wait for a key from their schedulers' counts of work in hand,
// since they may wait for long. The caller holds mu.
func (k *keyring) putAside(key string) {
	for _, f := range k.waiting[key] {
		if !f.aside {
			f.aside = true
			f.queue.aside.Add(1)
			f.queue.nudge()
		}
	}
}

// grant makes the first flight in line the holder. The caller holds mu.
func (k *keyring) grant(key string) *flight {
	f := k.waiting[key][0]
	k.holder[key] = f
	k.drop(f)
	return f
}

// ask asks the database whether steps of other processes still run under the keys of flights.
func (k *keyring) ask(ctx context.Context, asked map[string]*flight) (granted []*flight) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	lingering, err := k.db.Lingering(ctx, k.id, slices.Collect(maps.Keys(asked)))
	if err != nil {
		k.trouble("ask who still runs under partition keys", err)
	}
	k.mu.Lock()
	for key, f := range asked {
		switch {
		case err != nil, slices.Contains(lingering, key):
			k.later(key)
		case k.alive && k.holder[key] == nil && len(k.waiting[key]) > 0 && k.waiting[key][0] == f:
			granted = append(granted, k.grant(key))
		}
	}
	k.mu.Unlock()
	if len(lingering) > 0 {
		tell(k.base, k.process, k.hooks.contended, worker.ContendedEvent{Claims: len(lingering)})
	}
	return granted
}

// later decides when to ask for a key again. The caller holds mu.
func (k *keyring) later(key string) {
	if len(k.waiting[key]) == 0 {
		return
	}
	k.tries[key]++
	k.next[key] = k.since() + pace.Backoff(k.tries[key], keyRetryLeast, keyRetryMost)
	k.putAside(key)
}

// nap returns how long there is nothing to do.
func (k *keyring) nap() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, now := keyLook, k.since()
	if len(k.landed) > 0 {
		d = keyRetryMost
	}
	for key := range k.waiting {
		if k.holder[key] == nil && k.alive {
			d = min(d, max(time.Millisecond, k.next[key]-now))
		}
	}
	return d
}
