package pairs

import (
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// mutantSeeds bounds the seeds with which a case looks for a mutant: the seed chooses where the
// fault strikes, and which bounded verb it is.
const mutantSeeds = 100

// Statements that are broken on purpose, each in a way that only cases with a fleet, with blocked
// keys or with bounds show.
func TestPairsFindMutants(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.Proof)
	for _, mutant := range []struct {
		name    string
		changes [][2]string
		c, sign string
	}{
		{"a claim that is kept stores no state", [][2]string{{"SET step = u.step, state = u.state::jsonb, awaits", "SET step = u.step, awaits"}},
			"fleet,join/none/kill/1", "done with a wrong result"},
		{"a claim lets a closed key begin", [][2]string{{"r.closed > c.now OR b.closed_until > c.now THEN 0", "r.closed > c.now THEN 0"}},
			"blocked,signal/none/none/1", "an instance begins where none may"},
		{"a bounded verb does not heed its target", [][2]string{{"SELECT i.id, i.covered, ", "SELECT i.id, true, "}},
			"join,graph/bounded/none/1", "a bounded verb tells of an instance outside|a bounded verb changes a row outside"},
		{"a bounded verb does not heed others", [][2]string{{"coalesce(own.outside, false) OR coalesce(above.outside, false)", "false"}},
			"join,graph/bounded/none/1", "a bounded verb changes a row outside"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			t.Parallel()
			done := make([]atomic.Bool, len(mutant.changes))
			b := newBase(t, func(queries []*pgx.QueuedQuery) {
				for n, change := range mutant.changes {
					replace(change[0], change[1], &done[n])(queries)
				}
			})
			c, err := parse(mutant.c)
			require.NoError(t, err)
			sign, found := regexp.MustCompile(mutant.sign), false
			for ; !found && c.Seed <= mutantSeeds; c.Seed++ {
				violations, story, err := play(t, b, c)
				require.NoError(t, err, "CASE=%s\n%s", c, story)
				for _, v := range violations {
					found = found || sign.MatchString(v.kind)
				}
			}
			for n := range done {
				require.True(t, done[n].Load(), "no statement has the text %s", mutant.changes[n][0])
			}
			require.True(t, found, "the mutant is not found")
			t.Logf("found with seed %d", c.Seed-1)
		})
	}
}
