package store_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
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
	if !pgtest.IsDistributed() {
		return
	}
	root, _, _ := strings.Cut(t.Name(), "/")
	for why, tests := range plainOnly {
		for _, name := range tests {
			if name == root {
				t.Skip("not in a distributed schema: " + why)
			}
		}
	}
}

// located makes a store find the shards, where the tests' schemas are distributed.
func located(t *testing.T, s *store.Store) {
	t.Helper()
	if !pgtest.IsDistributed() {
		return
	}
	require.NoError(t, s.Locate(t.Context()))
	shardsOnce.Do(func() {
		rows, err := s.Driver().Pool().Query(t.Context(), `SELECT c.relname, d.shardid FROM pg_dist_shard d
			JOIN pg_class c ON c.oid = d.logicalrelid WHERE c.relnamespace = 'gendurable'::regnamespace`)
		require.NoError(t, err)
		var table string
		var id int64
		_, err = pgx.ForEachRow(rows, []any{&table, &id}, func() error {
			shards[table] = fmt.Sprintf("%s_%d", table, id)
			return nil
		})
		require.NoError(t, err)
		shards["gen_durable_id_seq"] = "gen_durable_id_draw"
	})
}

// shards are the names of the tables' shards, the same in all databases of a distributed schema.
var (
	shards     = map[string]string{}
	shardsOnce sync.Once
	tableName  = regexp.MustCompile(`\bgendurable\.([a-z_]+)`)
)

// drawn are the bits of an id or a token that a sequence gives: all of them on plain Postgres,
// where no epoch leads them.
const drawn = 1<<40 - 1

// byHand makes a statement that a test writes itself name the shards of a distributed schema, as
// those of the store do. Citus would plan only some of these statements on the tables themselves.
func byHand(sql string) string {
	return tableName.ReplaceAllStringFunc(sql, func(name string) string {
		if shard := shards[strings.TrimPrefix(name, "gendurable.")]; shard != "" {
			return "gendurable." + shard
		}
		return name
	})
}
