package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The rows that are set apart are bounded. The oldest is forgotten first, and all of them after a
// while.
func TestWhatIsSetApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := func(from, to int64) (list []Refused) {
			for id := from; id < to; id++ {
				list = append(list, Refused{ID: id})
			}
			return list
		}
		var a apart
		require.NotNil(t, a.ids(), "NULL would pass over all")
		a.add(refused(0, 3000))
		time.Sleep(apartFor / 2) //nolint:forbidigo // the bubble's clock
		a.add(refused(3000, 6000))
		got := a.ids()
		require.Len(t, got, apartMost)
		require.EqualValues(t, 6000-apartMost, got[0])
		require.EqualValues(t, 5999, got[apartMost-1])
		time.Sleep(apartFor / 2) //nolint:forbidigo // the bubble's clock
		require.Len(t, a.ids(), 3000, "those of before are over")
		time.Sleep(apartFor / 2) //nolint:forbidigo // the bubble's clock
		require.Empty(t, a.ids())
		require.NotNil(t, a.ids())
	})
}
