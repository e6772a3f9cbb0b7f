package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// report writes the error, and returns the exit code.
func (c *console) report(err error, asJSON bool) exitCode {
	code := codeOf(err)
	if err == nil {
		return code
	}
	if e, ok := errors.AsType[*exitError](err); ok && e.err == nil {
		return code
	}
	if !asJSON {
		fmt.Fprintln(c.errs, "gendurable:", printable(said(err), true))
		return code
	}
	if err := writeJSON(c.errs, failure{Error: said(err), Kind: code.String(), Code: int(code)}); err != nil {
		return codeError
	}
	return code
}

// failure is an error as JSON.
type failure struct {
	Error string `json:"error"`
	Kind  string `json:"kind"`
	Code  int    `json:"code"`
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// show writes a value as JSON, or as the text that text writes.
func (a *app) show(value any, text func(w io.Writer)) error {
	if a.JSON {
		return writeJSON(a.console.out, value)
	}
	text(a.console.out)
	return nil
}

// table has columns under their names; numbers are aligned to the right.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) add(cells ...any) {
	row := make([]string, len(t.head))
	for i, c := range cells {
		row[i] = printable(text(c), false)
	}
	t.rows = append(t.rows, row)
}

// text returns a value as a cell shows it.
func text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case time.Duration:
		return span(v)
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format(time.DateTime) + "Z"
	case *time.Time:
		if v == nil {
			return ""
		}
		return text(*v)
	case []string:
		return strings.Join(v, " ")
	case nil:
		return ""
	}
	return fmt.Sprint(value)
}

// leastCell is the least width to which a text is cut, so that its beginning is still of use.
const leastCell = 8

// write writes the table in a width; 0 is no limit. It cuts off texts only, the longest first: a
// number, or a column's name, that is cut off means something else. A table that is still too wide
// is written row by row, a line for each cell that is not empty.
func (t *table) write(w io.Writer, width int) {
	gap, widths, numeric := t.fit(width)
	if width > 0 && sum(widths)+gap*(len(widths)-1) > width {
		t.writeRows(w, width)
		return
	}
	t.writeColumns(w, gap, widths, numeric)
}

// writeCut writes the table in columns, whatever the width: for a screen, which cuts off lines that
// are too long.
func (t *table) writeCut(w io.Writer, width int) {
	gap, widths, numeric := t.fit(width)
	t.writeColumns(w, gap, widths, numeric)
}

// fit brings the table close to a width: with less space between the columns, then by cutting off
// texts.
func (t *table) fit(width int) (gap int, widths []int, numeric []bool) {
	const wide, narrow = 2, 1
	widths, numeric = t.measure()
	if gap = wide; width == 0 || sum(widths)+gap*(len(widths)-1) <= width {
		return gap, widths, numeric
	}
	gap = narrow
	for total := sum(widths) + gap*(len(widths)-1); total > width; total-- {
		widest := -1
		for i, n := range widths {
			if !numeric[i] && n > max(leastCell, utf8.RuneCountInString(t.head[i])) && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return gap, widths, numeric
}

func (t *table) writeColumns(w io.Writer, gap int, widths []int, numeric []bool) {
	for n, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(strings.Repeat(" ", gap))
			}
			if n == 0 {
				cell = strings.ToUpper(cell)
			}
			cell = cut(cell, widths[i])
			blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numeric[i] {
				cell = blank + cell
			} else {
				cell += blank
			}
			line.WriteString(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

func (t *table) writeRows(w io.Writer, width int) {
	names := 0
	for _, name := range t.head {
		names = max(names, utf8.RuneCountInString(name))
	}
	for n, row := range t.rows {
		if n > 0 {
			fmt.Fprintln(w)
		}
		for i, cell := range row {
			if cell != "" {
				fmt.Fprintf(w, "%-*s  %s\n", names, strings.ToUpper(t.head[i]), cut(cell, max(leastCell, width-names-2)))
			}
		}
	}
}

func (t *table) measure() (widths []int, numeric []bool) {
	widths, numeric = make([]int, len(t.head)), make([]bool, len(t.head))
	for i, name := range t.head {
		widths[i], numeric[i] = utf8.RuneCountInString(name), len(t.rows) > 0
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			if _, err := strconv.ParseFloat(strings.TrimSuffix(row[i], "+"), 64); err != nil && row[i] != "" {
				numeric[i] = false
			}
		}
	}
	return widths, numeric
}

func sum(of []int) (total int) {
	for _, n := range of {
		total += n
	}
	return total
}

// cut returns a text of at most this many characters.
func cut(of string, most int) string {
	if utf8.RuneCountInString(of) <= most {
		return of
	}
	return string([]rune(of)[:most-1]) + "…"
}

// printable returns a text without characters that a terminal obeys: states, keys and errors are
// others' texts. lines says that the text may have several lines.
func printable(of string, lines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r), lines && r == '\n':
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '\uFFFD'
	}, of)
}

// span returns a duration in the largest unit that matters to a person who waits.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// indented returns JSON in lines; any other text as it is.
func indented(raw json.RawMessage, prefix string) string {
	if len(raw) == 0 {
		return ""
	}
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return printable(string(raw), true)
	}
	lines, err := json.MarshalIndent(raw, prefix, "  ")
	if err != nil {
		return printable(string(raw), true)
	}
	return printable(string(lines), true)
}

// absent returns a time as JSON wants it: the zero time is null.
func absent(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
