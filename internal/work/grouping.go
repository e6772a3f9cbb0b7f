package work

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

const (
	// groupFor is how long a claim's answer waits for a batch step's function to say to which group an
	// instance belongs. The function works on values in memory.
	groupFor = time.Second
	// groupAgain is how long it is not called again after it took longer, so that it holds up its
	// queue for a tenth of the time at most.
	groupAgain = 10 * time.Second
	// groupStuck bounds its calls that have not returned.
	groupStuck = 8
)

var errGroupless = errors.New("the function of a batch step's ByState called runtime.Goexit")

// grouping is how the function of a batch step that tells groups apart does. It is the host's code,
// and it may block. Instances of which it does not say in time to which group they belong run
// alone.
type grouping struct {
	mu    sync.Mutex
	stuck int           // calls that have taken too long, and have not returned
	next  time.Duration // when it may be called again, by process.since
}

// grouped is what the function says of an instance.
type grouped struct {
	group string
	err   error
}

// assign asks a batch step to which group a claim belongs. It runs user code, so it is called
// outside of the scheduler's loop, and on a separate goroutine, which that code may end or block.
func (p *process) assign(c *step.Claim) {
	m, b := p.batchOf(c)
	if b == nil || b.Key == nil || c.Partial || c.Unread != nil || len(p.route(c).chain) > 0 {
		return
	}
	c.Env = p.config.Env
	g := p.groupings[b]
	if c.Alone = !g.may(p.since()); c.Alone {
		return
	}
	said, ok := g.ask(p, b, *c)
	if c.Alone = !ok; ok {
		c.Group, c.Ungrouped = said.group, said.err
		return
	}
	if p.isDraining() {
		return
	}
	g.mu.Lock()
	g.next = p.since() + groupAgain
	g.mu.Unlock()
	if name := m.Name + " " + c.Step; p.quiet.first("grouping " + name) {
		p.log.Error("the function of a batch step's ByState does not return: its instances run alone meanwhile",
			slog.String("machine", m.Name), slog.String("step", c.Step), slog.Int64("instance", c.ID))
	}
}

func (g *grouping) may(now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stuck < groupStuck && now >= g.next
}

// ask calls the function, which keeps the claim for as long as it likes, and waits for it until it
// has taken too long, or the worker drains.
func (g *grouping) ask(p *process, b *step.Batch, c step.Claim) (said grouped, ok bool) {
	answer := make(chan grouped, 1)
	late, over := false, false
	go func() {
		said := grouped{err: errGroupless}
		defer func() {
			answer <- said
			g.mu.Lock()
			defer g.mu.Unlock()
			if over = true; late {
				g.stuck--
			}
		}()
		said.group, said.err = b.Key(&c)
	}()
	timer := time.NewTimer(groupFor)
	defer timer.Stop()
	select {
	case said = <-answer:
		return said, true
	case <-timer.C:
	case <-p.draining:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if late = !over; late {
		g.stuck++
	}
	return said, false
}
