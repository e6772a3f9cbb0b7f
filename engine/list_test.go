package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

// paged reads a list page by page.
func paged(t *testing.T, e *engine.Engine, q engine.Query, between func()) (all []fsm.RawInstance) {
	t.Helper()
	for {
		page, err := e.List(t.Context(), q)
		require.NoError(t, err)
		all = append(all, page.Instances...)
		if q.After = page.Next; page.Next == "" {
			return all
		}
		between()
	}
}

func idsOf(all []fsm.RawInstance) (ids []fsm.ID) {
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	return ids
}

// Each instance that is there all the time is listed once, while others come, end and go.
func TestListWhileInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	specs := make([]fsm.Spec, 300)
	for i := range specs {
		specs[i] = ticket.New(fmt.Sprint(i)).Label("part", fmt.Sprint(i%3))
	}
	in, err := e.InsertMany(ctx, specs)
	require.NoError(t, err)
	gone := 0
	for _, q := range []engine.Query{
		{Limit: 7}, {Limit: 7, OldestFirst: true},
		{Limit: 7, Filter: engine.Filter{Labels: map[string]string{"part": "1"}}},
	} {
		all := paged(t, e, q, func() {
			_, err := e.Insert(ctx, ticket.New("late"))
			require.NoError(t, err)
			_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = $1`, int64(in[gone+1].ID))
			require.NoError(t, err)
			_, err = pool.Exec(ctx, `DELETE FROM gendurable.gen_durable WHERE id = $1`, int64(in[gone].ID))
			require.NoError(t, err)
			gone += 3
		})
		ids := idsOf(all)
		require.True(t, slices.IsSortedFunc(ids, func(a, b fsm.ID) int {
			if q.OldestFirst {
				return int(a - b)
			}
			return int(b - a)
		}))
		require.Len(t, slices.Compact(slices.Clone(ids)), len(ids), "none twice")
		for n, i := range in {
			if n > 0 && n%3 == 1 || n%3 == 2 && q.Labels == nil {
				require.Contains(t, ids, i.ID, "it was there, ended or not")
			}
		}
		if !q.OldestFirst {
			require.NotContains(t, all[0].State, "late")
		}
	}
}

func TestListOfAMachine(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	for n := range 5 {
		_, err := e.Insert(ctx, ticket.New(fmt.Sprint("seat ", n)).Label("row", "A").Label("n", fmt.Sprint(n)))
		require.NoError(t, err)
		_, err = e.Insert(ctx, echoes.New("x"))
		require.NoError(t, err)
	}
	page, err := ticket.List(ctx, e, engine.Query{Limit: 3, Filter: engine.Filter{Labels: map[string]string{"row": "A"}}})
	require.NoError(t, err)
	require.Len(t, page.Instances, 3)
	require.Equal(t, "seat 4", page.Instances[0].State)
	require.Equal(t, map[string]string{"row": "A", "n": "4"}, page.Instances[0].Labels)
	page, err = ticket.List(ctx, e, engine.Query{Limit: 3, After: page.Next, Filter: engine.Filter{Labels: map[string]string{"row": "A"}}})
	require.NoError(t, err)
	require.Len(t, page.Instances, 2)
	require.Empty(t, page.Next)

	_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET state = '7' WHERE labels ->> 'n' = '2'`)
	require.NoError(t, err)
	var states []string
	for i, err := range ticket.All(ctx, e, engine.Query{OldestFirst: true, Limit: 2}) {
		if i.Labels["n"] == "2" {
			require.ErrorAs(t, err, new(*fsm.DecodeError))
			continue
		}
		require.NoError(t, err)
		states = append(states, i.State)
	}
	require.Equal(t, []string{"seat 0", "seat 1", "seat 3", "seat 4"}, states)
}

func TestAll(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	specs := make([]fsm.Spec, 450) // more than two pages
	for i := range specs {
		specs[i] = ticket.New("")
	}
	_, err := e.InsertMany(ctx, specs)
	require.NoError(t, err)
	for limit, want := range map[int]int{0: fsm.DefaultLimit, 1: 1, 449: 449, fsm.MaxLimit: 450} {
		page, err := e.List(ctx, engine.Query{Limit: limit})
		require.NoError(t, err)
		require.Len(t, page.Instances, want)
		require.Equal(t, want == 450, page.Next == "")
	}
	everything := e.All(ctx, engine.Query{})
	for range 2 {
		n := 0
		for _, err := range everything {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, len(specs), n, "the zero Query is of all, as often as it is ranged over")
	}
	n := 0
	for range everything {
		if n++; n == 201 {
			break
		}
	}
	var last error
	n = 0
	for i, err := range everything {
		if last = err; err != nil {
			require.Zero(t, i)
			break
		}
		if n++; n == 10 {
			cancel(errors.New("enough"))
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Equal(t, 200, n)
}

func TestListRefusesBadInput(t *testing.T) {
	t.Parallel()
	c := open(t, nowhere(t, 4))
	many := map[string]string{}
	for n := range 17 {
		many[fmt.Sprint(n)] = ""
	}
	bad := func(f engine.Filter) engine.Query { return engine.Query{Filter: f} }
	for text, q := range map[string]engine.Query{
		"Limit: -1, want 1 to 1000":                      {Limit: -1},
		"Limit: 1001, want 1 to 1000":                    {Limit: 1001},
		"After: damaged":                                 {After: "x"},
		"Machine: 513 bytes, at most 512":                bad(engine.Filter{Machine: strings.Repeat("x", 513)}),
		"Step: \"\\x00\" is not":                         bad(engine.Filter{Step: "\x00"}),
		"Queue: \"\\xff\" is not":                        bad(engine.Filter{Queue: "\xff"}),
		"Key: 513 bytes, at most 512":                    bad(engine.Filter{Key: fsm.Key(strings.Repeat("x", 513))}),
		"KeyPrefix: \"\\x00\" is not":                    bad(engine.Filter{KeyPrefix: "\x00"}),
		"PartitionKey: \"\\x00\" is not":                 bad(engine.Filter{PartitionKey: "\x00"}),
		"Version: -1, at least 1":                        bad(engine.Filter{Version: -1}),
		"Version: 2147483648, at most 2147483647":        bad(engine.Filter{Version: 1 << 31}),
		"Parent: -1, at least 1":                         bad(engine.Filter{Parent: -1}),
		"Status[1]: \"gone\" is no status":               bad(engine.Filter{Status: []fsm.Status{"done", "gone"}}),
		"Failure[0]: \"\" is no kind":                    bad(engine.Filter{Failure: []fsm.Failure{""}}),
		"InsertedAfter: the year 10000, want 1 to 9999":  bad(engine.Filter{InsertedAfter: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"InsertedBefore: the year -5000, want 1 to 9999": bad(engine.Filter{InsertedBefore: time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"Labels: 17 of them, at most 16":                 bad(engine.Filter{Labels: many}),
		"Labels: name \"\": empty":                       bad(engine.Filter{Labels: map[string]string{"": "x"}}),
		"Labels: name \"xxx":                             bad(engine.Filter{Labels: map[string]string{strings.Repeat("x", 65): "x"}}),
		"Labels[tenant]: 257 bytes, at most 256":         bad(engine.Filter{Labels: map[string]string{"tenant": strings.Repeat("x", 257)}}),
		"Labels[tenant]: \"\\x00\" is not":               bad(engine.Filter{Labels: map[string]string{"tenant": "\x00"}}),
	} {
		_, err := c.List(t.Context(), q)
		wrong, ok := errors.AsType[*engine.QueryError](err)
		require.True(t, ok, "%s: %v", text, err)
		require.Contains(t, wrong.Error(), text)
		for _, err := range c.All(t.Context(), q) {
			require.ErrorAs(t, err, new(*engine.QueryError))
		}
	}
	for text, f := range map[string]engine.Filter{
		"Filter.Labels: name \"\"":  {Labels: map[string]string{"": "x"}},
		"Filter.Parent: -1":         {Parent: -1},
		"Filter.InsertedBefore: th": {InsertedBefore: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := c.Admin().Bulk(t.Context(), engine.VerbCancel, f)
		require.ErrorAs(t, err, new(*engine.VerbError))
		require.ErrorContains(t, err, text)
	}
}

// A cursor is taken as it was given, for the query that it is of, or not at all.
func TestCursors(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx := within(t)
	for range 3 {
		_, err := e.Insert(ctx, ticket.New("").Label("a", "b"))
		require.NoError(t, err)
	}
	at := time.Now().Add(-time.Hour)
	q := engine.Query{Limit: 1, Filter: engine.Filter{Status: []fsm.Status{fsm.StatusRunnable, fsm.StatusDone}, InsertedAfter: at}}
	page, err := e.List(ctx, q)
	require.NoError(t, err)
	q.After = page.Next

	same := q
	same.Limit, same.All = 2, true
	same.Status = []fsm.Status{fsm.StatusDone, fsm.StatusRunnable, fsm.StatusDone}
	same.InsertedAfter = at.UTC()
	page, err = e.List(ctx, same)
	require.NoError(t, err, "the same query in other words, with another limit")
	require.Len(t, page.Instances, 2)
	require.Empty(t, page.Next)

	others := map[string]func(q *engine.Query){
		"order":  func(q *engine.Query) { q.OldestFirst = true },
		"filter": func(q *engine.Query) { q.Machine = "ticket" },
		"labels": func(q *engine.Query) { q.Labels = map[string]string{"a": "b"} },
		"longer": func(q *engine.Query) { q.After += "A" },
		"line":   func(q *engine.Query) { q.After = q.After[:10] + "\n" + q.After[10:] },
	}
	for n := range q.After {
		others["cut at "+fmt.Sprint(n)] = func(q *engine.Query) { q.After = q.After[:n] + "" }
		for _, other := range "Az9_-=*ü" {
			if rune(q.After[n]) != other {
				others[fmt.Sprintf("%c at %d", other, n)] = func(q *engine.Query) { q.After = q.After[:n] + string(other) + q.After[n+1:] }
			}
		}
	}
	delete(others, "cut at 0")
	for _, name := range slices.Sorted(maps.Keys(others)) {
		other := q
		others[name](&other)
		_, err := e.List(ctx, other)
		wrong, ok := errors.AsType[*engine.QueryError](err)
		require.True(t, ok, "%s: %v", name, err)
		require.Equal(t, "After", wrong.Field, name)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("AQAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		c := open(t, nowhere(t, 4))
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is valid ends at the server that nobody reaches
		_, err := c.List(ctx, engine.Query{After: text})
		if _, bad := errors.AsType[*engine.QueryError](err); text != "" && !bad {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// Each instance that can be listed can be operated on.
func TestBulkByLabel(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	for n := range 9 {
		_, err := e.Insert(ctx, ticket.New("").Label("tenant", fmt.Sprint("t", n%3)).Label("plan", "free").PartitionKey(fmt.Sprint("p", n)))
		require.NoError(t, err)
	}
	filters := map[string]engine.Filter{
		"label":     {Labels: map[string]string{"tenant": "t1"}},
		"labels":    {Labels: map[string]string{"tenant": "t1", "plan": "free"}},
		"none":      {Labels: map[string]string{"tenant": "t1", "plan": "paid"}},
		"partition": {PartitionKey: "p4"},
		"times":     {InsertedAfter: time.Now().Add(-time.Hour), InsertedBefore: time.Now().Add(time.Hour)},
		"later":     {InsertedAfter: time.Now().Add(time.Hour)},
	}
	for name, n := range map[string]int{"label": 3, "labels": 3, "none": 0, "partition": 1, "times": 9, "later": 0} {
		plan, err := e.Admin().Bulk(ctx, engine.VerbCancel, filters[name])
		require.NoError(t, err)
		require.EqualValues(t, n, plan.Matched, name)
		page, err := e.List(ctx, engine.Query{Filter: filters[name], OldestFirst: true})
		require.NoError(t, err)
		require.Equal(t, plan.Sample, page.Instances, name)
	}
	plan, err := e.Admin().Bulk(ctx, engine.VerbCancel, filters["label"])
	require.NoError(t, err)
	applied, err := plan.Apply(ctx)
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: 3}, applied)
	require.Equal(t, 6, live(t, pool))

	root, err := e.Insert(ctx, ticket.New("").Key("root"))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, parent_id, depth) SELECT 'kid', 's', $1, 1 FROM generate_series(1, 3)`, int64(root))
	require.NoError(t, err)
	for _, f := range []engine.Filter{{Parent: root}, {Parent: root, Machine: "kid"}} {
		plan, err := e.Admin().Bulk(ctx, engine.VerbPause, f)
		require.NoError(t, err)
		require.EqualValues(t, 3, plan.Matched)
	}
	page, err := e.List(ctx, engine.Query{Filter: engine.Filter{Key: "root"}})
	require.NoError(t, err)
	require.Equal(t, []fsm.ID{root}, idsOf(page.Instances))
}

// A filter is the same as predicates of ent and in a list.
func TestWhere(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx := within(t)
	for n := range 6 {
		_, err := e.Insert(ctx, ticket.New("").Key(fsm.Key(fmt.Sprint("k%", n))).Label("n", fmt.Sprint(n%2)).Queue(fmt.Sprint("q", n%3)))
		require.NoError(t, err)
	}
	for name, f := range map[string]engine.Filter{
		"zero":   {},
		"label":  {Labels: map[string]string{"n": "1"}},
		"prefix": {KeyPrefix: "k%"},
		"more": {Machine: ticket.Name(), Version: 1, Queue: "q1", Status: []fsm.Status{fsm.StatusRunnable, fsm.StatusDone},
			Labels: map[string]string{"n": "0"}, InsertedAfter: time.Now().Add(-time.Hour)},
		"none": {Failure: []fsm.Failure{fsm.FailureError}},
	} {
		all, err := engine.Where(f)
		require.NoError(t, err)
		got, err := e.Ent().Instance.Query().Where(all...).Order(instance.ByID()).IDs(ctx)
		require.NoError(t, err)
		page, err := e.List(ctx, engine.Query{Filter: f, OldestFirst: true})
		require.NoError(t, err)
		require.ElementsMatch(t, idsOf(page.Instances), got, name)
	}
	_, err := engine.Where(engine.Filter{Version: -1})
	var bad *engine.QueryError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "Version", bad.Field)
}

func TestAListGoesOnBehindAnInstance(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	var ids []fsm.ID
	for range 5 {
		id, err := e.Insert(t.Context(), ticket.New("").Label("a", "b"))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for _, labels := range []map[string]string{nil, {"a": "b"}} {
		for _, limit := range []int{3, 5} { // with a next page, and without
			q := engine.Query{Filter: engine.Filter{Labels: labels}, OldestFirst: true, Limit: limit}
			page, err := e.List(t.Context(), q)
			require.NoError(t, err)
			q.After, err = engine.CursorAt(q, page.Next, ids[1])
			require.NoError(t, err)
			page, err = e.List(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, ids[2], page.Instances[0].ID)
			require.Len(t, page.Instances, 3)
		}
	}
	_, err := engine.CursorAt(engine.Query{}, "no cursor", 1)
	require.ErrorContains(t, err, "After")
}
