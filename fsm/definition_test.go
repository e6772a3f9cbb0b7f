package fsm_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func TestDefinitionFaults(t *testing.T) {
	t.Parallel()
	declared := func(name string, opts ...fsm.DeclareOption) fsm.Definition {
		return fsm.Declare[cart, string](name, opts...).Define(fsm.Step("start", finish))
	}
	start := fsm.Step("start", finish)
	for name, c := range map[string]struct {
		of    fsm.Definition
		field string
		says  string
	}{
		"no name":             {declared(""), "name", "empty"},
		"long name":           {declared(long(513)), "name", "513 bytes, at most 512"},
		"name not UTF-8":      {declared("a\xff"), "name", "UTF-8"},
		"name with NUL":       {declared("a\x00b"), "name", "NUL"},
		"version 0":           {declared("m", fsm.Version(0)), "version", "0, want 1 to 2147483647"},
		"version too high":    {declared("m", fsm.Version(math.MaxInt32+1)), "version", "want 1 to 2147483647"},
		"state since later":   {declared("m", fsm.Version(2), fsm.StateSince(3)), "state_since", "3, want 1 to 2"},
		"result since -1":     {declared("m", fsm.Version(2), fsm.ResultSince(-1)), "result_since", "-1, want 1 to 2"},
		"no queue":            {declared("m", fsm.Queue("")), "queue", "empty"},
		"long queue":          {declared("m", fsm.Queue(long(513))), "queue", "at most 512"},
		"nil option":          {declared("m", nil), "options", "nil"},
		"no such initial":     {declared("m", fsm.Initial("begin")), "steps", `no step "begin", the initial one`},
		"no steps":            {cartMachine.Define(), "steps", "none"},
		"duplicate step":      {cartMachine.Define(start, start), `steps["start"]`, "defined 2 times"},
		"step without name":   {cartMachine.Define(start, fsm.Step("", finish)), `steps[""].name`, "empty"},
		"long step":           {cartMachine.Define(start, fsm.Step(long(513), finish)), `steps["` + long(80) + `"].name`, "at most 512"},
		"nil step":            {cartMachine.Define(fsm.Step[cart, string]("start", nil)), `steps["start"]`, "nil function"},
		"nil job":             {cartMachine.Job(nil), `steps["start"]`, "nil function"},
		"to unknown":          {cartMachine.Define(start.To("start", "shp")), `steps["start"].to`, `no step "shp"`},
		"negative timeout":    {cartMachine.Define(start.Timeout(-1)), `steps["start"].timeout`, "negative"},
		"timeout > 100 y":     {cartMachine.Define(start.Timeout(fsm.MaxDelay + 1)), `steps["start"].timeout`, "100 years"},
		"nil handler":         {cartMachine.Define(start).OnError(nil), "on_error", "nil function"},
		"handler and policy":  {cartMachine.Define(start).OnError(giveUp).Retry(fsm.RetryPolicy{}), "on_error", "beside Retry"},
		"negative crashes":    {cartMachine.Define(start).CrashLimit(-1), "crash_limit", "-1, want 0"},
		"attempts < -1":       {cartMachine.Define(start).Retry(fsm.RetryPolicy{MaxAttempts: -2}), "retry.MaxAttempts", "-2"},
		"negative base":       {cartMachine.Define(start).Retry(fsm.RetryPolicy{Base: -1}), "retry.Base", "negative"},
		"negative max":        {cartMachine.Define(start).Retry(fsm.RetryPolicy{Max: -1}), "retry.Max", "negative"},
		"base over max":       {cartMachine.Define(start).Retry(fsm.RetryPolicy{Base: 2, Max: 1}), "retry.Base", "over Max"},
		"max over 100 y":      {cartMachine.Define(start).Retry(fsm.RetryPolicy{Max: fsm.MaxDelay + 1}), "retry.Max", "100 years"},
		"job with bad policy": {cartMachine.Job(length).Retry(fsm.RetryPolicy{MaxAttempts: -9}), "retry.MaxAttempts", "-9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := hidden.Machine(c.of).Faults
			require.Len(t, faults, 1)
			var bad *fsm.DefinitionError
			require.ErrorAs(t, faults[0], &bad)
			require.Equal(t, c.field, bad.Field)
			require.ErrorContains(t, bad, c.says)
		})
	}
}

func giveUp(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) { return v.Fail(err), nil }

func length(_ context.Context, c cart) (string, error) { return string(rune('a' + len(c.Items))), nil }

func TestDefinitionCollectsAllFaults(t *testing.T) {
	t.Parallel()
	//gendurable:ignore steps the faults are what this tests
	m := hidden.Machine(fsm.Declare[cart, string]("", fsm.Version(-1)).Define(fsm.Step("a", finish).To("b").Timeout(-1)).CrashLimit(-1))
	require.Len(t, m.Faults, 6) // name, version, initial step, timeout, to, crash limit
}

