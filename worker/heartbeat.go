package worker

import (
	"context"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// beatMost bounds one heartbeat statement.
const beatMost = 1000

// heartbeat extends the leases of every flight: buffered, waiting, running or committing. And it says that this worker is there, on the
// same connection: what the pool's others do with it must not make it look dead.
func (w *Worker) heartbeat(ctx context.Context, line beater) {
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = line.Absent(closing, w.id) // else it is noticed when it expires
		_ = line.Close(closing)
	}()
	tick := w.c.Heartbeat / 4
	w.present(ctx, line)
	next := w.since() + w.c.Heartbeat
	var passed []*flight // by the last round: locked by someone
	for sleep(ctx, tick) {
		all := w.since() >= next
		var err error
		if passed, err = w.extend(ctx, line, all, passed); err != nil {
			w.trouble("heartbeat", err) // and again at the next tick
			continue
		}
		if all {
			w.present(ctx, line)
			next = w.since() + w.c.Heartbeat
			w.last.heartbeat.now(w)
		}
	}
}

// extend extends the leases of all flights, or insists on those that were passed by, and returns what is passed by now.
func (w *Worker) extend(ctx context.Context, line beater, all bool, passed []*flight) ([]*flight, error) {
	if all {
		return w.beatAll(ctx, line)
	}
	return w.insist(ctx, line, passed)
}

// beatAll extends the leases of all flights, and returns those whose row someone had locked.
func (w *Worker) beatAll(ctx context.Context, line beater) (passed []*flight, err error) {
	all := w.flights.all()
	slices.SortFunc(all, func(a, b *flight) int { return int(a.beat.ID - b.beat.ID) })
	for some := range slices.Chunk(all, beatMost) {
		claims := make([]*step.Claim, len(some))
		byID := make(map[int64]*flight, len(some))
		for i, f := range some {
			claims[i], byID[f.beat.ID] = f.beat, f
		}
		sent := w.since()
		timed, cancel := context.WithTimeout(ctx, w.c.Heartbeat)
		beaten, err := line.Beat(timed, w.id, claims, w.c.Lease)
		cancel()
		if err != nil {
			return passed, err
		}
		w.heard(byID, beaten, sent)
		for _, id := range beaten.Cancelled {
			byID[id].cancel(fsm.ErrCancelled) // before it is found among the lost: the first cause stays
		}
		for _, id := range beaten.Lost {
			// A flight that landed since the snapshot is lost in good order.
			if f := byID[id]; w.flights.current(f) {
				f.cancel(fsm.ErrLeaseLost)
			}
		}
		for _, id := range slices.Concat(beaten.Extended, beaten.Lost) {
			delete(byID, id)
		}
		passed = slices.AppendSeq(passed, maps.Values(byID))
	}
	return w.insist(ctx, line, passed)
}

// heard takes in what a heartbeat, sent at some time, has extended.
func (w *Worker) heard(byID map[int64]*flight, beaten store.Beaten, sent time.Duration) {
	for _, id := range beaten.Extended {
		byID[id].until.Store(int64(sent + w.c.Lease - w.margin()))
	}
	for _, id := range beaten.Paused {
		byID[id].paused.Store(true)
	}
}

// insist waits for the rows of flights that were passed by until half of their lease was over, in no order, and returns those that are so still:
// a row that many write to may be found locked each time. One that is held for long must not cost the other leases, so all together take a
// quarter of a heartbeat, or little more.
func (w *Worker) insist(ctx context.Context, line beater, passed []*flight) (still []*flight, err error) {
	began := w.since()
	for _, f := range passed {
		sent := w.since()
		if sent-began > w.c.Heartbeat/4 || time.Duration(f.until.Load())-sent > w.c.Lease/2 || !w.flights.current(f) {
			still = append(still, f)
			continue
		}
		timed, cancel := context.WithTimeout(ctx, w.c.Heartbeat)
		beaten, err := line.Insist(timed, w.id, f.beat, w.c.Lease, w.c.Heartbeat/8)
		cancel()
		if err != nil {
			return still, err
		}
		if len(beaten.Extended) == 0 {
			still = append(still, f)
		}
		w.heard(map[int64]*flight{f.beat.ID: f}, beaten, sent)
	}
	return still, nil
}

// deadlines cancels steps that this process no longer believes to hold: their rows may be someone else's. What they return is decided by
// the fence all the same. It is apart from the heartbeat, since a beat that is never answered is the very reason. It looks for zombies, too,
// and for claims whose instance is over its deadline before they had a slot.
func (w *Worker) deadlines(ctx context.Context) {
	for sleep(ctx, w.c.Heartbeat/4) { // at most a twelfth of the lease, which is less than margin
		now := int64(w.since())
		for _, f := range w.flights.all() {
			if f.until.Load() < now {
				f.cancel(fsm.ErrLeaseLost)
			}
			if f.ctx.Err() != nil || f.told.Load() != 0 {
				w.overtime(f, now)
			}
		}
	}
}

// presentFor is for how many heartbeats a worker is believed to be there.
const presentFor = 3

// present says that this worker is there. Nothing depends on it, so an error is only logged.
func (w *Worker) present(ctx context.Context, line beater) {
	p := w.presence
	p.Draining = w.isDraining()
	timed, cancel := context.WithTimeout(ctx, w.c.Heartbeat)
	defer cancel()
	if err := line.Present(timed, &p); err != nil {
		w.trouble("register", err)
	}
}

// self is what a worker says of itself.
func (w *Worker) self() store.Presence {
	p := store.Presence{Worker: w.id, PID: os.Getpid(), Queues: map[string]int{}, Machines: w.machineIDs, Live: presentFor * w.c.Heartbeat}
	p.Host, _ = os.Hostname() // unknown is as good as any
	if build, ok := debug.ReadBuildInfo(); ok {
		p.Version = build.Main.Path + " " + build.Main.Version
	}
	for name, q := range w.c.Queues {
		p.Queues[name] = q.Concurrency
	}
	return p
}
