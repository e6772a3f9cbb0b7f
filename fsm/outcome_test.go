package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

var (
	paid  = fsm.DeclareSignal[int]("paid")
	other = fsm.DeclareSignal[string]("other")
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		out  func(v *cartVisit) fsm.Outcome
		want step.Commit
	}{
		"next": {
			func(v *cartVisit) fsm.Outcome { return v.Next("end", cart{ID: 2}) },
			step.Commit{Kind: step.Next, Step: "end", State: json.RawMessage(`{"id":2}`)},
		},
		"next after": {
			func(v *cartVisit) fsm.Outcome { return v.Next("start", v.State).After(time.Minute) },
			step.Commit{Kind: step.Next, Step: "start", State: json.RawMessage(`{"id":1}`), Delay: time.Minute},
		},
		"next at": {
			func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).At(soon) },
			step.Commit{Kind: step.Next, Step: "end", State: json.RawMessage(`{"id":1}`), At: soon},
		},
		"next in the far past": {
			func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).At(time.Time{}) },
			step.Commit{Kind: step.Next, Step: "end", State: json.RawMessage(`{"id":1}`), At: time.Unix(0, 0).UTC()},
		},
		"await": {
			func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid, other, paid) },
			step.Commit{Kind: step.Await, Step: "end", State: json.RawMessage(`{"id":1}`), Names: []string{"paid", "other"}},
		},
		"await timeout": {
			func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Timeout(time.Second) },
			step.Commit{Kind: step.Await, Step: "end", State: json.RawMessage(`{"id":1}`), Names: []string{"paid"}, Timeout: time.Second},
		},
		"await until": {
			func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Until(soon) },
			step.Commit{Kind: step.Await, Step: "end", State: json.RawMessage(`{"id":1}`), Names: []string{"paid"}, At: soon},
		},
		"no children": {
			func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State) },
			step.Commit{Kind: step.Children, Step: "end", State: json.RawMessage(`{"id":1}`), Spawn: []step.Spec{}},
		},
		"retry": {
			func(v *cartVisit) fsm.Outcome { return v.Retry(cart{ID: 9}, time.Second) },
			step.Commit{Kind: step.Retry, State: json.RawMessage(`{"id":9}`), Delay: time.Second},
		},
		"again": {
			func(v *cartVisit) fsm.Outcome { v.State.ID = 2; return v.Again(time.Second) },
			step.Commit{Kind: step.Again, Delay: time.Second},
		},
		"again with a state": {
			func(v *cartVisit) fsm.Outcome { return v.AgainWith(cart{ID: 9}, 0) },
			step.Commit{Kind: step.Again, State: json.RawMessage(`{"id":9}`)},
		},
		"retry by": {
			func(v *cartVisit) fsm.Outcome {
				return v.RetryBy(fsm.RetryPolicy{Delay: func(n int) time.Duration { return time.Hour }}, errBroken)
			},
			step.Commit{Kind: step.Retry, State: json.RawMessage(`{"id":1}`), Delay: time.Hour, Err: "broken"},
		},
		"done": {
			func(v *cartVisit) fsm.Outcome { return v.Done("all") },
			step.Commit{Kind: step.Done, Result: json.RawMessage(`"all"`)},
		},
		"done unless": {
			func(v *cartVisit) fsm.Outcome { return v.Done("all").Unless("end", paid, other, paid) },
			step.Commit{Kind: step.Done, Result: json.RawMessage(`"all"`), Unless: &step.Unless{Names: []string{"paid", "other"}, Step: "end"}},
		},
		"fail unless, with a state": {
			func(v *cartVisit) fsm.Outcome { return v.Fail(errBroken).Unless("end", paid).With(cart{ID: 9}) },
			step.Commit{Kind: step.Fail, Err: "broken", Failure: "decided",
				Unless: &step.Unless{Names: []string{"paid"}, Step: "end", State: json.RawMessage(`{"id":9}`)}},
		},
		"fail": {
			func(v *cartVisit) fsm.Outcome { return v.Fail(errors.New("no\x00 more\xff")) },
			step.Commit{Kind: step.Fail, Err: "no more\ufffd", Failure: "decided"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, c.out)
			require.NoError(t, err)
			require.Equal(t, c.want, *got)
		})
	}
}

