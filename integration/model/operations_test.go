package model_test

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// insert inserts instances in one call. It makes their uids.
func (p *pair) insert(specs ...model.Spec) []model.ID {
	p.logf("insert(%s)", brief(specs))
	reals := make([]*step.Spec, len(specs))
	for n := range specs {
		specs[n].UID = p.uid()
		reals[n] = realSpec(&specs[n])
	}
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.Insert(ctx, reals)
	require.NoError(p, err)
	ids := make([]model.ID, len(specs))
	for n, want := range p.model.Insert(specs) {
		require.Equal(p, want.Duplicate, got[n].Duplicate, "insert %d", n)
		p.met(want.ID, got[n].ID)
		ids[n] = want.ID
	}
	return ids
}

// worker is a worker's name and the machines that it knows.
type worker struct {
	name     string
	machines []model.Machine
}

func (w *worker) knows(m model.Machine) bool { return slices.Contains(w.machines, m) }

func (w *worker) ids() []string {
	ids := make([]string, len(w.machines))
	for n, m := range w.machines {
		ids[n] = store.MachineID(m.Name, m.Version)
	}
	return ids
}

// look is the way in which a claim looks at its queue.
type look string

// A claim looks at as many rows as it wants, as the scheduler does while nothing is in the way; or
// at the whole queue; or behind the place of the last claim, and only then from the front.
const (
	narrow look = "narrow"
	wide   look = "wide"
	behind look = "behind"
)

// claim claims like a scheduler, until the limit is reached or no more rows come: it repeats a
// claim that has moved rows out of the way, or has met rows that another session blocks. With a
// wide look, which sees the whole queue, the order must be the model's. Otherwise each claim must
// be one that the model allows. In any case no row may be missing in the end.
func (p *pair) claim(w *worker, queue string, limit int, as look) []claim {
	if p.gated {
		p.refile(2)
	}
	p.logf("claim(%s, %q, %d, %s)", w.name, queue, limit, as)
	params := store.ClaimParams{Queue: queue, Worker: w.name, Machines: w.ids(), Limit: limit, Window: limit, Lease: lease}
	if as == wide {
		params.Window = 1000
	}
	params.Gated = p.gated
	params.Seats = slices.ContainsFunc(p.model.Gates(), func(g model.Gate) bool { return g.Name == seats && g.Queue == queue })
	if as == behind {
		params.After = p.last[queue]
	}
	params.Plain = limit%2 == 0
	var claims []claim
	settled := false
	vain := 0 // claims in a row that met nothing but rows in line which strangers hold
	for rounds := 0; ; rounds++ {
		require.Less(p, rounds, 100, "a claim that moves rows without end")
		ctx, cancel := p.context()
		got, err := p.Claim(ctx, params)
		cancel()
		require.NoError(p, err)
		if params.Plain && got.Keyed && len(got.Claims) == 0 {
			params.Plain = false
			continue
		}
		before := p.newest
		for _, c := range got.Claims {
			require.Greater(p, c.Token, before, "claim tokens grow")
			require.GreaterOrEqual(p, c.FencingToken, c.Token)
			p.newest = max(p.newest, c.FencingToken)
			claims = append(claims, p.claimed(w, queue, c, as == wide && !p.gated))
		}
		for _, c := range claims[len(claims)-len(got.Claims):] {
			p.compareChildren(&c)
		}
		if len(got.Claims) > 0 {
			p.last[queue] = got.Last
		}
		p.miss(got.Unsettled)
		if len(claims) == limit {
			return claims
		}
		params.Limit = limit - len(claims)
		p.lines = got.Turn
		params.Lines = p.lines
		params.MoveBlocked = got.Blocked+len(got.Unsettled) > 0
		switch {
		case got.Moved > 0 || got.Left > 0 || got.More || got.Cut || params.MoveBlocked:
			params.Window = 1000
		case !settled && len(p.missed) > 0:
			settled = true
			p.settle()
		case params.After != store.Place{}:
			params.After = store.Place{}
		case p.gated && vain < 10 && len(p.left(w, queue)) > 0: // the next goes on behind the keys that this one has met
			vain++
		default:
			require.Empty(p, p.left(w, queue), "claimable, but not claimed")
			if p.gated { // a rate may be due before
				return claims
			}
			require.Equal(p, p.model.NextDue(queue), model.Moment(max(got.NextDue, time.Duration(model.Never))), "next due")
			return claims
		}
	}
}

