// Package cron computes when something that repeats is due: by a cron expression in a time zone, or
// at an interval. The result depends on the expression, the zone and a time alone: the package
// reads no clock and does no I/O.
//
// It imports nothing of the project.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Error is the fault of an expression that cannot be parsed.
type Error struct {
	Expression string
	Position   int    // of the fault, in bytes, from 1
	Field      string // "second", "minute", "hour", "day", "month", "weekday", "interval"; "": the expression as a whole
	Reason     string // the fault, with the bound
}

func (e *Error) Error() string {
	where := ""
	if e.Field != "" {
		where = e.Field + ", "
	}
	return fmt.Sprintf("%.80q: %sat position %d: %s", e.Expression, where, e.Position, e.Reason)
}

// Bounds of an interval, which is a whole number of seconds.
const (
	MinInterval = time.Second
	MaxInterval = 36_525 * 24 * time.Hour
)

// MaxBytes bounds the length of an expression.
const MaxBytes = 512

// every begins the expression of an interval.
const every = "@every "

// Every returns the expression of an interval.
func Every(d time.Duration) string { return every + d.String() }

// set holds the values of a field: bit n stands for n.
type set uint64

func (s set) has(n int) bool { return s&(1<<n) != 0 }

// from returns the least member that is at least n, or -1.
func (s set) from(n int) int {
	if s = s >> n << n; s == 0 {
		return -1
	}
	return bits.TrailingZeros64(uint64(s))
}

// Expression is a parsed expression.
type Expression struct {
	interval time.Duration // 0: by the calendar

	second, minute, hour, day, month, weekday set
	last                                      bool // day: the last of the month
	anyDay, anyWeekday                        bool // the field is *
	hourly                                    bool // the hour begins with *: elapsed time counts where the clocks change
}

// field describes a field of an expression by the calendar.
type field struct {
	name     string
	min, max int
	names    []string // of min and the values after it
}

var fields = [...]field{
	{"second", 0, 59, nil},
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day", 1, 31, nil},
	{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{"weekday", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
	"@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse parses an expression: five fields (minute, hour, day of the month, month, weekday), or six
// with the second before them; a nickname; or "@every 30s". Each field is *, or a list of numbers
// and ranges, with steps; months and weekdays have names, the day may be L, the month's last, and
// weekday 7 is Sunday. If neither day nor weekday is *, either suffices. The error is a *[Error].
func Parse(text string) (Expression, error) {
	if len(text) > MaxBytes {
		return Expression{}, &Error{text, MaxBytes + 1, "", fmt.Sprintf("%d bytes, at most %d", len(text), MaxBytes)}
	}
	if rest, ok := strings.CutPrefix(text, every); ok {
		return parseInterval(text, rest)
	}
	calendar := text
	if strings.HasPrefix(text, "@") {
		var known bool
		if calendar, known = nicknames[text]; !known {
			return Expression{}, &Error{text, 1, "", "not a nickname: @yearly, @monthly, @weekly, @daily, @hourly or @every and a duration"}
		}
	}
	p := parser{text: text}
	words := split(calendar)
	if len(words) != 5 && len(words) != 6 {
		return Expression{}, &Error{text, 1, "", fmt.Sprintf("%d fields, want 5, or 6 with the seconds", len(words))}
	}
	e := Expression{second: 1}
	into := []*set{&e.second, &e.minute, &e.hour, &e.day, &e.month, &e.weekday}
	for i, w := range words {
		n := i + len(fields) - len(words)
		if n == 3 && strings.EqualFold(w.text, "L") {
			e.last = true
			continue
		}
		if *into[n] = p.list(w, fields[n]); p.err != nil {
			return Expression{}, p.err
		}
	}
	tail := words[len(words)-4:]
	e.hourly, e.anyDay, e.anyWeekday = strings.HasPrefix(tail[0].text, "*"), tail[1].text == "*", tail[3].text == "*"
	if e.weekday.has(7) {
		e.weekday |= 1
	}
	// These years hold every date, also a 29 February, though 2100 has none.
	if _, ever := e.matches(time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2105, 1, 1, 0, 0, 0, 0, time.UTC)); !ever {
		return Expression{}, &Error{text, tail[1].at, "day", "never comes: none of these months has such a day"}
	}
	return e, nil
}

func parseInterval(text, rest string) (Expression, error) {
	d, err := time.ParseDuration(rest)
	reason := ""
	switch {
	case err != nil:
		reason = "not a duration such as 30s"
	case d < MinInterval:
		reason = fmt.Sprintf("%v, at least %v", d, MinInterval)
	case d > MaxInterval:
		reason = fmt.Sprintf("%v, at most 100 years", d)
	case d%time.Second != 0:
		reason = fmt.Sprintf("%v, want whole seconds", d)
	}
	if reason != "" {
		return Expression{}, &Error{text, len(every) + 1, "interval", reason}
	}
	return Expression{interval: d}, nil
}

type word struct {
	text string
	at   int // from 1
}

func split(text string) (words []word) {
	start := -1
	for i := range len(text) + 1 {
		blank := i == len(text) || text[i] == ' ' || text[i] == '\t'
		switch {
		case blank && start >= 0:
			words, start = append(words, word{text[start:i], start + 1}), -1
		case !blank && start < 0:
			start = i
		}
	}
	return words
}

// parser keeps the first error.
type parser struct {
	text string
	err  error
}

func (p *parser) fail(at int, f field, format string, a ...any) {
	if p.err == nil {
		p.err = &Error{p.text, at, f.name, fmt.Sprintf(format, a...)}
	}
}

func (p *parser) list(w word, f field) (all set) {
	at := w.at
	for part := range strings.SplitSeq(w.text, ",") {
		all |= p.part(part, at, f)
		at += len(part) + 1
	}
	return all
}

// part parses *, n, or n-m, maybe with a step behind a slash. n/s reaches to the field's end.
func (p *parser) part(text string, at int, f field) (s set) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		step = p.number(stepText, at+len(span)+1, field{f.name, 1, f.max, nil})
	}
	low, high, ranged := strings.Cut(span, "-")
	from, to := f.min, f.max
	if f.name == "weekday" {
		to = 6 // so that Sunday counts once
	}
	switch {
	case span == "*":
	case ranged:
		from, to = p.number(low, at, f), p.number(high, at+len(low)+1, f)
		if from > to {
			p.fail(at, f, "%s: from %d to %d", span, from, to)
		}
	default:
		if from = p.number(span, at, f); !stepped {
			to = from
		}
	}
	if p.err != nil {
		return 0
	}
	for n := from; n <= to; n += step {
		s |= 1 << n
	}
	return s
}

func (p *parser) number(text string, at int, f field) int {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	switch {
	case text == "":
		p.fail(at, f, "empty, want %d to %d", f.min, f.max)
	case err != nil:
		p.fail(at, f, "%.20q, want %d to %d", text, f.min, f.max)
	case int(n) < f.min || int(n) > f.max:
		p.fail(at, f, "%d, want %d to %d", n, f.min, f.max)
	default:
		return int(n)
	}
	return f.min
}