func TestOutcomeFaults(t *testing.T) {
	t.Parallel()
	next := func(s cart) func(v *cartVisit) fsm.Outcome {
		return func(v *cartVisit) fsm.Outcome { return v.Next("end", s) }
	}
	await := func(s ...fsm.AnySignal) func(v *cartVisit) fsm.Outcome {
		return func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, s...) }
	}
	spawn := func(s ...fsm.Spec) func(v *cartVisit) fsm.Outcome {
		return func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, s...) }
	}
	good := cartMachine.New(cart{})
	joined := func(v *cartVisit) *fsm.ChildrenOutcome { return v.ScheduleChildren("end", v.State, good, good) }
	cycle := map[string]any{}
	cycle["me"] = cycle
	centuries := time.Now().AddDate(101, 0, 0)
	names := make([]fsm.AnySignal, 1001)
	for i := range names {
		names[i] = fsm.DeclareSignal[int](fmt.Sprint("s", i))
	}
	for name, c := range map[string]struct {
		out   func(v *cartVisit) fsm.Outcome
		field string
		says  string
	}{
		"nil":                      {func(*cartVisit) fsm.Outcome { return nil }, "outcome", "nil"},
		"nil next":                 {func(*cartVisit) fsm.Outcome { return (*fsm.NextOutcome)(nil) }, "outcome", "nil"},
		"nil await":                {func(*cartVisit) fsm.Outcome { return (*fsm.AwaitOutcome)(nil) }, "outcome", "nil"},
		"nil children":             {func(*cartVisit) fsm.Outcome { return (*fsm.ChildrenOutcome)(nil) }, "outcome", "nil"},
		"zero next":                {func(*cartVisit) fsm.Outcome { return &fsm.NextOutcome{} }, "outcome", "another visit"},
		"zero await":               {func(*cartVisit) fsm.Outcome { return new(fsm.AwaitOutcome).Timeout(1) }, "outcome", "another visit"},
		"of a zero visit":          {func(*cartVisit) fsm.Outcome { return new(cartVisit).Done("x") }, "outcome", "another visit"},
		"of a nil visit":           {func(*cartVisit) fsm.Outcome { return (*cartVisit)(nil).RetryBy(fsm.RetryPolicy{}, errBroken) }, "outcome", "another visit"},
		"next unknown":             {func(v *cartVisit) fsm.Outcome { return v.Next("ned", v.State) }, "step", `no step "ned", only ["end" "start"]`},
		"next without step":        {func(v *cartVisit) fsm.Outcome { return v.Next("", v.State) }, "step", `no step ""`},
		"await unknown":            {func(v *cartVisit) fsm.Outcome { return v.Await("ned", v.State, paid) }, "step", `no step "ned"`},
		"child with a policy":      {spawn(good, good.Key("k").OnConflict(fsm.ConflictReplace)), "children[1].conflict", "only verbs take a policy"},
		"child with a window":      {spawn(good.Throttle("w", time.Second)), "children[0].window", "only verbs take a window"},
		"children unknown":         {func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("ned", v.State) }, "step", `no step "ned"`},
		"next negative":            {func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).After(-1) }, "delay", "negative"},
		"next over 100 y":          {func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).After(fsm.MaxDelay + 1) }, "delay", "100 years"},
		"next longest":             {func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).After(math.MaxInt64) }, "delay", "100 years"},
		"next at over 100 y":       {func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).At(centuries) }, "at", "100 years"},
		"next after and at":        {func(v *cartVisit) fsm.Outcome { return v.Next("end", v.State).After(0).At(time.Now()) }, "at", "both"},
		"nil end":                  {func(*cartVisit) fsm.Outcome { return (*fsm.EndOutcome[cart])(nil) }, "outcome", "nil"},
		"zero end":                 {func(*cartVisit) fsm.Outcome { return new(fsm.EndOutcome[cart]).Unless("end", paid) }, "outcome", "another visit"},
		"unless unknown":           {func(v *cartVisit) fsm.Outcome { return v.Done("x").Unless("ned", paid) }, "step", `no step "ned"`},
		"unless nothing":           {func(v *cartVisit) fsm.Outcome { return v.Done("x").Unless("end") }, "signals", "none"},
		"unless many":              {func(v *cartVisit) fsm.Outcome { return v.Fail(errBroken).Unless("end", names...) }, "signals", "1001 names, at most 1000"},
		"with, always ending":      {func(v *cartVisit) fsm.Outcome { return v.Done("x").With(cart{}) }, "state", "set by With, which needs Unless"},
		"await nothing":            {await(), "signals", "none"},
		"await nil":                {await(paid, nil), "signals[1]", "nil"},
		"await empty":              {await(paid, fsm.DeclareSignal[int]("")), "signals[1]", "empty"},
		"await zero":               {await(fsm.Signal[int]{}), "signals[0]", "empty"},
		"await long":               {await(fsm.DeclareSignal[int](long(513))), "signals[0]", "at most 512"},
		"await NUL":                {await(fsm.DeclareSignal[int]("a\x00")), "signals[0]", "NUL"},
		"await many":               {await(names...), "signals", "1001 names, at most 1000"},
		"await for nothing":        {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Timeout(0) }, "timeout", "zero"},
		"await negative":           {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Timeout(-1) }, "timeout", "negative"},
		"await over 100 y":         {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Timeout(fsm.MaxDelay + 1) }, "timeout", "100 years"},
		"await until zero":         {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Until(time.Time{}) }, "until", "zero time"},
		"await until 100 y":        {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Until(centuries) }, "until", "100 years"},
		"await timeout, until":     {func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid).Timeout(1).Until(time.Now()) }, "until", "both"},
		"retry negative":           {func(v *cartVisit) fsm.Outcome { return v.Retry(v.State, -1) }, "delay", "negative"},
		"retry over 100 y":         {func(v *cartVisit) fsm.Outcome { return v.Retry(v.State, fsm.MaxDelay+1) }, "delay", "100 years"},
		"retry by bad policy":      {func(v *cartVisit) fsm.Outcome { return v.RetryBy(fsm.RetryPolicy{Base: -1}, errBroken) }, "policy.Base", "negative"},
		"retry by nil":             {func(v *cartVisit) fsm.Outcome { return v.RetryBy(fsm.RetryPolicy{}, nil) }, "error", "nil"},
		"fail nil":                 {func(v *cartVisit) fsm.Outcome { return v.Fail(nil) }, "reason", "nil"},
		"state NaN":                {next(cart{Extra: math.NaN()}), "state", "NaN"},
		"state cyclic":             {next(cart{Extra: cycle}), "state", "cycle"},
		"state channel":            {next(cart{Extra: make(chan int)}), "state", "unsupported type"},
		"state NUL":                {next(cart{Extra: "a\x00"}), "state", "NUL"},
		"state not UTF-8":          {next(cart{Extra: "a\xff"}), "state", "UTF-8"},
		"state key not UTF-8":      {next(cart{Items: map[string]int{"\xff": 1}}), "state", "UTF-8"},
		"state lone surrogate":     {next(cart{Extra: json.RawMessage(`"\ud83d"`)}), "state", "surrogate"},
		"state huge number":        {next(cart{Extra: json.Number("1e200000")}), "state", "numeric"},
		"state too large":          {next(cart{Extra: long(1 << 20)}), "state", "at most 1048576"},
		"state too deep":           {next(cart{Extra: json.RawMessage(strings.Repeat("[", 6000) + strings.Repeat("]", 6000))}), "state", "5000 deep"},
		"retry state NaN":          {func(v *cartVisit) fsm.Outcome { return v.Retry(cart{Extra: math.NaN()}, 0) }, "state", "NaN"},
		"result not UTF-8":         {func(v *cartVisit) fsm.Outcome { return v.Done("\xff") }, "result", "UTF-8"},
		"result NUL":               {func(v *cartVisit) fsm.Outcome { return v.Done("\x00") }, "result", "NUL"},
		"result too large":         {func(v *cartVisit) fsm.Outcome { return v.Done(long(1 << 20)) }, "result", "at most 1048576"},
		"child of nothing":         {spawn(good, fsm.Spec{}), "children[1].machine", "empty"},
		"child of bad machine":     {spawn(fsm.Declare[cart, string]("m", fsm.Version(0)).New(cart{})), "children[0].machine", "version"},
		"child's key":              {spawn(good, good, good.Key(fsm.Key(long(513)))), "children[2].key", "at most 512"},
		"child's state":            {spawn(cartMachine.New(cart{Extra: math.Inf(1)})), "children[0].state", "Inf"},
		"child's delay":            {spawn(good.After(-1)), "children[0].delay", "negative"},
		"quorum of 0":              {func(v *cartVisit) fsm.Outcome { return joined(v).Quorum(0) }, "quorum", "0, at least 1"},
		"negative quorum":          {func(v *cartVisit) fsm.Outcome { return joined(v).Quorum(-1) }, "quorum", "-1, at least 1"},
		"quorum over":              {func(v *cartVisit) fsm.Outcome { return joined(v).Quorum(3) }, "quorum", "3, at most the number of children, 2"},
		"fail fast and race":       {func(v *cartVisit) fsm.Outcome { return joined(v).Race().FailFast() }, "race", "both FailFast"},
		"or nothing":               {func(v *cartVisit) fsm.Outcome { return joined(v).Or() }, "signals", "at least one"},
		"or nil":                   {func(v *cartVisit) fsm.Outcome { return joined(v).Or(paid, nil) }, "signals[1]", "nil"},
		"or too many":              {func(v *cartVisit) fsm.Outcome { return joined(v).Or(names...) }, "signals", "1001 names, at most 1000"},
		"join's timeout of 0":      {func(v *cartVisit) fsm.Outcome { return joined(v).Timeout(0) }, "timeout", "zero"},
		"join's negative timeout":  {func(v *cartVisit) fsm.Outcome { return joined(v).Timeout(-1) }, "timeout", "negative"},
		"join's timeout and until": {func(v *cartVisit) fsm.Outcome { return joined(v).Timeout(1).Until(time.Now()) }, "until", "both"},
		"join until zero":          {func(v *cartVisit) fsm.Outcome { return joined(v).Until(time.Time{}) }, "until", "zero time"},
		"join until far":           {func(v *cartVisit) fsm.Outcome { return joined(v).Until(centuries) }, "until", "100 years"},
		"quorum of no children":    {func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State).Quorum(1) }, "quorum", "1, at most the number of children, 0"},
		"too many children":        {spawn(make([]fsm.Spec, 20_001)...), "children", "20001, at most 20000"},
		"another's outcome":        {func(*cartVisit) fsm.Outcome { return leaked(t).Done("x") }, "outcome", "another visit"},
		"another's transition":     {func(*cartVisit) fsm.Outcome { return leaked(t).Next("end", cart{}) }, "outcome", "another visit"},
		"another's fail":           {func(*cartVisit) fsm.Outcome { return leaked(t).Fail(errBroken) }, "outcome", "another visit"},
		"another's retry":          {func(*cartVisit) fsm.Outcome { return leaked(t).Retry(cart{}, 0) }, "outcome", "another visit"},
		"another's, wrapped":       {func(*cartVisit) fsm.Outcome { return struct{ fsm.Outcome }{leaked(t).Done("x")} }, "outcome", "another visit"},
		"another's children":       {func(*cartVisit) fsm.Outcome { return leaked(t).ScheduleChildren("end", cart{}) }, "outcome", "another visit"},
		"another's await":          {func(*cartVisit) fsm.Outcome { return leaked(t).Await("end", cart{}, paid) }, "outcome", "another visit"},
		"policy's own bad delay": {func(v *cartVisit) fsm.Outcome {
			return v.RetryBy(fsm.RetryPolicy{Delay: func(int) time.Duration { return -1 }}, errBroken)
		}, "delay", "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, c.out)
			require.Nil(t, got)
			var bad *fsm.OutcomeError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.field, bad.Field)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// leaked returns the visit of an earlier execution of the same machine and instance.
