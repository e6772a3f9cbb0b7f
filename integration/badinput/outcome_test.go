package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// The corpus numbers the outcomes of a step so.
const (
	next = iota
	retry
	retryBy
	await
	spawn
	done
	fail
	kinds
)

// These bits of the corpus say how the fields make an outcome, and what the handler does with a
// failure.
const (
	withDelay   = 1 << iota // Next, Await
	withTime                // Next, Await
	toItself                // instead of to the fuzzed step's name
	toTheEnd                // instead of to the fuzzed step's name
	handlerToo              // the handler answers with the same outcome
	handlerOut              // the handler fails, too
	permanent               // RetryBy
	retryAfter              // RetryBy
	keyed                   // spawn: all children have the same key
	partitioned             // spawn: and the same partition key
	quorum                  // spawn: of as many children as the time says
	orSignal                // spawn: or a signal of the names; with a delay, or a timeout
	graphed                 // spawn: the nodes of a graph, by the names; the first waits for the one that the text names
	anyOutcome  = 1<<iota - 1
)

var (
	unruly = fsm.Declare[json.RawMessage, json.RawMessage]("unruly")
	small  = fsm.Declare[json.RawMessage, json.RawMessage]("small")
)

// FuzzOutcome tests that every kind of outcome, with any values in its fields, is committed and has
// its effect, or goes to the handler as an OutcomeError before Postgres gets it. The same holds for
// the handler's own outcome.
func FuzzOutcome(f *testing.F) {
	seedOutcomes(f)
	r := &rig{}
	r.start(f, verbatim{}, r.unruly(), small.Job(func(_ context.Context, s json.RawMessage) (json.RawMessage, error) { return s, nil }))
	f.Fuzz(func(t *testing.T, kind uint8, to string, state []byte, text string, delay, at int64, names string, many uint32, priority int, flags uint16) {
		x := r.begin(t)
		defer x.finish()
		key, p := x.put(input{kind: kind % kinds, to: to, state: state, text: text, delay: delay, at: at, names: list(names, many),
			children: bounded(many), priority: priority, flags: flags & anyOutcome})
		if p.bad.flags&toItself != 0 {
			p.bad.to = "start"
		} else if p.bad.flags&toTheEnd != 0 {
			p.bad.to = "end"
		}
		began := x.clock()
		id, err := x.insert(unruly.New(json.RawMessage(`"as inserted"`)).Key(key))
		require.NoError(t, err)
		i := x.rested(id)
		if failures := p.failed(); len(failures) > 0 {
			x.refused(p, i, failures)
			return
		}
		require.NoError(t, p.bad.fault(), "it was accepted")
		x.accepted(p, i, began)
	})
}

