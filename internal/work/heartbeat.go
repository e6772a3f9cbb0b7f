package work

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// beatMost bounds one heartbeat statement.
const beatMost = 1000

// heartbeat extends the leases of every flight: buffered, waiting, running or committing. It also
// registers this worker, on the same connection: the users of the pool must not make it look dead.
type heartbeat struct {
	*process
	flights  *flights
	keys     *keyring
	line     beater
	presence store.Presence
	wrote    bool          // the newest heartbeat has extended a lease
	slow     time.Duration // see patiently
}

func newHeartbeat(p *process, flights *flights, keys *keyring, line beater) *heartbeat {
	return &heartbeat{process: p, flights: flights, keys: keys, line: line, presence: p.self()}
}

// run sends heartbeats until ctx ends.
func (h *heartbeat) run(ctx context.Context) {
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.line.Absent(closing, h.id) // otherwise others notice when the report expires
		_ = h.line.Close(closing)
	}()
	h.register(ctx)
	next := h.since() + h.config.Heartbeat
	var passed []*flight // flights whose row was locked in the last round
	for pace.Sleep(ctx, h.live()) {
		all := h.since() >= next
		var err error
		if passed, err = h.extend(ctx, all, passed); err != nil {
			h.trouble("heartbeat", err) // it tries again at the next tick
			h.deeds.heartbeat.failed(h.process, err)
			continue
		}
		if all {
			h.register(ctx)
			next = h.since() + h.config.Heartbeat
			h.beaten.Store(int64(h.since()))
		} else {
			h.check(ctx)
		}
	}
}

// live tells the keyring whether this process has its liveness lock, which belongs to its
// connection, and returns how long to wait until the next tick.
func (h *heartbeat) live() time.Duration {
	tick := h.config.Heartbeat / 4
	if h.config.LockByLease {
		return tick
	}
	alive := h.line.Connected()
	if h.keys.lives(alive); !alive {
		tick = min(tick, reconnect)
	}
	return tick
}

// reconnect is how soon a broken connection is made again. Until then no flight with a partition
// key begins.
const reconnect = time.Second

// check checks the connection between two heartbeats, if keys depend on it, and makes it again if
// it is broken.
func (h *heartbeat) check(ctx context.Context) {
	if h.config.LockByLease || h.line.Connected() && !h.keys.inUse() {
		return
	}
	if err := h.patiently(ctx, h.config.Heartbeat/4, h.line.Check); err != nil {
		h.trouble("heartbeat", err)
	}
}

// patiently bounds a statement of the heartbeat's connection by four times what the slowest of the
// newest ones took, from usual to a third of the lease. A beat that is cut off costs its
// connection, so on a slow server the same patience would fail for ever, and make it slower (T216).
func (h *heartbeat) patiently(ctx context.Context, usual time.Duration, send func(context.Context) error) error {
	patience := h.config.patience(usual)
	bound := max(patience, min(h.slow, h.config.Lease/3))
	timed, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	sent := h.since()
	err := send(timed)
	switch {
	case err == nil:
		h.slow = max(4*(h.since()-sent), h.slow*7/8) //nolint:mnd // within a dozen statements it forgets
	case timed.Err() != nil && ctx.Err() == nil:
		h.slow = 2 * bound
	}
	return err
}

// patience is how long a statement of the heartbeat's connection may take, which may have to
// connect first. Where heartbeats are frequent, it still has a twelfth of the lease, up to a
// second: as long as checks take when they are as rare as they may be. Otherwise a process on a
// busy machine, which connects in a hundred ms, would lose its claims to its own impatience.
func (c *Config) patience(usual time.Duration) time.Duration {
	return max(usual, min(time.Second, c.Lease/12))
}

// hold keeps the connection, and so the liveness lock, for a worker that a Hand operates.
func (h *heartbeat) hold(ctx context.Context) {
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.line.Close(closing)
	}()
	for alive := !h.config.LockByLease; alive; alive = pace.Sleep(ctx, h.live()) {
		h.check(ctx)
	}
}

// extend extends the leases of all flights, or insists on those that were passed over. It returns
// the flights that are passed over now.
func (h *heartbeat) extend(ctx context.Context, all bool, passed []*flight) ([]*flight, error) {
	if all {
		return h.beatAll(ctx)
	}
	return h.insist(ctx, passed)
}

// beatAll extends the leases of all flights, and returns those whose row was locked.
func (h *heartbeat) beatAll(ctx context.Context) (passed []*flight, err error) {
	h.wrote = false
	all := h.flights.all()
	slices.SortFunc(all, func(a, b *flight) int { return int(a.beat.ID - b.beat.ID) })
	for some := range slices.Chunk(all, beatMost) {
		claims := make([]*step.Claim, len(some))
		byID := make(map[int64]*flight, len(some))
		for i, f := range some {
			claims[i], byID[f.beat.ID] = f.beat, f
		}
		sent := h.since()
		var beaten store.Beaten
		err := h.patiently(ctx, h.config.Heartbeat, func(ctx context.Context) (err error) {
			beaten, err = h.line.Beat(ctx, h.id, claims, h.config.Lease)
			return err
		})
		if err != nil {
			return passed, err
		}
		h.heard()
		h.extended(byID, beaten, sent)
		h.wrote = h.wrote || len(beaten.Extended) > 0
		h.reportRefused("extend the lease of an instance", beaten.Refused)
		for _, id := range beaten.Cancelled {
			byID[id].cancel(fsm.ErrCancelled) // before it is found among the lost ones: the first cause stays
		}
		for _, id := range beaten.Lost {
			// A flight that landed since the snapshot has ended as it should.
			if f := byID[id]; h.flights.current(f) {
				f.taken.Store(true)
				f.cancel(fsm.ErrLeaseLost)
			}
		}
		for _, id := range slices.Concat(beaten.Extended, beaten.Lost) {
			delete(byID, id)
		}
		passed = slices.AppendSeq(passed, maps.Values(byID))
	}
	return h.insist(ctx, passed)
}

// extended notes the leases that a heartbeat, sent at some time, has extended.
func (h *heartbeat) extended(byID map[int64]*flight, beaten store.Beaten, sent time.Duration) {
	for _, id := range beaten.Extended {
		byID[id].until.Store(int64(sent + h.config.Lease - h.margin()))
	}
	for _, id := range beaten.Paused {
		byID[id].paused.Store(true)
	}
}

// insist waits for the rows of flights whose row was locked at every heartbeat for half a lease, in
// no particular order, and returns those whose row is still locked: a row that many write to may be
// found locked each time. One that is held for long must not cost the other leases, so all together
// take a quarter of a heartbeat, or little more.
func (h *heartbeat) insist(ctx context.Context, passed []*flight) (still []*flight, err error) {
	began := h.since()
	for _, f := range passed {
		sent := h.since()
		if sent-began > h.config.Heartbeat/4 || time.Duration(f.until.Load())-sent > h.config.Lease/2 || !h.flights.current(f) {
			still = append(still, f)
			continue
		}
		var beaten store.Beaten
		err := h.patiently(ctx, h.config.Heartbeat, func(ctx context.Context) (err error) {
			beaten, err = h.line.Insist(ctx, h.id, f.beat, h.config.Lease, h.config.Heartbeat/8)
			return err
		})
		if err != nil {
			return still, err
		}
		if len(beaten.Extended) == 0 {
			still = append(still, f)
		}
		h.extended(map[int64]*flight{f.beat.ID: f}, beaten, sent)
	}
	return still, nil
}
