package store

import (
	"errors"
	"maps"
	"slices"

	"github.com/gendurable/gendurable/entpgx"
)

// A Restart runs again the failed instances beneath an instance, and the nodes that were skipped
// for them, and lets the instance wait for that. It is one transaction:
//
// It locks the instance that waits, or has failed, before it looks at anything beneath: a
// transaction that ends a child locks its parent first, so from then on none of its children ends.
// What it finds then it locks in ascending id, and waits; the root is older than its nodes. It
// looks again, since a claim, an operator and the end of a grandchild do not need the root. Once a
// look finds nothing that is not locked, what it has found holds until the COMMIT. A row that it
// should lock and that is older than one it has locked makes it start anew, as a cancel of a
// family does.
//
// Beneath a waiting instance are the children of its round; beneath a failed one the children of
// the round that joins at its visit, if one does. Of these run again:
//
//   - those that failed by themselves, as after a Retry, and with what failed beneath them;
//   - nodes that were skipped, or are about to be, if all edges that are not met come from nodes
//     that run again; or if they were skipped since their graph was over.
//
// A node of these at its first visit waits again for the origins that have not ended, or run
// again. So does a node that waits already, and one that was woken by an end that is void now,
// unless it has been claimed since: a node that has begun goes on. Children that are done stay
// done. Where such a one waits for nothing that is to come, it goes on at once; if an edge of it
// is not met, it is skipped.
//
// A child that runs again loses its joined mark, and its parent waits for one more: so each is
// counted once, with its next end. The parent's counts stay exact, and no condition of its join
// comes true by that, since nothing is done that was not. An instance that had failed at its join
// waits for the whole round, without a policy: that one has had its effect.

// These errors are the values of Refusal.Why of a Restart, beside the errors of all verbs.
var (
	// ErrWoken refuses a restart beneath an instance that does not wait any more, and has not failed.
	ErrWoken = errors.New("the instance that waits for it has gone on: restart that one once it has failed")
	// ErrNothingFailed refuses a restart of an instance none of whose children has failed.
	ErrNothingFailed = errors.New("none of the children and nodes that it waits for has failed")
	// ErrSkipped refuses the restart of a skipped node: what it was skipped for would still have
	// failed.
	ErrSkipped = errors.New("it was skipped: restart the node that has failed, or the root")
	// ErrResting refuses a restart of a round that is being cancelled, and of a stream.
	ErrResting = errors.New("its children cannot be restarted: they were scheduled as a stream, or the remaining ones are being cancelled")
	// ErrPruned refuses to restart a graph of which nodes are gone.
	ErrPruned = errors.New("nodes of its graph have been deleted: insert the graph anew")
)

