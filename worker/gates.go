package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	// linesEvery is how often a process looks through lines at gates, and linesPace × the time that
	// this takes is the least pause after it.
	linesEvery = time.Second
	linesPace  = 20
	linesSlice = 1000 // gates of one look
	// linesUnused is how long an instance keeps a place that it does not use while others wait.
	linesUnused = 5 * time.Second
	// passAfter is the number of tries after which the first instance in line is passed over if it is
	// still locked.
	passAfter = 3
)

// gates holds the gates that the last poll has found. Until the first poll all queues of a worker
// are paused, so it claims nothing before it knows of them.
type gates struct{ found atomic.Pointer[store.Gates] }

// obey takes over what a poll has found, and reports whether the gates have changed.
func (g *gates) obey(found store.Gates) (changed bool) {
	old := g.found.Swap(&found)
	return old == nil || !slices.Equal(*old, found)
}

// any reports whether there are gates.
func (g *gates) any() bool {
	found := g.found.Load()
	return found != nil && len(*found) > 0
}

// keeps reports whether a claim may be kept for another step: if that is behind the gate of which
// the claim has a place, or if neither is behind any.
func (g *gates) keeps(c *step.Claim, name string) bool {
	found := g.found.Load()
	if found == nil {
		return c.Gate == ""
	}
	return found.Of(c.Queue, c.Machine, name, c.Labels) == c.Gate
}

// lines holds gates that this process has to look at: a place has become free there, or rows have
// got in line. It looks at each until store.Admit no longer misses it. If this process dies, the
// look through all lines finds them.
type lines struct {
	*promotions
	look chan struct{} // the gates have changed
}

func newLines(p *process) *lines {
	again := newPromotions(p)
	again.doing, again.soon = "admit instances at gates", 0
	again.bring = func(ctx context.Context, keys []string, tried map[string]int) ([]string, error) {
		pass := make([]bool, len(keys))
		for i, k := range keys {
			pass[i] = tried[k] >= passAfter
		}
		done, err := p.db.Admit(ctx, keys, pass, p.working())
		p.reportRefused("admit an instance at a gate", done.Refused)
		for _, name := range done.Queues {
			if q := p.queues[name]; q != nil {
				q.before.Store(true) // else a place would stay unused until the next claim from the front
				q.nudge()
			}
		}
		return done.Missed, err
	}
	return &lines{again, make(chan struct{}, 1)}
}

// working returns the queues of this process that are not paused. An instance of another queue gets
// no place here: nobody might use it.
func (p *process) working() []string {
	names := []string{}
	for name, q := range p.queues {
		if !q.paused.Load() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// left notes that the claim of a flight has ended, and with it the place that it may have had.
func (l *lines) left(c *step.Claim) {
	if c.Gate != "" {
		l.add([]string{c.Gate})
	}
}

// lookSoon makes the next look begin at once, at the first line.
func (l *lines) lookSoon() {
	select {
	case l.look <- struct{}{}:
	default:
	}
}

// watch looks through all lines, again and again, while there are any gates. Without gates, it
// looks until it finds nobody in line: a gate may have been dropped, or the process that had to
// admit the last instances may have died.
func (l *lines) watch() {
	after, wait, some := "", linesEvery, true
	for {
		timer := time.NewTimer(pace.Jittered(wait))
		select {
		case <-l.draining:
			timer.Stop()
			return
		case <-l.look:
			after, some = "", true
		case <-timer.C:
		}
		timer.Stop()
		wait = linesEvery
		if some = some || l.gates.any(); !some {
			continue
		}
		began := l.since()
		after, some = l.slice(after)
		if wait = max(wait, linesPace*(l.since()-began)); after != "" {
			wait = linesPace * (l.since() - began)
		}
	}
}

// slice looks at some lines behind one, and returns the last of them: "" at the end. It reports
// whether there may be others without a gate: nobody is in line there once none of them is open.
func (l *lines) slice(after string) (last string, some bool) {
	ctx, cancel := context.WithTimeout(l.looking, statementTimeout)
	defer cancel()
	last, free, err := l.db.Lines(ctx, after, linesSlice, linesUnused)
	if err != nil {
		l.trouble("look at the lines of gates", err)
		return "", true
	}
	l.add(free)
	return last, last != "" || len(free) > 0
}
