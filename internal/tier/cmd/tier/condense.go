package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json: see go doc test2json.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Elapsed float64 `json:"Elapsed"` // seconds
	Output  string  `json:"Output"`
}

// timed is what a package or a top-level test took.
type timed struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// outcome is what a run of go test did.
type outcome struct {
	Packages []timed  `json:"packages"`
	Tests    []timed  `json:"tests"` // top-level ones, of which the next three count
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	Figures  []string `json:"figures"` // what tests logged behind "proof: "
}

// condense reads what go test -json prints, and writes one line a package, all output of failures,
// and how many top-level tests passed. verbose also writes the output of tests that pass.
func condense(from io.Reader, to io.Writer, verbose bool) (outcome, error) {
	var o outcome
	said := map[[2]string][]string{} // package and top-level test → its output so far
	skips := map[string]int{}        // reason → tests
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return o, fmt.Errorf("read the output of go test: %w", err)
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			if _, err := to.Write(line); err != nil { // of the command around go test
				return o, err
			}
		} else {
			o.add(e, said, skips, to, verbose)
		}
		if err == io.EOF {
			break
		}
	}
	for _, reason := range slices.Sorted(keys(skips)) {
		fmt.Fprintf(to, "%d skipped: %s\n", skips[reason], reason)
	}
	fmt.Fprintf(to, "%d passed, %d failed, %d skipped\n", o.Passed, o.Failed, o.Skipped)
	return o, nil
}

func keys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (o *outcome) add(e event, said map[[2]string][]string, skips map[string]int, to io.Writer, verbose bool) {
	top, _, isSub := strings.Cut(e.Test, "/")
	at := [2]string{e.Package, top}
	switch e.Action {
	case "build-output":
		fmt.Fprint(to, e.Output)
	case "output":
		said[at] = append(said[at], e.Output)
		if _, figure, ok := strings.Cut(e.Output, "proof: "); ok && e.Test != "" {
			o.Figures = append(o.Figures, strings.TrimSpace(figure))
		}
	case "pass", "fail", "skip":
		if isSub {
			return
		}
		o.end(e, said[at], skips, to, verbose)
		delete(said, at)
		if e.Test == "" {
			unended(e.Package, said, to)
		}
	}
}

// end takes note of the end of a package or a top-level test, with all that it printed.
func (o *outcome) end(e event, output []string, skips map[string]int, to io.Writer, verbose bool) {
	if e.Test == "" {
		o.Packages = append(o.Packages, timed{e.Package, e.Elapsed})
		for _, line := range output {
			if e.Action == "fail" || strings.HasPrefix(line, "ok ") {
				fmt.Fprint(to, line)
			}
		}
		return
	}
	o.Tests = append(o.Tests, timed{e.Package + " " + e.Test, e.Elapsed})
	switch e.Action {
	case "pass":
		o.Passed++
	case "fail":
		o.Failed++
	default:
		o.Skipped++
		skips[reason(output)]++
	}
	if e.Action == "fail" || verbose {
		fmt.Fprint(to, strings.Join(output, ""))
	}
}

// mostOfPanic is how many lines of a panic are written.
const mostOfPanic = 100

// unended writes why the tests of a package have not ended when the package has: a panic, e.g. that
// the time was over, which names the tests that were running. go test reports that as output of
// whichever test began last, which never passes nor fails.
func unended(pkg string, said map[[2]string][]string, to io.Writer) {
	for at, output := range said {
		if at[0] != pkg {
			continue
		}
		delete(said, at)
		i := slices.IndexFunc(output, func(line string) bool {
			return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		})
		if i >= 0 {
			fmt.Fprint(to, strings.Join(output[i:min(len(output), i+mostOfPanic)], ""))
		}
	}
}

// reason returns what a test said when it was skipped.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if _, why, ok := strings.Cut(line, ".go:"); ok && !strings.HasPrefix(line, "---") {
			if _, why, ok = strings.Cut(why, ": "); ok {
				return why
			}
		}
	}
	return "without a reason"
}

// slowest returns the ten that took the longest.
func slowest(all []timed) []timed {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b timed) int {
		switch {
		case a.Seconds > b.Seconds:
			return -1
		case a.Seconds < b.Seconds:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all[:min(len(all), 10)]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
