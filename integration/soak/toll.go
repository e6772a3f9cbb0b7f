package soak

import (
	"fmt"
	"slices"
)

// faultKinds are the kinds of faults, and the rolling restart.
var faultKinds = []string{killed, stopped, restarted, cut, swallowed, unanswered, terminated, readOnly, exhausted, strange, frozen, rolled}

// cost returns how much a kind of fault has cost, and in which unit.
func (c *chaos) cost(kind string) (n int64, of string) {
	switch kind {
	case killed:
		return c.effects[killed].Load(), "steps interrupted"
	case stopped:
		return c.effects[stopped].Load(), "claims lost"
	case restarted:
		return c.effects[restarted].Load(), "connections lost"
	case cut:
		return c.proxy.counts.busy.Load(), "of them busy"
	case swallowed:
		return c.proxy.counts.swallowed.Load(), "bytes swallowed"
	case unanswered:
		return c.proxy.counts.unanswered.Load(), "commits took effect"
	case terminated:
		return int64(c.proxy.reported("57P01")), "errors 57P01"
	case readOnly:
		return int64(c.proxy.reported("25006")), "errors 25006"
	case exhausted:
		return c.effects[exhausted].Load(), "pools kept someone waiting"
	case strange:
		return c.effects[strange].Load(), "beside which others went on"
	case frozen:
		return c.effects[frozen].Load(), "sessions lost"
	default:
		return c.effects[kind].Load(), "ended in order"
	}
}

// missing returns the floors that are not reached yet, and the faults that had no effect.
func (c *chaos) missing(instances, signals int64) (what []string) {
	c.counts["instances"].Store(instances)
	c.counts["signals"].Store(signals)
	for kind, of180 := range floors {
		if got, want := c.counts[kind].Load(), int64(c.floor(kind, of180)); got < want {
			what = append(what, fmt.Sprintf("%s: %d of %d", kind, got, want))
		}
	}
	for _, kind := range faultKinds {
		if n, of := c.cost(kind); n == 0 {
			what = append(what, fmt.Sprintf("%s: without effect, 0 %s", kind, of))
		}
	}
	slices.Sort(what)
	return what
}

func (c *chaos) floor(kind string, of180 int) int {
	if kind == rolled { // it always restarts all of them
		return of180
	}
	return c.o.scaled(of180)
}
