package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// An insert puts an instance behind a known gate straight into line there. That saves the update
// by which a claim would put it in line: a third of all writes in the life of a row.
//
// A process that polls knows the gates by that. Another reads them along with its inserts, in the
// same round trip, no more often than every five seconds: the first inserts of a process go in
// front. Only a large insert reads them before, in separate round trips, which are nothing beside
// so many rows: see learnFirst. Its role may lack the right to read gates, which no insert needs.
// So it asks first whether it has that right: a statement that fails would abort the insert, and
// the host's transaction.
//
// The process' knowledge may be out of date, by a poll or by a transaction that commits much
// later, and nothing depends on it: an insert takes no place and pays for nothing, only a claim
// does.
//
//   - A row at a gate that is not known yet is inserted in front, and a claim that knows of the
//     gate puts it in line instead of claiming it: see gatedSQL. That is so whether the gate was
//     stored before or after the insert has read the gates, or has begun. So it is with a row that
//     is due later, and with one with a partition key, which has to be the head of its key to be
//     in line.
//   - A row at a gate that is gone, or that concerns others by now, is in line at the wrong gate.
//     A claim takes nothing from a line before it has found that the row's gate is still this one.
//     It sends the row to the front otherwise, and there it is decided anew: see act front of
//     lineSQL.
//   - Who claims finds the row: he looks at the lines of a queue as long as some gate concerns it,
//     or a poll has found that instances are in line there. If there is no gate at all, polls look
//     all the same every half a minute.

// knownGates are gates as they were at a time.
type knownGates struct {
	gates Gates
	at    time.Time
}

// knownFor is for how long a process goes by the gates that it has read.
const knownFor = 10 * time.Second

// learnEvery is how often a process that inserts and does not poll reads the gates.
const learnEvery = knownFor / 2

// learnedFirst is how many rows make an insert so large that it reads the gates before.
const learnedFirst = 1000

var (
	// mayReadSQL tells whether the role may read gates. The catalog is there for everybody. $1 schema
	mayReadSQL = named("may read gates", `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'gates' AND has_table_privilege(c.oid, 'SELECT'))`)

	knownSQL = named("known gates", `SELECT `+gateColumns+` FROM {s}.gates r`)
)

// learner decides when inserts read the gates.
type learner struct {
	may  atomic.Bool  // the role may read them
	next atomic.Int64 // when, in ns since the epoch
}

// learn returns a statement that belongs into a transaction that inserts, or none: it reads the
// gates if what is known of them is of some time ago. The answer is for the inserts after this one.
// One of those that insert at a time sends it.
func (s *Store) learn() []entpgx.Stmt {
	if known := s.known.Load(); known != nil && time.Since(known.at) < learnEvery {
		return nil
	}
	began, next := time.Now(), s.learner.next.Load()
	if began.UnixNano() < next || !s.learner.next.CompareAndSwap(next, began.Add(learnEvery).UnixNano()) {
		return nil
	}
	if !s.learner.may.Load() {
		return []entpgx.Stmt{s.stmt(mayReadSQL, func(rows pgx.Rows) error {
			var may bool
			_, err := pgx.ForEachRow(rows, []any{&may}, func() error { return nil })
			if err == nil && may {
				s.learner.may.Store(true)
				s.learner.next.Store(0)
			}
			return err
		}, s.schema)}
	}
	return []entpgx.Stmt{s.stmt(knownSQL, func(rows pgx.Rows) error {
		var gates Gates
		var gate gateRow
		_, err := pgx.ForEachRow(rows, gate.into(), func() error { gates = append(gates, gate.gate()); return nil })
		if err == nil {
			s.known.Store(&knownGates{gates, began})
		}
		return err
	})}
}

// learnFirst reads the gates before a large insert if they are not known. So not even the first
// insert of a process puts thousands of rows in front, each of which a claim would have to put in
// line. It takes one round trip, and one more for the right to read them. Where that fails, the
// insert goes on without: if there is a reason, the insert meets it, too.
func (s *Store) learnFirst(ctx context.Context, c *specs) {
	for range 2 {
		if known := s.known.Load(); c.len() < learnedFirst || known != nil && time.Since(known.at) < knownFor {
			break
		}
		ask := s.learn()
		if ask == nil || s.transaction(ctx, fastLock, ask...) != nil {
			return
		}
		s.lineUp(c)
	}
}

// unlearn makes the next inserts ask for the right again: the one that failed may have lost it. If
// it lacked a right, they do not look for kept signals either.
func (s *Store) unlearn(err error) {
	s.learner.may.Store(false)
	if IsRefused(err) {
		s.looks.Store(false)
	}
}

// arrange prepares specs for their insertion: it puts them in line behind their partition key, or
// at a known gate.
func (s *Store) arrange(c *specs) {
	c.chain()
	s.lineUp(c)
}

// lineUp puts specs in line that are behind a known gate.
func (s *Store) lineUp(c *specs) {
	known := s.known.Load()
	if known == nil || len(known.gates) == 0 || time.Since(known.at) > knownFor {
		return
	}
	for i := range c.uids {
		if c.lanes[i] != laneFront || c.partitions[i] != nil || c.micros[i] != nil || c.times[i] != nil {
			continue
		}
		labels := own[map[string]string]([]byte(text(c.labels[i])))
		if key := known.gates.Of(c.queues[i], c.machines[i], c.steps[i], labels, false); key != "" {
			if c.gates == nil {
				c.gates = make([]*string, c.len())
			}
			c.lanes[i], c.gates[i] = laneLine, &key
		}
	}
}
