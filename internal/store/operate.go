package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Verb is an operation of an operator on instances.
type Verb string

// The verbs.
const (
	Cancel     Verb = "cancel"
	Retry      Verb = "retry"
	RunNow     Verb = "run_now"
	Reschedule Verb = "reschedule"
	Pause      Verb = "pause"
	Resume     Verb = "resume"
	Edits      Verb = "edit"
	Rewind     Verb = "rewind"
	Restart    Verb = "restart"
)

// Applies describes the rows to which a verb applies.
type Applies struct {
	Statuses []string
	Paused   *bool // nil: paused rows and others
	Later    bool  // eligible in the future only
}

var live = []string{"runnable", "executing", "awaiting_signal", "awaiting_children"}

// still are the statuses in which a state may be edited: no step is about to overwrite it, and no
// reader has seen a result of it.
var still = []string{"runnable", "awaiting_signal", "awaiting_children", "failed"}

var verbs = map[Verb]Applies{
	Cancel:     {Statuses: live},
	Retry:      {Statuses: []string{"failed"}},
	RunNow:     {Statuses: []string{"runnable"}, Later: true},
	Reschedule: {Statuses: []string{"runnable"}},
	Pause:      {Statuses: live, Paused: new(false)},
	Resume:     {Statuses: live, Paused: new(true)},
	Edits:      {Statuses: still},
	Rewind:     {Statuses: still},
	Restart:    {Statuses: []string{"failed", "awaiting_children"}},
	Migrate:    {Statuses: live},
}

// Applies returns the rows to which the verb applies.
func (v Verb) Applies() Applies { return verbs[v] }

// Doing names the verb in an error.
func (v Verb) Doing() string {
	if v == RunNow {
		return "run now"
	}
	return string(v)
}

// Seen holds the columns of an instance as a caller saw them. Operate changes the instance only if
// they are unchanged.
type Seen struct {
	Status           string
	Visit            int64
	Attempt, Crashes int
	EligibleAt       time.Time
	Paused           bool
}

// Order is what an operator wants Operate to do.
type Order struct {
	Verb        Verb
	Mark        string    // of Cancel: the commit_id of the rows that it ends, a UUID
	By                    // for the audit; the reason of a Cancel also for last_error
	At          time.Time // of Reschedule
	Descendants bool      // of Cancel: cancels all live descendants, too
	Most        int       // of Restart, and with Descendants: at most so many instances in all
	Filter      Filter
	Key         string // "" or the correlation key that the instance must still occupy
	Seen        *Seen
	Edits       map[int64]Edit // of Edits and Rewind: by id, for each instance
	NewKeys     bool           // of Edits: ends the visit, and so its idempotency keys
}

// Change reports what Operate did to an instance.
type Change struct {
	ID      int64
	Was, Is string // its status
	Asked   bool   // the caller named it; otherwise it is a descendant
}

// Refusal names an instance that Operate did not change.
type Refusal struct {
	ID     int64
	Status string // "" if there is no such instance
	Why    error
}

// unmeant reports whether the instance fails a condition of the caller. One that is gone has no
// descendants, and does not keep the descendants of others from being cancelled.
//
// One instance that lies outside of the bounds, or reaches there, keeps a cancel with Descendants
// from being carried out at all. The rest of another batch is carried out.
func (r Refusal) unmeant() bool { return !errors.Is(r.Why, ErrApplies) && !errors.Is(r.Why, ErrGone) }

// These errors are the values of Refusal.Why.
var (
	ErrGone      = errors.New("no such instance")
	ErrMoved     = errors.New("it no longer occupies that key")
	ErrChanged   = errors.New("it has changed since it was seen")
	ErrUnmatched = errors.New("it no longer matches the filter")
	ErrApplies   = errors.New("the verb does not apply")
	// ErrNode refuses what would run a node of a graph by itself: the rows that it waits for, or that
	// were skipped for it, belong to the graph.
	ErrNode = fmt.Errorf("it is a node of a graph, which decides when it runs: %w", ErrUseRestart)
	// ErrRoot refuses the Retry of an instance at a join of nodes that have failed: it would find them
	// so again.
	ErrRoot = fmt.Errorf("it joins nodes that have failed, and would find them failed again: %w", ErrUseRestart)
	// ErrPiece refuses the Retry, or the Restart, of an instance that works for a node that has
	// failed: nothing waits for it.
	ErrPiece = fmt.Errorf("it was started by a node that has failed and no longer waits for it: %w", ErrUseRestart)
	// ErrUseRestart is part of the errors that a Restart, of a node or of the graph's root, helps
	// against.
	ErrUseRestart = errors.New("use Restart of the node or of the root of the graph")
)

