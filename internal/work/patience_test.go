package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A claim waits for the claims of other processes as long as a fleet of them needs, within bounds:
// the next process may be stuck.
func TestAClaimsPatience(t *testing.T) {
	front, further := &store.ClaimParams{}, &store.ClaimParams{After: store.Place{ID: 1}}
	for _, row := range []struct {
		took, frontTook time.Duration
		p               *store.ClaimParams
		want            time.Duration
	}{
		{0, 0, front, patienceMost}, // the first one
		{100 * time.Microsecond, 100 * time.Microsecond, further, patienceLeast},
		{5 * time.Millisecond, time.Millisecond, front, 80 * time.Millisecond},
		{time.Second, 0, further, patienceMost},
		{5 * time.Millisecond, time.Second, front, 0}, // others would wait for it in vain
		{5 * time.Millisecond, time.Second, further, 80 * time.Millisecond},
	} {
		s := &scheduler{outlook: outlook{took: row.took, frontTook: row.frontTook}}
		require.Equal(t, row.want, s.patience(row.p), "%+v", row)
	}
}
