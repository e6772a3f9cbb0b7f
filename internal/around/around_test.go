package around_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/around"
)

type layer = func(ctx context.Context, run func(context.Context) error) error

func enter(ctx context.Context, l layer, run func(context.Context) error) error { return l(ctx, run) }

func TestLayersSurroundACall(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(name string) layer {
		return func(ctx context.Context, run func(context.Context) error) error {
			told = append(told, name)
			defer func() { told = append(told, name) }()
			return run(ctx)
		}
	}
	do := func(context.Context) error { told = append(told, "do"); return nil }
	require.NoError(t, around.Run(t.Context(), "call", []layer{tell("outer"), tell("inner")}, enter, do))
	require.Equal(t, []string{"outer", "inner", "do", "inner", "outer"}, told)
}

func TestLayersThatMisbehave(t *testing.T) {
	t.Parallel()
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		layer layer
		want  string
		runs  int
	}{
		"does not run": {func(context.Context, func(context.Context) error) error { return nil },
			"middleware returned no error, and has not run the call", 0},
		"refuses": {func(context.Context, func(context.Context) error) error { return broke }, "broke", 0},
		"runs twice": {func(ctx context.Context, run func(context.Context) error) error { _ = run(ctx); return run(ctx) },
			"middleware runs the call a second time", 1},
		"swallows": {func(ctx context.Context, run func(context.Context) error) error { _ = run(ctx); return nil }, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			err := around.Run(t.Context(), "call", []layer{c.layer}, enter, func(context.Context) error { runs++; return broke })
			require.Equal(t, c.runs, runs)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}
