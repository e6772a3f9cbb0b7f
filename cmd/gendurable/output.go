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

// report says what went wrong, and returns the code to end with.
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

// show writes a value: as JSON, or as text makes it.
func (a *app) show(value any, text func(w io.Writer)) error {
	if a.JSON {
		return writeJSON(a.console.out, value)
	}
	text(a.console.out)
	return nil
}

// table is columns under their names, those with numbers to the right.
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

// text is a value in a cell.
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

// leastCell is how narrow a column is made before its table becomes wider than the terminal.
const leastCell = 6

// write lays the table out in a width; 0 is any.
func (t *table) write(w io.Writer, width int) {
	widths, numeric := t.measure()
	for total := sum(widths) + 2*(len(widths)-1); width > 0 && total > width; total-- {
		widest := 0
		for i, n := range widths {
			if n > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastCell {
			break
		}
		widths[widest]--
	}
	for n, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
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

// cut is a text in at most so many characters.
func cut(of string, most int) string {
	if utf8.RuneCountInString(of) <= most {
		return of
	}
	return string([]rune(of)[:most-1]) + "…"
}

// printable is a text without what a terminal would obey: states, keys and errors are strangers' texts. lines: it may have several.
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

// span is a duration in its largest unit that matters to somebody who waits.
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

// indented is JSON in lines, or as it is where it is none.
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

// absent is a time as JSON wants it: none is null.
func absent(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
