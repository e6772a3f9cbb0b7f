package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/orders"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == orders.WorkerRole {
		os.Exit(orders.WorkerMain())
	}
	pgtest.NoLeaks(m)
}

func TestDemoKeepsResumesAndLeavesNothingBehind(t *testing.T) {
	url := pgtest.Database(t)
	t.Setenv("DATABASE_URL", url)
	pool := pgtest.Pool(t, url)
	schemas := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from pg_namespace where nspname like 'gendurable%'`).Scan(&n))
		return n
	}
	directory := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, "file"), []byte("line\n"), 0o600))
	o := options{orders: orders.MinOrders, directory: directory, keep: true}

	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), o, io.MultiWriter(&out, t.Output())))
	require.Contains(t, out.String(), "killed (SIGKILL)")
	require.Contains(t, out.String(), "watch it at http://127.0.0.1:")
	require.Contains(t, out.String(), "the same totals")
	require.Equal(t, 2, schemas())

	o.keep = false
	out.Reset()
	require.NoError(t, demo(t.Context(), o, io.MultiWriter(&out, t.Output())))
	require.NotContains(t, out.String(), "killed (SIGKILL)", "it has all happened in the first run")
	require.Zero(t, schemas())
}

func TestOptionsComeFromFlagsAndEnvironment(t *testing.T) {
	t.Setenv("ORDERS", "200")
	t.Setenv("DIR", "/some/where")
	t.Setenv("KEEP", "1")
	o, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, options{orders: 200, directory: "/some/where", keep: true}, o)
	require.True(t, o.wants("orders") && o.wants("ingest"))

	o, err = parse([]string{"-orders", "300", "-dir", ".", "-keep=false", "ingest"})
	require.NoError(t, err)
	require.Equal(t, options{orders: 300, directory: ".", parts: []string{"ingest"}}, o)
	require.False(t, o.wants("orders"))

	for _, wrong := range [][]string{{"-no-such-flag"}, {"payments"}, {"-orders", "x"}} {
		_, err := parse(wrong)
		require.Error(t, err, "%v", wrong)
	}
	t.Setenv("ORDERS", "many")
	_, err = parse(nil)
	require.Error(t, err)
}

func TestTheDefaultDirectoryIsThere(t *testing.T) {
	t.Parallel()
	directory, err := goSource(t.Context())
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(directory, "fmt", "print.go"))
}
