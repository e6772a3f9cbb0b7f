package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
)

func TestEditsAreIndexedOnceItIsQuiet(t *testing.T) {
	t.Parallel()
	indexed := 0
	during := false
	kit := kitWith(t, "", reindex{index: func(ctx context.Context, document string) error {
		indexed++
		if !during {
			return nil
		}
		during = false
		return edited(ctx, engine.FromContext(ctx), document)
	}}.definition())
	edit := func() {
		t.Helper()
		require.NoError(t, edited(t.Context(), kit.Engine, "a"))
		durabletest.RequireDrain(t, kit)
	}
	edit()
	durabletest.RequireAdvance(t, kit, 4*time.Second)
	edit()
	durabletest.RequireAdvance(t, kit, 4*time.Second)
	require.Zero(t, indexed, "eight seconds, of which never five were quiet")
	during = true
	edit()
	durabletest.RequireAdvance(t, kit, 5*time.Second)
	require.Equal(t, 1, indexed)
	durabletest.RequireAdvance(t, kit, 6*time.Second)
	require.Equal(t, 2, indexed, "what came while it was indexed")
	require.Equal(t, 2, count(t, kit, `SELECT count(*) FROM gendurable.gen_durable`))
}

func TestEditsThatNeverStopAreIndexedEachMinute(t *testing.T) {
	t.Parallel()
	indexed := 0
	kit := kitWith(t, "", reindex{index: func(context.Context, string) error {
		indexed++
		return nil
	}}.definition())
	for range 15 { // at 0, 4, … 56 s
		require.NoError(t, edited(t.Context(), kit.Engine, "a"))
		require.Zero(t, indexed)
		durabletest.RequireAdvance(t, kit, 4*time.Second)
	}
	require.Equal(t, 1, indexed)
}
