package engine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// An archive gets whole instances. One that is gone meanwhile is left out.
func TestArchiveGetsWholeInstances(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, state, result, labels)
		VALUES ('m', 's', 'done', now(), '{"n": 1}', '"all"', '{"tenant": "acme"}'), ('m', 's', 'runnable', NULL, '{}', NULL, NULL)`)
	require.NoError(t, err)
	var got []fsm.RawInstance
	full := errors.New("full")
	e, err := New(Config{Pool: pool, Archive: func(_ context.Context, ended []fsm.RawInstance) error {
		got = ended
		return full
	}})
	require.NoError(t, err)
	require.ErrorIs(t, e.archive()(t.Context(), []int64{1, 1 << 40}), full)
	require.Len(t, got, 1)
	require.Equal(t, fsm.StatusDone, got[0].Status)
	require.JSONEq(t, `{"n": 1}`, string(got[0].State))
	require.Equal(t, json.RawMessage(`"all"`), got[0].Result)
	require.Equal(t, map[string]string{"tenant": "acme"}, got[0].Labels)
	require.NoError(t, e.archive()(t.Context(), []int64{1 << 40}), "nobody is called with nothing")

	without, err := New(Config{Pool: pool})
	require.NoError(t, err)
	require.Nil(t, without.archive())
}
