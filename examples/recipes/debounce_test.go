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
	durabletest.RequireAdvance(t, kit, 45*time.Second)
	edit()
	durabletest.RequireAdvance(t, kit, 45*time.Second)
	require.Zero(t, indexed, "a minute and a half, of which never a minute was quiet")
	during = true
	edit()
	durabletest.RequireAdvance(t, kit, time.Minute)
	require.Equal(t, 1, indexed)
	durabletest.RequireAdvance(t, kit, 70*time.Second)
	require.Equal(t, 2, indexed, "what came while it was indexed")
	require.Equal(t, 2, count(t, kit, `SELECT count(*) FROM gendurable.gen_durable`))
}

func TestEditsThatNeverStopAreIndexedAtTheLatest(t *testing.T) {
	t.Parallel()
	indexed := 0
	kit := kitWith(t, "", reindex{index: func(context.Context, string) error {
		indexed++
		return nil
	}}.definition())
	for range 20 { // every 45 s
		require.NoError(t, edited(t.Context(), kit.Engine, "a"))
		require.Zero(t, indexed)
		durabletest.RequireAdvance(t, kit, 45*time.Second)
	}
	require.Equal(t, 1, indexed)
}
