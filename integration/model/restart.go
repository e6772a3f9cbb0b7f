package model

import "slices"

// Restart runs the failed instances beneath an instance again that waits for it, or has failed; or
// a failed instance and the nodes that were skipped for it alone, if its parent waits for it.
// Parents wait for the instances that run again. Restart returns the instances that run again or
// wait anew, and the one asked for, ascending; nil if it changes nothing. taken reports that one of
// them would find its key with another: then nothing runs again.
func (w *World) Restart(id ID) (changed []ID, taken bool) {
	i := w.Get(id)
	r := &restart{w: w}
	if !r.plan(i) {
		return nil, false
	}
	before, history := make([]Instance, len(w.instances)), len(w.history)
	for n, i := range w.instances {
		before[n] = *i
	}
	for _, do := range r.todo {
		do()
	}
	if i.Status == AwaitingChildren && !slices.Contains(r.rerun, i) {
		r.rerun = append(r.rerun, i)
	}
	for _, i := range r.rerun {
		w.operated(i, "restart")
		changed = append(changed, i.ID)
		taken = taken || w.first(func(o *Instance) bool {
			return o != i && o.Key != "" && o.Key == i.Key && o.Scope.covers(o.Status) && i.Scope.covers(i.Status)
		}) != nil
	}
	if taken {
		for n, i := range w.instances {
			*i = before[n]
		}
		w.history = w.history[:history]
		return nil, true
	}
	slices.Sort(changed)
	return changed, false
}

// restart is a Restart that is being planned. It decides by what it finds before anything changes.
type restart struct {
	w     *World
	todo  []func()
	rerun []*Instance
}

// plan reports whether there is anything to restart.
func (r *restart) plan(i *Instance) bool {
	parent := r.w.Get(i.Parent)
	waited := parent != nil && parent.Status == AwaitingChildren && parent.Round == i.ParentRound
	switch {
	case i.Status == AwaitingChildren:
		if i.shut() || i.below() == 0 {
			return false
		}
		set := r.again(r.w.Children(i), (*Instance).failedItself)
		if len(set) == 0 {
			return false
		}
		r.await(i, set)
		r.counted(set)
		return true
	case i.Status != Failed, i.Joins() && i.Round < 0:
		return false
	case waited && (parent.shut() || i.skipped()):
		return false
	case waited:
		set := r.again(r.w.Children(parent), func(k *Instance) bool { return k == i })
		r.await(parent, set)
		r.counted(set)
		return true
	case i.Node != "": // its root has gone on
		return false
	case parent != nil && parent.Node != "" && parent.Status == Failed: // nobody would wait for it
		return false
	}
	pruned := i.Join.Round >= i.Round && i.Join.Size > len(r.w.Children(i))
	r.rerun = append(r.rerun, i)
	again := r.beneath([]*Instance{i})
	r.todo = append(r.todo, func() { r.w.runAgain(i, again[i]) })
	return !pruned || again[i] == nil || !again[i].graph
}

// below returns the round whose failures a Restart of the instance runs again, or 0. The ends of a
// stream have been shown.
func (i *Instance) below() int64 {
	if !i.Joins() {
		return 0
	}
	return max(i.Round, 0)
}

// shut reports whether the children of an instance that waits cannot be restarted: they come as a
// stream, or the rest of them is to be cancelled though it waits.
func (i *Instance) shut() bool {
	return i.Round < 0 || i.Round > 0 && slices.Contains(i.Losers, -i.Round)
}

// failedItself reports whether an instance has failed, and not since another had: also one that
// was skipped since its graph was over.
func (i *Instance) failedItself() bool {
	return i.Status == Failed && (i.Failure != "skipped" || i.Join.Failed == 0)
}

// skipped reports whether an instance was skipped, or is about to be.
func (i *Instance) skipped() bool { return i.Failure == "skipped" || i.toSkip() }

