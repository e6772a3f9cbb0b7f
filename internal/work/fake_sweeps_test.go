package work

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// This file has the parts of the fake that maintain rows instead of moving them on: polls and
// sweeps.

func (db *fake) Poll(ctx context.Context, queues, machines, lines []string) (store.Polled, error) {
	due := map[string]time.Duration{}
	out := store.Polled{Due: due}
	if lines != nil {
		out.Lines = map[string]bool{}
	}
	queues = slices.Clone(queues)
	slices.Sort(queues)
	err := db.send(ctx, "poll", strings.Join(queues, " "), func() error {
		for _, r := range db.rows {
			if r.status == fsm.StatusRunnable && slices.Contains(queues, r.Queue) && (r.lane == 0 || r.lane == 2 && slices.Contains(machines, r.machine())) {
				if at, ok := due[r.Queue]; !ok || time.Until(r.eligible) < at {
					due[r.Queue] = time.Until(r.eligible)
				}
			}
			out.Strays = out.Strays || r.due() && r.lane == 4 && !r.paused
			if r.status == fsm.StatusAwaitingSignal && (!out.Awaits || time.Until(r.deadline) < out.Deadline) {
				out.Deadline, out.Awaits = time.Until(r.deadline), true
			}
		}
		if db.flood["time out"] {
			out.Awaits, out.Deadline = true, 0
		}
		defer func() { // over what the rows say
			out.Overdue, out.Rest = out.Overdue || db.flood["expire"], out.Rest || db.flood["cancel rest"]
			out.Skips, out.Keeping = out.Skips || db.flood["skip"], db.flood["hand over"]
		}()
		out.Paused, out.Gates, out.Own = slices.Clone(db.paused), slices.Clone(db.gates), maps.Clone(db.own)
		out.Overdue, out.Rest, out.Skips = len(db.overdue()) > 0, len(db.rested) > 0, len(db.skipped) > 0
		out.Fires, out.Fire = !db.scheduled.IsZero(), time.Until(db.scheduled)
		return nil
	})
	return out, err
}

// overdue returns the rows that a sweep of deadlines looks for, locked or not. The caller holds mu.
func (db *fake) overdue() []*row {
	return db.sorted(func(r *row) bool {
		return !r.Deadline.IsZero() && !r.Deadline.After(time.Now()) && !r.terminal() && r.status != fsm.StatusExecuting
	})
}

func (db *fake) Expire(ctx context.Context, _ string, limit int) (out store.Expired, err error) {
	err = db.send(ctx, "expire", "", func() error {
		if db.flood["expire"] {
			out.Failed = make([]int64, limit)
			return nil
		}
		for _, r := range db.overdue() {
			parent := db.rows[r.Parent]
			if len(out.Failed) == limit || r.locked() || parent != nil && parent.locked() {
				continue
			}
			if r.ID == db.poisoned {
				if time.Since(db.refused) > time.Minute {
					db.refused = time.Now()
					out.Refused = append(out.Refused, store.Refused{ID: r.ID, Err: refusal("23514")})
				}
				continue
			}
			runnable := r.status == fsm.StatusRunnable
			r.status, r.failure = fsm.StatusFailed, string(fsm.FailureDeadline)
			out.Failed = append(out.Failed, r.ID)
			if parent != nil && parent.status == fsm.StatusAwaitingChildren {
				if parent.pending--; parent.pending == 0 {
					parent.status, parent.eligible = fsm.StatusRunnable, time.Now()
					out.Queues = append(out.Queues, parent.Queue)
				}
			}
			if runnable && r.PartitionKey != "" {
				db.promote([]string{r.PartitionKey}, &out.Promotion)
			}
		}
		return nil
	})
	return out, err
}

func (db *fake) TimeOut(ctx context.Context, limit int) (out store.TimedOut, err error) {
	err = db.send(ctx, "time out", "", func() error {
		if db.flood["time out"] {
			out.Queues = make([]string, limit)
			return nil
		}
		for _, r := range db.rows {
			if r.status == fsm.StatusAwaitingSignal && !r.deadline.After(time.Now()) && !r.locked() && len(out.Queues) < limit {
				r.status, r.eligible, r.TimedOut = fsm.StatusRunnable, time.Now(), true
				out.Queues = append(out.Queues, r.Queue)
			}
		}
		return nil
	})
	return out, err
}

