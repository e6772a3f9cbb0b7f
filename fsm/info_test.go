package fsm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func uidClaim(visit int64) *step.Claim {
	c := claim(`{}`)
	c.Visit = visit
	for i := range c.UID {
		c.UID[i] = byte(i)
	}
	return c
}

// The vectors come from Python's uuid.uuid5: the derivation is durable.
func TestIdempotencyKeyVectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		visit  int64
		effect []string
		want   string
	}{
		{0, nil, "f5f524ae-2305-50f9-a94e-2de9abafb222"},
		{7, nil, "90649ab0-92a5-5d91-bcb3-9e571094804b"},
		{8, nil, "45664839-5fa7-56d4-9187-bad7735e675e"},
		{7, []string{"ship"}, "33cdf415-db31-5ca1-adee-2a0d053dc65c"},
		{7, []string{""}, "0e8c3ab1-d684-5b30-9da3-8d971832ced0"},
		{7, []string{"a:1:b"}, "fdc11853-0e0b-54e2-9f50-d72efecea5ba"},
		{7, []string{"a", "b"}, "9f23447d-4d89-5eb3-8343-22be0d063851"},
	} {
		require.Equal(t, c.want, hidden.InfoOf(uidClaim(c.visit)).IdempotencyKey(c.effect...), "%d %q", c.visit, c.effect)
	}
}

func TestIdempotencyKeysDiffer(t *testing.T) {
	t.Parallel()
	other := uidClaim(7)
	other.UID[15]++
	seen := map[string]string{}
	for name, i := range map[string]fsm.Info{"visit 7": hidden.InfoOf(uidClaim(7)), "visit 74": hidden.InfoOf(uidClaim(74)), "other instance": hidden.InfoOf(other)} {
		for _, effect := range [][]string{nil, {""}, {"a"}, {"b"}, {"a", "b"}, {"ab"}, {"a", ""}, {"", "a"}, {"a:1:b"}, {":"}, {"4:"}} {
			key := i.IdempotencyKey(effect...)
			require.Empty(t, seen[key], "%s %q", name, effect)
			seen[key] = name
		}
	}
}

// The key is the same for every execution of the visit and in the handler, in every process that
// claims the instance, with any id of its row.
func TestIdempotencyKeyIsStable(t *testing.T) {
	t.Parallel()
	again := uidClaim(7)
	again.Attempt, again.Crashes, again.Token, again.ID, again.Priority, again.Step, again.TimedOut = 5, 2, 99, 1234, 3, "end", true
	require.Equal(t, hidden.InfoOf(uidClaim(7)).IdempotencyKey("x"), hidden.InfoOf(again).IdempotencyKey("x"))

	var inStep, inHandler string
	d := two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		inStep = v.IdempotencyKey("x")
		return nil, errBroken
	}).OnError(func(ctx context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
		i, _ := fsm.InfoFrom(ctx)
		inHandler = i.IdempotencyKey("x")
		return v.Fail(err), nil
	})
	_, err := runClaim(t, d, uidClaim(7))
	handle(t, d, uidClaim(7), err)
	require.Equal(t, inStep, inHandler)
}

func TestInfo(t *testing.T) {
	t.Parallel()
	c := &step.Claim{
		ID: 1, Machine: "cart", Version: 2, Step: "start", Queue: "q", Priority: 3, CorrelationKey: "k", PartitionKey: "p", State: json.RawMessage(`{}`),
		Attempt: 4, Crashes: 5, Visit: 6, FencingToken: 7, Parent: 8, Depth: 9, InsertedAt: time.Unix(10, 0),
	}
	want := fsm.Info{
		ID: 1, Machine: "cart", Version: 2, Step: "start", Queue: "q", Priority: 3, Key: "k", PartitionKey: "p",
		Attempt: 4, Crashes: 5, Visit: 6, FencingToken: 7, Parent: 8, Depth: 9, InsertedAt: time.Unix(10, 0),
	}
	require.Equal(t, want, hidden.InfoOf(c))

	var inVisit, inContext fsm.Info
	_, err := runClaim(t, two(func(ctx context.Context, v *cartVisit) (fsm.Outcome, error) {
		inVisit = v.Info
		inContext, _ = fsm.InfoFrom(ctx)
		return v.Done(""), nil
	}), c)
	require.NoError(t, err)
	require.Equal(t, want, inVisit)
	require.Equal(t, want, inContext)

	_, ok := fsm.InfoFrom(t.Context())
	require.False(t, ok)
	got, ok := fsm.InfoFrom(hidden.WithClaim(t.Context(), c))
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := claim(`{}`)
	c.Attempt = 2
	c.Env = &step.Env{Logger: slog.New(slog.NewJSONHandler(&out, nil))}
	job := cartMachine.Job(func(ctx context.Context, _ cart) (string, error) {
		fsm.Logger(ctx).Info("hello")
		return "", nil
	})
	_, err := runClaim(t, job, c)
	require.NoError(t, err)
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	delete(line, "time")
	require.Equal(t, map[string]any{"level": "INFO", "msg": "hello", "instance": 7.0, "machine": "cart", "version": 1.0, "step": "start",
		"visit": 3.0, "attempt": 2.0}, line)

	require.Same(t, slog.Default(), fsm.Logger(t.Context()))
}

func TestContextOfTheCallerStays(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	cancel(fsm.ErrDraining)
	m := hidden.Machine(two(func(ctx context.Context, v *cartVisit) (fsm.Outcome, error) {
		require.Equal(t, "value", ctx.Value(key{}))
		return nil, context.Cause(ctx)
	}))

	_, err := m.Steps["start"].Run(ctx, claim(`{}`))
	require.ErrorIs(t, err, fsm.ErrDraining)
}
