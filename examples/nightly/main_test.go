package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestNight(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	var out bytes.Buffer
	require.NoError(t, night(t.Context(), &out, &run.Database{Pool: pool, Schema: "gendurable"}))
	report, drawing, _ := strings.Cut(out.String(), "\n\n")
	require.Equal(t, "2026-11-22: 39 rows, 3 files were counted again", report)
	page, err := os.ReadFile("../../docs/guide/graphs.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```mermaid\n"+drawing+"```\n", "draw it anew: the guide has what the program draws")
}
