package work

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/store"
)

// scoutMost bounds at how many rows in line one slice looks.
const scoutMost = 4000

// rushed is for how long a pass makes no room after its slices: until it has been through some
// hundred thousand keys, claims visit them.
const rushed = 1500 * time.Millisecond

// scouter looks at the keys of a queue's lines once claims meet so many blocked ones that they are
// cut off, tells the claims which to jump over, and looks again from time to time: see jumps. Until
// then, it sends nothing.
type scouter struct{ *process }

func (s *scouter) run() {
	for {
		wait := time.Hour
		now := s.since()
		for _, q := range s.queues {
			if d := q.jumps.until(now); d >= 0 {
				wait = min(wait, d)
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-s.draining:
			t.Stop()
			return
		case <-s.scout:
		case <-t.C:
		}
		t.Stop()
		for _, q := range s.queues {
			if !s.visit(q) {
				return
			}
		}
	}
}

// lookSoon has the scouter look soon at queues whose claims jump over keys: places have become free
// of which this process does not know at which keys.
func (p *process) lookSoon() {
	for _, q := range p.queues {
		if q.jumps.soon(p.since()) {
			wake(p.scout, true)
		}
	}
}

// Freed announces that an operator has set keys of gates free, or ended instances: those may have
// had places of gates for whole runs.
func (p *process) Freed(keys ...string) {
	for _, q := range p.queues {
		if q.jumps.until(0) >= 0 {
			q.jumps.open(keys...)
			q.nudge()
		}
	}
	if len(keys) == 0 {
		p.lookSoon()
	}
}

// visit makes a pass through the lines of a queue if one is due. It returns false if the worker
// drains.
func (s *scouter) visit(q *queue) bool {
	now := s.since()
	wanted := q.cut.Swap(false)
	if wanted && q.jumps.on(now) || q.jumps.until(now) == 0 {
		if err := s.pass(q); err != nil {
			s.trouble("look at the lines", err)
			q.jumps.soon(s.since())
			return s.pause(pace.Jittered(refileRetry))
		}
	}
	return !s.isDraining()
}

// pass looks at all keys in line of a queue.
func (s *scouter) pass(q *queue) error {
	var at store.Scouted
	var cost time.Duration
	soon := q.jumps.horizon()
	q.jumps.begin()
	defer q.jumps.end()
	keys, blocked, due := 0, 0, 0
	for more := true; more; more = at.Next != "" {
		from, began := at.Next, q.jumps.look()
		took, err := s.slice(s.looking, func(ctx context.Context) (err error) {
			at, err = s.db.Scout(ctx, q.name, from, scoutMost, at.Sparse, soon)
			return err
		})
		if err != nil {
			return err
		}
		q.jumps.found(from, &at, began, s.since())
		keys, blocked, due, cost = keys+at.Keys, blocked+at.Blocked, due+len(at.Due), cost+took
		if at.Next != "" && cost > rushed && !s.pause(took) {
			return nil
		}
	}
	if q.jumps.passed(blocked, cost, s.since()); keys > blocked || due > 0 {
		q.nudge() // the claim also learns when the time of the next key comes
	}
	return nil
}
