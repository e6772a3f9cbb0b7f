package pairs

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
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
	{"B1, beside", "the GC deletes a child of an instance that has failed and is kept since another child lives",
		regexp.MustCompile(`^the GC deletes what is needed: its parent is kept for a child \(\d+\)$`),
		[]string{"join,again/retry/month/853"}},
	{"B3", "a decision that ends behind its root's end commits without its additions, and a Restart of the root leaves it done",
		regexp.MustCompile(`^a decision is done without what it added: `),
		[]string{"graph,grow/none/over/46", "graph,grow/restart/over/586"}},
	{"B7", "a skip goes through the claim: it waits for a delay, a gate's rate and a worker",
		regexp.MustCompile(`^a node that is to be skipped waits: `),
		[]string{"graph,rate/cancel/fail/384", "failfast,rate/cancel/none/146"}},
	{"B8", "after a Restart a Rejoin sleeps through ends: the ends that it has counted are fewer by the child that runs again",
		regexp.MustCompile(`^a race sleeps, and a child has ended that it has not seen: `),
		[]string{"race,signal/restart/fail/201", "race,signal/restart/fail/620"}},
	{"a spin", "a child is retried that its parent has counted; a Rejoin then finds nothing to wait for, and Round.Left is not 0: it runs at full speed",
		regexp.MustCompile(`^it runs on and on: .* (race|stream)\.next .* rejoin$`),
		[]string{"race,signal/restart/fail/429"}},
}

// cured are cases that failed by a fault which is cured since, with its number.
var cured = []struct {
	fault string
	cases []string
}{
	{"B1", []string{"join,join/pause/month/836", "join,join,join/none/month/17"}},
	{"B2", []string{"left,again/edit/month/903", "left,join/edit/month/986"}},
	{"B5", []string{"failfast,again/retry/held/859", "failfast,again,again/restart/none/581"}},
	{"B6", []string{"failfast,left,rate/none/held/676", "failfast,graph,again/none/held/239"}},
	{"B9", []string{"graph,race/rewind/none/262", "graph,failfast/rewind/held/592"}},
}

// Cases of faults that are cured pass.
func TestCuredFaults(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	for _, k := range cured {
		for _, text := range k.cases {
			c, err := parse(text)
			require.NoError(t, err)
			violations, story, err := play(t, b, c)
			require.NoError(t, err, "CASE=%s\n%s", c, story)
			require.Empty(t, violations, "%s is back: CASE=%s\n%s", k.fault, c, story)
		}
	}
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
			b := newBase(t)
			for _, text := range k.cases[:tier.Pick(1, len(k.cases), len(k.cases))] {
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