// Operated reports the effect of an Order.
type Operated struct {
	Changed []Change // in order of ids
	Refused []Refusal
	Promotion
}

// OccupiedError refuses a Retry of an instance whose correlation key another instance occupies by
// now.
type OccupiedError struct {
	Key      string
	Occupant int64
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("key %.80q is occupied by instance %d", e.Key, e.Occupant)
}

// TooManyError refuses an order on more instances than its limit, such as Order.Most.
type TooManyError struct{ Most int }

func (e *TooManyError) Error() string { return fmt.Sprintf("over %d instances", e.Most) }

// operateAgain bounds how often Operate starts anew because a family grew, or a key changed hands,
// under an order, or because it met a node of a graph.
const operateAgain = 5

// Operate carries out an order on instances in one transaction. After an error it has changed none
// of them.
//
// It first locks the rows in ascending id, and waits for their holders. So a commit, a claim or a
// delivery goes before or after the order, never beside it, and a decision about the locked rows
// holds until the commit. That makes the caller's conditions a compare-and-set.
//
// Its errors are an *OccupiedError, a *TooManyError, and ErrUnknown if the COMMIT got no answer.
func (s *Store) Operate(ctx context.Context, ids []int64, o *Order) (out Operated, err error) {
	for range operateAgain {
		err = s.interactive(ctx, slowLock, func(send send) error {
			out = Operated{}
			return s.operate(send, ids, o, &out)
		})
		if taken, ok := errors.AsType[*keyTakenError](err); ok || IsUniqueViolation(err) && len(ids) == 1 {
			among := ids
			if ok {
				among = taken.ids
			}
			if err = s.occupied(ctx, among, err); IsUniqueViolation(err) {
				continue // the key is free again
			}
		}
		if !errors.Is(err, errGrown) && !errors.Is(err, errNodes) {
			break
		}
	}
	if unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return Operated{}, fmt.Errorf("%s %s: %w", o.Verb.Doing(), instances(len(ids)), err)
	}
	return out, nil
}

// operated is a locked row.
type operated struct {
	id           int64
	status       string
	queue, key   string
	worker       string // that executes it
	token        int64
	depth        int
	child        bool
	streamed     bool // it is a child of a stream
	fits, can    bool
	holds, still bool
	joins        bool   // its children join at this visit
	node, first  bool   // it is a node of a graph, and at its first visit
	root, piece  bool   // it has failed: at a join of nodes that are not done; beneath a node that has failed
	facts        string // for the audit
	hidden       bool   // it lies outside of the bounds of the order
	reaches      bool   // the order would change others that do
	wide         bool   // so many hang together with it that this is unknown
}

var (
	adminSQL      = named("admin", adminText(false))
	adminNodesSQL = named("admin", adminText(true), "nodes")
)

// adminText locks instances in ascending id, and returns of each locked row the facts that decide
// about the verb. What it says of nodes beneath a row that has failed, or above, may have changed
// while it waited for the row: then a Retry is refused in vain, or does nothing. For a cancel it
// also locks the parents, whose barriers the cancel settles, and if there may be nodes, the rows
// that wait for them.
//
// $1–$16, $26 and $27 filterText and appliesText $17 ids $18 also their parents $19 key $20–$25
// what the caller saw.
func adminText(nodes bool) string {
	return `SELECT g.id, g.status::text, g.queue, coalesce(g.partition_key, ''), coalesce(g.locked_by, ''), g.claim_token,
  g.depth, g.parent_id IS NOT NULL,
  coalesce(` + filterText + `, false), coalesce(` + appliesText + `, false),
  $19::text IS NULL OR coalesce(g.correlation_guard = $19, false),
  $20::text IS NULL OR g.status::text = $20 AND g.visit = $21::bigint AND g.attempt = $22::int AND g.crashes = $23::int
    AND g.eligible_at = $24::timestamptz AND g.paused = $25::boolean,
  ` + factsOnly + `::text, g.round <> 0 AND ` + joinsText("g") + `,
  g.node IS NOT NULL, g.visit = 0, g.parent_round < 0,
  ` + rootText("g") + `,
  ` + pieceText("g") + `
FROM {s}.gen_durable g
WHERE g.id = ANY(ARRAY(SELECT unnest($17::bigint[]) UNION SELECT x.parent_id FROM {s}.gen_durable x WHERE $18::boolean AND x.id = ANY($17::bigint[])` + when(nodes, `
  UNION SELECT e.to_id FROM {s}.edges e WHERE $18::boolean AND e.from_id = ANY($17::bigint[])`) + `))
ORDER BY g.id FOR NO KEY UPDATE OF g`
}