func (db *fake) Reap(ctx context.Context, _ string, limits store.CrashLimits, limit int) (out store.Reaped, err error) {
	err = db.send(ctx, "reap", "", func() error {
		if limit == 0 || db.flood["reap"] {
			out.Released = limit
			return nil
		}
		for _, r := range db.sorted(func(r *row) bool {
			return r.status == fsm.StatusExecuting && r.lease.Before(time.Now()) && !r.locked()
		}) {
			if out.Released+len(out.Failed) == limit {
				break
			}
			db.lose(r)
			r.Attempt, r.Crashes = r.Attempt+1, r.Crashes+1
			r.status, r.lane = fsm.StatusRunnable, 0
			if i := slices.Index(limits.Machines, r.machine()); i >= 0 && limits.Limits[i] > 0 && r.Crashes > int(limits.Limits[i]) {
				r.status, r.failure = fsm.StatusFailed, string(fsm.FailureCrashes)
				out.Failed = append(out.Failed, r.ID)
			} else {
				out.Released++
				out.Queues = append(out.Queues, r.Queue)
			}
			db.release(r, &out.Promotion)
		}
		return nil
	})
	return out, err
}

func (db *fake) Uptime(ctx context.Context) (up time.Duration, err error) {
	err = db.send(ctx, "uptime", "", func() error { up = time.Since(db.booted); return nil })
	return up, err
}

func (db *fake) Promote(ctx context.Context, keys []string) (p store.Promotion, err error) {
	err = db.send(ctx, "promote", fmt.Sprint(keys), func() error {
		if db.flood["promote"] {
			for range keys { // others, and as many
				db.ids++
				p.Missed = append(p.Missed, fmt.Sprint("missed ", db.ids))
			}
			return nil
		}
		db.settle(keys, &p)
		return nil
	})
	return p, err
}

func (db *fake) Sweep(ctx context.Context, _ string, _ int, own *store.InFlight) (last string, p store.Promotion, err error) {
	err = db.send(ctx, "sweep", "", func() error {
		if db.flood["sweep"] {
			last = "k"
			return nil
		}
		var still []string
		for _, r := range db.rows {
			if r.PartitionKey != "" && r.due() && r.lane == 1 && !slices.Contains(still, r.PartitionKey) {
				if anchor, _ := db.anchor(r); anchor.status != fsm.StatusExecuting {
					still = append(still, r.PartitionKey)
				}
			}
		}
		db.promote(still, &p)
		if own != nil {
			db.forget(own)
		}
		return nil
	})
	return last, p, err
}

func (db *fake) HandOver(ctx context.Context, _ string) (out store.Handed, err error) {
	err = db.send(ctx, "hand over", "", func() error {
		if db.flood["hand over"] {
			out.Last = "k"
		}
		return nil
	})
	return out, err
}

func (db *fake) FreeRows(context.Context, time.Duration) (ended int, err error) { return 0, nil }

func (db *fake) RollHistory(context.Context, time.Duration) (store.Rolled, error) {
	return db.rolled, nil
}

func (db *fake) Prune(ctx context.Context, p store.PruneParams) (done store.Pruned, err error) {
	slice := func(do func() error) error {
		return p.Slice(ctx, func(ctx context.Context) error { return db.send(ctx, "prune", "", do) })
	}
	for db.flood["prune"] && err == nil {
		err = slice(func() error { return nil })
	}
	if err != nil {
		return done, err
	}
	err = slice(func() error {
		done.Instances, db.old = db.old, 0
		return nil
	})
	if p.Archive != nil && err == nil {
		if fault := p.Archive(ctx, "default", []int64{1, 2}); fault != nil {
			done.Kept = map[string]error{"default": fault}
		}
	}
	return done, err
}

func (db *fake) Holder(ctx context.Context, of store.Address) (h store.Holder, ok bool, err error) {
	err = db.send(ctx, "holder", "", func() error {
		r := db.rows[of.ID]
		h, ok = store.Holder{PID: 4711, State: "idle in transaction"}, r != nil && r.locked()
		return nil
	})
	return h, ok, err
}

func (db *fake) Complete(ctx context.Context, worker string, c *step.Claim, _ int) (held bool, err error) {
	err = db.send(ctx, "complete", fmt.Sprint(c.ID), func() error {
		r := db.rows[c.ID]
		if held = r.fence(c, worker); held {
			c.State, c.Partial = r.State, false
		}
		return nil
	})
	return held, err
}

func (db *fake) Inbox(ctx context.Context, _, _ int64) ([]step.Signal, bool, error) {
	return nil, false, db.send(ctx, "inbox", "", func() error { return nil })
}

