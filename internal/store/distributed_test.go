package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
)

// plainOnly are the tests that cannot hold in a schema that Citus distributes, by why. All others
// do: make citus runs them.
var plainOnly = map[string][]string{
	"it is about what the store does on plain Postgres":                                       {"TestARefusalOnTheLastConnection"},
	"it makes days of the history by hand; TestAnEngineOnCitusDoesWhatElseThereIs rolls them": {"TestRollHistory"},
}

// notOnCitus skips a test of plainOnly where the tests' schemas are distributed.
func notOnCitus(t *testing.T) {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	for why, tests := range plainOnly {
		for _, name := range tests {
			if name == root {
				pgtest.PlainOnly(t, why)
			}
		}
	}
}

// located makes a store find the shards, where the tests' schemas are distributed.
func located(t testing.TB, s *store.Store) {
	t.Helper()
	if !pgtest.IsDistributed() {
		return
	}
	require.NoError(t, s.Locate(t.Context()))
}

// drawn are the bits of an id or a token that a sequence gives: all of them on plain Postgres,
// where no epoch leads them.
const drawn = 1<<34 - 1

// byHand makes a statement that a test writes itself name the shards of a distributed schema.
func byHand(sql string) string { return pgtest.ByHand(sql) }
