package integration

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type anyVisit = fsm.Visit[any, any]

// broken is an error whose Error method panics.
type broken struct{ text *string }

func (b *broken) Error() string { return *b.text }

// misbehaviours are faults of a step, with the text that last_error must then contain.
func misbehaviours() map[string]struct {
	run  func(ctx context.Context, v *anyVisit) (fsm.Outcome, error)
	says string
} {
	state := func(s any) func(context.Context, *anyVisit) (fsm.Outcome, error) {
		return func(_ context.Context, v *anyVisit) (fsm.Outcome, error) { return v.Next("start", s), nil }
	}
	var kept *anyVisit
	return map[string]struct {
		run  func(ctx context.Context, v *anyVisit) (fsm.Outcome, error)
		says string
	}{
		"error":        {func(context.Context, *anyVisit) (fsm.Outcome, error) { return nil, errors.New("no luck") }, "no luck"},
		"panic":        {func(context.Context, *anyVisit) (fsm.Outcome, error) { panic("alarm") }, "panic: alarm"},
		"panic(nil)":   {func(context.Context, *anyVisit) (fsm.Outcome, error) { panic(nil) }, "panic called with nil"}, //nolint:govet // on purpose
		"Goexit":       {func(context.Context, *anyVisit) (fsm.Outcome, error) { runtime.Goexit(); return nil, nil }, "runtime.Goexit"},
		"nil outcome":  {func(context.Context, *anyVisit) (fsm.Outcome, error) { return nil, nil }, "nil"},
		"typed nil":    {func(context.Context, *anyVisit) (fsm.Outcome, error) { return (*fsm.AwaitOutcome)(nil), nil }, "nil"},
		"broken error": {func(context.Context, *anyVisit) (fsm.Outcome, error) { return nil, &broken{} }, "Error method"},
		"NUL in error": {func(context.Context, *anyVisit) (fsm.Outcome, error) { return nil, errors.New("a\x00b\xffc") }, "ab\ufffdc"},
		"endless error": {func(context.Context, *anyVisit) (fsm.Outcome, error) {
			return nil, errors.New(strings.Repeat("é", 1<<20))
		}, "éé"},
		"hand-made":      {func(context.Context, *anyVisit) (fsm.Outcome, error) { return (&anyVisit{}).Done("x"), nil }, "another visit"},
		"NUL in state":   {state("a\x00b"), "NUL"},
		"surrogate":      {state(json.RawMessage(`"\ud800"`)), "surrogate"},
		"invalid UTF-8":  {state("\xff"), "UTF-8"},
		"over the limit": {state(strings.Repeat("x", 2<<20)), "at most"},
		"NaN":            {state(math.NaN()), "NaN"},
		"1e200000":       {state(json.Number("1e200000")), "numeric"},
		"cycle":          {state(cycle()), "cycle"},
		"channel":        {state(make(chan int)), "chan"},
		"NUL in result":  {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) { return v.Done("\x00"), nil }, "NUL"},
		"unknown step": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			return v.Next("nowhere", nil), nil
		}, "nowhere"},
		"negative delay": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			return v.Retry(nil, -time.Second), nil
		}, "negative"},
		"endless delay": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			return v.Next("start", nil).After(math.MaxInt64), nil
		}, "100 years"},
		"await of nothing": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			return v.Await("start", nil), nil
		}, "none"},
		"bad child": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			return v.ScheduleChildren("start", nil, fsm.Declare[any, any]("child").New(nil).Priority(1<<20)), nil
		}, "priority"},
		"old visit": {func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
			if v.Visit == 0 {
				kept = v
				return v.Next("old visit", nil), nil
			}
			return kept.Done("stale"), nil
		}, "another visit"},
	}
}

func cycle() any {
	m := map[string]any{}
	m["m"] = m
	return m
}

// unruly is a machine that has all misbehaviours as steps.
func unruly() (*fsm.Machine[any, any], *fsm.Defined[any, any]) {
	m := fsm.Declare[any, any]("unruly")
	steps := []fsm.StepDef[any, any]{fsm.Step("start", func(_ context.Context, v *anyVisit) (fsm.Outcome, error) {
		return v.Done("well"), nil
	})}
	for name, b := range misbehaviours() {
		steps = append(steps, fsm.Step(name, b.run))
	}
	return m, m.Define(steps...)
}

// narrow sets a queue of one slot: a leaked slot would hold up all later steps.
func narrow(c engine.Config) engine.Config {
	c.Queues = map[string]engine.Queue{"default": quick(1)}
	return c
}