func (i *Instance) toSkip() bool {
	return i.Node != "" && i.Visit == 0 && i.Join.Failed > 0 && !i.Status.Terminal()
}

// met reports whether the end of its origin meets an edge. The origin has ended.
func (e Edge) met(origin *Instance) bool {
	return e.Needs == NeedsEnd || (e.Needs == NeedsFailed) == (origin.Status == Failed)
}

// again plans which of the children of a round run again: the seeds, and the nodes that were
// skipped for these. Nodes that wait behind them wait for them again.
func (r *restart) again(children []*Instance, seed func(*Instance) bool) (set []*Instance) {
	runs := map[*Instance]bool{}
	for _, k := range children {
		runs[k] = seed(k)
	}
	for grown := true; grown; {
		grown = false
		for _, k := range children {
			if !runs[k] && k.skipped() && r.w.skippedFor(k, runs) {
				runs[k], grown = true, true
			}
		}
	}
	for _, k := range children {
		switch {
		case runs[k]:
			set = append(set, k)
			r.rerun = append(r.rerun, k)
			if k.Node != "" && k.Visit == 0 {
				count := r.w.recount(k, runs)
				r.todo = append(r.todo, func() { r.w.waitAgain(k, count) })
			}
		case k.Visit == 0 && !k.skipped() && r.w.behind(k, runs):
			r.behind(k, r.w.recount(k, runs))
		}
	}
	return set
}

// behind plans what becomes of a node that has not begun, behind one that runs again.
func (r *restart) behind(k *Instance, count recount) {
	switch {
	case k.Status == AwaitingChildren:
		r.todo = append(r.todo, func() { k.count(count) })
	case k.Status == Runnable && !k.hasBegun() && count.waits():
		r.rerun = append(r.rerun, k)
		r.todo = append(r.todo, func() { r.w.waitAgain(k, count) })
	}
}

// behind reports whether an edge leads to a node from one that runs again.
func (w *World) behind(k *Instance, runs map[*Instance]bool) bool {
	return slices.ContainsFunc(w.Before(k.ID), func(e Edge) bool { return runs[w.Get(e.From)] })
}

// skippedFor reports whether a node was skipped for nodes that run again, and for no others.
func (w *World) skippedFor(k *Instance, runs map[*Instance]bool) bool {
	some, able := false, 0
	for _, e := range w.Before(k.ID) {
		from := w.Get(e.From)
		missed := from.Status.Terminal() && !e.met(from)
		some = some || missed && runs[from]
		switch {
		case e.Needs == NeedsAny && (!missed || runs[from]):
			able++
		case e.Needs != NeedsAny && missed && !runs[from]:
			return false
		}
	}
	return some && able >= k.Join.Quorum
}

// recount is what a node waits for, by the edges that lead to it.
type recount struct{ pending, misses, left, done int }

func (c recount) waits() bool { return c.pending > 0 && c.misses == 0 }

func (w *World) recount(k *Instance, runs map[*Instance]bool) (c recount) {
	for _, e := range w.Before(k.ID) {
		from := w.Get(e.From)
		comes := runs[from] || !from.Status.Terminal()
		switch {
		case e.Needs == NeedsAny && comes:
			c.left++
		case e.Needs == NeedsAny && e.met(from):
			c.done++
		case e.Needs == NeedsAny:
		case comes:
			c.pending++
		case !e.met(from):
			c.misses++
		}
	}
	switch k := k.Join.Quorum; {
	case c.done >= k:
	case c.done+c.left < k:
		c.misses++
	default:
		c.pending++
	}
	return c
}

func (i *Instance) count(c recount) {
	i.Pending, i.Join.Failed = c.pending, c.misses
	if i.Join.Quorum > 0 {
		i.Join.Size, i.Join.Done = c.left, c.done
	}
}

// waitAgain lets a node at its first visit wait for what it has waited for, as far as that is to
// come. If nothing is, it goes on at once.
func (w *World) waitAgain(k *Instance, c recount) {
	k.count(c)
	w.reset(k, c.waits())
	k.Begun = false
}

