package pairs

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// known is a fault that is known and not cured.
type known struct {
	fault string // its number in the list of faults
	why   string // what goes wrong, and where
	// sign is what a case finds that meets the fault: the whole text of its violations, or of its
	// error. It fits nothing else.
	sign *regexp.Regexp
	// cases are cases of the generator that meet it, as texts of CASE. Each fails, by the sign.
	cases []string
}

var ledger = []known{}

// recognised returns the fault that explains all that a case has found; nil: none does.
func recognised(violations []violation) *known {
	for i := range ledger {
		fits := len(violations) > 0
		for _, v := range violations {
			fits = fits && ledger[i].sign.MatchString(v.String())
		}
		if fits {
			return &ledger[i]
		}
	}
	return nil
}

// Each case of the ledger fails as it is recorded. If one does not, the fault is cured: take it off
// the list.
func TestKnownFaultsAreStillThere(t *testing.T) {
	t.Parallel()
	for _, k := range ledger {
		t.Run(k.fault, func(t *testing.T) {
			t.Parallel()
			b := newBase(t)
			for _, text := range k.cases {
				c, err := parse(text)
				require.NoError(t, err)
				violations, story, err := play(t, b, c)
				require.NoError(t, err, "CASE=%s\n%s", c, story)
				require.Equal(t, &k, recognised(violations), "CASE=%s does not fail as %s is recorded (%s). If it is cured, take it off the ledger.\n%s",
					c, k.fault, k.why, story)
			}
		})
	}
}
