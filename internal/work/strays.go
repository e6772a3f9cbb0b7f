package work

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A stray is a claim whose step this process does not know, though it knows the machine and its
// version: a deploy was rolled back, or a deploy forgot to give a machine a new version. It is set
// aside, as an instance of an unknown version is, without an attempt counted, and a process that
// knows the step claims it from there. See store/claim_stray.go.

// strayPoll is how often a worker looks for strays that it knows, while a poll says that there are
// any, in whatever queue.
const strayPoll = time.Second

// route is how the instances that stand at a step of some version run here.
type route struct {
	machine *step.Machine
	step    string            // of the machine
	chain   []*step.Migration // which convert the state; none: the version is the machine's
}

// routes returns the routes of all steps that this process knows. Where several registered versions
// take an instance, the newest does.
func routes(machines []*step.Machine) map[store.StepKey]*route {
	all := map[store.StepKey]*route{}
	add := func(at store.StepKey, r *route) {
		if known := all[at]; known == nil || known.machine.Version < r.machine.Version {
			all[at] = r
		}
	}
	for _, m := range machines {
		for name := range m.Steps {
			add(store.StepKey{Machine: m.Name, Version: m.Version, Step: name}, &route{machine: m, step: name})
		}
		for _, first := range m.From {
			chain := m.Chain(first.From)
			for name := range first.Steps {
				if to, ok := step.Arrives(chain, name); ok {
					add(store.StepKey{Machine: m.Name, Version: first.From, Step: name}, &route{machine: m, step: to, chain: chain})
				}
			}
		}
	}
	return all
}

// route returns how a claim runs here, or nil if this process does not know its step.
func (p *process) route(c *step.Claim) *route {
	return p.routes[store.StepKey{Machine: c.Machine, Version: c.Version, Step: c.Step}]
}

// knows reports whether this process can run the step of a claim.
func (p *process) knows(c *step.Claim) bool { return p.route(c) != nil }

// stepKeys lists the steps that this process knows.
func (p *process) stepKeys() []store.StepKey { return slices.Collect(maps.Keys(p.routes)) }

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
			s.claims.setAside(s.claiming, strays, "", s.landed)
		})
	}
	return fs
}

// setAside gives claims back and sets their instances aside: at their step, or paused with the
// fault of their state. over is as in giveBack.
func (c *claims) setAside(ctx context.Context, fs []*flight, fault string, over func(*flight)) {
	if fault == "" {
		c.reportStrays(fs)
	}
	c.back(ctx, fs, over, func(ctx context.Context, held []*step.Claim) (store.Released, error) {
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
