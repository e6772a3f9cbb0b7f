package store

import (
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// A process that polls knows the gates, and inserts what is behind one straight into line there.
// That saves the update by which a claim would put it in line.
//
// What it knows may be out of date, and nothing depends on it. A row at a gate that is gone, or
// that concerns others by now, goes in front when a claim meets it in line: see lineSQL. A row at a
// gate that is not known yet is inserted in front, and a claim puts it in line. So does a row that
// is due later, one with a partition key, which has to be the head of its key to be in line, and
// one of a process that does not poll.

// knownGates are gates as they were at a time.
type knownGates struct {
	gates Gates
	at    time.Time
}

// knownFor is for how long a process goes by the gates that it has read.
const knownFor = 10 * time.Second

// lineUp puts specs in line that are behind a known gate.
func (s *Store) lineUp(c *specs, list []*step.Spec) {
	known := s.known.Load()
	if known == nil || len(known.gates) == 0 || time.Since(known.at) > knownFor {
		return
	}
	for i, x := range list {
		if c.lanes[i] != 0 || c.partitions[i] != nil || c.micros[i] != nil || c.times[i] != nil {
			continue
		}
		if key := known.gates.Of(x.Queue, x.Machine, x.Step, own[map[string]string](x.Labels), false); key != "" {
			if c.gates == nil {
				c.gates = make([]*string, c.len())
			}
			c.lanes[i], c.gates[i] = 3, &key
		}
	}
}

// insertLinedSQL is insertSQL with gates. $1 … $16 as insertRowsSQL $17 gates
var insertLinedSQL = strings.NewReplacer("eligible_at, pick_lane,", "eligible_at, pick_lane, gate,", "r.lane,", "r.lane, r.gate,",
	"unnest($16::bigint[]) AS life", "unnest($16::bigint[]) AS life, unnest($17::text[]) AS gate").Replace(insertSQL)