func (db *fake) Publish(ctx context.Context, worker string, id, token int64, _ []byte) (held bool, err error) {
	err = db.send(ctx, "publish", fmt.Sprint(id), func() error {
		r := db.rows[id]
		held = r.fence(&step.Claim{ID: id, Token: token}, worker)
		return nil
	})
	return held, err
}

// Round reads no child yet.
func (db *fake) Round(ctx context.Context, parent, _ int64) (_ []step.Child, behind []int64, err error) {
	err = db.send(ctx, "round", fmt.Sprint(parent), func() error {
		for _, r := range db.rows {
			if r.Parent == parent {
				behind = append(behind, r.ID)
			}
		}
		return nil
	})
	return nil, behind, err
}

// Portion shows a stream all at once, if none of its children is locked.
func (db *fake) Portion(ctx context.Context, c *step.Claim, wait time.Duration) (out store.Portion, err error) {
	err = db.send(ctx, "portion", fmt.Sprint(c.ID), func() error {
		for _, r := range db.rows {
			if r.Parent == c.ID && r.held.After(time.Now().Add(wait)) {
				return refusal("55P03")
			}
		}
		out = store.Portion{Held: true, Stream: true}
		return nil
	})
	return out, err
}

// EndIsFree knows no rows that wait for nodes.
func (db *fake) EndIsFree(ctx context.Context, c *step.Claim) (free bool, err error) {
	err = db.send(ctx, "end is free", fmt.Sprint(c.ID), func() error {
		p := db.rows[c.Parent]
		free = p == nil || !p.locked()
		return nil
	})
	return free, err
}

func (*fake) Shorten(context.Context, *step.Claim, []int64) (store.Portion, error) {
	panic("no test streams")
}

// Children reads one child per page.
func (db *fake) Children(ctx context.Context, ids []int64) (page []step.Child, behind []int64, err error) {
	err = db.send(ctx, "children", fmt.Sprint(ids), func() error {
		if r := db.rows[ids[0]]; r != nil {
			page = append(page, step.Child{ID: r.ID, Status: string(r.status)})
		}
		return nil
	})
	return page, ids[1:], err
}

// Feed has nothing to read: the fake has no graphs.
func (*fake) Feed(_ context.Context, claims []*step.Claim, _ int) error {
	for _, c := range claims {
		c.Upstream = []step.Upstream{}
	}
	return nil
}

func (db *fake) Throttle(ctx context.Context, key string, after time.Duration) error {
	return db.send(ctx, "throttle", key, func() error {
		db.throttled = append(db.throttled, fmt.Sprint(key, " ", after))
		return nil
	})
}

func (db *fake) Scout(ctx context.Context, queue, from string, _ int, _ bool, _ time.Duration) (out store.Scouted, err error) {
	err = db.send(ctx, "scout", queue+" "+from, func() error {
		if db.flood["scout"] {
			out.Next = from + "x"
		}
		return nil
	})
	return out, err
}

func (db *fake) Refile(ctx context.Context, _ *store.Filed, _ int) (queues []string, more bool, err error) {
	err = db.send(ctx, "refile", "", func() error {
		db.refiled++
		queues, more = []string{"default"}, db.refiled == 1 || db.flood["refile"]
		return nil
	})
	return queues, more, err
}

// CancelRest does what the test has set.
func (db *fake) CancelRest(ctx context.Context, _ string, after int64, _ int) (out store.Rested, err error) {
	err = db.send(ctx, "cancel rest", fmt.Sprint(after), func() error {
		out.Full = db.flood["cancel rest"]
		if len(db.rested) > 0 {
			out, db.rested = db.rested[0], db.rested[1:]
		}
		return nil
	})
	return out, err
}

// Skip does what the test has set.
func (db *fake) ToSkip(ctx context.Context) (some bool, err error) {
	err = db.send(ctx, "to skip", "", func() error {
		some = db.passedBy > 0
		db.passedBy--
		return nil
	})
	return some, err
}

func (db *fake) Skip(ctx context.Context, _ string, after int64, _ int) (out store.Skipped, err error) {
	err = db.send(ctx, "skip", fmt.Sprint(after), func() error {
		if db.flood["skip"] {
			out.Last = after + 1
		}
		if len(db.skipped) > 0 {
			out, db.skipped = db.skipped[0], db.skipped[1:]
		}
		return nil
	})
	return out, err
}
