// Package tier tells a test how much of its proof to run. There are three tiers:
//
//   - Short, of make test: go test -short. Each promise is tested, in its smallest form.
//   - CI, of make ci: the default. A change has to pass it before it lands.
//   - Proof, of make proof: GENDURABLE_PROOF=1. A release has to pass it.
//
// A suite chooses its sizes by [Pick] or [Size], and leaves out what only a larger tier has time
// for by [Needs]. CONTRIBUTING.md says what each tier is for, docs/correctness.md which tier runs
// which form of a suite.
package tier

import (
	"os"
	"strconv"
	"testing"
)

// Tier is how much a run of tests proves.
type Tier int

// The tiers, each with all that the one before it proves.
const (
	Short Tier = iota
	CI
	Proof
)

// String returns the make target that runs the tier.
func (t Tier) String() string { return [...]string{"make test", "make ci", "make proof"}[t] }

// variable selects the tier Proof, if it is not empty. Programs that tests start inherit it.
const variable = "GENDURABLE_PROOF"

// Current returns the tier of this run.
func Current() Tier {
	switch {
	case os.Getenv(variable) != "":
		return Proof
	case testing.Short():
		return Short
	}
	return CI
}

// Pick returns the value for the current tier.
func Pick[T any](short, ci, proof T) T { return [...]T{short, ci, proof}[Current()] }

// Size is Pick for a number that an environment variable overrides, and logs which it is.
func Size(t testing.TB, variable string, short, ci, proof int) int {
	t.Helper()
	n := Pick(short, ci, proof)
	if text := os.Getenv(variable); text != "" {
		told, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		n = told
	}
	t.Logf("%s=%d", variable, n)
	return n
}

// Needs skips a test in tiers below least.
func Needs(t testing.TB, least Tier) {
	t.Helper()
	if Current() < least {
		t.Skipf("runs in %s", least)
	}
}