// await lets a parent that waits wait for children that run again, as far as it has counted them.
func (r *restart) await(parent *Instance, set []*Instance) {
	more, failed := 0, 0
	for _, k := range set {
		if k.Joined {
			more++
			if k.Failure != "skipped" {
				failed++
			}
		}
	}
	r.todo = append(r.todo, func() {
		if parent.Pending += more; parent.Join.Round >= parent.Round {
			parent.Join.Failed = max(parent.Join.Failed-failed, 0)
			parent.Join.Failures = lowered(parent.Join.Failures, failed)
			parent.Join.Ends = lowered(parent.Join.Ends, failed)
		}
	})
}

// lowered is a threshold of a Rejoin when so many of the ends that it contains are void. It stays a
// threshold: 0 is none.
func lowered(threshold, by int) int { return min(threshold, max(threshold-by, 1)) }

// round is a round for which a failed instance waits once more.
type round struct {
	size, done, pending, skipped int
	graph                        bool
}

// beneath plans what runs again beneath instances that do, and returns the rounds for which these
// wait.
func (r *restart) beneath(set []*Instance) map[*Instance]*round {
	rounds := map[*Instance]*round{}
	for _, p := range set {
		if p.Status != Failed || p.below() == 0 {
			continue
		}
		again := r.again(r.w.Children(p), (*Instance).failedItself)
		var b round
		for _, k := range r.w.Children(p) {
			if b.size++; k.Status == Done {
				b.done++
			}
			if !k.Joined || slices.Contains(again, k) {
				b.pending++
			}
			if k.Failure == "skipped" && !slices.Contains(again, k) {
				b.skipped++
			}
			b.graph = b.graph || k.Node != ""
		}
		if b.pending > 0 {
			rounds[p] = &b
		}
		r.counted(again)
	}
	return rounds
}

// counted plans that children run again whose next ends their parents count.
func (r *restart) counted(set []*Instance) {
	rounds := r.beneath(set)
	for _, k := range set {
		r.todo = append(r.todo, func() {
			if k.Joined, k.Retried = false, false; k.Node == "" || k.Visit > 0 {
				r.w.runAgain(k, rounds[k])
			}
		})
	}
}

// runAgain lets an instance run again at its step, as after a Redrive, or first wait for the
// children of a round: for all of them, since the policy of its join has had its effect.
func (w *World) runAgain(i *Instance, of *round) {
	w.reset(i, of != nil)
	if of == nil {
		return
	}
	if i.Pending = of.pending; i.Join.Round >= i.Round {
		i.Join.Size, i.Join.Done, i.Join.Failed = of.size, of.done, of.size-of.done-of.pending-of.skipped
	}
	i.Join.Quorum, i.Join.Failures, i.Join.Ends = 0, 0, 0
	i.Awaits, i.TimedOut = nil, false
	i.Losers = without(i.Losers, func(n int64) bool { return amount(n) == i.Round })
	if of.graph { // what is left of it is cancelled when its root ends again
		i.Graphs = append(without(i.Graphs, func(n int64) bool { return n == i.Round }), i.Round)
	}
}

// reset makes an instance live again, and ends a claim that it has. An instance that had not ended
// keeps its pause, its deadline, and its place in the queue while it waits.
func (w *World) reset(i *Instance, waits bool) {
	lived := !i.Status.Terminal()
	i.unclaim()
	i.Failure, i.FinishedAt, i.RunPlace, i.Stray = "", Never, "", false
	i.Attempt, i.Crashes, i.Deadline = 0, 0, Never
	i.Retried = i.Joined
	i.Paused = i.Paused && lived
	if !lived && i.Expiry <= w.Now {
		i.Expiry = Never
	}
	if i.Status = Runnable; waits {
		i.Status, i.LastError = AwaitingChildren, ""
	}
	if !waits || !lived {
		i.EligibleAt = w.Now
	}
}
