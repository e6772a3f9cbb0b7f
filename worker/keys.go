package worker

import (
	"context"
	"sync"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
)

const (
	keyRetryLeast = 5 * time.Millisecond // a holder that has just committed unlocks within a moment
	keyRetryMost  = time.Second
	keyCheck      = 5 * time.Second  // how soon a dead connection is noticed
	keyTimeout    = 10 * time.Second // of a statement: none of them waits for anyone, and all keys wait for the one under way
)

// keyring hands partition keys to flights: in this process one flight per key, by a map, since
// session locks are re-entrant (T90); across processes by advisory locks, where there are any. The
// row's claim has decided already who may run; this only keeps a stalled holder, whose lease ran
// out but whose step still runs, from overlapping with its successor.
//
// One goroutine talks to the database; the maps are under mu.
type keyring struct {
	*process
	locks keyLocks // nil: keys are held by lease alone
	hash  func(key string) int64

	mu      sync.Mutex
	holder  map[string]*flight   // who runs under a key, here
	waiting map[string][]*flight // claims that want a key; the first is next
	session map[string]bool      // keys whose advisory lock this process has
	unlock  []string             // keys to give back
	tries   map[string]int       // how often a key's lock was not to be had
	next    map[string]time.Duration

	wake chan struct{}
}

func newKeyring(p *process, locks keyLocks, hash func(string) int64) *keyring {
	return &keyring{process: p, locks: locks, hash: hash, holder: map[string]*flight{}, waiting: map[string][]*flight{}, session: map[string]bool{},
		tries: map[string]int{}, next: map[string]time.Duration{}, wake: make(chan struct{}, 1)}
}

// acquire asks for the keys of flights. Each is handed to its scheduler's admitted once its key is
// there.
func (k *keyring) acquire(fs []*flight) {
	k.mu.Lock()
	for _, f := range fs {
		key := f.beat.PartitionKey
		k.waiting[key] = append(k.waiting[key], f)
	}
	k.mu.Unlock()
	k.signal()
}

// release gives back the key of a flight that has ended, or its place in the queue for it.
func (k *keyring) release(f *flight) {
	key := f.beat.PartitionKey
	if key == "" {
		return
	}
	k.mu.Lock()
	if k.holder[key] == f {
		delete(k.holder, key)
		if k.session[key] {
			k.unlock = append(k.unlock, key)
		}
	} else {
		k.drop(f)
	}
	k.mu.Unlock()
	k.signal()
}

// drop forgets that a flight wants its key. mu is held.
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
		if k.session[key] && k.holder[key] == nil { // the lock was kept for whoever has just gone
			k.giveUp(key)
		}
	}
}

// giveUp has a lock that nobody here needs given back, soon. mu is held.
func (k *keyring) giveUp(key string) {
	k.unlock = append(k.unlock, key)
	k.signal()
}

func (k *keyring) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run serves the ring until ctx ends, then gives up all locks.
func (k *keyring) run(ctx context.Context) {
	timer := time.NewTimer(keyCheck)
	defer timer.Stop()
	checked := k.since()
	for {
		select {
		case <-ctx.Done():
			k.close()
			return
		case <-k.wake:
		case <-timer.C:
		}
		k.giveBack(ctx)
		k.try(ctx)
		if k.locks != nil && k.since()-checked >= keyCheck {
			checked = k.since()
			k.check(ctx)
		}
		timer.Reset(k.nap())
	}
}

