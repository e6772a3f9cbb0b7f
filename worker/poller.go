package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/store"
)

const (
	// timeoutMost bounds one sweep of awaits that are over.
	timeoutMost = 1000
	// expireMost bounds one of instances over their deadline: less, for it also holds their parents.
	expireMost = 200
)

// poller looks for work where a queue has found none: one statement for all idle queues of the process, the await deadlines and those of
// instances. Nothing tells it that another process has inserted something: discovery is polling (spec §6).
type poller struct {
	w        *Worker
	empty    map[string]int           // polls in a row that a queue has been idle
	next     map[string]time.Duration // when to look there again
	deadline time.Duration            // when to look for awaits that are over, and for instances over their deadline
	poisoned time.Duration            // of these Postgres refuses one: not to be tried before
	asked    bool                     // it is known which queues are paused
}

func newPoller(w *Worker) *poller {
	return &poller{w: w, empty: map[string]int{}, next: map[string]time.Duration{}}
}

func (p *poller) run() {
	failures := 0
	for p.w.pause(p.nap()) {
		idle := p.due()
		if idle == nil && p.w.since() < p.deadline {
			continue
		}
		if err := p.poll(idle); err != nil {
			failures++
			p.w.trouble("poll", err)
			if !p.w.pause(backoff(failures, 250*time.Millisecond, 5*time.Second)) {
				return
			}
			continue
		}
		failures = 0
		p.w.last.poll.now(p.w)
	}
}

// nap is how long until something may have to be looked at. A busy queue that falls idle is first polled after its PollMin.
func (p *poller) nap() time.Duration {
	if !p.asked {
		return 0
	}
	now := p.w.since()
	d := p.deadline - now
	for name, s := range p.w.queues {
		if s.idle.Load() && p.empty[name] > 0 {
			d = min(d, p.next[name]-now)
		} else {
			d = min(d, s.conf.PollMin)
		}
	}
	return max(d, time.Millisecond)
}

// due returns all idle queues if any of them is due: the others ride along, so that ten idle queues cost one statement.
func (p *poller) due() (idle []string) {
	now, look := p.w.since(), false
	for name, s := range p.w.queues {
		if !s.idle.Load() {
			p.empty[name] = 0
			continue
		}
		if p.empty[name] == 0 {
			p.empty[name], p.next[name] = 1, now+jittered(s.conf.PollMin)
		}
		look = look || p.next[name] <= now
		idle = append(idle, name)
	}
	if !look {
		return nil
	}
	return idle
}

func (p *poller) poll(idle []string) error {
	ctx, cancel := context.WithTimeout(p.w.looking, statementTimeout)
	defer cancel()
	found, err := p.w.db.Poll(ctx, idle, p.w.machineIDs)
	if err != nil {
		return err
	}
	p.obey(found.Paused)
	p.w.firesIn(found)
	now := p.w.since()
	for _, name := range idle {
		s := p.w.queues[name]
		at, ok := found.Due[name]
		if ok && at <= 0 {
			s.nudge()
			p.empty[name] = 0 // where there is work, more is expected
		}
		wait := jittered(min(s.conf.PollMax, s.conf.PollMin<<min(p.empty[name], 16)))
		if ok && at > 0 {
			wait = min(wait, at)
		}
		p.empty[name]++
		p.next[name] = now + wait
	}
	p.align(idle)
	p.deadline = now + deadlinePoll
	if found.Awaits && found.Deadline > 0 {
		p.deadline = now + min(found.Deadline, deadlinePoll)
	}
	if found.Awaits && found.Deadline <= 0 {
		if err := p.timeOut(ctx); err != nil {
			return err
		}
	}
	if found.Overdue && now >= p.poisoned {
		return p.expire(ctx)
	}
	return nil
}

// timeOut wakes the instances whose await is over.
func (p *poller) timeOut(ctx context.Context) error {
	for {
		queues, err := p.w.db.TimeOut(ctx, timeoutMost)
		if err != nil {
			return err
		}
		p.w.Nudge(queues...)
		if len(queues) < timeoutMost {
			return nil
		}
	}
}

// expire fails the instances that are over their deadline. A row that Postgres refuses to change is tried no more often than the reaper would:
// around one, each sweep goes row by row.
func (p *poller) expire(ctx context.Context) error {
	poisoned, err := p.w.expire(ctx)
	if poisoned {
		p.poisoned = p.w.since() + p.w.c.Reap
	}
	return err
}

// expire is a sweep of deadlines; poisoned: Postgres refused a row.
func (w *Worker) expire(ctx context.Context) (poisoned bool, err error) {
	for {
		r, err := w.db.Expire(ctx, uuid.NewString(), expireMost)
		if err != nil {
			return poisoned, err
		}
		if len(r.Failed) > 0 {
			w.log.Info("failed instances over their deadline", slog.Int("failed", len(r.Failed)))
		}
		for _, id := range r.Poisoned {
			poisoned = true
			w.log.Error("Postgres refuses to fail an instance over its deadline: it stays as it is until it is repaired by hand", slog.Int64("instance", id))
		}
		w.Nudge(r.Queues...)
		w.promotions.add(r.Missed)
		w.ended(r.Failed)
		for _, tell := range w.hooks.expire {
			w.survive(func() { tell(w.base, len(r.Failed)) })
		}
		if len(r.Failed) < expireMost {
			return poisoned, nil
		}
	}
}

// obey pauses the queues that are to be paused, and no others. Until the first poll, which is at once, all of them are: a process that is
// restarted over and over must not begin with a claim each time.
func (p *poller) obey(list []store.PausedQueue) {
	paused := map[string]bool{}
	for _, q := range list {
		paused[q.Queue] = true
	}
	for name, s := range p.w.queues {
		was := s.paused.Swap(paused[name])
		if was == paused[name] {
			continue
		}
		s.nudge()
		if p.asked {
			p.w.log.Info("a queue is paused, or resumed", slog.String("queue", name), slog.Bool("paused", paused[name]))
		}
	}
	p.asked = true
}

// deadlinePoll is the resolution of await timeouts and of the deadlines of instances, and how soon a process knows that a queue is paused,
// however busy its queues are.
const deadlinePoll = time.Second

// align lets queues that would be polled at nearly the same time be polled together.
func (p *poller) align(idle []string) {
	for _, name := range idle {
		for _, other := range idle {
			if d := p.next[other] - p.next[name]; d > 0 && d < p.w.queues[other].conf.PollMin {
				p.next[other] = p.next[name]
			}
		}
	}
}
