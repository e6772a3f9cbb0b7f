package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// Hand operates a worker step by step: each method does once what one of the worker's loops would
// do by itself. Package durabletest uses it. Claim, execution and commit are the same as in every
// worker, and do not know of Hand.
//
// It has neither heartbeat nor reaper, nor run-ahead: each claim is one step, whose outcome is
// durable when its Run returns. Only one goroutine may use it.
type Hand struct {
	w      *Worker
	queues map[string]*queue // not the worker's: these have no loop

	strays bool // some instance is set aside at its step
	turns  map[string]store.Turn
	due    map[string]time.Duration // by queue, what the last claim that found nothing has said of the next row
}

// handTurns bounds how often Take goes on through lines in which nothing may begin.
const handTurns = 1000

// ByHand replaces Start. Stop ends the worker as usual.
func (w *Worker) ByHand() *Hand {
	w.config.RunAheadSteps = 1
	w.byHand = true
	w.flights.outside.heldMost = 0 // a Run waits until its outcome is durable
	life, end := context.WithCancel(context.Background())
	w.endLife = end
	w.lifelines.Go(func() { w.keys.run(life) })
	w.lifelines.Go(func() { w.heartbeat.hold(life) })
	w.commits.run()
	return &Hand{w: w, queues: map[string]*queue{}, turns: map[string]store.Turn{}, due: map[string]time.Duration{}}
}

