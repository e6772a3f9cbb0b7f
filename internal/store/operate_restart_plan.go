package store

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// memberText is what a Restart has to know of a row x.
const memberText = `x.id, coalesce(x.parent_id, 0), coalesce(x.parent_round, 0), x.status::text, coalesce(x.failure, ''), x.visit,
  x.joined IS NOT NULL, x.node IS NOT NULL, coalesce(x.join_failed, 0), x.children_pending, x.round,
  x.round = x.visit OR coalesce(x.join_round = x.visit, false), coalesce(-x.round = ANY(x.losers), false),
  CASE WHEN x.join_round >= x.round THEN x.join_size END, CASE WHEN x.round = 0 THEN coalesce(x.wake_done, 0) ELSE 0 END, coalesce(x.join_size, 0)`

// membersSQL reads rows. $1 ids
var membersSQL = named("restarted", `SELECT `+memberText+` FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[])`)

// failedChildrenSQL reads children of rounds that have failed.
// $1 parents $2 their rounds $3 most
var failedChildrenSQL = named("failed children", `SELECT `+memberText+` FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x
  WHERE x.parent_id = u.parent AND x.parent_round = u.round AND x.status = 'failed' OFFSET 0) x
LIMIT $3`)

// skippedBehindSQL reads a node, and those behind it that are skipped, through such ones. $1 id
// $2 most
var skippedBehindSQL = named("skipped behind", `WITH RECURSIVE r(id) AS (
  SELECT $1::bigint
  UNION
  SELECT t.id FROM r CROSS JOIN LATERAL (SELECT e.to_id FROM {s}.edges e WHERE e.from_id = r.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT x.id FROM {s}.gen_durable x WHERE x.id = e.to_id AND x.failure = 'skipped' OFFSET 0) t)
SELECT `+memberText+` FROM (SELECT id FROM r LIMIT $2) r
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = r.id OFFSET 0) x`)

// waitBehindSQL reads the nodes behind others that wait, or have been woken and not begun. Among
// these are those that are about to be skipped: once such a one waits again, Skip passes it by.
// $1 ids $2 most
var waitBehindSQL = named("wait behind", `SELECT `+memberText+` FROM (SELECT DISTINCT e.to_id FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN LATERAL (SELECT e.to_id FROM {s}.edges e WHERE e.from_id = u.id OFFSET 0) e) b
CROSS JOIN LATERAL (SELECT x.* FROM {s}.gen_durable x WHERE x.id = b.to_id AND x.visit = 0
  AND (x.status = 'awaiting_children' OR x.status = 'runnable' AND NOT `+begun+`) OFFSET 0) x
LIMIT $2`)

// edgesBeforeSQL reads the edges that lead to nodes, whether each is to come, met or not met, and
// whether it is one of a quorum. $1 ids
var edgesBeforeSQL = named("edges before", `SELECT e.from_id, u.id, CASE WHEN o.finished_at IS NULL THEN 0
  WHEN e.needs = {needs end} OR (e.needs <> {needs failed}) = (o.status = 'done') THEN 1 ELSE 2 END, e.needs = {needs any}
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT e.from_id, e.needs FROM {s}.edges e WHERE e.to_id = u.id OFFSET 0) e
CROSS JOIN LATERAL (SELECT x.finished_at, x.status FROM {s}.gen_durable x WHERE x.id = e.from_id OFFSET 0) o`)

// roundSizesSQL counts the children of rounds: all, those that are done, those whose end is to be
// counted yet, those that were skipped; and says whether they are nodes. $1 parents $2 their rounds
var roundSizesSQL = named("round sizes", `SELECT u.parent, c.size, c.done, c.left, c.skipped, coalesce(c.graph, false) FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT count(*)::int AS size, count(*) FILTER (WHERE k.status = 'done')::int AS done,
    count(*) FILTER (WHERE k.joined IS NULL)::int AS left,
    count(*) FILTER (WHERE k.failure = 'skipped')::int AS skipped, bool_or(k.node IS NOT NULL) AS graph
  FROM {s}.gen_durable k WHERE k.parent_id = u.parent AND k.parent_round = u.round OFFSET 0) c`)

