// Package tier tells a test how much of its proof to run. There are three tiers:
//
//   - Short, of make test: go test -short. Each promise is tested, in its short form.
//   - CI, of make ci: the default. A change has to pass it before it lands. It runs tests that
//     Short leaves out, such as those that need other programs, and larger random samples.
//   - Proof, of make proof: GENDURABLE_PROOF=1. Everything runs in its long form. A release has to
//     pass it.
//
// A suite chooses its form by [Pick], the size of a random sample by [Size], and leaves out what
// only a larger tier has time for by [Needs]. CONTRIBUTING.md says what each tier is for,
// docs/correctness.md which tier runs which form of a suite.
package tier

import (
	"fmt"
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

// Long reports whether tests run in their long form, as in the tier Proof.
func Long() bool { return Current() == Proof }

// Pick returns the short form, or the long one.
func Pick[T any](short, long T) T {
	if Long() {
		return long
	}
	return short
}

// Size returns the number for the current tier, unless an environment variable overrides it, and
// logs which it is.
func Size(t testing.TB, variable string, short, ci, proof int) int {
	t.Helper()
	n := [...]int{short, ci, proof}[Current()]
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

// Figure logs what a proof consists of, such as the number of its cases, for the part's row in
// docs/proof.md. Other tiers log nothing.
func Figure(t testing.TB, format string, args ...any) {
	t.Helper()
	if Long() {
		t.Logf("proof: "+format, args...)
	}
}

// Part returns which part of a proof the environment variable asks for, such as the second of four
// for "2/4", counted from 0, and of how many parts; without it, all: the only part of one. The
// parts of a proof have together what it has as a whole, and each takes less than an hour.
func Part(t testing.TB, variable string) (part, parts int) {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 0, 1
	}
	if _, err := fmt.Sscanf(text, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		t.Fatalf("%s=%s: want a part from 1 to their number, as in 2/4", variable, text)
	}
	return part - 1, parts
}

// Needs skips a test in tiers below least.
func Needs(t testing.TB, least Tier) {
	t.Helper()
	if Current() < least {
		t.Skipf("runs in %s", least)
	}
}
