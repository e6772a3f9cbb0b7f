package recipes

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestEditsAreIndexedOnceItIsQuiet(t *testing.T) {
	t.Parallel()
	var indexed []string
	during := ""
	kit := kitWith(t, "", reindex{index: func(ctx context.Context, document, text string) error {
		indexed = append(indexed, document+": "+text)
		if during == "" {
			return nil
		}
		late := during
		during = ""
		return edit(ctx, engine.FromContext(ctx), document, late)
	}}.definition())
	write := func(text string) {
		t.Helper()
		require.NoError(t, edit(t.Context(), kit.Engine, "a", text))
		durabletest.RequireDrain(t, kit)
	}
	write("1")
	durabletest.RequireAdvance(t, kit, 4*time.Second)
	write("2")
	durabletest.RequireAdvance(t, kit, 4*time.Second)
	require.Empty(t, indexed, "eight seconds, of which never five were quiet")
	during = "4"
	write("3")
	durabletest.RequireAdvance(t, kit, 5*time.Second)
	require.Equal(t, []string{"a: 3"}, indexed)
	durabletest.RequireAdvance(t, kit, 6*time.Second)
	require.Equal(t, []string{"a: 3", "a: 4"}, indexed, "what came while it was indexed")

	durabletest.RequireAdvance(t, kit, 24*time.Hour)
	require.Len(t, indexed, 2)
	require.Equal(t, 1, count(t, kit, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'awaiting_signal'`), "it waits for more")
	require.Zero(t, count(t, kit, `SELECT count(*) FROM gendurable.signals`))
}

func TestEditsThatNeverStopAreIndexedAfterAThousand(t *testing.T) {
	t.Parallel()
	var indexed []string
	kit := kitWith(t, "", reindex{index: func(_ context.Context, _, text string) error {
		indexed = append(indexed, text)
		return nil
	}}.definition())
	require.NoError(t, edit(t.Context(), kit.Engine, "a", "0"))
	for n := range 999 {
		_, err := kit.Engine.Signal(t.Context(), fsm.Key("reindex:a"), Edited.With(strconv.Itoa(n+1)))
		require.NoError(t, err)
		if n == 997 {
			durabletest.RequireDrain(t, kit)
			require.Empty(t, indexed)
		}
	}
	durabletest.RequireDrain(t, kit)
	require.Equal(t, []string{"999"}, indexed)
}