// member is a row as a Restart has read it.
type member struct {
	id, parent, parentRound int64
	status, failure         string
	visit                   int64
	joined, node            bool
	unmet, pending          int
	round                   int64
	joins                   bool // at its visit
	resting                 bool // the rest of its round is being cancelled, though it waits
	policed                 *int // the size of its round, if that has a policy
	quorum, members         int  // of a node: so many of its quorum are to be done, so many are to come
}

func (m *member) skipped() bool { return m.failure == "skipped" }

func (m *member) ended() bool { return m.status == "done" || m.status == "failed" }

// below returns the round that a Restart of the row restarts, or 0.
func (m *member) below() int64 {
	if !m.joins || m.round < 0 {
		return 0
	}
	return m.round
}

// members reads rows into a list.
func members(into *[]*member) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var m member
			if err := rows.Scan(&m.id, &m.parent, &m.parentRound, &m.status, &m.failure, &m.visit, &m.joined, &m.node, &m.unmet, &m.pending,
				&m.round, &m.joins, &m.resting, &m.policed, &m.quorum, &m.members); err != nil {
				return err
			}
			*into = append(*into, &m)
		}
		return rows.Err()
	}
}

// again is the change of one row.
type again struct {
	*member

	waits      bool
	more       int  // of one that waits on: for how many more
	failed     int  // and how many of these, of its children, were not skipped
	members    int  // and for how many more of its quorum
	pending    *int // the other fields are restartSQL's
	misses     *int
	size, done *int
	round      bool // it waits for children of its own
	skips      int  // of these, so many stay skipped
	graph      bool
	counted    bool // its parent counts it again
}

// rerun is a Restart that is being planned.
type rerun struct {
	most int
	rows map[int64]*again
}

// ids returns the rows in the order in which they are locked.
func (r *rerun) ids() []int64 { return slices.Sorted(maps.Keys(r.rows)) }

func (r *rerun) check() error {
	if len(r.rows) > r.most {
		return &TooManyError{r.most}
	}
	return nil
}

// planRestart reads what a Restart of an instance changes. why says why it changes nothing.
func (s *Store) planRestart(send send, id int64, most int) (r *rerun, why, err error) {
	target, err := s.member(send, id)
	switch {
	case err != nil:
		return nil, nil, err
	case target == nil:
		return nil, ErrGone, nil
	}
	r = &rerun{most: most, rows: map[int64]*again{}}
	if target.status == "failed" {
		why, err = s.planFailed(send, r, target)
	} else {
		why, err = s.planWaiting(send, r, target)
	}
	if err == nil && why == nil {
		err = r.check()
	}
	return r, why, err
}

// planWaiting plans the Restart of failed rows beneath an instance that waits for them.
func (s *Store) planWaiting(send send, r *rerun, target *member) (why, err error) {
	switch {
	case target.status != "awaiting_children":
		return ErrApplies, nil
	case target.resting || target.round < 0:
		return ErrResting, nil
	case target.below() == 0: // it is a node that waits for others
		return ErrNothingFailed, nil
	}
	var some []*member
	if err := send(s.stmt(failedChildrenSQL, members(&some), []int64{target.id}, []int64{target.round}, r.most+1)); err != nil {
		return nil, err
	}
	set, err := s.rerunOf(send, r, some, 0)
	if err != nil || len(set) == 0 {
		return ErrNothingFailed, err
	}
	r.await(target, set)
	return nil, s.rerunBelow(send, r, set)
}

// planFailed plans the Restart of an instance that has failed. If its parent waits for its round,
// the parent waits for it again, and if it is a node, nodes that were skipped for it alone go with
// it.
func (s *Store) planFailed(send send, r *rerun, target *member) (why, err error) {
	if target.joins && target.round < 0 {
		return ErrResting, nil
	}
	var parent *member
	if target.parent != 0 {
		if parent, err = s.member(send, target.parent); err != nil {
			return nil, err
		}
	}
	waits := parent != nil && parent.status == "awaiting_children" && parent.round == target.parentRound
	switch {
	case waits && (parent.resting || parent.round < 0):
		return ErrResting, nil
	case !waits && target.node:
		return ErrWoken, nil
	case !waits && parent != nil && parent.node && parent.status == "failed": // as of a Retry, nobody would wait for it
		return ErrPiece, nil
	case target.failure == "skipped":
		return ErrSkipped, nil
	case !waits: // as after a Retry, nobody counts it a second time
		r.rows[target.id] = &again{member: target}
		err = s.rerunBelow(send, r, []*member{target})
		if top := r.rows[target.id]; top.graph && top.size != nil && target.policed != nil && *target.policed > *top.size {
			why = ErrPruned
		}
		return why, err
	}
	some := []*member{target}
	if target.node {
		some = nil
		if err := send(s.stmt(skippedBehindSQL, members(&some), target.id, r.most+1)); err != nil {
			return nil, err
		}
	}
	set, err := s.rerunOf(send, r, some, target.id)
	if err != nil {
		return nil, err
	}
	r.await(parent, set)
	return nil, s.rerunBelow(send, r, set)
}