func TestDefinitionOfNothing(t *testing.T) {
	t.Parallel()
	var none *fsm.Defined[cart, string]
	require.NotEmpty(t, hidden.Machine(none).Faults)
	require.Len(t, hidden.Machine(cartMachine.Define(fsm.Step("start", finish), fsm.StepDef[cart, string]{})).Faults, 2) // name, function
	require.NotEmpty(t, hidden.Machine(new(fsm.Defined[cart, string])).Faults)
}

func TestErasedMachine(t *testing.T) {
	t.Parallel()
	m := hidden.Machine(fsm.Declare[cart, string]("m", fsm.Version(3), fsm.Queue("q"), fsm.Initial("a")).
		Define(fsm.Step("a", finish).To("b", "a").Timeout(time.Minute), fsm.Step("b", finish).To()).CrashLimit(0))

	require.Empty(t, m.Faults)
	require.Equal(t, "m", m.Name)
	require.Equal(t, 3, m.Version)
	require.Equal(t, "q", m.Queue)
	require.Equal(t, "a", m.Initial)
	require.False(t, m.Job)
	require.Zero(t, m.CrashLimit)
	require.Zero(t, m.MaxAttempts)
	require.Equal(t, []string{"b", "a"}, m.Steps["a"].To)
	require.Equal(t, time.Minute, m.Steps["a"].Timeout)
	require.NotNil(t, m.Steps["b"].To, "nowhere is not anywhere")
	require.Empty(t, m.Steps["b"].To)
	require.NotNil(t, m.OnError)

	job := hidden.Machine(fsm.Declare[cart, string]("j", fsm.Initial("go")).Job(length))
	require.Empty(t, job.Faults)
	require.True(t, job.Job)
	require.Equal(t, 20, job.CrashLimit)
	require.Equal(t, 20, job.MaxAttempts)
	require.Contains(t, job.Steps, "go")
	require.Equal(t, "default", job.Queue)
	require.Equal(t, 1, job.Version)
}

func TestMaxAttemptsOfMachine(t *testing.T) {
	t.Parallel()
	steps := func() *fsm.Defined[cart, string] { return cartMachine.Define(fsm.Step("start", finish)) }
	for name, c := range map[string]struct {
		of   fsm.Definition
		want int
	}{
		"default handler": {steps(), 0},
		"own handler":     {steps().OnError(giveUp), 0},
		"policy":          {steps().Retry(fsm.RetryPolicy{}), 20},
		"policy of 3":     {steps().Retry(fsm.RetryPolicy{MaxAttempts: 3}), 3},
		"unlimited":       {steps().Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited}), 0},
		"job of 5":        {cartMachine.Job(length).Retry(fsm.RetryPolicy{MaxAttempts: 5}), 5},
		"job's handler":   {cartMachine.Job(length).OnError(giveUp), 0},
	} {
		m := hidden.Machine(c.of)
		require.Empty(t, m.Faults, name)
		require.Equal(t, c.want, m.MaxAttempts, name)
	}
}

// An engine keeps the machine that it was made with; changes to the definition, or by another
// engine, do not reach it.
func TestDefinitionIsReusable(t *testing.T) {
	t.Parallel()
	to := []string{"end"}
	steps := []fsm.StepDef[cart, string]{fsm.Step("start", failing).To(to...), fsm.Step("end", finish)}
	d := cartMachine.Define(steps...)
	to[0], steps[1] = "nowhere", fsm.Step("other", finish)

	first := hidden.Machine(d)
	second := hidden.Machine(d.OnError(giveUp).CrashLimit(1))
	second.Steps["start"].To[0] = "changed"
	delete(second.Steps, "end")

	require.Empty(t, first.Faults)
	require.Equal(t, []string{"end"}, first.Steps["start"].To)
	require.Contains(t, first.Steps, "end")
	require.Equal(t, 20, first.CrashLimit)
	out, err := first.OnError(t.Context(), claim(`{}`), errBroken)
	require.NoError(t, err)
	require.Equal(t, string(fsm.FailureError), out.Failure, "the default handler still")
	out, err = second.OnError(t.Context(), claim(`{}`), errBroken)
	require.NoError(t, err)
	require.Equal(t, string(fsm.FailureDecided), out.Failure)
}

func TestJobRun(t *testing.T) {
	t.Parallel()
	out, err := runClaim(t, cartMachine.Job(length), claim(`{"id":1,"items":{"x":1}}`))
	require.NoError(t, err)
	require.Equal(t, step.Done, out.Kind)
	require.JSONEq(t, `"b"`, string(out.Result))

	nothing := fsm.Declare[cart, fsm.None]("n").Job(func(context.Context, cart) (fsm.None, error) { return fsm.None{}, nil })
	out, err = runClaim(t, nothing, claim(`{}`))
	require.NoError(t, err)
	require.Equal(t, `{}`, string(out.Result))

	broken := cartMachine.Job(func(context.Context, cart) (string, error) { return "ignored", errBroken })
	_, err = runClaim(t, broken, claim(`{}`))
	require.ErrorIs(t, err, errBroken)
}
