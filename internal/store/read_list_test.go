package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// pages reads a list to its end, and checks that each page is within its limit and visits no more
// than it may.
func (b bench) pages(p query.ListParams) (ids []int64, pages int) {
	b.t.Helper()
	for {
		got, err := b.List(b.t.Context(), p)
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, len(got.Instances), p.Limit)
		for _, i := range got.Instances {
			ids = append(ids, int64(i.ID))
		}
		if pages++; got.Next == nil {
			return ids, pages
		}
		if p.After != nil {
			require.Equal(b.t, p.OldestFirst, *got.Next > *p.After, "it makes way")
		}
		p.After, p.Walk = got.Next, got.Walk
	}
}

// rowsOf inserts instances that differ in every property that a filter has, and returns them as
// they are read.
func (b bench) rowsOf(seed uint64, n int) []fsm.RawInstance {
	b.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	some := func(of ...string) string { return of[random.IntN(len(of))] }
	parents := []int64{b.row("", ""), b.row("", "")}
	for i := range n {
		status := some("runnable", "executing", "awaiting_signal", "awaiting_children", "done", "failed")
		c := columns{
			"fsm": some(`'a'`, `'b'`), "fsm_version": some("1", "2"), "step": some(`'s'`, `'t'`), "queue": some(`'q'`, `'r'`),
			"status": quote(status), "awaits": `'{go}'`, "partition_key": some("NULL", `'p'||'`+number(i)+`'`, "NULL"),
			"inserted_at": "'2026-01-01Z'::timestamptz + " + number(random.IntN(10)) + " * interval '1 h'",
			"parent_id":   some("NULL", number(parents[0]), number(parents[1])),
			"labels":      some("NULL", `'{}'`, `'{"x":"1"}'`, `'{"x":"1","y":"ü"}'`, `'{"x":"2","y":"ü","z":""}'`),
		}
		if status != "executing" && c["partition_key"] != "NULL" {
			c["partition_key"] = `'p'` // executing rows may not share a key
		}
		if random.IntN(2) == 0 {
			c["correlation_key"], c["correlation_scope"] = quote(some("k:", "k%", "l:")+number(i)), some(`'{}'`, liveScope)
		}
		switch status {
		case "executing":
			c["locked_by"], c["lease_expires_at"] = `'w'`, `now() + interval '1 h'`
		case "failed":
			c["failure"] = some(`'error'`, `'decided'`)
			c["errors"] = entryOf(`'s'`, some(`'Timeout of 100% of pumps'`, `'no timeout'`))
			c["last_error"] = some(`'Timeout of 100% of pumps'`, `'no timeout'`, `'ÄRGER'`, "NULL")
			c["finished_at"] = "now()"
		case "done":
			c["finished_at"] = "now()"
		}
		b.insert(c)
	}
	return b.allInstances()
}