// giveBack unlocks keys that nobody here wants next; where somebody does, the lock is simply kept
// for it.
func (k *keyring) giveBack(ctx context.Context) {
	k.mu.Lock()
	var hashes []int64
	for _, key := range k.unlock {
		if k.holder[key] == nil && len(k.waiting[key]) == 0 && k.session[key] {
			delete(k.session, key)
			hashes = append(hashes, k.hash(key))
		}
	}
	k.unlock = k.unlock[:0]
	k.mu.Unlock()
	if len(hashes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if err := k.locks.Unlock(ctx, hashes); err != nil {
		k.broken(err)
	}
}

// try hands out the keys that are to be had: at once where this process has the lock already or
// needs none, else in one statement for all.
func (k *keyring) try(ctx context.Context) {
	var granted []*flight
	var keys []string
	now := k.since()
	k.mu.Lock()
	for key, fs := range k.waiting {
		for _, f := range fs {
			if f.ctx.Err() != nil { // its claim is lost, or the worker drains: no key needed to give it back
				k.drop(f)
				granted = append(granted, f)
			}
		}
		if fs = k.waiting[key]; len(fs) == 0 {
			continue
		}
		switch {
		case k.holder[key] != nil: // its zombie runs here
			k.putAside(key)
		case k.locks == nil || k.session[key]:
			granted = append(granted, k.grant(key, fs))
		case k.next[key] <= now:
			keys = append(keys, key)
		}
	}
	k.mu.Unlock()
	if len(keys) > 0 {
		granted = append(granted, k.lock(ctx, keys)...)
	}
	for _, f := range granted {
		select {
		case f.queue.admitted <- f:
		case <-k.draining: // its scheduler is gone; Stop gives it back
		}
	}
}

// putAside takes those who want a key out of what their schedulers count as work in hand: it may be
// long. mu is held.
func (k *keyring) putAside(key string) {
	for _, f := range k.waiting[key] {
		if !f.aside {
			f.aside = true
			f.queue.aside.Add(1)
			f.queue.nudge()
		}
	}
}

// grant makes the first who waits the holder. mu is held.
func (k *keyring) grant(key string, fs []*flight) *flight {
	f := fs[0]
	k.holder[key] = f
	k.drop(f)
	return f
}

// lock tries advisory locks. Keys of equal hash would be one lock to Postgres: the second asks
// again later.
func (k *keyring) lock(ctx context.Context, keys []string) (granted []*flight) {
	asked := make([]string, 0, len(keys))
	hashes := make([]int64, 0, len(keys))
	seen := map[int64]bool{}
	k.mu.Lock()
	for key := range k.session {
		seen[k.hash(key)] = true
	}
	for _, key := range keys {
		if h := k.hash(key); !seen[h] {
			seen[h] = true
			asked, hashes = append(asked, key), append(hashes, h)
		} else {
			k.later(key)
		}
	}
	k.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	got, err := k.locks.TryLock(ctx, hashes)
	if err != nil {
		k.broken(err)
	}
	contended := 0
	k.mu.Lock()
	for i, key := range asked {
		if err == nil && got[i] {
			k.session[key] = true
			if fs := k.waiting[key]; len(fs) > 0 {
				granted = append(granted, k.grant(key, fs))
			} else {
				k.giveUp(key) // whoever wanted it has gone meanwhile
			}
			continue
		}
		k.later(key)
		contended++
	}
	k.mu.Unlock()
	if contended > 0 && err == nil {
		tell(k.base, k.process, k.hooks.contended, ContendedEvent{Claims: contended})
	}
	return granted
}

// later says when to ask for a key again that was not to be had. mu is held.
func (k *keyring) later(key string) {
	k.tries[key]++
	k.next[key] = k.since() + pace.Backoff(k.tries[key], keyRetryLeast, keyRetryMost)
	k.putAside(key)
}

// check asks the connection whether it lives, while it holds anything.
func (k *keyring) check(ctx context.Context) {
	k.mu.Lock()
	held := len(k.session)
	k.mu.Unlock()
	if held == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyCheck)
	defer cancel()
	if err := k.locks.Alive(ctx); err != nil {
		k.broken(err)
	}
}

// broken: the connection is gone, and every lock with it. Steps under a key are told to stop; the
// fence decides about their outcomes.
func (k *keyring) broken(err error) {
	k.trouble("hold partition keys", err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = k.locks.Close(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.session {
		if f := k.holder[key]; f != nil {
			f.cancel(fsm.ErrKeyLost)
		}
	}
	clear(k.session)
}

// nap is how long there is nothing to do.
func (k *keyring) nap() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, now := keyCheck, k.since()
	for key := range k.waiting {
		if k.holder[key] == nil {
			d = min(d, max(time.Millisecond, k.next[key]-now))
		}
	}
	return d
}

func (k *keyring) close() {
	if k.locks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = k.locks.Close(ctx)
}
