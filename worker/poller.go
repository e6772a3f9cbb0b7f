package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// timeoutMost bounds one sweep of awaits that have timed out.
const timeoutMost = 1000

// poller looks for work for queues that found none. One statement covers all idle queues of the
// process, the await deadlines and the deadlines of instances. Only polling discovers that another
// process has inserted something (§6).
type poller struct {
	*process
	expiry    *expiry
	schedules *schedules

	empty    map[string]int           // number of polls in a row that found nothing for an idle queue
	next     map[string]time.Duration // when to look there again
	deadline time.Duration            // when to look for awaits that have timed out, and for instances over their deadline
	expires  time.Duration            // when to fail instances over their deadline, at the earliest
	strays   time.Duration            // when to look for strays again
	hands    time.Duration            // when to hand kept signals over again, at the earliest
	asked    bool                     // it is known which queues are paused
}

func newPoller(p *process, expiry *expiry, schedules *schedules) *poller {
	return &poller{process: p, expiry: expiry, schedules: schedules, empty: map[string]int{}, next: map[string]time.Duration{}}
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
	if p.gates.obey(p.since(), found.Gates, found.Lines) { // before obey, which lets the first claims go
		for _, q := range p.queues {
			q.nudge()
		}
	}
	p.obey(found.Paused)
	p.schedules.expect(found)
	if found.Strays {
		p.lookForStrays()
	}
	p.wakeSweeps(found.Rest, found.Skips)
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
	if found.Awaits && found.Deadline <= 0 {
		if err := p.timeOut(ctx); err != nil {
			return err
		}
	}
	if found.Keeping && now >= p.hands {
		began := p.since()
		if err := p.handOver(ctx); err != nil {
			p.trouble("hand kept signals over", err)
		}
		// A look at many keys takes long, and most are found without an occupant each time.
		p.hands = p.since() + sweepPace*(p.since()-began)
	}
	if found.Overdue && now >= p.expires {
		return p.expire(ctx)
	}
	return nil
}

// handOver gives kept signals to instances whose inserts have not taken them.
func (p *process) handOver(ctx context.Context) error {
	done, err := p.db.HandOver(ctx)
	p.reportRefused("hand signals over that were kept for a key", done.Refused)
	p.Nudge(done.Queues...)
	return err
}

// timeOut wakes the instances whose await has timed out.
func (p *process) timeOut(ctx context.Context) error {
	for round := 0; ; round++ {
		done, err := p.db.TimeOut(ctx, timeoutMost)
		if err != nil {
			return err
		}
		p.reportRefused("wake an instance whose await is over", done.Refused)
		p.Nudge(done.Queues...)
		if !more(len(done.Queues), timeoutMost, done.Refused, round) {
			return nil
		}
	}
}

// refusedRounds bounds how often one sweep continues because Postgres has refused rows.
const refusedRounds = 8

// more reports whether a sweep may have left rows: it was full, or it has just set rows apart that
// may have stood before others.
func more(done, most int, refused []store.Refused, round int) bool {
	return done >= most || len(refused) > 0 && round < refusedRounds
}

// sweepPace × the duration of a sweep of deadlines, or of a look for occupants of kept signals, is
// the least pause after it. One that passes over many rows takes long, and the next poll would find
// the same rows.
const sweepPace = 10

// expire fails the instances that are over their deadline.
func (p *poller) expire(ctx context.Context) error {
	began := p.since()
	err := p.expiry.sweep(ctx)
	p.expires = p.since() + sweepPace*(p.since()-began)
	return err
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