func (b bench) allInstances() []fsm.RawInstance {
	b.t.Helper()
	var ids []int64
	rows, err := b.pool.Query(b.t.Context(), byHand(`SELECT id FROM gendurable.gen_durable ORDER BY id`))
	require.NoError(b.t, err)
	for rows.Next() {
		var id int64
		require.NoError(b.t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(b.t, rows.Err())
	all, err := b.GetMany(b.t.Context(), ids)
	require.NoError(b.t, err)
	return all
}

// reference holds further properties of an instance.
type reference struct {
	parent      int64
	guard       string
	fingerprint int64 // of a failed one
}

// selects implements a filter in Go.
func selects(f *store.Filter, i *fsm.RawInstance, r reference) bool {
	var labels map[string]string
	if f.Labels != "" && json.Unmarshal([]byte(f.Labels), &labels) != nil {
		return false
	}
	for name, value := range labels {
		if got, ok := i.Labels[name]; !ok || got != value {
			return false
		}
	}
	among := func(all []string, one string) bool { return all == nil || slices.Contains(all, one) }
	if b := f.Within; b.Queues != nil && !slices.Contains(b.Queues, i.Queue) || b.Machines != nil && !slices.Contains(b.Machines, i.Machine) ||
		b.Labels != "" && i.Labels["x"] != "1" {
		return false
	}
	same := func(want, is string) bool { return want == "" || want == is }
	return same(f.Machine, i.Machine) && (f.Version == 0 || f.Version == i.Version) && same(f.Step, i.Step) && same(f.Queue, i.Queue) &&
		among(f.Statuses, string(i.Status)) && among(f.Failures, string(i.Failure)) && strings.HasPrefix(string(i.Key), f.KeyPrefix) &&
		strings.Contains(strings.ToLower(i.LastError), strings.ToLower(f.ErrorText)) && same(f.Key, r.guard) && same(f.PartitionKey, i.PartitionKey) &&
		(f.Fingerprint == "" || i.Status == fsm.StatusFailed && f.Fingerprint == store.FingerprintText(r.fingerprint)) && (f.Parent == 0 || f.Parent == r.parent) &&
		(f.InsertedAfter.IsZero() || !i.InsertedAt.Before(f.InsertedAfter)) && (f.InsertedBefore.IsZero() || i.InsertedAt.Before(f.InsertedBefore))
}

// criteriaOf returns single criteria by name. Each changes a filter.
func criteriaOf(all []fsm.RawInstance, references map[fsm.ID]reference) map[string]func(r *rand.Rand, f *store.Filter) {
	pick := func(r *rand.Rand) *fsm.RawInstance { return &all[r.IntN(len(all))] }
	at := func(r *rand.Rand) time.Time { return time.Date(2026, 1, 1, r.IntN(11), 0, 0, 0, time.UTC) }
	return map[string]func(r *rand.Rand, f *store.Filter){
		"machine": func(r *rand.Rand, f *store.Filter) { f.Machine = pick(r).Machine },
		"version": func(r *rand.Rand, f *store.Filter) { f.Version = 1 + r.IntN(3) },
		"step":    func(r *rand.Rand, f *store.Filter) { f.Step = pick(r).Step },
		"queue":   func(r *rand.Rand, f *store.Filter) { f.Queue = pick(r).Queue },
		"status":  func(r *rand.Rand, f *store.Filter) { f.Statuses = []string{string(pick(r).Status)} },
		"statuses": func(r *rand.Rand, f *store.Filter) {
			f.Statuses = []string{string(pick(r).Status), string(pick(r).Status)}
		},
		"failed": func(_ *rand.Rand, f *store.Filter) { f.Statuses = []string{"failed"} },
		"fingerprint": func(r *rand.Rand, f *store.Filter) {
			for f.Fingerprint = ""; f.Fingerprint == ""; {
				if one := pick(r); one.Status == fsm.StatusFailed {
					f.Fingerprint = store.FingerprintText(references[one.ID].fingerprint)
				}
			}
		},
		"executing": func(_ *rand.Rand, f *store.Filter) { f.Statuses = []string{"executing"} },
		"failure":   func(_ *rand.Rand, f *store.Filter) { f.Failures = []string{"error", "deadline"} },
		"prefix":    func(r *rand.Rand, f *store.Filter) { f.KeyPrefix = []string{"k", "k:", "k%", "%", "l:1"}[r.IntN(5)] },
		"key":       func(r *rand.Rand, f *store.Filter) { f.Key = references[pick(r).ID].guard },
		"partition": func(r *rand.Rand, f *store.Filter) { f.PartitionKey = pick(r).PartitionKey },
		"parent":    func(r *rand.Rand, f *store.Filter) { f.Parent = references[pick(r).ID].parent },
		"label": func(r *rand.Rand, f *store.Filter) {
			f.Labels = []string{`{"x":"1"}`, `{"z":""}`, `{"y":"1"}`}[r.IntN(3)]
		},
		"labels": func(_ *rand.Rand, f *store.Filter) { f.Labels = `{"y":"ü","x":"1"}` },
		"error": func(r *rand.Rand, f *store.Filter) {
			f.ErrorText = []string{"TIMEOUT", "0% of", "0%of", "_"}[r.IntN(4)]
		},
		"within queues":   func(r *rand.Rand, f *store.Filter) { f.Within.Queues = []string{pick(r).Queue, "none"} },
		"within machines": func(r *rand.Rand, f *store.Filter) { f.Within.Machines = []string{pick(r).Machine} },
		"within labels":   func(_ *rand.Rand, f *store.Filter) { f.Within.Labels = `{"x":"1"}` },
		"after":           func(r *rand.Rand, f *store.Filter) { f.InsertedAfter = at(r) },
		"before":          func(r *rand.Rand, f *store.Filter) { f.InsertedBefore = at(r) },
		"between": func(r *rand.Rand, f *store.Filter) {
			f.InsertedAfter = at(r)
			f.InsertedBefore = f.InsertedAfter.Add(2 * time.Hour)
		},
	}
}

// Every criterion, alone and with others, in both orders, in pages of any size, along the key or by
// an index, finds the same instances as the filter in Go. So does a bulk verb, when it plans and
// when it looks again under the lock.
func TestListIsItsFilter(t *testing.T) {
	b := newBench(t)
	all := b.rowsOf(7, 400)
	references := map[fsm.ID]reference{}
	rows, err := b.pool.Query(t.Context(), byHand(`SELECT id, coalesce(parent_id, 0), coalesce(correlation_guard, ''), coalesce(fingerprint, 0) FROM gendurable.gen_durable`))
	require.NoError(t, err)
	for rows.Next() {
		var id fsm.ID
		var r reference
		require.NoError(t, rows.Scan(&id, &r.parent, &r.guard, &r.fingerprint))
		references[id] = r
	}
	require.NoError(t, rows.Err())

	var every []int64
	for _, i := range all {
		every = append(every, int64(i.ID))
	}
	criteria := criteriaOf(all, references)
	names := slices.Sorted(maps.Keys(criteria))
	combinations := [][]string{nil}
	for _, name := range names {
		combinations = append(combinations, []string{name}, []string{name})
	}
	r := rand.New(rand.NewPCG(7, 2))
	for range tier.Pick(50, 150) {
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		combinations = append(combinations, slices.Clone(names[:2+r.IntN(3)]))
	}
	hits := 0
	for _, names := range combinations {
		var f store.Filter
		for _, name := range names {
			criteria[name](r, &f)
		}
		var want []int64
		for _, i := range all {
			if selects(&f, &i, references[i.ID]) {
				want = append(want, int64(i.ID))
			}
		}
		if len(want) > 0 {
			hits++
		}
		p := query.ListParams{Filter: f, OldestFirst: r.IntN(2) == 0, Limit: 1 + r.IntN(60), Visit: []int{7, 50, 10_000}[r.IntN(3)]}
		ids, pages := b.pages(p)
		visited := p.Visit - 1
		if !f.Within.IsZero() { // a page within bounds visits some rows of the page before again
			visited -= p.Visit / 2
		}
		require.LessOrEqual(t, pages, 1+len(all)/min(p.Limit, visited), "%v: %+v", names, p)
		if !p.OldestFirst {
			slices.Reverse(ids)
		}
		require.Equal(t, want, ids, "%v: %+v", names, p)

		live := slices.DeleteFunc(slices.Clone(want), func(id int64) bool {
			n, _ := slices.BinarySearchFunc(all, id, func(i fsm.RawInstance, id int64) int { return int(int64(i.ID) - id) })
			return all[n].Status.Terminal()
		})
		selected, err := b.Select(t.Context(), store.Cancel, &f, 1000)
		require.NoError(t, err)
		require.ElementsMatch(t, live, selected, "%v: %+v", names, f)
		require.True(t, slices.IsSorted(selected))

		// Nothing is paused, so Resume changes nothing, and says of each whether the filter selects it.
		var locked []int64
		for _, refused := range b.operate(store.Order{Verb: store.Resume, Filter: f}, every...).Refused {
			if errors.Is(refused.Why, store.ErrApplies) {
				locked = append(locked, refused.ID)
			}
		}
		require.Equal(t, want, locked, "%v: %+v", names, f)
	}
	require.Greater(t, hits, len(combinations)/4, "filters that select something")
}

// No cursor of a list within bounds is the id of an instance outside, in either order, and pages
// come to an end.
func TestCursorsWithinBoundsTellNoIds(t *testing.T) {
	b := newBench(t)
	inside := map[int64]bool{}
	for i := range 400 {
		queue := "hidden"
		if i%37 == 0 || i > 300 && i < 310 {
			queue = "own"
		}
		inside[b.row("queue", "$1", queue)] = queue == "own"
	}
	for _, oldest := range []bool{true, false} {
		for _, visit := range []int{2, 3, 10, 64} {
			seen := map[int64]bool{}
			p := query.ListParams{Filter: store.Filter{Within: store.Bounds{Queues: []string{"own"}}}, OldestFirst: oldest, Limit: 3, Visit: visit}
			told := 0
			for pages := 0; ; pages++ {
				require.Less(t, pages, 900)
				got, err := b.List(t.Context(), p)
				require.NoError(t, err)
				for _, i := range got.Instances {
					require.True(t, inside[int64(i.ID)])
					require.False(t, seen[int64(i.ID)], "once")
					seen[int64(i.ID)] = true
				}
				if got.Next == nil {
					break
				}
				if !inside[*got.Next] && *got.Next%int64(max(1, visit/2)) != 0 {
					told++
				}
				p.After, p.Walk = got.Next, got.Walk
			}
			require.Zero(t, told, "a cursor is the id of a row outside, to the digit")
			require.Len(t, seen, 20)
		}
	}
}

func TestListReadsWholeInstances(t *testing.T) {
	b := newBench(t)
	for _, spec := range newSpecs(3, true) {
		spec.Labels = []byte(`{"a": "b"}`)
		b.insertSpecs([]*step.Spec{spec})
	}
	full := store.Filter{Machine: "m", Version: 1, Step: "s", Queue: "default", Statuses: []string{"runnable"}, KeyPrefix: "key",
		Labels: `{"a": "b"}`, InsertedAfter: time.Unix(0, 0), InsertedBefore: time.Now().Add(time.Hour)}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		reader := b.beside(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		for _, f := range []store.Filter{{}, {Labels: `{"a": "b"}`}, full} {
			for _, walk := range []bool{false, true} {
				got, err := reader.List(t.Context(), query.ListParams{Filter: f, OldestFirst: true, Limit: 10, Visit: 100, Walk: walk})
				require.NoError(t, err, mode)
				require.Equal(t, b.allInstances(), got.Instances, mode)
				require.Nil(t, got.Next)
				outline, err := reader.List(t.Context(), query.ListParams{Filter: f, OldestFirst: true, Outline: true, Limit: 10, Visit: 100, Walk: walk})
				require.NoError(t, err, mode)
				for n := range outline.Instances {
					require.Nil(t, outline.Instances[n].State)
					outline.Instances[n].State = got.Instances[n].State // the only document that these have
				}
				require.Equal(t, got.Instances, outline.Instances)
			}
		}
		none, err := reader.List(t.Context(), query.ListParams{Filter: store.Filter{Parent: 12345}, Limit: 10, Visit: 100})
		require.NoError(t, err, mode)
		require.Empty(t, none.Instances)
		require.Nil(t, none.Next)
		counts, err := reader.Count(t.Context(), time.Minute)
		require.NoError(t, err, mode)
		require.Len(t, counts, 1)
	}
}

// The last page says that it is the last, also if it is full, and if the last row that it may visit
// is the last of all.
func TestListEnds(t *testing.T) {
	b := newBench(t)
	ids := make([]int64, 20)
	for i := range ids {
		ids[i] = b.row("fsm_version", "$1", 1+i%2)
	}
	for _, oldest := range []bool{true, false} {
		for _, visit := range []int{2, 3, 7, 19, 20, 21, 24} {
			for _, limit := range []int{1, 5, 9, 10, 11, 19, 20, 21} {
				for version := range 4 { // 0: all; 3: none
					got, pages := b.pages(query.ListParams{Filter: store.Filter{Version: version}, OldestFirst: oldest, Limit: limit, Visit: visit})
					want := [][]int64{ids, every(ids, 0), every(ids, 1), nil}[version]
					if !oldest {
						slices.Reverse(got)
					}
					require.Equal(t, want, got)
					require.LessOrEqual(t, pages, 1+20/visit+len(want)/limit, "visit %d limit %d", visit, limit)
					if visit > 20 {
						require.Equal(t, max(1, (len(want)+limit-1)/limit), pages, "no empty page at the end")
					}
				}
			}
		}
	}
}

func every(ids []int64, from int) (out []int64) {
	for ; from < len(ids); from += 2 {
		out = append(out, ids[from])
	}
	return out
}

// If an index finds too many rows, List walks along the key instead, and so do the pages that
// follow.
func TestListLeavesAnIndexThatFindsTooMuch(t *testing.T) {
	b := newBench(t)
	for i := range 30 {
		b.row("labels", "$1", fmt.Sprintf(`{"all": "x", "n": "%d"}`, i%10))
	}
	rare, err := b.List(t.Context(), query.ListParams{Filter: store.Filter{Labels: `{"n": "3"}`}, Limit: 2, Visit: 10})
	require.NoError(t, err)
	require.Len(t, rare.Instances, 2)
	require.False(t, rare.Walk)
	common, err := b.List(t.Context(), query.ListParams{Filter: store.Filter{Labels: `{"all": "x"}`}, Limit: 2, Visit: 10})
	require.NoError(t, err)
	require.Len(t, common.Instances, 2)
	require.True(t, common.Walk)
}

// A page ends when its time is up, with the rows that it has come to. It says how far that was, and
// the next one goes on there; a list within bounds gets on as well, though its cursors are moved
// back. Here the time is up from the beginning.
func TestListEndsAPageWhenItsTimeIsUp(t *testing.T) {
	b := newBench(t)
	var ids, own []int64
	for i := range 60 {
		queue := []string{"own", "hidden", "hidden"}[i%3]
		id := b.row("queue, inserted_at", "$1, now() - make_interval(mins => $2)", queue, 60-i)
		if ids = append(ids, id); queue == "own" {
			own = append(own, id)
		}
	}
	for _, oldest := range []bool{true, false} {
		for _, limit := range []int{1, 2, 7, 100} {
			p := query.ListParams{OldestFirst: oldest, Limit: limit, Visit: 1000, Time: -time.Second}
			first, err := b.List(t.Context(), p)
			require.NoError(t, err)
			require.Len(t, first.Instances, 1)
			require.Equal(t, int64(first.Instances[0].ID), *first.Next)
			require.Equal(t, limit > 1, first.Searched.Equal(first.Instances[0].InsertedAt), "a full page has found enough")
			got, pages := b.pages(p)
			if !oldest {
				slices.Reverse(got)
			}
			require.Equal(t, ids, got)
			require.Equal(t, len(ids)+1, pages)

			p.Filter = store.Filter{Queue: "none"}
			nothing, err := b.List(t.Context(), p)
			require.NoError(t, err)
			require.Empty(t, nothing.Instances)
			require.True(t, nothing.Searched.Equal(first.Instances[0].InsertedAt))

			p.Filter = store.Filter{Within: store.Bounds{Queues: []string{"own"}}}
			for _, visit := range []int{2, 10, 30, 1000} {
				p.Visit = visit
				got, _ := b.pages(p)
				if !oldest {
					slices.Reverse(got)
				}
				require.Equal(t, own, got, "visit %d", visit)
			}
		}
	}
	soon, pages := b.pages(query.ListParams{Limit: 100, Visit: 1000, Time: time.Hour})
	require.Len(t, soon, len(ids))
	require.Equal(t, 1, pages)
}

// A prefix finds what has ended as well, and keys that are free, by indexes, in any encoding of its
// last character. Where too many keys begin with it, another criterion's index is tried.
func TestListByThePrefixOfAKey(t *testing.T) {
	b := newBench(t)
	const visit = 40
	of := map[string][]int64{}
	add := func(key, columns, values string) {
		id := b.row("correlation_key, correlation_scope"+columns, "$1, "+values, key)
		for n := range len(key) + 1 {
			of[key[:n]] = append(of[key[:n]], id)
		}
	}
	ended := `, status, finished_at`
	for _, key := range []string{"order:4", "order:42", "order:42", "order;", "order:~", "order:\x7f", "o", "örder:4", "örder:5", "日本:1", "日本", "~", "~~", "\x7f\x7f"} {
		add(key, ended, liveScope+`, 'done', now()`)
		add(key, ended, `'{}', 'done', now()`)
		add(key, "", `'{}'`)
	}
	for _, key := range []string{"order:42", "örder:4", "日本:1"} {
		add(key, "", liveScope)
	}
	add("order:43", ended, `'{runnable,executing,awaiting_signal,awaiting_children,done}', 'done', now()`)
	for range 200 { // which no list by a prefix may visit
		b.row("", "")
	}
	for _, prefix := range []string{"order:42", "order:43", "order:4", "order:~", "order:\x7f", "order;", "~", "~~", "none", "order:5"} {
		for _, oldest := range []bool{true, false} {
			p := query.ListParams{Filter: store.Filter{KeyPrefix: prefix}, OldestFirst: oldest, Limit: visit, Visit: visit}
			got, pages := b.pages(p)
			if !oldest {
				slices.Reverse(got)
			}
			require.Equal(t, of[prefix], got, "%q", prefix)
			require.Equal(t, 1, pages, "%q", prefix)
		}
	}
	for _, prefix := range []string{"日", "日本", "ö", "örder:5", "o"} { // what an index finds of these may be too much, or none has a range
		got, _ := b.pages(query.ListParams{Filter: store.Filter{KeyPrefix: prefix}, OldestFirst: true, Limit: 7, Visit: visit})
		require.Equal(t, of[prefix], got, "%q", prefix)
	}
	parent := b.row("", "")
	child := b.row("correlation_key, parent_id", "'order:child', $1", parent)
	got, pages := b.pages(query.ListParams{Filter: store.Filter{KeyPrefix: "o", Parent: parent}, Limit: 7, Visit: visit})
	require.Equal(t, []int64{child}, got)
	require.Equal(t, 1, pages)
	ids, err := b.Select(t.Context(), store.Pause, &store.Filter{KeyPrefix: "order:42"}, 1000)
	require.NoError(t, err)
	require.Len(t, ids, 3, "two whose keys are free, and one that occupies it")
}
