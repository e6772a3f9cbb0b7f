package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestFetchAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	require.NoError(t, fetchAll(t.Context(), t.Output(), &run.Database{Pool: pool, Schema: "gendurable"}))
	var attempts []int
	require.NoError(t, pool.QueryRow(t.Context(), `select array_agg(attempt order by id) from gendurable.gen_durable`).Scan(&attempts))
	require.Equal(t, []int{3, 0}, attempts)
}

// The same in no time: the kit lets the back-offs pass.
func TestFetchingByTheKit(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(flaky())
	defer server.Close()
	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{fetching(t.Output())}, DatabaseURL: pgtest.URL(t)})
	works, err := kit.Engine.Insert(t.Context(), Fetch.New(server.URL+"/page"))
	require.NoError(t, err)
	gone, err := kit.Engine.Insert(t.Context(), Fetch.New(server.URL+"/gone"))
	require.NoError(t, err)

	first := durabletest.RequireDrain(t, kit)
	durabletest.RequireFailed(t, kit, gone, fsm.FailureError, "410 Gone")
	rest := durabletest.RequireAdvance(t, kit, time.Minute)
	require.Equal(t, 5, first.Steps+rest.Steps)
	require.EqualValues(t, len("here it is\n"), durabletest.RequireDone(t, kit, Fetch, works))
}
