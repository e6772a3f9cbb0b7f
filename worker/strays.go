package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A stray is a claim whose step this process does not know, though it knows the machine and its
// version: a deploy was rolled back, or somebody forgot to give a machine a new version. It is set
// aside, as an instance of an unknown version is, without an attempt counted, and a process that
// knows the step claims it from there. See store/claim_stray.go.

// strayPoll is how often a worker looks for strays that it knows, while a poll says that there are
// any, in whatever queue.
const strayPoll = time.Second

// knows reports whether this process can run the step of a claim.
func (p *process) knows(c *step.Claim) bool {
	m := p.machines[machineKey{c.Machine, c.Version}]
	if m == nil {
		return false
	}
	_, ok := m.Steps[c.Step]
	return ok
}

// stepKeys lists the steps that this process knows.
func (p *process) stepKeys() (keys []store.StepKey) {
	for _, m := range p.config.Machines {
		for name := range m.Steps {
			keys = append(keys, store.StepKey{Machine: m.Name, Version: m.Version, Step: name})
		}
	}
	return keys
}

// withoutStrays returns the flights whose step this process knows, and gives the others back aside.
func (s *scheduler) withoutStrays(fs []*flight) []*flight {
	var strays []*flight
	fs = slices.DeleteFunc(fs, func(f *flight) bool {
		if s.knows(f.beat) {
			return false
		}
		strays = append(strays, f)
		return true
	})
	if len(strays) > 0 {
		s.loops.Go(func() {
			if s.claims.setAside(s.claiming, strays, ""); s.claiming.Err() != nil {
				return // Stop releases them
			}
			for _, f := range strays {
				s.flights.land(f)
			}
		})
	}
	return fs
}

// setAside gives claims back and sets their instances aside: at their step, or paused with what is
// wrong with their state.
func (c *claims) setAside(ctx context.Context, fs []*flight, fault string) {
	if fault == "" {
		c.reportStrays(fs)
	}
	c.back(ctx, fs, func(ctx context.Context, held []*step.Claim) (int, store.Promotion, error) {
		aside := make([]store.Aside, len(held))
		for i, one := range held {
			aside[i] = store.Aside{Claim: one, Fault: fault}
		}
		return c.db.SetAside(ctx, c.id, aside)
	})
}

// reportStrays logs the steps that this process does not know.
func (p *process) reportStrays(fs []*flight) {
	var steps []string
	for _, f := range fs {
		steps = append(steps, fmt.Sprintf("%s of %s", f.beat.Step, store.MachineID(f.beat.Machine, f.beat.Version)))
	}
	slices.Sort(steps)
	names := strings.Join(slices.Compact(steps), ", ")
	if p.quiet.first("stray " + names) {
		p.log.Warn("set instances aside whose step is not known here; a process that has it will run them",
			slog.String("queue", fs[0].beat.Queue), slog.String("steps", names))
	}
}

// lookForStrays makes the schedulers look, once in strayPoll, for strays that this process knows.
func (p *poller) lookForStrays() {
	now := p.since()
	if now < p.strays {
		return
	}
	p.strays = now + strayPoll
	for _, q := range p.queues {
		q.strays.Store(true)
		q.nudge()
	}
}