// seedOutcomes adds the cases that have names. The corpus below testdata has those that fuzzing
// found.
func seedOutcomes(f *testing.F) {
	f.Helper()
	const good, year = `{"a":1}`, int64(365 * 24 * time.Hour)
	sample := seeds(f)
	add := func(kind int, to, state, text string, delay, at int64, names string, many uint32, priority int, flags uint16) {
		sample(uint8(kind), to, []byte(state), text, delay, at, names, many, priority, flags) //nolint:gosec // a few
	}
	for kind := range kinds {
		add(kind, "", good, "text", 0, 0, "letter", 1, 1, toTheEnd)
		add(kind, "", good, "text", 0, 0, "letter", 1, 1, toItself)
		for _, state := range []string{"", `"\u0000"`, `"\ud800"`, "\"\xff\"", "1e200000", "1e400", strings.Repeat("[", 10_000)} {
			add(kind, "", state, "", 0, 0, "letter", 1, 1, toTheEnd)
		}
		add(kind, "", `"\u0000"`, "", 0, 0, "letter", 1, 1, toTheEnd|handlerToo)
		add(kind, "", `"\u0000"`, "a\x00b", 0, 0, "letter", 1, 1, toTheEnd|handlerOut)
	}
	for _, kind := range []int{next, await, spawn} {
		for _, to := range []string{"", "nowhere", "\x00", "\xff", strings.Repeat("x", 10_000)} {
			add(kind, to, good, "", 0, 0, "letter", 1, 1, 0)
		}
	}
	for _, kind := range []int{next, retry, retryBy, await} {
		for _, n := range []int64{0, 1, -1, int64(time.Hour), 100 * year, 102 * year, math.MaxInt64, math.MinInt64} {
			add(kind, "", good, "text", n, 0, "letter", 1, 1, toTheEnd|withDelay|retryAfter)
			add(kind, "", good, "text", 0, n, "letter", 1, 1, toTheEnd|withTime)
		}
	}
	for _, text := range []string{"", "a\x00b", "\xff", strings.Repeat("é", 5_000)} {
		add(retryBy, "", good, text, 0, 0, "", 0, 3, 0)
		add(retryBy, "", good, text, 0, 0, "", 0, 3, permanent)
		add(fail, "", good, text, 0, 0, "", 0, 0, 0)
	}
	add(next, "", good, "", 1, 1, "", 0, 0, toTheEnd|withDelay|withTime)
	add(next, "", good, "", 0, time.Now().Add(time.Hour).Unix(), "", 0, 0, toTheEnd|withTime)
	for _, names := range []string{"", "a,b,a", ",", "\x00", "a,\xff", strings.Repeat("x", 10_000), strings.Repeat("x", 512)} {
		add(await, "", good, "", 0, 0, names, 0, 0, toTheEnd)
	}
	for _, many := range []uint32{1_000, 1_001, 100_000} { // names, and in spawn children
		add(await, "", good, "", 0, 0, "n", many, 0, toTheEnd)
		add(spawn, "", good, "", 0, 0, "", many, 0, toTheEnd)
	}
	for _, priority := range []int{math.MaxInt16, math.MaxInt16 + 1, math.MinInt16 - 1, math.MaxInt64} {
		add(spawn, "", good, "", 0, 0, "", 2, priority, toTheEnd|partitioned)
		add(retryBy, "", good, "", 0, 0, "", 0, priority, 0)
	}
	add(spawn, "", good, "", 0, 0, "", 0, 0, toTheEnd)
	for _, k := range []int64{0, 1, 3, 5, 6, -1, math.MaxInt64, math.MinInt64} {
		add(spawn, "", good, "", 0, k, "", 5, 0, toTheEnd|quorum)
		add(spawn, "", good, "one", 0, k, "", 5, 0, toTheEnd|quorum|keyed)
		add(spawn, "", good, "", k, 1, "letter", 2, 0, toTheEnd|quorum|orSignal|withDelay)
	}
	for _, names := range []string{"", "a,b,a", ",", "\x00", "a,\xff", strings.Repeat("x", 10_000)} {
		add(spawn, "", good, "", 0, 0, names, 1, 0, toTheEnd|orSignal)
	}
	for _, to := range []string{"", "node 0", "node 4", "nowhere", "\x00", strings.Repeat("x", 513)} {
		add(spawn, "", good, to, 0, 0, "", 5, 0, toTheEnd|graphed)
	}
	for _, names := range []string{"a", "a,b,a", "node 3", ",", "\x00", "a,\xff", strings.Repeat("x", 513)} {
		add(spawn, "", good, "", 0, 0, names, 5, 0, toTheEnd|graphed)
	}
	add(spawn, "", good, "", 0, 0, "n", 299, 0, toTheEnd|graphed)
	add(spawn, "", good, "", 0, 2, "", 5, 0, toTheEnd|graphed|quorum)
	add(spawn, "", good, "", 0, 0, "", 5, 0, toTheEnd|graphed|keyed)
	add(spawn, "", `"\u0000"`, "nowhere", 0, 0, "", 5, 0, toTheEnd|graphed|handlerToo)
	add(spawn, "", good, "", 0, 0, "", 100_000, 0, toTheEnd|graphed)
	add(spawn, "", good, "one", 0, 0, "", 5, 0, toTheEnd|keyed)
	add(spawn, "", good, "\x00", 0, 0, "", 5, 0, toTheEnd|keyed)
	add(spawn, "", good, "one\n'", 0, 0, "", 5, 0, toTheEnd|partitioned)
	add(spawn, "", good, strings.Repeat("é", 257), 0, 0, "", 5, 0, toTheEnd|partitioned)
}

