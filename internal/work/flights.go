package work

import (
	"context"
	"sync"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// flights holds all claims of this process, by instance. launch adds a claim, and land removes it.
type flights struct {
	*process
	keys *keyring

	started sync.WaitGroup // flights that have a slot, or have left it
	outside outside

	mu   sync.Mutex
	byID map[int64]*flight
}

func newFlights(p *process, keys *keyring) *flights {
	return &flights{process: p, keys: keys, byID: map[int64]*flight{}, outside: newOutside()}
}

// launch makes flights of the claims that a claim statement brought. Their leases count from sent,
// when that statement was sent, or later.
func (fs *flights) launch(q *queue, claims []*step.Claim, sent time.Duration) []*flight {
	out := make([]*flight, len(claims))
	for i, c := range claims {
		c.Env = fs.config.Env
		fs.lend(c)
		ctx, cancel := context.WithCancelCause(fs.steps)
		ctx, cancel = bounded(ctx, cancel, c)
		f := &flight{beat: c, queue: q, claim: c, ctx: ctx, cancel: cancel}
		f.until.Store(int64(sent + fs.config.Lease - fs.margin()))
		fs.add(f)
		out[i] = f
	}
	return out
}

// land ends a flight: its outcome is durable, or its claim is no longer this process's business. If
// the flight has a slot, land frees it.
func (fs *flights) land(f *flight) {
	fs.keys.release(f)
	fs.left(f.beat)
	fs.remove(f)
	f.cancel(nil)
	if fs.settleIn(f); f.where == inSlot {
		fs.vacate(f)
	}
	if f.started.Load() {
		fs.started.Done()
	}
}

// vacate frees the slot of a flight, unless others of its group are still in it.
func (fs *flights) vacate(f *flight) {
	if f.group.vacate() {
		fs.free(f.queue)
	}
}

// free frees a slot.
func (fs *flights) free(q *queue) {
	select {
	case q.freed <- struct{}{}: // the channel holds as many as there are slots
	default:
		select {
		case q.freed <- struct{}{}:
		case <-fs.draining: // its scheduler is gone
		}
	}
}

// add adds a flight. A newer claim of an id voids the older one, with any token: tokens repeat
// after a failover, and no other process can hold an instance that we have just claimed (§6).
func (fs *flights) add(f *flight) {
	fs.mu.Lock()
	older := fs.byID[f.beat.ID]
	fs.byID[f.beat.ID] = f
	fs.mu.Unlock()
	if older != nil {
		older.taken.Store(true)
		older.cancel(fsm.ErrLeaseLost)
	}
}

// remove forgets a flight, unless a newer one has taken its place.
func (fs *flights) remove(f *flight) {
	fs.mu.Lock()
	if fs.byID[f.beat.ID] == f {
		delete(fs.byID, f.beat.ID)
	}
	fs.mu.Unlock()
}

// current reports whether this process has made no newer claim of the flight's instance.
func (fs *flights) current(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byID[f.beat.ID] == f
}

// has reports whether a claim is in flight.
func (fs *flights) has(c *step.Claim) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byID[c.ID]
	return f != nil && f.beat.Token == c.Token
}

// of returns the flights of some instances.
func (fs *flights) of(ids []int64) (out []*flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, id := range ids {
		if f := fs.byID[id]; f != nil {
			out = append(out, f)
		}
	}
	return out
}

func (fs *flights) number() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byID)
}

func (fs *flights) all() []*flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]*flight, 0, len(fs.byID))
	for _, f := range fs.byID {
		out = append(out, f)
	}
	return out
}

// margin is how much earlier than the lease the local deadline ends, so that a cancelled step has
// time to notice.
func (p *process) margin() time.Duration { return p.config.Lease / 10 }
