package store

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// Effects is what an insert did to other instances.
type Effects struct {
	Ended []int64 // cancelled, in order of ids for each round
	Promotion
}

// ruledTries bounds how often a round looks at its occupants anew. Of the inserts that contend for
// a key, one succeeds for each look of the others.
const ruledTries = 100

// errMoved makes a round start anew: others have moved what it has found.
var errMoved = errors.New("other inserts took and freed the keys at every attempt: try again")

// ruling inserts specs some of which have a policy or a window. A round holds specs with distinct
// keys, so that each spec finds what those before it have done.
type ruling struct {
	s       *Store
	send    send
	own     int64 // the instance that inserts, which is not cancelled; 0: none
	by      By    // for the audit of what is cancelled
	list    []*step.Spec
	out     []Inserted
	targets map[int]target // what a spec replaces if that still waits
	effects Effects
}

// target is an instance to replace.
type target struct {
	id     int64
	latest *time.Time // due no later; nil: no bound
}

// insertRuled inserts specs in the transaction of send.
//
// The rows that decide are locked until the commit: the window of a spec, then the row of the
// instance that it replaces or cancels, then the entries of new keys in the unique index, each
// kind in order. An occupant is found by a look without a lock, so it may have moved when it is
// locked. Then the insertion does not find the key free, and the round looks again.
func (s *Store) insertRuled(send send, list []*step.Spec, own int64, by By) ([]Inserted, Effects, error) {
	r := ruling{s: s, send: send, own: own, by: by, list: list, out: make([]Inserted, len(list)), targets: map[int]target{}}
	for _, round := range rounds(list) {
		if err := r.insert(round); err != nil {
			return nil, Effects{}, err
		}
	}
	return r.out, r.effects, nil
}

func anyRuled(list []*step.Spec) bool { return slices.ContainsFunc(list, (*step.Spec).Ruled) }

// rounds splits specs, by their places, such that specs of one key follow each other if one of them
// is ruled. Without rules the insertion itself lets the first win.
func rounds(list []*step.Spec) (out [][]int) {
	type use struct {
		round int
		plain bool
	}
	used := map[string]use{}
	for i, x := range list {
		var names []string
		if x.Window.Kind != "" {
			names = append(names, x.Window.Name())
		}
		if x.Key != "" && x.Scope != step.ScopeNone {
			names = append(names, "key:"+x.Key)
		}
		round := 0
		for _, name := range names {
			if u, ok := used[name]; ok && u.plain && !x.Ruled() {
				round = max(round, u.round)
			} else if ok {
				round = max(round, u.round+1)
			}
		}
		for _, name := range names {
			used[name] = use{round, !x.Ruled()}
		}
		for len(out) <= round {
			out = append(out, nil)
		}
		out[round] = append(out[round], i)
	}
	return out
}

func (r *ruling) insert(round []int) error {
	todo, err := r.openWindows(round)
	if err != nil {
		return err
	}
	for n := 0; len(todo) > 0; n++ {
		if n == ruledTries {
			return errMoved
		}
		if todo, err = r.try(todo); err != nil {
			return err
		}
	}
	return r.settleWindows(round)
}

// try makes room for specs, inserts them, and returns those whose keys others have taken meanwhile.
func (r *ruling) try(todo []int) (again []int, err error) {
	held := map[string]run{}
	if keys := r.keys(todo, func(x *step.Spec) bool { return x.Conflict != step.ConflictRefuse }); len(keys) > 0 {
		if err := r.send(r.s.stmt(runsSQL, readRuns(held), keys)); err != nil {
			return nil, err
		}
	}
	var newest []int64
	for _, i := range todo {
		x := r.list[i]
		switch o, occupied := held[x.Key]; {
		case !occupied || x.Scope == step.ScopeNone:
		case x.Conflict == step.ConflictReplace && o.waits:
			r.targets[i] = target{id: o.id}
		case x.Conflict == step.ConflictNewest && !o.ended && o.id != r.own:
			newest = append(newest, o.id)
		}
	}
	if todo, err = r.replace(todo); err != nil {
		return nil, err
	}
	if err := r.cancel(newest); err != nil {
		return nil, err
	}
	return r.insertRest(todo)
}

