package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Files in the folder that the program runs in.
const (
	page  = "docs/proof.md"
	plans = "docs/plans" // part plans of the proof writes them
)

// The cells of a row of the page.
const (
	cellPart = iota
	_        // what the part proves
	cellDate
	cellCommit
	cellMinutes
	cellCases
	cellFigures
	cellCount
)

// proof runs a command, and writes the row of its part. A part that fails leaves its row as it was.
// Changes that are not committed are no commit's proof: the row says so by a "+".
func proof(part string, command []string) error {
	commit, err := head()
	if err != nil {
		return err
	}
	if _, err := rowOf(part); err != nil { // before an hour has passed
		return err
	}
	t, err := execute(command)
	if err != nil {
		return err
	}
	row, err := rowOf(part)
	if err != nil {
		return err
	}
	row.cells[cellDate] = time.Now().UTC().Format(time.DateOnly)
	row.cells[cellCommit] = commit
	row.cells[cellMinutes] = fmt.Sprintf("%.0f", t.Elapsed.Minutes())
	row.cells[cellCases] = "–"
	if t.Passed > 0 {
		row.cells[cellCases] = strconv.Itoa(t.Passed)
	}
	row.cells[cellFigures] = strings.Join(t.Figures, ", ")
	return row.write()
}

// head returns the commit that is checked out, with a "+" if a file that git tracks was changed,
// other than the page and the plans.
func head() (string, error) {
	commit, err := git("rev-parse", "--short=10", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ":!"+page, ":!"+plans)
	if err != nil {
		return "", err
	}
	if changed != "" {
		commit += "+"
	}
	return commit, nil
}

func git(arguments ...string) (string, error) {
	out, err := exec.Command("git", arguments...).Output() //nolint:noctx // it looks at the repository
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// proofRow is a row of the page.
type proofRow struct {
	lines []string // all of the page
	at    int      // the row's
	cells []string
}

func rowsOf(content string) []proofRow {
	var rows []proofRow
	lines := strings.Split(content, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if len(cells) == cellCount && cells[cellPart] != "part" {
			rows = append(rows, proofRow{lines, i, cells})
		}
	}
	return rows
}

func rowOf(part string) (proofRow, error) {
	content, err := os.ReadFile(page)
	if err != nil {
		return proofRow{}, fmt.Errorf("read the page about proofs: %w", err)
	}
	for _, row := range rowsOf(string(content)) {
		if row.cells[cellPart] == part {
			return row, nil
		}
	}
	return proofRow{}, fmt.Errorf("%s has no row for %q", page, part)
}

func (r proofRow) write() error {
	r.lines[r.at] = "| " + strings.Join(r.cells, " | ") + " |"
	if err := os.WriteFile(page, []byte(strings.Join(r.lines, "\n")), 0o644); err != nil {
		return fmt.Errorf("write the page about proofs: %w", err)
	}
	return nil
}

// proven fails unless all rows are of one commit, after which only documentation has changed:
// Markdown, the lists in docs, and the plans, which a part of the proof writes.
func proven() error {
	content, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page about proofs: %w", err)
	}
	commit, err := oneCommit(rowsOf(string(content)))
	if err != nil {
		return err
	}
	changed, err := git("diff", "--name-only", commit, "--", ":!*.md", ":!docs/*.txt", ":!"+plans)
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("%s is of %s, after which this changed: %s", page, commit, strings.ReplaceAll(changed, "\n", ", "))
	}
	return nil
}

// oneCommit returns the commit of all rows.
func oneCommit(rows []proofRow) (string, error) {
	if len(rows) == 0 {
		return "", errors.New(page + " has no rows")
	}
	commit := rows[0].cells[cellCommit]
	for _, row := range rows {
		switch at := row.cells[cellCommit]; {
		case at == "":
			return "", fmt.Errorf("%s was never run: make proof PART=%[1]s", row.cells[cellPart])
		case strings.HasSuffix(at, "+"):
			return "", fmt.Errorf("%s was run on what was not committed: make proof PART=%[1]s", row.cells[cellPart])
		case at != commit:
			return "", fmt.Errorf("%s was run on %s, %s on %s: a release needs all parts of one commit",
				rows[0].cells[cellPart], commit, row.cells[cellPart], at)
		}
	}
	return commit, nil
}
