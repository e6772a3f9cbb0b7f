package interleave

import (
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestScheduleIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, w := range worlds() {
		for _, v := range w.verbs {
			s := schedule{world: &w, verbs: []verb{v, v}, order: "ABBA"}
			again, err := parse(s.String())
			require.NoError(t, err)
			require.Equal(t, s.String(), again.String())
		}
	}
	for _, wrong := range []string{"", "executing/next", "nowhere/next/A", "executing/nothing/A", "executing/next|beat/ABC"} {
		_, err := parse(wrong)
		require.ErrorIs(t, err, errReplay, wrong)
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	orders([]int{3, 4}, func(order string) { seen[order] = true })
	require.Len(t, seen, 35)
	require.Contains(t, seen, "ABABABB")
	three := 0
	orders([]int{2, 2, 2}, func(string) { three++ })
	require.Equal(t, 90, three)
	require.Contains(t, seen, anyOrder(rand.New(rand.NewPCG(1, 2)), []int{3, 4}))
	require.True(t, begins("ABBA", map[string]bool{"AB": true}))
	require.False(t, begins("ABBA", map[string]bool{"B": true, "ABBAA": true}))
}

// The scanner finds messages however the network cuts them.
func TestScannerFindsMessagesInPieces(t *testing.T) {
	t.Parallel()
	stream := []byte("2\x00\x00\x00\x04K\x00\x00\x00\x0c\x00\x00\x01\x02abcdC\x00\x00\x00\x0bCOMMIT\x00Z\x00\x00\x00\x05I")
	for size := 1; size <= len(stream); size++ {
		var s scanner
		var kinds, key string
		note := func(kind byte, head []byte) error {
			if kinds += string(kind); kind == toKey {
				key = string(head[:4])
			}
			return nil
		}
		for i := 0; i < len(stream); i += size {
			require.NoError(t, s.scan(stream[i:min(i+size, len(stream))], note))
		}
		require.Equal(t, "2KCZ", kinds, size)
		require.Equal(t, "\x00\x00\x01\x02", key)
	}
}

// Names of verbs are unique in their world, since otherwise a schedule could not be named. And
// every pair of families that share something occurs.
func TestWorldsNameTheirVerbs(t *testing.T) {
	t.Parallel()
	for _, w := range worlds() {
		seen := map[string]bool{}
		for _, v := range w.verbs {
			require.NotEmpty(t, v.name)
			require.NotZero(t, v.touches, v.name)
			require.False(t, seen[v.name], "%s/%s", w.name, v.name)
			seen[v.name] = true
		}
		require.NotEmpty(t, w.pairs(), w.name)
	}
}

// If a world were broken from the start, its verbs would be blamed.
func TestWorldsAreSound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, w := range worlds() {
		require.NoError(t, r.reset(t.Context(), &w))
		rows, err := r.monitor.Query(t.Context(), `SELECT name || ': ' || detail FROM interleave.broken
			WHERE NOT ($1 AND name = 'line stands still')`, w.heeds) // nobody has claimed yet
		require.NoError(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, found, w.name)
	}
}