// insertRest inserts specs, and decides about those whose keys turn out to be occupied.
func (r *ruling) insertRest(todo []int) (again []int, err error) {
	if len(todo) == 0 {
		return nil, nil
	}
	var cols specs
	for _, i := range todo {
		cols.add(r.list[i])
	}
	r.s.arrange(&cols)
	fresh, held := map[uuid.UUID]int64{}, map[string]run{}
	if err := r.s.insertParts(r.send, &cols, fresh); err != nil {
		return nil, err
	}
	var left []int
	for _, i := range todo {
		if id, ok := fresh[r.list[i].UID]; ok {
			r.out[i].ID = id
		} else {
			left = append(left, i)
		}
	}
	if err := r.takeKept(todo, fresh); err != nil || len(left) == 0 {
		return nil, err
	}
	if err := r.send(r.s.stmt(runsSQL, readRuns(held), r.keys(left, nil))); err != nil {
		return nil, err
	}
	for _, i := range left {
		o, occupied := held[r.list[i].Key]
		conflict := r.list[i].Conflict
		if !occupied || conflict == step.ConflictReplace && o.waits || conflict == step.ConflictNewest && !o.ended && o.id != r.own {
			again = append(again, i)
		} else {
			r.out[i] = Inserted{ID: o.id, Duplicate: true}
		}
	}
	return again, nil
}

// takeKept takes the signals that are kept for the keys of specs that were inserted.
func (r *ruling) takeKept(todo []int, fresh map[uuid.UUID]int64) error {
	var list []*step.Spec
	var out []Inserted
	for _, i := range todo {
		if id, ok := fresh[r.list[i].UID]; ok {
			list, out = append(list, r.list[i]), append(out, Inserted{ID: id})
		}
	}
	if last := r.s.takeKept(list, out); len(last) > 0 {
		return r.send(last...)
	}
	return nil
}

// runsSQL finds what occupies keys, and whether it still waits. $1 keys
var runsSQL = named("runs", `SELECT g.correlation_guard, g.id, g.finished_at IS NOT NULL, `+waitsText+`
FROM {s}.gen_durable g WHERE g.correlation_guard = ANY($1::text[])`)

// waitsText is the condition that an instance waits: it was never claimed, so no step can have
// seen its state. One whose claim was given back without a run counts as begun. coalesce() is for
// the plan (T98).
const waitsText = `coalesce(g.status = 'runnable' AND g.claim_token = 0, false)`

// run is an instance that occupies a key.
type run struct {
	id           int64
	ended, waits bool
}

func readRuns(into map[string]run) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key string
		var o run
		_, err := pgx.ForEachRow(rows, []any{&key, &o.id, &o.ended, &o.waits}, func() error { into[key] = o; return nil })
		return err
	}
}

// lockRunsSQL locks the instances to be replaced, in ascending id, and returns the partition keys
// of those that still wait. It waits for a claim that is about to commit. $1 ids
var lockRunsSQL = named("lock runs", `SELECT coalesce(g.partition_key, '') FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[]) AND `+waitsText+`
ORDER BY g.id FOR NO KEY UPDATE`)

var (
	replaceSQL      = named("replace", replaceText(false))
	replaceLinedSQL = named("replace lined", replaceText(true))
)