func TestWhateverAStepDoesWrongFailsItsInstanceOnly(t *testing.T) {
	t.Parallel()
	m, def := unruly()
	eng := start(t, narrow(config(t, def)))
	ids := map[string]fsm.ID{}
	for name := range misbehaviours() {
		ids[name] = insert(t, eng, m.New(nil).Step(name))
	}
	allDone(t, eng, insert(t, eng, m.New(nil)))
	for name, b := range misbehaviours() {
		i := ended(t, eng, ids[name])
		require.Equal(t, fsm.StatusFailed, i.Status, name)
		require.Equal(t, fsm.FailureError, i.Failure, name)
		require.Contains(t, i.LastError, b.says, name)
		require.True(t, utf8.ValidString(i.LastError), name)
		require.LessOrEqual(t, len(i.LastError), 8<<10, name)
		require.Zero(t, i.Attempt+i.Crashes, name)
	}
}

func TestWhateverAStepDoesWrongReachesTheHandler(t *testing.T) {
	t.Parallel()
	m, def := unruly()
	eng := start(t, narrow(config(t, def.OnError(func(_ context.Context, v *anyVisit, err error) (fsm.Outcome, error) {
		if v.State != "input" && v.Visit == 0 {
			return nil, errors.New("not the input of the step")
		}
		return v.Done("handled"), nil
	}))))
	for name := range misbehaviours() {
		id := insert(t, eng, m.New("input").Step(name))
		i := ended(t, eng, id)
		require.Equal(t, fsm.StatusDone, i.Status, "%s: %s", name, i.LastError)
		require.JSONEq(t, `"handled"`, string(i.Result), name)
	}
}

func TestAHandlerThatFailsTooLeavesBothErrors(t *testing.T) {
	t.Parallel()
	m, def := unruly()
	eng := start(t, narrow(config(t, def.OnError(func(ctx context.Context, v *anyVisit, _ error) (fsm.Outcome, error) {
		name, ok := v.State.(string)
		if !ok {
			return nil, errors.New("not the input of the step")
		}
		return misbehaviours()[name].run(ctx, v)
	}))))
	ids := map[string]fsm.ID{}
	for name := range misbehaviours() {
		if name != "old visit" { // its first outcome is a good one
			ids[name] = insert(t, eng, m.New(name).Step("error"))
		}
	}
	allDone(t, eng, insert(t, eng, m.New(nil)))
	for name, id := range ids {
		i := ended(t, eng, id)
		require.Equal(t, fsm.StatusFailed, i.Status, name)
		require.Equal(t, fsm.FailureError, i.Failure, name)
		require.Contains(t, i.LastError, "no luck", name)
		require.Contains(t, i.LastError, misbehaviours()[name].says, name)
		require.True(t, utf8.ValidString(i.LastError), name)
		require.LessOrEqual(t, len(i.LastError), 8<<10, name)
	}
}

func TestTheHandlerSeesTheStateAsItWasCommitted(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[map[string]int, int]("mutating")
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[map[string]int, int]) (fsm.Outcome, error) {
		v.State["n"] = 99
		return nil, errors.New("after the change")
	})).OnError(func(_ context.Context, v *fsm.Visit[map[string]int, int], _ error) (fsm.Outcome, error) {
		return v.Done(v.State["n"]), nil
	})
	eng := start(t, config(t, def))
	got := result(t, eng, m, insert(t, eng, m.New(map[string]int{"n": 1})))
	require.Equal(t, 1, got)
}

func TestNumbersBeyondFloat64AreKeptOrRefusedButNeverLoop(t *testing.T) {
	t.Parallel()
	const huge, long = "1e400", "9007199254740993"
	loose := fsm.Declare[any, any]("loose")
	strict := fsm.Declare[float64, any]("strict")
	raw := fsm.Declare[json.RawMessage, any](strict.Name())
	c := config(t,
		loose.Define(
			fsm.Step("start", func(_ context.Context, v *anyVisit) (fsm.Outcome, error) { return v.Next("end", v.State), nil }),
			fsm.Step("end", func(_ context.Context, v *anyVisit) (fsm.Outcome, error) { return v.Done(v.State), nil })),
		strict.Job(func(context.Context, float64) (any, error) { return nil, errors.New("ran") }).Retry(fsm.RetryPolicy{MaxAttempts: 1}))
	eng := start(t, c)

	for _, number := range []string{huge, long} {
		i := ended(t, eng, insert(t, eng, loose.New(json.Number(number))))
		require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
		same := query[bool](t, c.Pool, "SELECT $1::text::numeric = $2::text::numeric", number, string(i.Result))
		require.True(t, same, "%s became %s", number, i.Result)
	}
	i := ended(t, eng, insert(t, eng, raw.New(json.RawMessage(huge))))
	require.Equal(t, fsm.StatusFailed, i.Status)
	require.Contains(t, i.LastError, "decode state")
}