// Wake does the work of the poller and the promotions: it wakes the instances whose await has timed
// out, fails those over their deadline, cancels the children that no join waits for any more, skips
// nodes, brings partition keys forward, and returns the names of paused queues.
func (h *Hand) Wake(ctx context.Context) (paused []string, err error) {
	polled, err := h.w.db.Poll(ctx, nil, h.w.machineIDs, []string{})
	if err != nil {
		return nil, err
	}
	h.w.gates.grant(polled.Own)
	h.w.gates.obey(h.w.since(), polled.Gates, polled.Lines)
	if h.w.gates.regrouped() {
		if err := h.w.refile(ctx, nil); err != nil {
			return nil, err
		}
	}
	h.strays, h.due = polled.Strays, map[string]time.Duration{}
	for _, q := range polled.Paused {
		paused = append(paused, q.Queue)
	}
	if _, err := h.w.timeOut(ctx); err != nil {
		return nil, err
	}
	if polled.Keeping {
		if _, err := h.w.handOver(ctx); err != nil {
			return nil, err
		}
	}
	if polled.Overdue {
		if _, err := h.w.expiry.sweep(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := h.w.rest.sweep(ctx); err != nil { // also of those that the sweeps before have just made due
		return nil, err
	}
	if _, err := h.w.skips.sweep(ctx); err != nil {
		return nil, err
	}
	for in, some := h.w.promotions.next(); some; in, some = h.w.promotions.again(ctx) {
		if !pace.Sleep(ctx, in) {
			return nil, context.Cause(ctx)
		}
	}
	return paused, nil
}

// Fire fires the schedules that are due at a time, by any state of Postgres' clock.
func (h *Hand) Fire(ctx context.Context, at time.Time) error {
	if h.w.config.Fire == nil {
		return nil
	}
	for moved := true; moved; {
		moved = false
		_, err := h.w.config.Fire(ctx, at, func(e worker.FireEvent) {
			moved = true
			h.w.schedules.fired(e)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Taken is a claim whose step has not run yet, or several at a batch step.
type Taken struct {
	h     *Hand
	f     *flight
	group *group // nil: f is not at a batch step
}

// Take claims the most urgent instance of a queue, or returns nil if nothing there can run. If it
// is at a batch step, Take also claims the others that may run with it now, in the order of claims,
// up to most instances together.
func (h *Hand) Take(ctx context.Context, queue string, most int) (*Taken, error) {
	q := h.queues[queue]
	if q == nil {
		q = newQueue(queue, worker.Queue{Concurrency: 1})
		q.committingMost = 0 // as with heldMost: the slot is free once the outcome is durable
		q.paused.Store(false)
		h.queues[queue] = q
	}
	fs, err := h.claim(ctx, q, 1)
	if len(fs) == 0 {
		return nil, err
	}
	t := &Taken{h: h, f: fs[0]}
	if _, b := h.w.batchOf(t.f.beat); b != nil {
		t.group = newGroup(h.w.process, t.f)
		t.group.members = fs
		return t, t.fill(ctx, min(most, t.group.key.most))
	}
	return t, nil
}

// fill claims further members of a group. Instances that are at other steps, or may not meet these,
// get back what they were, once it is known that there are no more members.
func (t *Taken) fill(ctx context.Context, most int) (err error) {
	var others []*flight
	for len(t.group.members) < most {
		fs, claimed := t.h.claim(ctx, t.f.queue, most-len(t.group.members))
		for _, f := range fs {
			if _, b := t.h.w.batchOf(f.beat); b != nil && newGroup(t.h.w.process, f).key == t.group.key {
				t.group.members = append(t.group.members, f)
			} else {
				others = append(others, f)
			}
		}
		if err = claimed; err != nil || len(fs) == 0 {
			break
		}
	}
	if err != nil {
		others = append(others, t.group.members...)
	}
	t.h.giveBack(others)
	return err
}

// busyPolls is how many claims find a gate locked before a Hand polls. No other worker is beside
// it, so a gate that stays locked soon looks like the gate of a claim that was cut off.
const busyPolls = 50

// claim claims up to limit instances of a queue, and waits for the locks of their partition keys.
// With an error, it holds none.
func (h *Hand) claim(ctx context.Context, q *queue, limit int) ([]*flight, error) {
	queue := q.name
	p := store.ClaimParams{Queue: queue, Worker: h.w.id, Machines: h.w.machineIDs, Limit: limit, Window: windowMost, Lease: h.w.config.Lease,
		Awaited: h.w.config.Env.Limits.AwaitedBytes}
	p.Gated, p.Seats = h.w.gates.concern(queue)
	p.Gated = p.Gated || h.w.gates.waits("") // Wake does not look at queues
	busy, around := 0, lap{starts: map[string]string{}, wrapped: map[string]bool{}}
	for n := 1; ; n++ {
		sent := h.w.since()
		claim := h.w.db.Claim
		if h.strays {
			claim = func(ctx context.Context, p store.ClaimParams) (store.Claimed, error) {
				return h.w.db.ClaimStrays(ctx, p, h.w.stepKeys())
			}
		}
		p.Lines = h.turns[queue]
		got, err := claim(ctx, p)
		over := false
		if err == nil {
			over = around.over(p.Lines, got.Turn)
			h.turns[queue] = got.Turn
		}
		switch {
		case store.IsUniqueViolation(err) && pace.Sleep(ctx, pace.Backoff(n, time.Millisecond, 100*time.Millisecond)):
			continue // the claim collided with another worker's on a partition key
		case err != nil:
			return nil, h.notClaimed(queue, err)
		case len(got.Claims) > 0:
			h.w.reportRefused("claim an instance", got.Refused)
			for _, c := range got.Claims {
				h.w.assign(c)
			}
			fs, err := h.known(ctx, h.w.flights.launch(q, got.Claims, sent))
			if err != nil || len(fs) > 0 {
				return fs, err
			}
			continue
		case h.strays: // there are none that this worker knows
			h.strays = false
			continue
		case got.Busy && pace.Sleep(ctx, busyAgain): // another worker's claim had a gate
			if busy++; busy%busyPolls == 0 { // it may have been cut off: a poll frees the gate then
				if _, err := h.w.db.Poll(ctx, nil, h.w.machineIDs, nil); err != nil {
					return nil, err
				}
			}
			continue
		case got.Moved == 0 && len(got.Refused) == 0 && (!goesOn(&got, over) || n > handTurns):
			if got.NextDue > 0 {
				h.due[queue] = got.NextDue
			}
			return nil, nil
		}
		h.w.reportRefused("claim an instance", got.Refused)
	}
}

// notClaimed gives back what a claim may have claimed in spite of its error, which it returns.
func (h *Hand) notClaimed(queue string, err error) error {
	if !store.Unknown(err) {
		return err
	}
	stray, cancel := context.WithTimeout(h.w.base, h.w.config.DrainGrace)
	defer cancel()
	return errors.Join(err, h.w.claims.releaseStrays(stray, queue))
}

// goesOn reports whether the next claim may find what this one, and those before, have not looked
// at. over: they have been around all lines.
func goesOn(c *store.Claimed, over bool) bool { return c.Cut && !over || c.Turn.Blind }

// lap follows claims through lines of more keys than one claim visits, until they have been around.
// Beside blocked keys a claim is cut off as often as it is sent.
type lap struct {
	starts  map[string]string // by party: behind which key the first claim has begun
	wrapped map[string]bool   // by party: claims have begun anew at its first key
}

// over reports whether the claims, the last of which went on at one turn and has left another, have
// visited all keys of all lines.
func (l *lap) over(before, after store.Turn) bool {
	over := true
	for party, g := range after.Gates {
		from := before.Gates[party].After
		start, begun := l.starts[party]
		if !begun {
			start, l.starts[party] = from, from
		}
		switch {
		case g.After == from: // this claim was not cut off here
			continue
		case g.After < from:
			l.wrapped[party] = true
		}
		over = over && l.wrapped[party] && g.After >= start
	}
	return over
}

// known returns the flights at steps that this worker knows, once they have the locks of their
// partition keys. It sets the others aside. With an error, it gives all back.
func (h *Hand) known(ctx context.Context, fs []*flight) (known []*flight, err error) {
	for _, f := range fs {
		if !h.w.knows(f.beat) {
			h.w.claims.setAside(h.w.base, []*flight{f}, "", h.w.flights.land)
			continue
		}
		known = append(known, f)
	}
	for _, f := range known {
		if err := h.unlock(ctx, f); err != nil {
			h.giveBack(known)
			return nil, err
		}
	}
	return known, nil
}

// NextDue returns how soon something becomes claimable that the claims since the last Wake have
// found waiting: for its time, or for the rate of its gate. It returns 0 if they have found
// nothing.
func (h *Hand) NextDue() (next time.Duration) {
	for _, d := range h.due {
		if next == 0 || d < next {
			next = d
		}
	}
	return next
}

// unlock waits for the lock of a claim's partition key.
func (h *Hand) unlock(ctx context.Context, f *flight) error {
	if f.beat.PartitionKey == "" {
		return nil
	}
	if len(h.w.keys.acquire([]*flight{f})) > 0 {
		return nil
	}
	select {
	case <-f.queue.admitted:
		return nil
	case <-ctx.Done():
	}
	f.cancel(fsm.ErrDraining) // so that the keyring lets go of it
	h.w.keys.signal()
	<-f.queue.admitted
	return fmt.Errorf("wait for partition key %q: %w", f.beat.PartitionKey, context.Cause(ctx))
}

// giveBack releases claims, with the instances unchanged.
func (h *Hand) giveBack(fs []*flight) {
	h.w.claims.giveBack(h.w.base, fs, h.w.flights.land)
}

// flights returns what was claimed, in the order in which a batch step gets it.
func (t *Taken) flights() []*flight {
	if t.group == nil {
		return []*flight{t.f}
	}
	return t.group.members
}

// Info identifies the step that was claimed, or the first of them.
func (t *Taken) Info() fsm.Info { return hidden.InfoOf(t.f.beat) }

// Infos identifies all that was claimed, in the order in which a batch step gets it.
func (t *Taken) Infos() (infos []fsm.Info) {
	for _, f := range t.flights() {
		infos = append(infos, hidden.InfoOf(f.beat))
	}
	return infos
}

// GiveBack releases the claims, with the instances unchanged.
func (t *Taken) GiveBack() { t.h.giveBack(t.flights()) }

// Run runs the step, or the batch step's one call, and commits what was decided. When ctx ends, Run
// cancels the step, which has the grace of a drain to return. Then it gives the claims back, with
// the instances unchanged.
func (t *Taken) Run(ctx context.Context) error {
	w, f := t.h.w, t.f
	if t.group != nil {
		w.executor.executeGroup(t.group)
	} else {
		w.executor.execute(f)
	}
	select {
	case <-f.queue.freed:
		return nil
	case <-ctx.Done():
	}
	for _, f := range t.flights() {
		f.cancel(fsm.ErrDraining)
	}
	grace := time.NewTimer(w.config.DrainGrace)
	defer grace.Stop()
	select {
	case <-f.queue.freed:
		return context.Cause(ctx)
	case <-grace.C:
		delete(t.h.queues, f.queue.name) // the step has its slot, perhaps for good
		return fmt.Errorf("step %q of instance %d still runs after the end of its context: return from it when the context ends: %w", f.beat.Step, f.beat.ID, context.Cause(ctx))
	}
}

// Machines lists the names and versions that this worker runs, in the form that claims use.
func (h *Hand) Machines() []string { return slices.Clone(h.w.machineIDs) }
