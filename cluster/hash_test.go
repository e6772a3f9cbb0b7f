package cluster_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// These places never change: instances that clusters have stored are found by them. They were
// computed by another program, in Python.
func TestPlacesOfKeysAreForEver(t *testing.T) {
	t.Parallel()
	order, ada := [3]int{1, 5, 349}, [3]int{1, 7, 343}
	for key, want := range map[string][3]int{ // of 2, 8 and 512
		"":                           {0, 4, 28},
		"order-17":                   order,
		"{order-17}":                 order,
		"item-3{order-17}":           order,
		"schedule:a{order-17}:run:1": order,
		"two {order-17} and {ada}":   order,
		"ada":                        ada,
		"{}{ada}":                    ada,
		"}{ada}":                     ada,
		"{{ada}":                     {0, 4, 36},
		"{open":                      {1, 5, 485},
		"{}":                         {1, 7, 359},
		"Kunde äöü 😀":                {0, 6, 342},
	} {
		require.Equal(t, want, [3]int{cluster.PlaceOf(key, 2), cluster.PlaceOf(key, 8), cluster.PlaceOf(key, 512)}, key)
		require.Zero(t, cluster.PlaceOf(key, 1), key)
		require.Zero(t, cluster.PlaceOf(key, 0), key)
	}
}

// The guide has the hash as SQL, for other languages, and Init looks for strays by it.
func TestPlacesInSQLAreThoseInGo(t *testing.T) {
	t.Parallel()
	const runes = "ab{}{}{}:-äß😀 "
	keys := []string{"order-17", "{order-17}", "{}", "{}{ada}", "{{ada}", "a}b{c", "{\n}x"}
	for range 500 {
		var key strings.Builder
		for range 1 + rand.N(12) {
			key.WriteRune([]rune(runes)[rand.N(len([]rune(runes)))])
		}
		keys = append(keys, key.String())
	}
	pool := pgtest.Pool(t, pgtest.Database(t))
	for _, places := range []int{1, 2, 7, 16, 512} {
		rows, err := pool.Query(t.Context(), "SELECT "+cluster.PlaceSQL("k", "$2::bigint")+" FROM unnest($1::text[]) WITH ORDINALITY u(k, n) ORDER BY n", keys, places)
		require.NoError(t, err)
		n := 0
		for ; rows.Next(); n++ {
			var place int
			require.NoError(t, rows.Scan(&place))
			require.Equal(t, cluster.PlaceOf(keys[n], places), place, "%q of %d", keys[n], places)
		}
		require.NoError(t, rows.Err())
		require.Len(t, keys, n)
	}
}

func TestIDsCarryTheirPlace(t *testing.T) {
	t.Parallel()
	require.Equal(t, 0, cluster.PlaceOfID(1))
	require.Equal(t, 0, cluster.PlaceOfID(1<<44-1))
	require.Equal(t, 1, cluster.PlaceOfID(1<<44))
	require.Equal(t, cluster.MaxPlaces-1, cluster.PlaceOfID(fsm.ID(1<<53-1)))
	require.EqualValues(t, 1<<53-1, cluster.LastID(cluster.MaxPlaces-1), "the greatest integer of JavaScript")
}
