package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestOpenUsesAndRemovesSchemasOfItsOwn(t *testing.T) {
	url := pgtest.Database(t)
	t.Setenv("DATABASE_URL", url)
	pool := pgtest.Pool(t, url)
	schemas := func() (names []string) {
		require.NoError(t, pool.QueryRow(t.Context(), `select coalesce(array_agg(nspname::text order by nspname), '{}')
			from pg_namespace where nspname like 'example%' or nspname = 'foreign'`).Scan(&names))
		return names
	}
	o := Options{Schema: "example", Also: []string{"example_more"}, Keep: true}

	db, err := Open(t.Context(), o)
	require.NoError(t, err)
	requireInstances(t, db.Pool)
	_, err = Open(t.Context(), o)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, db.Close())
	require.Equal(t, []string{"example", "example_more"}, schemas(), "kept")

	o.Keep = false
	db, err = Open(t.Context(), o)
	require.NoError(t, err)
	requireInstances(t, db.Pool)
	require.NoError(t, db.Close())
	require.Empty(t, schemas())

	_, err = pool.Exec(t.Context(), `create schema "foreign"`)
	require.NoError(t, err)
	o.Schema = "foreign"
	_, err = Open(t.Context(), o)
	require.ErrorContains(t, err, "was not made by an example")
	require.Equal(t, []string{"foreign"}, schemas())
}

func requireInstances(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var count int
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from example.gen_durable`).Scan(&count))
	require.Zero(t, count)
}

func TestTogetherReturnsTheFirstErrorAndCancelsTheRest(t *testing.T) {
	t.Parallel()
	first := errors.New("first")
	err := Together(t.Context(),
		func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		func(context.Context) error { return first },
	)
	require.ErrorIs(t, err, first)
	require.NoError(t, Together(t.Context(), func(context.Context) error { return nil }))
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("interrupt"))
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
	}{
		{t.Context(), nil, 0},
		{t.Context(), errors.New("broken"), 1},
		{t.Context(), context.Canceled, 1},
		{ended, nil, 0},
		{ended, errors.New("broken"), 1},
		{ended, fmt.Errorf("wait: %w", context.Canceled), Interrupted},
		{ended, context.Cause(ended), Interrupted},
	} {
		require.Equal(t, c.code, ExitCode(c.ctx, io.Discard, c.err), "%v", c.err)
	}
}

func TestProgressInALogRepeatsTheStatusNowAndThen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out)
	for i := range 1_000 {
		p.Status("%d done", i)
	}
	p.Say("all %d done", 1_000)
	p.Block("a table\n\n")
	require.Equal(t, "   0.0s  0 done\n   0.0s  all 1000 done\na table\n", out.String())
}

func TestProgressInATerminalOverwritesTheStatus(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Progress{w: &out, terminal: true, started: time.Now()}
	p.Status("1 done")
	p.Status("2 done")
	p.Say("half-way")
	p.Block("a table")
	const erase, status = "\r\x1b[K", "\x1b[?7l   0.0s  %s\x1b[?7h"
	require.Equal(t, fmt.Sprintf(status, "1 done")+erase+fmt.Sprintf(status, "2 done")+erase+"   0.0s  half-way\n"+
		fmt.Sprintf(status, "2 done")+erase+"a table\n", out.String())
}

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1_000: "1,000", -1_234_567: "-1,234,567", 100_000: "100,000"} {
		require.Equal(t, want, Count(n))
	}
}