// restartSQL lets rows run again, or wait. Ended rows are reset as by retrySQL; others keep their
// pause and their deadline. A row that waits for its children waits for all of them: the policy of
// its join, its timeout and the names of its signals are gone. If these children are nodes, the
// live ones are cancelled once it has ended, as for any graph. joined is reset where the parent is
// to count the row again. A node at its first visit counts anew what it waits for, and beside that
// the edges of its quorum, and has not begun: see begun. If the commit that ended it got no
// answer, its worker takes that outcome for stale now. The caller has locked the rows, so SKIP
// LOCKED skips none, and the join by ctid is right, as in cancelSQL.
//
// $1 ids $2 waits $3 to come (NULL: as it is) $4 edges that are not met (NULL: no such node) $5,
// $6 of a parent the size of its round and how many are done; of a quorum how many are to come,
// and are done (NULL: none) $7 waits for a round $8 that round is a graph $9 is counted again
// $10 how many of that round stay skipped
var restartSQL = named("restart", `UPDATE {s}.gen_durable g SET status = CASE WHEN u.waits THEN 'awaiting_children'::{s}.durable_status ELSE 'runnable' END,
  failure = NULL, finished_at = NULL, paused = g.paused AND g.finished_at IS NULL, joined = CASE WHEN u.counted THEN NULL ELSE g.joined END,
  pick_lane = CASE WHEN u.unmet > 0 AND NOT u.waits THEN {lane skip} ELSE {lane front} END, gate = NULL, place = NULL, seat = NULL, run_gate = NULL, run_place = NULL, locked_by = NULL, lease_expires_at = NULL,
  attempt = 0, crashes = 0, commit_id = CASE WHEN u.unmet IS NULL THEN g.commit_id END, last_error = CASE WHEN u.waits THEN NULL ELSE g.last_error END, await_deadline = NULL,
  deadline = CASE WHEN g.finished_at IS NULL OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
  children_pending = coalesce(u.pending, g.children_pending),
  join_size = CASE WHEN u.unmet IS NOT NULL OR u.round AND g.join_round >= g.round THEN coalesce(u.size, g.join_size) ELSE g.join_size END,
  join_done = CASE WHEN u.unmet IS NOT NULL OR u.round AND g.join_round >= g.round THEN coalesce(u.done, g.join_done) ELSE g.join_done END,
  join_failed = CASE WHEN u.unmet IS NOT NULL THEN u.unmet WHEN u.round AND g.join_round >= g.round THEN u.size - u.pending - u.done - u.skipped
    ELSE g.join_failed END,
  wake_done = CASE WHEN NOT u.round THEN g.wake_done END, wake_failed = CASE WHEN NOT u.round THEN g.wake_failed END,
  wake_ended = CASE WHEN NOT u.round THEN g.wake_ended END, awaits = CASE WHEN NOT u.round THEN g.awaits END,
  timed_out = g.timed_out AND NOT u.round,
  losers = CASE WHEN NOT u.round THEN g.losers
    ELSE nullif(array_remove(array_remove(g.losers, g.round), -g.round), '{}') END,
  graphs = CASE WHEN u.round AND u.graph THEN array_append(array_remove(g.graphs, g.round), g.round) ELSE g.graphs END,
  eligible_at = CASE WHEN u.waits AND g.finished_at IS NULL THEN g.eligible_at ELSE (SELECT clock_timestamp()) END,
  updated_at = (SELECT clock_timestamp())
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::boolean[]) AS waits, unnest($3::int[]) AS pending, unnest($4::int[]) AS unmet,
  unnest($5::int[]) AS size, unnest($6::int[]) AS done, unnest($7::boolean[]) AS round, unnest($8::boolean[]) AS graph, unnest($9::boolean[]) AS counted,
  unnest($10::int[]) AS skipped) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.status <> 'done'
RETURNING g.id`)

// awaitAgainSQL lets rows that wait wait for more: a parent for children that run again, a node
// for origins that do. A parent under a policy has counted those as failed that were not skipped.
// The thresholds of a Rejoin are such counts plus the ends to come: they fall with the counts, or
// the next end would be taken for one that the parent has seen. A quorum of a node counts apart
// how many are to come.
// $1 ids $2 how many more $3 of children, how many were not skipped $4 how many more of a quorum
var awaitAgainSQL = named("await again", `UPDATE {s}.gen_durable g SET children_pending = g.children_pending + u.more,
  join_failed = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN greatest(g.join_failed - u.failed, 0) ELSE g.join_failed END,
  wake_failed = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN g.wake_failed - least(u.failed, g.wake_failed - 1) ELSE g.wake_failed END,
  wake_ended = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN g.wake_ended - least(u.failed, g.wake_ended - 1) ELSE g.wake_ended END,
  join_size = g.join_size + u.members
FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[]) AS u(id, more, failed, members)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'awaiting_children', false)
RETURNING g.id`)

// hides reports whether the target of a Restart, nil if there is none, lies outside of the bounds.
func (s *Store) hides(send send, target *member, id int64, o *Order) (bool, error) {
	if target == nil {
		return false, nil
	}
	own := map[int64]*operated{id: {}}
	err := s.bound(send, []int64{id}, o, own)
	return own[id].hidden, err
}

