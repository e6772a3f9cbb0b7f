package store

import (
	"context"
	"time"
)

// Outside reports whether a store goes by itself.
func (s *Store) Outside() bool { return s.outside.lasts() }

// Outside reports whether all stores do.
func (c *Company) Outside() bool { return c.outside.lasts() }

// Outside reports whether a line does.
func (l *Line) Outside() bool { return l.outside.lasts() }

// Recover ends the absence of a store.
func (s *Store) Recover() { s.outside.until = s.outside.until.Add(-absentMost) }

// Wait sets how long rounds wait for those who come, and what a look may take that is not slow.
func (c *Company) Wait(gathers, slow time.Duration) { c.gathers, c.slow = gathers, slow }

// HoldTrunk takes the connection of the heartbeats until the test calls what it returns.
func (c *Company) HoldTrunk() (letGo func()) {
	c.trunk.take(context.Background())
	return c.trunk.give
}

// HoldRounds does so with the connection of the rounds.
func (c *Company) HoldRounds() (letGo func()) {
	c.looks.take(context.Background())
	return c.looks.give
}

// ThisRelease is the number of the release of this program.
const ThisRelease int32 = thisRelease

// NeedForGraphs lets graphs need workers of this release, as a later one may.
func (s *Store) NeedForGraphs(release int32) { s.graphsSince = release }