func leaked(t *testing.T) *cartVisit {
	t.Helper()
	var kept *cartVisit
	_, err := run(t, func(v *cartVisit) fsm.Outcome {
		kept = v
		return v.Done("")
	})
	require.NoError(t, err)
	return kept
}

func TestTooLargeIsASentinel(t *testing.T) {
	t.Parallel()
	_, err := run(t, func(v *cartVisit) fsm.Outcome { return v.Done(long(1 << 20)) })
	require.ErrorIs(t, err, fsm.ErrTooLarge)
	_, err = run(t, func(v *cartVisit) fsm.Outcome { return v.Done(long(1<<20 - 2)) }) // and its quotes
	require.NoError(t, err)
}

func TestLimitsOfEnv(t *testing.T) {
	t.Parallel()
	env := &step.Env{Limits: step.Limits{PayloadBytes: 10, OutcomeBytes: 50, AwaitNames: 1, Children: 2, Depth: 2}}
	spec := fsm.Declare[int, int]("n").New(1)
	big := fsm.Declare[string, int]("n").New("12345678")
	for name, c := range map[string]struct {
		depth int
		out   func(v *cartVisit) fsm.Outcome
		field string
	}{
		"payload":        {0, func(v *cartVisit) fsm.Outcome { return v.Done("123456789") }, "result"},
		"payload fits":   {0, func(v *cartVisit) fsm.Outcome { return v.Done("12345678") }, ""},
		"names":          {0, func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid, other) }, "signals"},
		"equal names":    {0, func(v *cartVisit) fsm.Outcome { return v.Await("end", v.State, paid, paid) }, ""},
		"children":       {0, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, spec, spec, spec) }, "children"},
		"all together":   {0, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, big, big) }, "children[1]"},
		"together fits":  {0, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, big, spec) }, ""},
		"depth fits":     {1, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, spec) }, ""},
		"depth":          {2, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, spec) }, "children"},
		"depth, no kids": {2, func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := claim(`{}`)
			k.Env, k.Depth = env, c.depth
			_, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return c.out(v), nil }), k)
			var bad *fsm.OutcomeError
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.field, bad.Field)
		})
	}
}