func (s *Store) member(send send, id int64) (*member, error) {
	var some []*member
	err := send(s.stmt(membersSQL, members(&some), []int64{id}))
	if err != nil || len(some) == 0 {
		return nil, err
	}
	return some[0], nil
}

// await lets a parent that waits wait for children that run again.
func (r *rerun) await(parent *member, children []*member) {
	more, failed := 0, 0
	for _, c := range children {
		if c.joined {
			more++
			if c.failure != "skipped" {
				failed++
			}
		}
	}
	r.rows[parent.id] = &again{member: parent, waits: true, more: more, failed: failed}
}

// rerunBelow restarts what has failed beneath instances that run again, and lets these wait for it,
// level by level.
func (s *Store) rerunBelow(send send, r *rerun, parents []*member) error {
	for {
		var ids, rounds []int64
		for _, p := range parents {
			if p.status == "failed" && p.below() != 0 {
				ids, rounds = append(ids, p.id), append(rounds, p.round)
			}
		}
		if err := r.check(); err != nil || len(ids) == 0 {
			return err
		}
		var some []*member
		err := send(s.stmt(failedChildrenSQL, members(&some), ids, rounds, r.most+1))
		if err != nil {
			return err
		}
		if some, err = s.rerunOf(send, r, some, 0); err != nil {
			return err
		}
		counted, skipped := map[int64]int{}, map[int64]int{}
		for _, m := range some {
			r.rows[m.parent].waits = true
			if m.joined {
				counted[m.parent]++
			}
			if m.failure == "skipped" {
				skipped[m.parent]++
			}
		}
		err = send(s.stmt(roundSizesSQL, func(rows pgx.Rows) error {
			var id int64
			var size, done, left, skips int
			var graph bool
			_, err := pgx.ForEachRow(rows, []any{&id, &size, &done, &left, &skips, &graph}, func() error {
				if p := r.rows[id]; p.waits || left > 0 {
					p.waits, p.round, p.graph, p.skips = true, true, graph, skips-skipped[id]
					p.size, p.done, p.pending = new(size), new(done), new(left+counted[id])
				}
				return nil
			})
			return err
		}, ids, rounds))
		if err != nil {
			return err
		}
		parents = some
	}
}

// rerunOf decides which of some failed and skipped children run again, notes them and the rows
// that have counted their ends, and returns them. only is the one of them that runs again by
// itself; 0: all that have failed by themselves.
func (s *Store) rerunOf(send send, r *rerun, some []*member, only int64) (set []*member, err error) {
	if len(some) > r.most {
		return nil, &TooManyError{r.most}
	}
	g := newRestarts(some)
	if err := s.readEdges(send, r, g); err != nil {
		return nil, err
	}
	for _, m := range some {
		over := m.failure == "skipped" && m.unmet == 0 // its graph was over
		if m.id == only || only == 0 && (over || !m.skipped()) {
			g.rerun(m)
		}
	}
	for _, m := range g.set {
		a := &again{member: m, counted: true}
		if m.node && m.visit == 0 {
			g.recount(a)
		}
		r.rows[m.id] = a
	}
	for id, m := range g.behind {
		a := &again{member: m}
		g.recount(a)
		if a.more = *a.pending - m.pending; a.size != nil {
			a.members = *a.size - m.members
		}
		switch {
		case !g.reached[id] || a.more <= 0 && a.members <= 0 && m.status == "awaiting_children":
		case m.status == "runnable" && !a.waits: // nothing that it has waited for runs again
		default:
			r.rows[id] = a
		}
	}
	return g.set, nil
}