func (p *pair) left(w *worker, queue string) (ids []model.ID) {
	for _, i := range p.model.Claimable(queue, w.knows) {
		ids = append(ids, i.ID)
	}
	return ids
}

func (p *pair) claimed(w *worker, queue string, got *step.Claim, inOrder bool) claim {
	id, known := p.models[got.ID]
	if !known {
		i := p.model.Instances(func(i *model.Instance) bool { return i.UID == modelUID(got.UID) })
		require.Len(p, i, 1, "claimed instance with uid %x", got.UID)
		id = i[0].ID
		p.met(id, got.ID)
	}
	left := p.left(w, queue)
	require.NotEmpty(p, left, "instance %d is not claimable: nothing is", id)
	if inOrder {
		require.Equal(p, left[0], id, "next to be claimed, of %v", left)
	}
	want, ok := p.model.ClaimOnly(id, w.name, queue, w.knows, lease)
	require.True(p, ok, "instance %d is not claimable, of %v", id, left)
	if got.Partial {
		ctx, cancel := p.context()
		defer cancel()
		held, err := p.Complete(ctx, w.name, got, math.MaxInt32)
		require.NoError(p, err)
		require.True(p, held)
	}
	require.Equal(p, seenModel(&want), p.seenReal(got))
	p.tokens[got.Token] = want.Token
	p.logf("  claimed %s", brief(seenModel(&want)))
	return claim{want, got}
}

// compareChildren compares the children that a joining step reads when it starts, and what a node
// has waited for.
func (p *pair) compareChildren(c *claim) {
	p.compareUpstream(c)
	if !c.real.Joins() {
		return
	}
	if c.real.Round < 0 && p.portion(c) {
		return
	}
	ctx, cancel := p.context()
	defer cancel()
	got, behind, err := p.Round(ctx, c.real.ID, c.real.Round)
	require.NoError(p, err)
	require.Empty(p, behind)
	want := p.model.Children(&c.Instance)
	require.Len(p, got, len(want), "children of instance %d", c.ID)
	for n, child := range want {
		require.Equal(p, p.asChild(child), got[n])
	}
}

func (p *pair) asChild(i *model.Instance) step.Child {
	return step.Child{
		ID: p.ids[i.ID], Node: i.Node, Machine: i.Machine.Name, Version: i.Machine.Version, Status: string(i.Status),
		State: []byte(i.State), Result: result(i.Result), Failure: i.Failure, LastError: i.LastError,
		Retried: i.Retried,
	}
}

// compareUpstream compares what a node has waited for, and whether it is skipped.
func (p *pair) compareUpstream(c *claim) {
	if !c.real.Unfed() {
		return
	}
	ctx, cancel := p.context()
	defer cancel()
	require.NoError(p, p.Feed(ctx, []*step.Claim{c.real}, math.MaxInt32))
	want := []step.Upstream{}
	for _, e := range p.model.Before(c.ID) {
		want = append(want, step.Upstream{Child: p.asChild(p.model.Get(e.From)), Needs: step.Need(e.Needs)})
	}
	require.Equal(p, want, c.real.Upstream, "what node %d has waited for", c.ID)
	require.Equal(p, p.model.Skips(&c.Claim), c.real.Skip != "", "node %d: %s", c.ID, c.real.Skip)
}