func TestChildrenAreErased(t *testing.T) {
	t.Parallel()
	got, err := run(t, func(v *cartVisit) fsm.Outcome {
		return v.ScheduleChildren("end", v.State, cartMachine.New(cart{ID: 1}).Key("k").Scope(fsm.ScopeAll).PartitionKey("p").
			Queue("bulk").Priority(-3).After(time.Second).Step("end"), cartMachine.New(cart{ID: 2}))
	})
	require.NoError(t, err)
	require.Len(t, got.Spawn, 2)
	require.NotEqual(t, got.Spawn[0].UID, got.Spawn[1].UID)
	want := step.Spec{UID: got.Spawn[0].UID, Machine: "cart", Version: 1, Step: "end", Queue: "bulk", Priority: -3, State: json.RawMessage(`{"id":1}`),
		Key: "k", Scope: step.ScopeAll, PartitionKey: "p", Delay: time.Second}
	require.Equal(t, want, got.Spawn[0])
	require.JSONEq(t, `{"id":2}`, string(got.Spawn[1].State))
}

// A machine that says so keeps each Done from dropping what waits, and no Stop. The way is implied.
func TestUnlessOfAMachine(t *testing.T) {
	t.Parallel()
	late := fsm.Step("late", finish)
	ends := func(out func(v *cartVisit) fsm.Outcome) (*step.Commit, error) {
		f := func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return out(v), nil }
		d := cartMachine.Define(fsm.Step("start", f).To(), fsm.Step("end", finish), late).Unless("late", paid, paid)
		c, err := runClaim(t, d, claim(`{"id":1}`))
		handled, ofHandler := hidden.Machine(cartMachine.Define(fsm.Step("start", failing).To(), late).Unless("late", paid).
			OnError(func(_ context.Context, v *cartVisit, _ error) (fsm.Outcome, error) { return out(v), nil })).
			OnError(t.Context(), claim(`{"id":1}`), errBroken)
		require.Equal(t, err == nil, ofHandler == nil)
		if err == nil && c.Unless != nil && c.Unless.Step == "late" {
			require.Equal(t, c, handled)
		}
		return c, err
	}
	for name, want := range map[string]struct {
		out    func(v *cartVisit) fsm.Outcome
		unless *step.Unless
	}{
		"done":      {func(v *cartVisit) fsm.Outcome { return v.Done("x") }, &step.Unless{Names: []string{"paid"}, Step: "late"}},
		"with":      {func(v *cartVisit) fsm.Outcome { return v.Done("x").With(cart{ID: 2}) }, &step.Unless{Names: []string{"paid"}, Step: "late", State: json.RawMessage(`{"id":2}`)}},
		"its own":   {func(v *cartVisit) fsm.Outcome { return v.Done("x").Unless("late", fsm.DeclareSignal[int]("other")) }, &step.Unless{Names: []string{"other"}, Step: "late"}},
		"discarded": {func(v *cartVisit) fsm.Outcome { return v.Done("x").Discard() }, nil},
		"fail":      {func(v *cartVisit) fsm.Outcome { return v.Fail(errBroken) }, nil},
	} {
		c, err := ends(want.out)
		require.NoError(t, err, name)
		require.Equal(t, want.unless, c.Unless, name)
	}
	for out, says := range map[string]func(v *cartVisit) fsm.Outcome{
		"discard: both":         func(v *cartVisit) fsm.Outcome { return v.Done("x").Unless("late", paid).Discard() },
		"add: both Unless":      func(v *cartVisit) fsm.Outcome { return v.Done("x").Add(fsm.Node("a", cartMachine.New(cart{}))) },
		"state: set by With":    func(v *cartVisit) fsm.Outcome { return v.Fail(errBroken).With(cart{}) },
		"state: set by With, w": func(v *cartVisit) fsm.Outcome { return v.Done("x").Discard().With(cart{}) },
	} {
		_, err := ends(says)
		require.ErrorAs(t, err, new(*fsm.OutcomeError))
		require.ErrorContains(t, err, out)
	}
	require.NoError(t, fsm.Check(cartMachine.Define(fsm.Step("start", finish).To(), late.To()).Unless("late", paid)), "the step is no island")
	for says, d := range map[string]fsm.Definition{
		`unless: the machine has no step "ned"`: cartMachine.Define(fsm.Step("start", finish)).Unless("ned", paid), //gendurable:ignore steps the fault is what this tests
		"unless.signals: none":                  cartMachine.Define(fsm.Step("start", finish)).Unless("start"),
		"unless.signals[1]: empty":              cartMachine.Define(fsm.Step("start", finish)).Unless("start", paid, fsm.DeclareSignal[int]("")),
	} {
		require.ErrorContains(t, fsm.Check(d), says)
	}
}

