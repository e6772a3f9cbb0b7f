package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// lostClaim is a claim with a partition key that was taken away from its worker.
type lostClaim struct {
	key, worker string
	token       int64
	at          time.Time
}

// lose notes that a row's claim is taken away. The caller holds mu.
func (db *fake) lose(r *row) {
	if r.PartitionKey != "" && r.status == fsm.StatusExecuting {
		db.lost = append(db.lost, lostClaim{r.PartitionKey, r.worker, r.Token, time.Now()})
	}
}

// noted returns the lost claims that are noted now.
func (db *fake) noted() []lostClaim {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.lost)
}

// connected returns the lines that hold a liveness lock now.
func (db *fake) connected() []*fakeLine {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Collect(maps.Keys(db.lines))
}

// reaped takes an executing row away from its worker, like another process' reaper.
func (db *fake) reaped(id int64) {
	db.change(id, func(r *row) {
		db.lose(r)
		r.status, r.worker, r.Attempt = fsm.StatusRunnable, "", r.Attempt+1
	})
}

// lingers reports whether another worker's lost claim is noted for a key. The caller holds mu.
func (db *fake) lingers(key, worker string) bool {
	return slices.ContainsFunc(db.lost, func(l lostClaim) bool { return l.key == key && l.worker != worker })
}

func (db *fake) Lingering(ctx context.Context, worker string, keys []string) (lingering []string, err error) {
	err = db.send(ctx, "lingering", fmt.Sprint(keys), func() error {
		db.lost = slices.DeleteFunc(db.lost, func(l lostClaim) bool {
			return l.worker != worker && slices.Contains(keys, l.key) && !db.lives(l.worker)
		})
		for _, key := range keys {
			if db.lingers(key, worker) {
				lingering = append(lingering, key)
			}
		}
		return nil
	})
	return lingering, err
}

func (db *fake) Landed(ctx context.Context, worker string, tokens []int64) error {
	return db.send(ctx, "landed", fmt.Sprint(tokens), func() error {
		db.lost = slices.DeleteFunc(db.lost, func(l lostClaim) bool { return l.worker == worker && slices.Contains(tokens, l.token) })
		return nil
	})
}

// forget does what a sweep of the keys does about lost claims. The caller holds mu.
func (db *fake) forget(own *store.InFlight) {
	db.lost = slices.DeleteFunc(db.lost, func(l lostClaim) bool {
		if l.worker != own.Worker {
			return !db.lives(l.worker)
		}
		return !slices.Contains(own.Tokens, l.token) && time.Since(l.at) > own.Lease
	})
}

// lives reports whether some line holds a worker's liveness lock. The caller holds mu.
func (db *fake) lives(worker string) bool {
	for l := range db.lines {
		if l.worker == worker {
			return true
		}
	}
	return false
}

// haunted makes another living process run a step under each of some keys although its claim was
// taken away.
func (s *scene) haunted(keys ...string) (stalled *fakeLine) {
	stalled = &fakeLine{db: s.db, worker: "stalled"}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.lines[stalled] = true
	for _, key := range keys {
		s.db.lost = append(s.db.lost, lostClaim{key, stalled.worker, -1, time.Now()})
	}
	return stalled
}

// fakeLine is a worker's heartbeat connection, with its liveness lock.
type fakeLine struct {
	db     *fake
	worker string // whose lock it is; "": nobody's
	up     bool   // the connection, as far as its owner knows
	broken bool   // the connection is broken, and its owner has yet to notice
	closed time.Time
}

// use sends a statement over the line, which connects if necessary.
func (l *fakeLine) use(ctx context.Context, verb, about string, do func() error) error {
	err := l.db.send(ctx, verb, about, func() error {
		if l.up && l.broken {
			return errLost
		}
		if l.worker != "" {
			l.db.lines[l] = true
		}
		return do()
	})
	var unknown interface{ Unknown() bool }
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	l.up, l.broken = true, false
	if errors.Is(err, errLost) || errors.As(err, &unknown) || ctx.Err() != nil {
		l.up = false
		delete(l.db.lines, l)
	}
	return err
}

// cut ends the session on the server. Its next user gets an error.
func (l *fakeLine) cut() {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	delete(l.db.lines, l)
	l.broken = true
}

func (l *fakeLine) Connected() bool {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	return l.up
}

func (l *fakeLine) Check(ctx context.Context) error {
	return l.use(ctx, "check", "", func() error { return nil })
}

func (l *fakeLine) Present(ctx context.Context, _ *store.Presence) error {
	return l.use(ctx, "present", "", func() error { return nil })
}

func (l *fakeLine) Absent(context.Context, string) error { return nil }

func (l *fakeLine) Beat(ctx context.Context, worker string, claims []*step.Claim, lease time.Duration) (out store.Beaten, err error) {
	ids := make([]string, len(claims))
	for i, c := range claims {
		ids[i] = fmt.Sprint(c.ID)
	}
	err = l.use(ctx, "beat", strings.Join(ids, " "), func() error {
		for _, c := range claims {
			switch r := l.db.rows[c.ID]; {
			case !r.fence(c, worker):
				out.Lost = append(out.Lost, c.ID)
				if r != nil && r.failure == string(fsm.FailureCancelled) {
					out.Cancelled = append(out.Cancelled, c.ID)
				}
			case !r.locked() && !r.busy:
				r.lease = time.Now().Add(lease)
				out.Extended = append(out.Extended, c.ID)
				if r.paused {
					out.Paused = append(out.Paused, c.ID)
				}
			}
		}
		return nil
	})
	return out, err
}

func (l *fakeLine) Insist(ctx context.Context, worker string, c *step.Claim, lease, wait time.Duration) (out store.Beaten, err error) {
	err = l.use(ctx, "insist", fmt.Sprint(c.ID), func() error {
		if r := l.db.rows[c.ID]; r.fence(c, worker) && !r.held.After(time.Now().Add(wait)) {
			r.lease, out.Extended = time.Now().Add(lease), []int64{c.ID}
		}
		return nil
	})
	return out, err
}

func (l *fakeLine) Close(context.Context) error {
	l.cut()
	l.up, l.closed = false, time.Now()
	return nil
}