func result(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// decision is an outcome for a claim.
type decision struct {
	claim
	outcome model.Outcome
	keep    bool
}

// commit commits outcomes of one worker's claims in one batch, and returns the claims that go on:
// those that were kept, and the claims whose outcomes were left out since another session holds a
// row. All others that were not applied must have been stale.
func (p *pair) commit(slow bool, decisions ...decision) (on []claim) {
	entries, batch := make([]store.Entry, len(decisions)), make([]model.Entry, len(decisions))
	var parents []int64
	for n := range decisions {
		d := &decisions[n]
		p.logf("commit(slow %t, of %s, claim %d of %d at visit %d, keep %t, %s)", slow, d.Worker, d.Token, d.ID, d.Visit, d.keep, brief(d.outcome))
		for c := range d.outcome.Children {
			d.outcome.Children[c].UID = p.uid()
		}
		if a := d.outcome.Add; a != nil {
			for c := range a.Specs {
				a.Specs[c].UID = p.uid()
			}
			parents = append(parents, d.real.Parent)
		}
		entries[n] = p.noted(store.Entry{Claim: d.real, Commit: realCommit(&d.outcome), Keep: d.keep}, d.Machine)
		batch[n] = model.Entry{Claim: d.Claim, Outcome: d.outcome, Keep: d.keep}
		if len(d.outcome.Children) > 0 {
			parents = append(parents, d.real.ID)
		}
	}
	ctx, cancel := p.context()
	defer cancel()
	m := mark()
	name := decisions[0].Worker
	var wait time.Duration
	if slow {
		wait = time.Second
	}
	got, err := p.Commit(ctx, name, m, entries, wait)
	if p.refusesAdditions(&decisions[0], &batch[0], err) {
		return []claim{decisions[0].claim}
	}
	require.NoError(p, err)
	p.missBehind(decisions, got.Missed)
	var rest []store.Entry
	verdicts := map[int64]store.Verdict{}
	for n, want := range p.model.Commit(batch) {
		d := &decisions[n]
		require.Equal(p, want, got.Applied[d.real.ID], "outcome %d applied", n)
		switch {
		case want && p.model.Get(d.ID).Unmarked(&d.outcome):
			verdicts[d.real.ID] = store.Stale
		case want:
			verdicts[d.real.ID] = store.Mine
		case p.model.Holds(&d.Claim):
			verdicts[d.real.ID] = store.Held
			if !p.rowsHeld(d) { // but a node that waits for it
				verdicts[d.real.ID] = store.Current
			}
			on = append(on, d.claim)
		default:
			verdicts[d.real.ID] = store.Stale
		}
		if !want {
			rest = append(rest, entries[n])
		}
		if want && d.keep {
			on = append(on, claim{batch[n].Advanced(&p.model), advanced(d.real, entries[n].Commit)})
		}
	}
	// If the answer had been lost, the rows would say the same; but nothing of who gave way.
	for _, of := range [][]store.Entry{rest, entries} {
		said, err := p.Resolve(ctx, name, slices.Repeat([][]string{{mark(), m}}, len(of)), of, 0)
		require.NoError(p, err)
		for _, e := range of {
			require.Equal(p, verdicts[e.Claim.ID], said[e.Claim.ID], "what became of %d", e.Claim.ID)
		}
	}
	p.meetChildren(parents)
	return on
}

// stuck reports whether an outcome cannot be applied now, since another session holds a row that it
// needs.
func (p *pair) stuck(d *decision) bool {
	return p.rowsHeld(d) || d.ends() && p.model.HeldBehind(d.ID)
}

// rowsHeld reports whether another session holds the row of an outcome, or the parent's that it
// joins.
func (p *pair) rowsHeld(d *decision) bool {
	return p.model.Held(d.ID) || d.ends() && d.Parent != 0 && p.model.Held(d.Parent)
}

func (d *decision) ends() bool { return d.outcome.Kind == model.Finish || d.outcome.Kind == model.Fail }

// slow reports whether an outcome has to wait for others.
func (d *decision) slow() bool {
	return slices.ContainsFunc(d.outcome.Children, func(s model.Spec) bool { return s.Key != "" })
}

// transact commits an outcome in its step's own transaction, and returns the claim if it was kept.
func (p *pair) transact(d decision) (kept []claim) {
	p.logf("transact(of %s, claim %d of %d at visit %d, keep %t, %s)", d.Worker, d.Token, d.ID, d.Visit, d.keep, brief(d.outcome))
	for c := range d.outcome.Children {
		d.outcome.Children[c].UID = p.uid()
	}
	entry := p.noted(store.Entry{Claim: d.real, Commit: realCommit(&d.outcome), Keep: d.keep}, d.Machine)
	batch := []model.Entry{{Claim: d.Claim, Outcome: d.outcome, Keep: d.keep}}
	ctx, cancel := p.context()
	defer cancel()
	begins := p.model.Holds(&d.Claim)
	got, err := p.Transact(ctx, ctx, d.Worker, mark(), d.real, 0, func(any) (store.Entry, error) { return entry, nil })
	require.NoError(p, err)
	require.Equal(p, begins, got.Decided, "whether its function is called")
	applied := p.model.Commit(batch)[0]
	require.Equal(p, applied, got.Applied[d.real.ID], "applied")
	p.missBehind([]decision{d}, got.Missed)
	if applied && d.keep {
		kept = append(kept, claim{batch[0].Advanced(&p.model), advanced(d.real, entry.Commit)})
	}
	if len(d.outcome.Children) > 0 {
		p.meetChildren([]int64{d.real.ID})
	}
	return kept
}

// advanced returns a kept claim in the form in which its executor continues with it.
func advanced(c *step.Claim, o *step.Commit) *step.Claim {
	next := *c
	next.Step, next.State = o.Step, o.State
	next.Visit++
	next.Attempt, next.Crashes = 0, 0
	next.TimedOut, next.Awaited = false, nil
	next.Partial, next.Omitted = false, false
	next.Children, next.Dropped, next.Upstream = nil, nil, nil
	return &next
}

func (p *pair) meetChildren(parents []int64) {
	if len(parents) == 0 {
		return
	}
	ctx, cancel := p.context()
	defer cancel()
	rows, err := p.pool.Query(ctx, `SELECT id, uid FROM gendurable.gen_durable WHERE parent_id = ANY($1)`, parents)
	require.NoError(p, err)
	defer rows.Close()
	byUID := map[int]model.ID{}
	for _, i := range p.model.Instances(func(i *model.Instance) bool { return i.Parent != 0 }) {
		byUID[i.UID] = i.ID
	}
	for rows.Next() {
		var id int64
		var uid [16]byte
		require.NoError(p, rows.Scan(&id, &uid))
		require.Contains(p, byUID, modelUID(uid), "a child that should not be")
		p.met(byUID[modelUID(uid)], id)
	}
	require.NoError(p, rows.Err())
}

// deliver sends a signal.
func (p *pair) deliver(to model.Address, name, payload, dedupKey string) {
	p.logf("deliver(%s, %q, %q)", brief(to), name, dedupKey)
	ctx, cancel := p.context()
	defer cancel()
	address := store.Address{ID: p.ids[to.ID], Key: to.Key}
	want, wantErr := p.model.Deliver(to, name, payload, dedupKey, inboxCap)
	got, err := p.Deliver(ctx, address, &step.Signal{Name: name, Payload: []byte(payload), DedupKey: dedupKey}, inboxCap)
	p.sameDelivery(want, wantErr, got, err)
}

// deliverMany sends signals in one transaction, which the model sends one after the other.
func (p *pair) deliverMany(list []letter) {
	p.logf("deliverMany(%v)", list)
	ctx, cancel := p.context()
	defer cancel()
	var letters []store.Letter
	for _, l := range list {
		letters = append(letters, store.Letter{To: store.Address{ID: p.ids[l.to.ID], Key: l.to.Key},
			Signal: &step.Signal{Name: l.name, Payload: []byte(l.payload), DedupKey: l.dedupKey}})
	}
	got, err := p.DeliverMany(ctx, letters, inboxCap)
	require.NoError(p, err)
	require.Len(p, got, len(list))
	woken := map[int64]bool{} // an answer says whether one of the letters woke the target
	wants, errs := make([]model.Delivery, len(list)), make([]error, len(list))
	for i, l := range list {
		wants[i], errs[i] = p.model.Deliver(l.to, l.name, l.payload, l.dedupKey, inboxCap)
		woken[got[i].Target] = woken[got[i].Target] || wants[i].Woken
	}
	for i := range list {
		wants[i].Woken = woken[got[i].Target] && errs[i] == nil && !wants[i].Duplicate
		p.sameDelivery(wants[i], errs[i], got[i].Delivery, got[i].Err)
	}
}

// letter is a signal with its address.
type letter struct {
	to                      model.Address
	name, payload, dedupKey string
}

// sameDelivery compares the results of a delivery.
func (p *pair) sameDelivery(want model.Delivery, wantErr error, got store.Delivery, err error) {
	switch {
	case errors.Is(wantErr, model.ErrNoTarget):
		require.ErrorIs(p, err, store.ErrNoTarget)
	case errors.Is(wantErr, model.ErrInboxFull):
		require.ErrorIs(p, err, store.ErrInboxFull)
	default:
		require.NoError(p, err)
		require.Equal(p, want, model.Delivery{Target: p.models[got.Target], Woken: got.Woken, Duplicate: got.Duplicate})
		require.Equal(p, p.model.Get(want.Target).Queue, got.Queue)
	}
}

func columns(claims []claim) (models []model.Claim, reals []*step.Claim) {
	for _, c := range claims {
		models, reals = append(models, c.Claim), append(reals, c.real)
	}
	return models, reals
}

// beat extends leases.
func (p *pair) beat(w *worker, claims ...claim) {
	p.logf("beat(%s, %d claims)", w.name, len(claims))
	models, reals := columns(claims)
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.line.Beat(ctx, w.name, reals, lease)
	require.NoError(p, err)
	lost := p.ofRows(got.Lost)
	want := p.model.Beat(models, lease)
	slices.Sort(want)
	require.Equal(p, want, lost, "claims lost")
	held := 0
	for _, c := range claims {
		if p.model.Held(c.ID) {
			held++
		}
	}
	require.Len(p, got.Extended, len(claims)-len(lost)-held)
}

// release gives claims back.
func (p *pair) release(w *worker, claims ...claim) {
	for _, c := range claims {
		p.logf("release(%s, claim %d of %d, ran %t)", w.name, c.Token, c.ID, c.Ran)
		c.real.Begun = c.Ran
	}
	models, reals := columns(claims)
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.Release(ctx, w.name, reals)
	require.NoError(p, err)
	p.miss(got.Missed)
	p.requireLocked(models, got)
	require.Equal(p, p.model.Release(models), got.Claims, "claims released")
}

// requireLocked expects that claims stay which hold, and whose rows another session has locked.
func (p *pair) requireLocked(claims []model.Claim, got store.Released) {
	var want []int64
	for _, id := range p.model.Locked(claims) {
		want = append(want, p.ids[id])
	}
	require.ElementsMatch(p, want, got.Locked, "claims whose rows are locked")
}

// crashLimits are the crash limits of the machines; 0 is unlimited.
var crashLimits = map[model.Machine]int{machines[0]: 1, machines[1]: 3, machines[2]: 0}

// reap sweeps expired leases, at most that many at a time, by a worker that knows only the limits
// of its machines. Like the worker's own sweep, and the sweeps below, it goes on while it finds as
// many as it looks for.
func (p *pair) reap(w *worker, most int) {
	p.logf("reap(%s, %d)", w.name, most)
	ctx, cancel := p.context()
	defer cancel()
	limits := store.CrashLimits{Machines: w.ids()}
	for _, m := range w.machines {
		limits.Limits = append(limits.Limits, int32(crashLimits[m]))
	}
	var all store.Reaped
	var pages [][]model.ID
	for found := most; found == most; {
		got, err := p.Reap(ctx, mark(), limits, most)
		require.NoError(p, err)
		require.Empty(p, got.Refused)
		p.miss(got.Missed)
		all.Released, all.Failed = all.Released+got.Released, append(all.Failed, got.Failed...)
		pages = append(pages, p.ofRows(got.Failed))
		found = got.Released + len(got.Failed)
	}
	released, failed := p.model.Reap(func(m model.Machine) int {
		if w.knows(m) {
			return crashLimits[m]
		}
		return 0
	}, pages)
	require.Equal(p, released, all.Released, "reaped")
	require.Equal(p, failed, p.ofRows(all.Failed), "over the crash limit")
}

// timeOut wakes the instances whose await has timed out.
func (p *pair) timeOut(most int) {
	p.logf("timeOut(%d)", most)
	ctx, cancel := p.context()
	defer cancel()
	woken := 0
	for found := most; found == most; woken += found {
		got, err := p.TimeOut(ctx, most)
		require.NoError(p, err)
		require.Empty(p, got.Refused)
		found = len(got.Queues)
	}
	require.Equal(p, p.model.TimeOut(), woken, "awaits timed out")
}

// expire fails the instances that are over their deadline, the oldest first. Which instances with
// equal deadlines a page has is the engine's to choose, and makes a difference, as for cancelRest.
func (p *pair) expire(most int) {
	p.logf("expire(%d)", most)
	ctx, cancel := p.context()
	defer cancel()
	for found := most; found == most; {
		got, err := p.Expire(ctx, mark(), most)
		require.NoError(p, err)
		require.Empty(p, got.Refused)
		p.miss(got.Missed)
		late, some := p.model.Late(), p.ofRows(got.Failed)
		require.Len(p, some, min(most, len(late)), "over their deadline")
		page := slices.DeleteFunc(slices.Clone(late), func(i *model.Instance) bool { return !slices.Contains(some, i.ID) })
		require.Len(p, page, len(some), "not over their deadline: %d", some)
		if found = len(page); found > 0 {
			require.LessOrEqual(p, page[found-1].Expiry, late[found-1].Expiry, "not the oldest deadlines: %d", some)
		}
		p.model.Expire(page, func(m model.Moment) string { return at(m).Format("2006-01-02T15:04:05.000Z") })
	}
}

// skips fails the nodes that are to be skipped, level by level. Which of them a page has is the
// engine's to choose, and makes a difference, as for cancelRest.
func (p *pair) skips(most int) {
	p.logf("skips(%d)", most)
	ctx, cancel := p.context()
	defer cancel()
	for found := true; found; {
		got, err := p.Skip(ctx, mark(), 0, most)
		require.NoError(p, err)
		require.Empty(p, got.Refused)
		p.miss(got.Missed)
		due, some := p.model.Skippable(), p.ofRows(got.Failed)
		require.Len(p, some, min(most, len(due)), "to be skipped: %d", len(due))
		page := slices.DeleteFunc(due, func(i *model.Instance) bool { return !slices.Contains(some, i.ID) })
		require.Len(p, page, len(some), "not to be skipped: %d", some)
		p.model.Skip(page)
		found = len(some) > 0
	}
}

// cancelRest cancels the children that no join waits for any more, and what these have spawned,
// until a pass finds nothing. Which of them a page has is the engine's to choose, and makes a
// difference: a parent that waits for them all the same wakes when enough of them have ended.
func (p *pair) cancelRest(most int) {
	p.logf("cancelRest(%d)", most)
	ctx, cancel := p.context()
	defer cancel()
	for found := true; found; {
		got, err := p.CancelRest(ctx, mark(), 0, most)
		require.NoError(p, err)
		require.Empty(p, got.Refused)
		p.miss(got.Missed)
		some, losers := p.ofRows(got.Cancelled), p.model.Losers()
		require.Subset(p, losers, some, "waited for")
		require.Len(p, some, min(most, len(losers)), "not waited for: %d", losers)
		p.model.CancelRest(some)
		found = len(some) > 0
	}
}

// prune collects garbage, page by page, until none is left.
func (p *pair) prune(keep model.Retention, page int) {
	p.logf("prune(%s, %d)", brief(keep), page)
	ctx, cancel := p.context()
	defer cancel()
	var instances, tombstones, expired, forgotten int
	// Instances go first. If an instance has to wait for its children's end in a sweep, it loses its
	// excess tombstones in that sweep, and goes in the next, while the model has one sweep only.
	for _, most := range []int{math.MaxInt32, keep.Tombstones} {
		for {
			got, err := p.Prune(ctx, store.PruneParams{Done: keep.Done, Failed: keep.Failed, Tombstones: most, Limit: page, Gates: true})
			require.NoError(p, err)
			require.Empty(p, got.Refused)
			expired, forgotten = expired+got.Expired, forgotten+got.GateKeys
			if got.Instances+got.Tombstones == 0 {
				break
			}
			instances, tombstones = instances+got.Instances, tombstones+got.Tombstones
		}
	}
	wantInstances, wantTombstones := p.model.Prune(keep)
	require.Equal(p, []int{wantInstances, wantTombstones}, []int{instances, tombstones}, "instances and tombstones collected")
	require.Equal(p, p.model.ExpireKept(), expired, "kept signals expired")
	require.Equal(p, p.model.ForgetKeys(), forgotten, "keys of gates forgotten")
}

// sweep must find no key that stands still, since the engine's own statements have brought its next
// row forward. Its effect, a promotion behind a key that is busy, is harmless at any time.
func (p *pair) sweep(partitionKeys ...string) {
	p.logf("sweep(%q)", partitionKeys)
	ctx, cancel := p.context()
	defer cancel()
	_, got, err := p.Sweep(ctx, "", 1000, nil)
	require.NoError(p, err)
	require.Equal(p, store.Promotion{}, got, "a partition key stood still")
	_, err = p.Promote(ctx, partitionKeys)
	require.NoError(p, err)
}

// ofRows returns the model's ids of rows of the database, in order.
func (p *pair) ofRows(rows []int64) (ids []model.ID) {
	for _, row := range rows {
		ids = append(ids, p.models[row])
	}
	slices.Sort(ids)
	return ids
}