func TestTo(t *testing.T) {
	t.Parallel()
	machine := func(to []string, f cartStep) *fsm.Defined[cart, string] {
		return cartMachine.Define(fsm.Step("start", f).To(to...), fsm.Step("end", finish))
	}
	outcomes := map[string]func(v *cartVisit, to string) fsm.Outcome{
		"next":     func(v *cartVisit, to string) fsm.Outcome { return v.Next(to, v.State) },
		"await":    func(v *cartVisit, to string) fsm.Outcome { return v.Await(to, v.State, paid) },
		"children": func(v *cartVisit, to string) fsm.Outcome { return v.ScheduleChildren(to, v.State) },
	}
	for name, out := range outcomes {
		for _, c := range []struct {
			to      []string
			allowed []string
		}{{[]string{"end"}, []string{"end"}}, {[]string{"start"}, []string{"start"}}, {nil, nil}, {[]string{"end", "start"}, []string{"end", "start"}}} {
			for _, to := range []string{"start", "end"} {
				f := func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return out(v, to), nil }
				_, err := runClaim(t, machine(c.to, f), claim(`{}`))
				handler := machine(c.to, failing).OnError(func(_ context.Context, v *cartVisit, _ error) (fsm.Outcome, error) { return out(v, to), nil })
				_, handled := hidden.Machine(handler).OnError(t.Context(), claim(`{}`), errBroken)
				if slices.Contains(c.allowed, to) {
					require.NoError(t, err, "%s %v %s", name, c.to, to)
					require.NoError(t, handled, "%s %v %s", name, c.to, to)
					continue
				}
				require.ErrorContains(t, err, `step "start" may lead to`, "%s %v %s", name, c.to, to)
				require.ErrorContains(t, handled, `step "start" may lead to`, "%s %v %s", name, c.to, to)
				_, err = runClaim(t, machine(c.to, func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
					return v.Done("x").Unless(to, paid), nil
				}), claim(`{}`))
				require.NoError(t, err, "what is seldom taken is implied")
			}
		}
	}
	for name, out := range map[string]func(v *cartVisit) fsm.Outcome{
		"retry":    func(v *cartVisit) fsm.Outcome { return v.Retry(v.State, 0) },
		"again":    func(v *cartVisit) fsm.Outcome { return v.Again(0) },
		"retry by": func(v *cartVisit) fsm.Outcome { return v.RetryBy(fsm.RetryPolicy{}, errBroken) },
		"done":     func(v *cartVisit) fsm.Outcome { return v.Done("") },
		"fail":     func(v *cartVisit) fsm.Outcome { return v.Fail(errBroken) },
	} {
		_, err := runClaim(t, machine(nil, func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return out(v), nil }), claim(`{}`))
		require.NoError(t, err, name)
	}
}

func TestErrorOutranksOutcome(t *testing.T) {
	t.Parallel()
	//gendurable:ignore outcome that it counts for nothing is what this tests
	out, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return v.Done("x"), errBroken }), claim(`{}`))
	require.ErrorIs(t, err, errBroken)
	require.Nil(t, out)
}

// The worker catches panics of user code: nothing in between may swallow one.
func TestPanicsPass(t *testing.T) {
	t.Parallel()
	m := hidden.Machine(two(func(context.Context, *cartVisit) (fsm.Outcome, error) { panic("step") }).
		OnError(func(context.Context, *cartVisit, error) (fsm.Outcome, error) { panic("handler") }))

	require.PanicsWithValue(t, "step", func() { _, _ = m.Steps["start"].Run(t.Context(), claim(`{}`)) })
	require.PanicsWithValue(t, "handler", func() { _, _ = m.OnError(t.Context(), claim(`{}`), errBroken) })
}