// restart carries out a Restart of one instance.
func (s *Store) restart(send send, asked []int64, o *Order, out *Operated) error {
	if len(asked) != 1 {
		return errors.New("a Restart takes one instance")
	}
	id, found := asked[0], map[int64]*operated{}
	target, err := s.member(send, id)
	if err != nil {
		return err
	}
	first := id
	if target != nil && target.status == "failed" && target.parent != 0 { // which may wait for it
		first = target.parent
	}
	if err := send(s.lockOperated([]int64{first}, o, found)); err != nil {
		return err
	}
	if hidden, err := s.hides(send, target, id, o); hidden || err != nil { // before a refusal tells of the parent
		out.Refused = []Refusal{{ID: id, Why: ErrHidden}}
		return err
	}
	refuse := func(why error) error {
		out.Refused = []Refusal{{ID: id, Why: why}}
		if target != nil {
			out.Refused[0].Status = target.status
		}
		return nil
	}
	if first == id {
		if row := found[id]; row != nil && target != nil {
			target.status = row.status
		}
		if why := o.restarts(found[id]); why != nil {
			return refuse(why)
		}
	}
	for {
		r, why, err := s.planRestart(send, id, o.Most)
		switch {
		case err != nil:
			return err
		case why != nil:
			return refuse(why)
		}
		fresh := slices.DeleteFunc(r.ids(), func(id int64) bool { return found[id] != nil })
		switch {
		case len(fresh) > 0 && len(found) > 0 && fresh[0] < slices.Max(slices.Collect(maps.Keys(found))):
			return errGrown
		case len(fresh) > 0:
			if err := send(s.lockOperated(fresh, o, found)); err != nil {
				return err
			}
			continue
		}
		if why := o.restarts(found[id]); why != nil {
			return refuse(why)
		}
		if err := s.bound(send, r.ids(), o, found); err != nil {
			return err
		}
		if slices.ContainsFunc(r.ids(), func(id int64) bool { return found[id].hidden }) {
			return refuse(ErrOutside)
		}
		return s.rerun(send, r, id, found, o, out)
	}
}

// restarts returns why the locked row that was asked for is not restarted, or nil.
func (o *Order) restarts(r *operated) error {
	why := o.refuses(r, true)
	if errors.Is(why, ErrApplies) && r.joins && (r.status == "runnable" || r.status == "executing") {
		return ErrWoken
	}
	return why
}

// rerun carries out what is planned. All rows are locked.
func (s *Store) rerun(send send, r *rerun, id int64, found map[int64]*operated, o *Order, out *Operated) error {
	var todo []*operated
	var w rewaits
	var c reruns
	var keys []string
	for _, n := range r.ids() {
		a, row := r.rows[n], found[n]
		if a.status == "awaiting_children" {
			w.add(a)
			if n == id {
				todo = append(todo, row)
				out.Changed = append(out.Changed, Change{ID: n, Was: a.status, Is: a.status, Asked: true})
			}
			continue
		}
		c.add(a)
		todo = append(todo, row)
		is := "runnable"
		if a.waits {
			is = "awaiting_children"
		} else {
			out.Queues = append(out.Queues, row.queue)
		}
		out.Changed = append(out.Changed, Change{ID: n, Was: a.status, Is: is, Asked: n == id})
		if row.key != "" && !a.ended() { // it goes from the head of its key
			keys = append(keys, row.key)
		}
	}
	var done []int64
	var stmts []entpgx.Stmt
	if len(c.ids) > 0 {
		stmts = append(stmts, s.stmt(restartSQL, readIDs(&done), c.ids, c.waits, c.pending, c.misses, c.size, c.done, c.round, c.graph, c.counted, c.skipped))
	}
	if len(w.ids) > 0 {
		stmts = append(stmts, s.stmt(awaitAgainSQL, readIDs(&done), w.ids, w.more, w.failed, w.members))
	}
	err := send(append(append(stmts, s.promotion(keys, out)...), s.audited(todo, o))...)
	if IsUniqueViolation(err) {
		return &keyTakenError{c.ids, err}
	}
	if err != nil {
		return err
	}
	if len(done) != len(r.rows) {
		return errGrown
	}
	return nil
}

// reruns holds the columns of restartSQL.
type reruns struct {
	ids                         []int64
	waits                       []bool
	pending, misses, size, done []*int
	round, graph, counted       []bool
	skipped                     []int
}

func (c *reruns) add(a *again) {
	c.ids, c.waits = append(c.ids, a.id), append(c.waits, a.waits)
	c.pending, c.misses = append(c.pending, a.pending), append(c.misses, a.misses)
	c.size, c.done = append(c.size, a.size), append(c.done, a.done)
	c.round, c.graph, c.counted = append(c.round, a.round), append(c.graph, a.graph), append(c.counted, a.counted)
	c.skipped = append(c.skipped, a.skips)
}

// rewaits holds the columns of awaitAgainSQL.
type rewaits struct {
	ids                   []int64
	more, failed, members []int
}

func (w *rewaits) add(a *again) {
	w.ids, w.more, w.members = append(w.ids, a.id), append(w.more, a.more), append(w.members, a.members)
	w.failed = append(w.failed, a.failed)
}

// keyTakenError is of a Restart of instances of which one has a correlation key that is another's.
type keyTakenError struct {
	ids []int64
	err error
}

func (e *keyTakenError) Error() string { return e.err.Error() }
func (e *keyTakenError) Unwrap() error { return e.err }
