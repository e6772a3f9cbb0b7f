package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// poller looks for work for queues that found none, and for the sweeps. One statement covers all
// idle queues of the process, the await deadlines and the deadlines of instances. It does none of
// the work that it finds, so nothing keeps it from the next poll, by which gates and pauses are
// obeyed. Only polling discovers that another process has inserted something (§6).
type poller struct {
	*process
	schedules *schedules

	empty    map[string]int           // number of polls in a row that found nothing for an idle queue
	next     map[string]time.Duration // when to look there again
	deadline time.Duration            // when to look for awaits that have timed out, and for instances over their deadline
	strays   time.Duration            // when to look for strays again
	asked    bool                     // it is known which queues are paused
}

func newPoller(p *process, schedules *schedules) *poller {
	return &poller{process: p, schedules: schedules, empty: map[string]int{}, next: map[string]time.Duration{}}
}

func (p *poller) run() {
	failures := 0
	for p.pause(p.nap()) {
		idle := p.due()
		if idle == nil && p.since() < p.deadline {
			continue
		}
		if err := p.poll(idle); err != nil {
			failures++
			p.trouble("poll", err)
			p.deeds.poll.failed(p.process, err)
			if !p.pause(pace.Backoff(failures, 250*time.Millisecond, 5*time.Second)) {
				return
			}
			continue
		}
		failures = 0
		p.deeds.poll.succeeded(p.process)
	}
}

// nap returns the time until the poller has to look again. The first poll of a queue that falls
// idle comes after its PollMin.
func (p *poller) nap() time.Duration {
	if !p.asked {
		return 0
	}
	now := p.since()
	d := p.deadline - now
	for name, q := range p.queues {
		if q.idle.Load() && p.empty[name] > 0 {
			d = min(d, p.next[name]-now)
		} else {
			d = min(d, q.conf.PollMin)
		}
	}
	return max(d, time.Millisecond)
}

// due returns all idle queues if any of them is due. The others go along, so that ten idle queues
// cost one statement.
func (p *poller) due() (idle []string) {
	now, look := p.since(), false
	for name, q := range p.queues {
		if !q.idle.Load() {
			p.empty[name] = 0
			continue
		}
		if p.empty[name] == 0 {
			p.empty[name], p.next[name] = 1, now+p.config.Company.Until(q.conf.PollMin)
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
	ctx, cancel := context.WithTimeout(p.looking, statementTimeout)
	defer cancel()
	var lines []string
	if p.gates.look(p.since()) {
		lines = p.names()
	}
	found, err := p.db.Poll(ctx, idle, p.machineIDs, lines)
	if err != nil {
		return err
	}
	p.heard()
	granted := p.gates.grant(found.Own)
	if p.gates.obey(p.since(), found.Gates, found.Lines) || granted { // before obey, which lets the first claims go
		for _, q := range p.queues {
			q.jumps.forget()
			q.nudge()
		}
		wake(p.scout, true)
	}
	p.obey(found.Paused)
	p.schedules.expect(found)
	if found.Strays {
		p.lookForStrays()
	}
	p.wakeSweeps(found.Rest, found.Skips)
	wake(p.awaitsDue, found.Awaits && found.Deadline <= 0)
	wake(p.overdueDue, found.Overdue)
	wake(p.keptDue, found.Keeping)
	now := p.since()
	for _, name := range idle {
		q := p.queues[name]
		at, ok := found.Due[name]
		if ok && at <= 0 {
			q.nudge()
			p.empty[name] = 0 // a queue with work is likely to get more
		} else if found.Lines[name] {
			q.nudge() // a place may have become free in another process
		}
		if q.entered.Swap(false) {
			p.empty[name] = 0 // it has work, though no claim
		}
		wait := p.config.Company.Until(min(q.conf.PollMax, q.conf.PollMin<<min(p.empty[name], 16)))
		if ok && at > 0 {
			wait = min(wait, at)
		}
		p.empty[name]++
		p.next[name] = now + wait
	}
	p.align(idle)
	p.deadline = now + deadlinePoll
	if p.config.Company != nil {
		p.deadline = now + p.config.Company.Until(deadlinePoll)
	}
	if found.Awaits && found.Deadline > 0 {
		p.deadline = min(p.deadline, now+found.Deadline)
	}
	return nil
}

// obey pauses the queues in list, and resumes the others. Until the first poll, which is immediate,
// all queues are paused: a process that restarts over and over must not begin with a claim each
// time.
func (p *poller) obey(list []store.PausedQueue) {
	paused := map[string]bool{}
	for _, one := range list {
		paused[one.Queue] = true
	}
	for name, q := range p.queues {
		was := q.paused.Swap(paused[name])
		if was == paused[name] {
			continue
		}
		q.nudge()
		if p.asked {
			p.log.Info("a queue is paused, or resumed", slog.String("queue", name), slog.Bool("paused", paused[name]))
		}
	}
	p.asked = true
}

// deadlinePoll is the resolution of await timeouts and of instances' deadlines. It is also how soon
// a process learns that a queue is paused, however busy its queues are.
const deadlinePoll = time.Second

// align gives queues that are due at nearly the same time the same time, so that they share a poll.
func (p *poller) align(idle []string) {
	for _, name := range idle {
		for _, other := range idle {
			if d := p.next[other] - p.next[name]; d > 0 && d < p.queues[other].conf.PollMin {
				p.next[other] = p.next[name]
			}
		}
	}
}