// errNodes makes Operate start anew: what it is about to cancel are nodes of graphs, and it has
// not locked what waits for them. The store knows of graphs from then on. So an engine without
// nodes sends no statement that reads edges, and its role needs no right to.
var errNodes = errors.New("the order cancels a node, and has not locked the nodes that wait for it")

func (s *Store) operate(send send, asked []int64, o *Order, out *Operated) error {
	asked = slices.Compact(slices.Sorted(slices.Values(asked)))
	if o.Verb == Restart {
		return s.restart(send, asked, o, out)
	}
	return s.operateEach(send, asked, o, out)
}

// operateEach is operate for sorted ids, and not for a Restart. An insert whose policy cancels
// calls it: not every host then links the code that restarts graphs.
func (s *Store) operateEach(send send, asked []int64, o *Order, out *Operated) error {
	ids, found, edges := asked, map[int64]*operated{}, s.graphs.Load()
	var err error
	if o.Descendants {
		ids, err = s.lockFamily(send, asked, o, found)
	} else {
		err = send(s.lockOperated(asked, o, found))
	}
	if err == nil {
		err = s.bound(send, asked, o, found)
	}
	if err != nil {
		return err
	}
	var todo []*operated
	for _, id := range ids {
		row := found[id]
		_, wanted := slices.BinarySearch(asked, id)
		switch why := o.refuses(row, wanted); {
		case why == nil:
			todo = append(todo, row)
		case wanted:
			refusal := Refusal{ID: id, Why: why}
			if row != nil && !row.hidden {
				refusal.Status = row.status
			}
			out.Refused = append(out.Refused, refusal)
		}
	}
	if o.Verb == Cancel && !edges && slices.ContainsFunc(todo, func(r *operated) bool { return r.node }) {
		s.graphs.Store(true)
		return errNodes
	}
	// An ended instance may have descendants that have not ended, so the order goes on to them. An
	// instance that fails a condition of the caller is not the one that he meant, and neither are its
	// descendants.
	if len(todo) == 0 || o.Descendants && slices.ContainsFunc(out.Refused, Refusal.unmeant) {
		return nil
	}
	done := map[int64]bool{}
	if err := send(s.carryOut(todo, o, done, out)...); err != nil {
		return err
	}
	for _, row := range todo {
		if !done[row.id] && (o.Verb == Edits || o.Verb == Rewind) { // visit or state are others than those of the copy
			out.Refused = append(out.Refused, Refusal{ID: row.id, Status: row.status, Why: ErrChanged})
			continue
		}
		if !done[row.id] {
			return fmt.Errorf("instance %d, which is %s, is locked and was not changed all the same", row.id, row.status)
		}
		_, wanted := slices.BinarySearch(asked, row.id)
		out.Changed = append(out.Changed, Change{ID: row.id, Was: row.status, Is: o.becomes(row.status), Asked: wanted})
	}
	return nil
}

// lockOperated locks rows, and for a cancel their parents and the rows that wait for nodes, and
// notes them in found.
func (s *Store) lockOperated(ids []int64, o *Order, found map[int64]*operated) entpgx.Stmt {
	args := append(o.Filter.operable(o.Verb), ids, o.Verb == Cancel, optional(o.Key))
	if o.Seen == nil {
		args = append(args, nil, nil, nil, nil, nil, nil)
	} else {
		args = append(args, o.Seen.Status, o.Seen.Visit, o.Seen.Attempt, o.Seen.Crashes, o.Seen.EligibleAt, o.Seen.Paused)
	}
	text := adminSQL
	if o.Verb == Cancel && s.graphs.Load() {
		text = adminNodesSQL
	}
	return s.stmt(text, readOperated(found), append(args, o.Filter.tail()...)...)
}

