package store

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// pgx gives a uid as bytes, and a driver of database/sql as text or bytes.
func TestUIDsAreScanned(t *testing.T) {
	want := uuid.MustParse("6f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f0")
	var got scannedUID
	plan := pgtype.NewMap().PlanScan(pgtype.UUIDOID, pgtype.BinaryFormatCode, &got)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = plan.Scan(want[:], &got) }))
	require.Equal(t, want, uuid.UUID(got))
	for _, given := range []any{want.String(), []byte(want.String()), want[:]} {
		got = scannedUID{}
		require.NoError(t, got.Scan(given))
		require.Equal(t, want, uuid.UUID(got), "%T", given)
	}
}
