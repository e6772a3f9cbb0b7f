package pairs

import (
	"regexp"
	"slices"
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

var ledger = []known{
	{"B1", "the GC deletes the children of an instance that has failed and is itself kept for its parent: pruneSQL looks one level up",
		regexp.MustCompile(`^the GC deletes what is needed: its parent is kept \(\d+\)$`),
		[]string{"race,graph/gc/month/212", "graph,graph/retry/month/660"}},
	{"B2", "the GC deletes done nodes of a round that was left, while a live node waits behind them: the round is not the current one",
		regexp.MustCompile(`^the GC deletes what is needed: a node waits for it \(\d+\)$`),
		[]string{"kept,left/edit/month/638"}},
	{"B1, beside", "the GC deletes a child of an instance that has failed and is kept since another child lives",
		regexp.MustCompile(`^the GC deletes what is needed: its parent is kept for a child \(\d+\)$`),
		[]string{"race,grow/retry/month/763"}},
	{"B5", "a node that has begun, and asked to run again, has attempt 0 and visit 0: a Restart takes it for one that has not begun",
		regexp.MustCompile(`^a node is skipped that has begun: `),
		[]string{"failfast,again,grow/retry/lost/240"}},
	{"B6", "a node that was skipped, since all is well, counts as failed: FailFast ends a healthy graph",
		regexp.MustCompile(`^FailFast ends a graph in which nothing has failed: `),
		[]string{"entity,failfast,graph/pause/kill/944"}},
	{"B7", "a skip goes through the claim: it waits for a delay, a gate's rate and a worker",
		regexp.MustCompile(`^a node that is to be skipped waits: `),
		[]string{"graph,rate/none/bound/379", "rate,failfast/rewind/held/774"}},
	{"B9", "a Rewind of a graph's root cancels its nodes, which go on as control.md says",
		regexp.MustCompile(`^a rewind cancels children, which go on: `),
		[]string{"grow,graph,grow/rewind/kill/574"}},
}

// recognised returns the known faults that explain all that a case has found. ok is false if
// something else is wrong, or nothing is.
func recognised(violations []violation) (faults []string, ok bool) {
	for _, v := range violations {
		i := slices.IndexFunc(ledger, func(k known) bool { return k.sign.MatchString(v.String()) })
		if i < 0 {
			return nil, false
		}
		if !slices.Contains(faults, ledger[i].fault) {
			faults = append(faults, ledger[i].fault)
		}
	}
	return faults, len(faults) > 0
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
				found, ok := recognised(violations)
				require.True(t, ok && slices.Contains(found, k.fault), "CASE=%s does not fail as %s is recorded (%s), but by %v. If it is cured, take it off the ledger.\n%s",
					c, k.fault, k.why, found, story)
			}
		})
	}
}