func readOperated(into map[int64]*operated) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var r operated
			if err := rows.Scan(&r.id, &r.status, &r.queue, &r.key, &r.worker, &r.token, &r.depth, &r.child, &r.fits, &r.can, &r.holds, &r.still, &r.facts, &r.joins,
				&r.node, &r.first, &r.streamed, &r.root, &r.piece); err != nil {
				return err
			}
			into[r.id] = &r
		}
		return rows.Err()
	}
}

// refuses returns why a locked row stays unchanged, or nil. The caller's conditions concern the
// instances that he named, not their descendants.
func (o *Order) refuses(r *operated, asked bool) error {
	switch {
	case r == nil:
		return ErrGone
	case asked && r.hidden:
		return ErrHidden
	case asked && !r.holds:
		return ErrMoved
	case asked && !r.still:
		return ErrChanged
	case asked && !r.fits:
		return ErrUnmatched
	case asked && r.reaches:
		return ErrOutside
	case asked && r.wide:
		return ErrTooWide
	case !r.can:
		return ErrApplies
	case r.node && (o.Verb == Rewind && (r.first || r.status == "failed") || o.NewKeys && r.first):
		return ErrNode
	case o.Verb == Retry && unretried(r.node, r.root, r.piece) != nil:
		return unretried(r.node, r.root, r.piece)
	case o.NewKeys && r.joins:
		return ErrJoins
	case o.unprepared(r.id):
		return ErrChanged
	}
	return nil
}

// unprepared reports whether it is undecided what an edit makes of an instance: it executed when
// it was read.
func (o *Order) unprepared(id int64) bool {
	_, prepared := o.Edits[id]
	return (o.Verb == Edits || o.Verb == Rewind) && !prepared
}

func (o *Order) becomes(was string) string {
	switch o.Verb { //nolint:exhaustive // the others leave the status alone
	case Cancel:
		return "failed"
	case Retry, Rewind:
		return "runnable"
	}
	return was
}

// carryOut returns the statements that change the rows, and those that must follow.
func (s *Store) carryOut(todo []*operated, o *Order, done map[int64]bool, out *Operated) []entpgx.Stmt {
	read := func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { done[id] = true; return nil })
		return err
	}
	if o.Verb == Cancel {
		return append(s.cancelAll(todo, o, read, out), s.audited(todo, o))
	}
	ids := make([]int64, len(todo))
	var keys []string
	for i, r := range todo {
		ids[i] = r.id
		if r.key != "" && r.status == "runnable" && (o.Verb == Pause || o.Verb == Reschedule || o.Verb == Rewind) { // it may have been the head of its key
			keys = append(keys, r.key)
		}
		if o.Verb != Pause && r.status == "runnable" || o.Verb == Retry || o.Verb == Rewind {
			out.Queues = append(out.Queues, r.queue)
		}
	}
	var stmts []entpgx.Stmt
	switch o.Verb { //nolint:exhaustive // Cancel is above
	case Retry:
		stmts = append(stmts, s.stmt(retrySQL, read, ids))
	case RunNow:
		stmts = append(stmts, s.stmt(runNowSQL, read, ids))
	case Reschedule:
		stmts = append(stmts, s.stmt(rescheduleSQL, read, ids, o.At))
	case Pause:
		stmts = append(stmts, s.stmt(pauseSQL, read, ids))
	case Resume:
		stmts = append(stmts, s.stmt(resumeSQL, read, ids))
	case Edits, Rewind: // they record themselves
		return append(append(stmts, s.edits(todo, o, read)), s.promotion(keys, out)...)
	}
	return append(append(stmts, s.promotion(keys, out)...), s.audited(todo, o))
}

// promotion brings the next row of each key forward, since the order has taken a row from the key.
func (s *Store) promotion(keys []string, out *Operated) []entpgx.Stmt {
	if len(keys) == 0 {
		return nil
	}
	return []entpgx.Stmt{s.stmt(promoteSQL, out.read, keys, nil, nil)}
}

// byDepth groups rows by their depth in the tree, the deepest first.
func byDepth(rows []*operated) [][]*operated {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *operated) int { return cmp.Compare(b.depth, a.depth) })
	var out [][]*operated
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r *operated) bool { return r.depth != rows[0].depth })
		if n < 0 {
			n = len(rows)
		}
		out, rows = append(out, rows[:n]), rows[n:]
	}
	return out
}