// replaceText makes instances that wait what specs say. The caller has locked them, so a claim
// comes before, and then nothing is replaced, or after.
//
// Of such a row stays who it is (id, uid, the parent, the node and what that waited for, the time
// of the insertion), whether it is paused, and what it counts (visits, rounds). All else is as if
// the specs were inserted now: no note about the old one is about the new. The place of a run is
// given up, too, since it is a place of the old spec's customer. The new one may be behind another
// gate, and takes a place there as any instance does.
//
// A row that is due already keeps its time, as a release leaves it; otherwise an instance that is
// replaced more often than its queue is late would never have its turn. For the same reason a
// bound that has passed is not made later.
//
// $1 … $16 as insertForm.rows $17 ids $18 due no later than $19 retentions $20 gates
func replaceText(lined bool) string {
	p := parameters(19)
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE {s}.gen_durable g SET fsm = ` + fsmText + `, fsm_version = ` + versionText + `, step = ` + stepText + `,
  queue = ` + queueText + `, priority = ` + priorityText + `, state = r.state::jsonb,
  partition_key = r.part, correlation_key = r.key, correlation_scope = ` + scopeText + `,
  eligible_at = CASE WHEN ` + dueText + ` > (SELECT now FROM c) THEN least(` + dueText + `, r.latest)
    ELSE least(g.eligible_at, (SELECT now FROM c)) END,
  ` + either(lined, `pick_lane = `+laneText+`, gate = r.gate,`, `pick_lane = {lane front}, gate = NULL,`) + ` place = NULL, seat = NULL,
  run_gate = NULL, run_place = NULL, aside_step = NULL,
  labels = r.labels::jsonb, trace = r.trace::jsonb, deadline = (SELECT now FROM c) + r.life * interval '1 microsecond',
  retain = r.retain::bigint[],
  attempt = 0, crashes = 0, last_error = NULL, errors = NULL, result = NULL, progress = NULL, commit_id = NULL,
  awaits = NULL, await_deadline = NULL, timed_out = false,
  updated_at = (SELECT now FROM c)
FROM (` + insertForm{lined: lined}.rows(&p) + `, unnest($17::bigint[]) AS target, unnest($18::timestamptz[]) AS latest,
  unnest($19::text[]) AS retain) r
WHERE g.id = r.target AND ` + waitsText + `
RETURNING g.id`
}

// replace makes the targets of specs what these say, and returns the specs that have none, or whose
// target has begun.
func (r *ruling) replace(todo []int) (left []int, err error) {
	var cols specs
	var ids []int64
	var latest []*time.Time
	for _, i := range todo {
		if t, ok := r.targets[i]; ok {
			cols.add(r.list[i])
			ids, latest = append(ids, t.id), append(latest, t.latest)
		}
	}
	if len(ids) == 0 {
		return todo, nil
	}
	var keys []string
	var done []int64
	readKeys := func(rows pgx.Rows) error {
		var key string
		_, err := pgx.ForEachRow(rows, []any{&key}, func() error {
			if key != "" {
				keys = append(keys, key)
			}
			return nil
		})
		return err
	}
	r.s.lineUp(&cols)
	replace := r.s.stmt(replaceSQL, readIDs(&done), append(cols.insertArgs(), ids, latest, cols.retains)...)
	if len(cols.gates) > 0 {
		replace = r.s.stmt(replaceLinedSQL, replace.Read, append(replace.Args, cols.gates)...)
	}
	if err := r.send(r.s.stmt(lockRunsSQL, readKeys, ids), replace); err != nil {
		return nil, err
	}
	for _, i := range todo {
		t, ok := r.targets[i]
		delete(r.targets, i)
		if !ok || !slices.Contains(done, t.id) {
			left = append(left, i)
			continue
		}
		r.out[i] = Inserted{ID: t.id, Replaced: true}
		if key := r.list[i].PartitionKey; key != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 { // a row was perhaps the head of its key, or is now
		return left, nil
	}
	slices.Sort(keys)
	return left, r.send(r.s.stmt(promoteSQL, r.effects.read, slices.Compact(keys), nil, nil))
}

// cancel ends the occupants of keys, as an operator's cancel does, and is in the audit as such.
func (r *ruling) cancel(ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var done Operated
	order := Order{Verb: Cancel, Mark: uuid.NewString(), By: By{Actor: cmp.Or(r.by.Actor, "insert"), Reason: cmp.Or(r.by.Reason, "a newer instance of its key was inserted")}}
	if err := r.s.operateEach(r.send, slices.Compact(slices.Sorted(slices.Values(ids))), &order, &done); err != nil {
		return err
	}
	for _, c := range done.Changed {
		r.effects.Ended = append(r.effects.Ended, c.ID)
	}
	r.effects.add(done.Promotion)
	return nil
}

// keys returns the keys of specs that address an instance, of those that which accepts; nil accepts
// all.
func (r *ruling) keys(places []int, which func(*step.Spec) bool) (keys []string) {
	for _, i := range places {
		if x := r.list[i]; x.Key != "" && x.Scope != step.ScopeNone && (which == nil || which(x)) {
			keys = append(keys, x.Key)
		}
	}
	return keys
}