// readEdges reads what waits behind the nodes of a restart, and the edges that lead to all of them.
func (s *Store) readEdges(send send, r *rerun, g *restarts) error {
	var nodes []int64
	for id, m := range g.members {
		if m.node {
			nodes = append(nodes, id)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	slices.Sort(nodes)
	var behind []*member
	if err := send(s.stmt(waitBehindSQL, members(&behind), nodes, r.most+1)); err != nil {
		return err
	}
	for _, m := range behind {
		if g.members[m.id] == nil {
			g.behind[m.id] = m
			nodes = append(nodes, m.id)
		}
	}
	return send(s.stmt(edgesBeforeSQL, g.read, nodes))
}

// restarts are failed and skipped children, and the nodes that wait behind them.
type restarts struct {
	members, behind map[int64]*member
	before          map[int64][]before // by the id of a node: the edges that lead to it
	after           map[int64][]int64  // by the id of a member: the nodes behind it
	hinders         map[int64]int      // by the id of a node: its edges that are not met, but for its quorum
	able            map[int64]int      // by the id of a node: how many of its quorum are done, to come, or run again
	missed          map[[2]int64]bool  // the edges that are not met, and whether each is one of a quorum
	runs, reached   map[int64]bool
	set             []*member
}

// before is an edge that leads to a node.
type before struct {
	from  int64
	state int  // 0: to come, 1: met, 2: not met
	any   bool // it is one of a quorum
}

func newRestarts(some []*member) *restarts {
	g := &restarts{members: map[int64]*member{}, behind: map[int64]*member{}, before: map[int64][]before{}, after: map[int64][]int64{},
		hinders: map[int64]int{}, able: map[int64]int{}, missed: map[[2]int64]bool{}, runs: map[int64]bool{}, reached: map[int64]bool{}}
	for _, m := range some {
		g.members[m.id] = m
	}
	return g
}

func (g *restarts) read(rows pgx.Rows) error {
	var e before
	var to int64
	_, err := pgx.ForEachRow(rows, []any{&e.from, &to, &e.state, &e.any}, func() error {
		g.before[to] = append(g.before[to], e)
		if g.members[e.from] != nil {
			g.after[e.from] = append(g.after[e.from], to)
		}
		switch {
		case e.state == 2:
			g.missed[[2]int64{e.from, to}] = e.any
			if !e.any {
				g.hinders[to]++
			}
		case e.any:
			g.able[to]++
		}
		return nil
	})
	return err
}

// rerun notes that a member runs again, and those that were skipped for it alone, or for others
// that run again as well.
func (g *restarts) rerun(m *member) {
	if g.runs[m.id] {
		return
	}
	g.runs[m.id] = true
	g.set = append(g.set, m)
	for first := len(g.set) - 1; first < len(g.set); first++ {
		from := g.set[first].id
		for _, to := range g.after[from] {
			g.reached[to] = true
			switch member, missed := g.missed[[2]int64{from, to}]; {
			case !missed:
				continue
			case member:
				g.able[to]++
			default:
				g.hinders[to]--
			}
			next := g.members[to]
			if next != nil && next.skipped() && !g.runs[to] && g.hinders[to] == 0 && g.able[to] >= next.quorum {
				g.runs[to] = true
				g.set = append(g.set, next)
			}
		}
	}
}

// recount decides what a node waits for from the edges that lead to it.
func (g *restarts) recount(a *again) {
	pending, misses, left, done := 0, 0, 0, 0
	for _, e := range g.before[a.id] {
		switch {
		case e.any && (e.state == 0 || g.runs[e.from]):
			left++
		case e.any && e.state == 1:
			done++
		case e.any:
		case e.state == 0 || g.runs[e.from]:
			pending++
		case e.state == 2:
			misses++
		}
	}
	if a.quorum > 0 {
		a.size, a.done = &left, &done
		switch {
		case done >= a.quorum:
		case done+left < a.quorum:
			misses++
		default:
			pending++
		}
	}
	a.pending, a.misses = &pending, &misses
	a.waits = pending > 0 && misses == 0
}