// list returns the names as a list, or as many of them as many says.
func list(names string, many uint32) []string {
	if many > 1 && utf8.ValidString(names) && !strings.Contains(names, ",") && len(names) < 100 {
		out := make([]string, min(many, 2_000))
		for i := range out {
			out[i] = names + string(rune('a'+i%20)) + strings.Repeat("z", i/20)
		}
		return out
	}
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// bounded keeps thousands of children from running, which would cost too much; numbers over the
// limit are refused and cost nothing.
func bounded(many uint32) int {
	if many > step.DefaultChildren {
		return int(min(many, 100_000))
	}
	return int(many % 300)
}

// unruly follows its plan at its first run.
func (r *rig) unruly() fsm.Definition {
	return unruly.Define(
		fsm.Step("start", r.planned(func(p *plan, v *parcel) (fsm.Outcome, error) {
			p.open()
			if v.Attempt > 0 || v.Visit > 0 {
				return r.last(p, v)
			}
			return p.bad.outcome(v), nil
		})),
		fsm.Step("end", r.planned(r.last)),
	).OnError(func(_ context.Context, v *parcel, err error) (fsm.Outcome, error) {
		p, unplanned := r.plan(v.Key)
		if unplanned != nil {
			return nil, unplanned
		}
		p.fail(err)
		switch {
		case p.bad.flags&handlerToo != 0:
			return p.bad.outcome(v), nil
		case p.bad.flags&handlerOut != 0:
			return nil, errors.New(p.bad.text)
		default:
			return v.Fail(err), nil
		}
	})
}

// last records what arrived, and ends.
func (r *rig) last(p *plan, v *parcel) (fsm.Outcome, error) {
	p.see("state", v.State)
	for range v.Children() {
		p.see("child", nil)
	}
	for range v.Dropped() {
		p.see("dropped", nil)
	}
	return v.Done(json.RawMessage(`"the end"`)), nil
}

// outcome makes an outcome of the input.
func (b *input) outcome(v *parcel) fsm.Outcome {
	delay, at := time.Duration(b.delay), time.Unix(b.at, 0)
	switch b.kind {
	case next:
		o := v.Next(b.to, b.state)
		if b.flags&withDelay != 0 {
			o.After(delay)
		}
		if b.flags&withTime != 0 {
			o.At(at)
		}
		return o
	case retry:
		return v.Retry(b.state, delay)
	case retryBy:
		return v.RetryBy(fsm.RetryPolicy{MaxAttempts: b.priority, Base: delay, Max: time.Duration(b.at)}, b.failure())
	case await:
		o := v.Await(b.to, b.state, b.signals()...)
		if b.flags&withDelay != 0 {
			o.Timeout(delay)
		}
		if b.flags&withTime != 0 {
			o.Until(at)
		}
		return o
	case spawn:
		o := v.ScheduleChildren(b.to, b.state, b.specs()...)
		if b.flags&graphed != 0 {
			o = v.ScheduleGraph(b.to, b.state, b.nodes()...)
		}
		if b.flags&quorum != 0 {
			o.Quorum(int(b.at))
		}
		if b.flags&orSignal != 0 {
			o.Or(b.signals()...)
		}
		if b.flags&orSignal != 0 && b.flags&withDelay != 0 {
			o.Timeout(delay)
		}
		return o
	case done:
		return v.Done(b.state)
	default:
		return v.Fail(errors.New(b.text))
	}
}

func (b *input) signals() []fsm.AnySignal {
	signals := make([]fsm.AnySignal, len(b.names))
	for i, name := range b.names {
		signals[i] = fsm.DeclareSignal[json.RawMessage](name)
	}
	return signals
}

func (b *input) failure() error {
	err := errors.New(b.text)
	if b.flags&retryAfter != 0 {
		err = fsm.RetryAfter(time.Duration(b.delay), err)
	}
	if b.flags&permanent != 0 {
		err = fsm.Permanent(err)
	}
	return err
}

func (b *input) specs() []fsm.Spec {
	specs := make([]fsm.Spec, b.children)
	for i := range specs {
		specs[i] = small.New(b.state).Priority(b.priority)
		if b.flags&keyed != 0 {
			specs[i] = specs[i].Key(fsm.Key(b.text))
		}
		if b.flags&partitioned != 0 {
			specs[i] = specs[i].PartitionKey(b.text)
		}
	}
	return specs
}

// nodeName returns the name of a node: one of the names, or its number.
func (b *input) nodeName(i int) string {
	if i < len(b.names) {
		return b.names[i]
	}
	return "node " + strconv.Itoa(i)
}

// nodes makes the children the nodes of a tree, each of which waits for the one above it. An edge
// from any of them to the first makes a cycle.
func (b *input) nodes() []fsm.GraphNode {
	nodes := make([]fsm.GraphNode, b.children)
	for i, spec := range b.specs() {
		nodes[i] = fsm.Node(b.nodeName(i), spec)
		if i > 0 {
			nodes[i] = nodes[i].After(b.nodeName((i - 1) / 2))
		} else if b.text != "" {
			nodes[i] = nodes[i].AfterEnd(b.text)
		}
	}
	return nodes
}

// badGraph reports whether the nodes are no graph.
func (b *input) badGraph() bool {
	seen := map[string]bool{}
	for i := range b.children {
		name := b.nodeName(i)
		if badName(name) || seen[name] {
			return true
		}
		seen[name] = true
	}
	return b.children > 0 && (b.text != "" || b.flags&keyed != 0) // no such node, or a cycle; a key
}

// fault returns why the outcome must be refused, by the documented rules. It ignores the content of
// states, which FuzzStoredJSON tests.
func (b *input) fault() error {
	const century = 36_525 * 24 * time.Hour
	delay := time.Duration(b.delay)
	bad := delay < 0 || delay > century
	both := b.flags&withDelay != 0 && b.flags&withTime != 0
	late := b.flags&withTime != 0 && time.Unix(b.at, 0).After(time.Now().Add(century+time.Minute))
	switch b.kind {
	case retry:
		if bad {
			return errors.New("delay")
		}
		return nil
	case retryBy, done, fail:
		return nil
	}
	if b.to != "start" && b.to != "end" {
		return errors.New("step")
	}
	switch {
	case b.kind == next && (both || late || bad && b.flags&withDelay != 0):
		return errors.New("delay or time")
	case b.kind == await && (both || late || (bad || delay == 0) && b.flags&withDelay != 0):
		return errors.New("timeout")
	case b.kind == spawn && b.flags&quorum != 0 && (b.at < 1 || b.at > int64(b.children)):
		return errors.New("quorum")
	case b.kind == spawn && b.flags&orSignal != 0 && b.flags&withDelay != 0 && (bad || delay == 0):
		return errors.New("timeout")
	case (b.kind == await || b.kind == spawn && b.flags&orSignal != 0) && (len(b.names) == 0 || len(distinct(b.names)) > step.DefaultAwaitNames || slices.ContainsFunc(b.names, badName)):
		return errors.New("names")
	case b.kind == spawn && b.children > step.DefaultChildren:
		return errors.New("children")
	case b.kind == spawn && b.flags&graphed != 0 && b.badGraph():
		return errors.New("graph")
	case b.kind == spawn && b.children > 0 && (b.priority < math.MinInt16 || b.priority > math.MaxInt16):
		return errors.New("priority")
	case b.kind == spawn && b.children > 0 && b.flags&(keyed|partitioned) != 0 && badName(b.text):
		return errors.New("key")
	}
	return nil
}

// expires reports whether an await of this input has a timeout that may pass during the test.
func (b *input) expires() bool {
	return b.flags&withDelay != 0 && time.Duration(b.delay) < patience || b.flags&withTime != 0 && time.Until(time.Unix(b.at, 0)) < patience
}

func badName(name string) bool {
	return name == "" || len(name) > 512 || !utf8.ValidString(name) || strings.Contains(name, "\x00")
}

func distinct(names []string) []string {
	sorted := slices.Sorted(slices.Values(names))
	return slices.Compact(sorted)
}

// refused checks an outcome that went to the handler: the error is typed, and the handler's outcome
// took effect.
func (x *trial) refused(p *plan, i fsm.RawInstance, failures []error) {
	x.t.Helper()
	require.Len(x.t, failures, 1)
	wrong, ok := errors.AsType[*fsm.OutcomeError](failures[0])
	require.True(x.t, ok, "%T: %v", failures[0], failures[0])
	require.NotEqual(x.t, "commit", wrong.Field, "only Postgres has found it: %v", wrong)
	require.Equal(x.t, fsm.StatusFailed, i.Status)
	require.JSONEq(x.t, `"as inserted"`, string(i.State))
	require.True(x.t, utf8.ValidString(i.LastError))
	require.Equal(x.t, int64(0), i.Visit)
	switch {
	case p.bad.flags&handlerToo != 0:
		require.Equal(x.t, fsm.FailureError, i.Failure)
		require.Equal(x.t, storable(wrong.Error()+"; its handler: "+wrong.Error()), i.LastError)
	case p.bad.flags&handlerOut != 0:
		require.Equal(x.t, fsm.FailureError, i.Failure)
		require.Equal(x.t, storable(wrong.Error()+"; its handler: "+p.bad.text), i.LastError)
	default:
		require.Equal(x.t, fsm.FailureDecided, i.Failure)
		require.Equal(x.t, storable(wrong.Error()), i.LastError)
	}
}

// accepted checks that the outcome took effect.
func (x *trial) accepted(p *plan, i fsm.RawInstance, began time.Time) {
	x.t.Helper()
	b := &p.bad
	switch b.kind {
	case done:
		require.Equal(x.t, fsm.StatusDone, i.Status)
		requireSameJSON(x.t, b.state, i.Result, "result")
		require.JSONEq(x.t, `"as inserted"`, string(i.State))
		return
	case fail:
		require.Equal(x.t, fsm.FailureDecided, i.Failure)
		require.Equal(x.t, storable(b.text), i.LastError)
		return
	case retryBy:
		require.JSONEq(x.t, `"as inserted"`, string(i.State))
		if i.Status == fsm.StatusFailed {
			require.Contains(x.t, []fsm.Failure{fsm.FailureError, fsm.FailureExhausted}, i.Failure)
		}
		if i.Status != fsm.StatusDone { // being done clears the newest error
			require.Equal(x.t, storable(b.text), strings.Replace(i.LastError, "type *fsm.permanentError", "type *errors.errorString", 1))
		}
		return
	}
	requireSameJSON(x.t, b.state, i.State, "state")
	switch {
	case i.Status == fsm.StatusRunnable:
		due := began.Add(time.Duration(b.delay))
		if b.flags&withTime != 0 {
			due = time.Unix(b.at, 0)
		}
		require.False(x.t, i.EligibleAt.Before(due.Add(-time.Millisecond)), "due at %v, not at %v", due, i.EligibleAt)
		require.True(x.t, i.EligibleAt.Before(due.Add(patience)), "due at %v, not at %v", due, i.EligibleAt)
		return
	case i.Status == fsm.StatusAwaitingSignal:
		awaits := x.awaits(i.ID)
		_, err := x.eng.Signal(x.t.Context(), i.ID, fsm.DeclareSignal[json.RawMessage](b.names[len(b.names)-1]).With(json.RawMessage("1")))
		if b.expires() && errors.Is(err, engine.ErrNoTarget) {
			break // it has not waited for the signal
		}
		require.NoError(x.t, err)
		require.Equal(x.t, distinct(b.names), distinct(awaits))
	}
	i = x.ended(i.ID)
	require.Equal(x.t, fsm.StatusDone, i.Status, i.LastError)
	seen := p.seen()
	requireSameJSON(x.t, b.state, seen[0].raw, "state as the next step saw it")
	if b.kind == spawn {
		require.Len(x.t, seen, 1+b.children, "children")
	}
}

// clock returns the database's time.
func (x *trial) clock() (now time.Time) {
	x.t.Helper()
	require.NoError(x.t, x.pool.QueryRow(x.t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

func (x *trial) awaits(id fsm.ID) (names []string) {
	x.t.Helper()
	require.NoError(x.t, x.pool.QueryRow(x.t.Context(), `SELECT awaits FROM gendurable.gen_durable WHERE id = $1`, id).Scan(&names))
	return names
}
