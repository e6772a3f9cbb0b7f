package run

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// logEvery bounds how often a status is repeated where lines cannot be overwritten.
const logEvery = 2 * time.Second

// Progress writes lines that stay and one status that changes: overwritten in a terminal, now and
// then a new line in a log. It is safe for concurrent use.
type Progress struct {
	w        io.Writer
	terminal bool
	started  time.Time

	mu     sync.Mutex
	status string // what is on the terminal's last line
	logged time.Time
}

// NewProgress counts time from now.
func NewProgress(w io.Writer) *Progress {
	return &Progress{w: w, terminal: isTerminal(w), started: time.Now()}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Say writes a line that stays.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, p.stamp()+fmt.Sprintf(format, args...))
	p.redraw()
}

// Status replaces the status.
func (p *Progress) Status(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := fmt.Sprintf(format, args...)
	if p.terminal {
		p.clear()
		p.status = status
		p.redraw()
		return
	}
	if status != p.status && time.Since(p.logged) >= logEvery {
		p.status, p.logged = status, time.Now()
		fmt.Fprintln(p.w, p.stamp()+status)
	}
}

// Block writes text as it is, e.g. a table, and ends the status.
func (p *Progress) Block(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.status = ""
	fmt.Fprintln(p.w, strings.TrimRight(text, "\n"))
}

func (p *Progress) stamp() string { return fmt.Sprintf("%6.1fs  ", time.Since(p.started).Seconds()) }

func (p *Progress) clear() {
	if p.terminal && p.status != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) redraw() {
	if p.terminal && p.status != "" {
		// A line that wraps could not be overwritten.
		fmt.Fprintf(p.w, "\x1b[?7l%s\x1b[?7h", p.stamp()+p.status)
	}
}

// Count writes n with commas between the thousands.
func Count[N ~int | ~int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
