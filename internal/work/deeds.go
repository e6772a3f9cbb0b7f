package work

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// deed records how one kind of work goes. Each success and failure is of work that the worker does
// anyway: nothing is sent to find out.
type deed struct {
	mu       sync.Mutex
	last     time.Duration // when it last succeeded, by process.since; 0: never
	since    time.Duration // when it failed for the first time since then; 0: it has not
	obstacle worker.Obstacle
}

func (d *deed) succeeded(p *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, d.since = max(1, p.since()), 0
}

func (d *deed) failed(p *process, err error) {
	if store.Classify(err) == store.FaultCancelled && (p.isDraining() || p.base.Err() != nil) {
		return // caused by our own cancellation
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since == 0 {
		d.since = max(1, p.since())
	}
	d.obstacle = ObstacleOf(err)
}

// time returns when it last succeeded; zero: never.
func (d *deed) time(p *process) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == 0 {
		return time.Time{}
	}
	return p.began.Add(d.last)
}

// failing appends the work to a list if it fails.
func (d *deed) failing(p *process, list []worker.Failing, doing worker.Doing, queue string) []worker.Failing {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since == 0 {
		return list
	}
	return append(list, worker.Failing{Doing: doing, Queue: queue, Since: p.began.Add(d.since), Obstacle: d.obstacle})
}

// deeds are the counts of the whole process. Each queue has its own for claims.
type deeds struct{ poll, heartbeat, commit deed }

// failing lists the work that fails, claims last, by queue.
func (p *process) failing() (list []worker.Failing) {
	list = p.deeds.poll.failing(p, list, worker.DoingPoll, "")
	list = p.deeds.heartbeat.failing(p, list, worker.DoingHeartbeat, "")
	list = p.deeds.commit.failing(p, list, worker.DoingCommit, "")
	fixed := len(list)
	for name, q := range p.queues {
		if q.paused.Load() {
			continue // nothing is claimed, and nothing succeeds
		}
		list = q.picks.failing(p, list, worker.DoingClaim, name)
	}
	slices.SortFunc(list[fixed:], func(a, b worker.Failing) int { return strings.Compare(a.Queue, b.Queue) })
	return list
}
