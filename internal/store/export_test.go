package store

import (
	"context"
	"strings"
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

// Statement is one text that the store can send, for tests.
type Statement struct {
	File   string // its name in testdata/sql
	Name   string
	Text   string // in the schema gendurable
	Shards string // as on shards that are named as their tables
}

// Statements returns all of them.
func Statements() (list []Statement) {
	plain, shards := &rendering{quoted: `"gendurable"`}, onCitus(`"gendurable"`)
	for _, s := range statements {
		list = append(list, Statement{s.file(), s.name, plain.text(s), strings.ReplaceAll(shards.text(s), "_7", "")})
	}
	return list
}

// file returns the name of the file that has the statement's text.
func (s *statement) file() string {
	name := s.name
	if s.form != "" {
		name += "." + s.form
	}
	return strings.ReplaceAll(name, " ", "_") + ".sql"
}

// SQL returns the statement as this store sends it.
func (s *Store) SQL(file string) string {
	for _, one := range statements {
		if one.file() == file {
			return s.rendered.Load().text(one)
		}
	}
	panic(file)
}

// TurnKey is for tests that take the turn of a queue's claims by hand.
var TurnKey = turnKey
