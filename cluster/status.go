package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrations"
)

// Record is what [Init] has recorded at a place.
type Record struct {
	Place   int       `json:"place"`   // its number, from 0
	Of      int       `json:"of"`      // how many places there are
	Cluster uuid.UUID `json:"cluster"` // one for all places of a cluster
}

// PlaceStatus describes the state of one place.
type PlaceStatus struct {
	Place   int    `json:"place"`
	Server  string `json:"server"` // host, port and database, as the place's pool has them
	Schema  string `json:"schema"`
	Reached bool   `json:"reached"` // the server has answered; if not, only Wrong is set below

	Migrated migrations.Status `json:"migrated"` // how far the schema is migrated
	Record   *Record           `json:"record"`   // nil: Init has recorded nothing there

	At      time.Time `json:"at,omitzero"`     // the server's clock; zero: Due to Paused are not known
	Due     int64     `json:"due"`             // due instances of all queues: runnable and not paused
	AtLeast bool      `json:"at_least"`        // Due is a lower bound, as in engine.QueueLoad
	Oldest  time.Time `json:"oldest,omitzero"` // since when the oldest of them is due; zero: none is
	Workers int       `json:"workers"`         // live workers that are not draining
	Paused  []string  `json:"paused"`          // the paused queues

	Counts map[fsm.Status]int64 `json:"counts"` // instances by status, with a zero where there are none; nil: not counted

	// Wrong says what is wrong: the place was not reached, was not read or counted to the end, or
	// cannot work because its schema is not current or its record names another place or cluster.
	Wrong []*PlaceError `json:"wrong"`

	load   *engine.Load
	faults []Fault
}

// StatusOptions selects what [Cluster.Status] reads. The zero value reads everything.
type StatusOptions struct {
	// NoCounts leaves out the counts by status, each of which reads a whole table.
	NoCounts bool
	// Counts are the options of [engine.Engine.Counts].
	Counts engine.CountsOptions
}

// Status asks all places side by side about their state. It returns what it has learned of each, in
// the order of the places, including those that are down or whose record is wrong. It waits for a
// place no longer than Patience, and for the counts in addition as long as o says. The cluster need
// not be started.
//
// Errors: a *[engine.QueryError].
func (c *Cluster) Status(ctx context.Context, o StatusOptions) ([]*PlaceStatus, error) {
	answers := side(c.places, func(p *place) (*PlaceStatus, error) { return p.status(ctx, c.patience), nil })
	if o.NoCounts {
		return c.compared(answers), nil
	}
	// After all else, since counts may keep the connections that places share for long.
	_, err := input(side(c.places, func(p *place) (struct{}, error) {
		s := answers[p.index].value
		if s.load == nil {
			return struct{}{}, nil
		}
		counts, err := p.engine.Counts(ctx, o.Counts)
		switch {
		case isInput(err):
			return struct{}{}, p.at(err)
		case err != nil:
			s.wrong(p, err)
		default:
			s.count(&counts)
		}
		return struct{}{}, nil
	}))
	if err != nil {
		return nil, err
	}
	return c.compared(answers), nil
}

// compared returns the answers of all places, and notes the places that are of another cluster.
func (c *Cluster) compared(answers []answer[*PlaceStatus]) []*PlaceStatus {
	all := make([]*PlaceStatus, len(answers))
	for i, a := range answers {
		all[i] = a.value
	}
	usual := usualRecord(all)
	for i, s := range all {
		if s.Record == nil {
			continue
		}
		r := record{s.Record.Place, s.Record.Of, s.Record.Cluster}
		if err := r.sameCluster(usual); err != nil {
			s.fault(c.places[i], FaultRecord, err, "take this place out, or the others: their instances were never of one cluster")
		}
	}
	return all
}

// usualRecord returns the first record of the cluster to which most places belong.
func usualRecord(all []*PlaceStatus) (usual record) {
	count := map[uuid.UUID]int{}
	for _, s := range all {
		if s.Record != nil {
			count[s.Record.Cluster]++
		}
	}
	for i, s := range all {
		if s.Record != nil && count[s.Record.Cluster] > count[usual.cluster] {
			usual = record{i, len(all), s.Record.Cluster}
		}
	}
	return usual
}

// doLook is the advice where a place could not be read.
const doLook = "give this role the right to look, or look again"

// wrong notes an error of a place.
func (s *PlaceStatus) wrong(p *place, err error) {
	s.Wrong = append(s.Wrong, PlaceErrors(p.at(err))...)
}

// fault notes an error of a place that Check reports, too.
func (s *PlaceStatus) fault(p *place, kind FaultKind, err error, do string) {
	s.wrong(p, err)
	s.faults = append(s.faults, Fault{Places: []int{p.index}, Kind: kind, Seen: err.Error(), Do: do})
}

// status reads everything but the counts.
func (p *place) status(ctx context.Context, patience time.Duration) *PlaceStatus {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &PlaceStatus{Place: p.index, Server: p.server(), Schema: p.schema, Paused: []string{}, Wrong: []*PlaceError{}}
	var err error
	if s.Migrated, err = migrations.ReadStatus(ctx, p.db, p.schema); err != nil {
		s.fault(p, FaultUnreachable, err, "is the server up, and the address right, with a role that may log in and read?")
		return s
	}
	s.Reached = true
	if unfit := (&migrations.SchemaError{Schema: p.schema, State: s.Migrated.State, Current: s.Migrated.Current, Latest: s.Migrated.Latest}); unfit.State != migrations.StateCurrent {
		s.fault(p, FaultSchema, fmt.Errorf("%w: %w", engine.ErrSchema, unfit), "gendurable cluster init --migrate, or migrate.Migrator.Up at this place")
	}
	if s.Migrated.State == migrations.StateMissing {
		return s
	}
	if err := p.readRecord(ctx, s); err != nil {
		s.fault(p, FaultUnread, err, doLook)
		return s
	}
	if s.Migrated.State != migrations.StateCurrent {
		return s
	}
	load, err := p.engine.Admin().Load(ctx)
	if err != nil {
		s.fault(p, FaultUnread, err, doLook)
		return s
	}
	s.see(&load)
	return s
}

// readRecord reads the record, and notes what is wrong with it.
func (p *place) readRecord(ctx context.Context, s *PlaceStatus) error {
	f, err := p.find(ctx, p.db)
	if err != nil {
		return err
	}
	r, recorded := parseRecord(f.comment)
	if recorded {
		s.Record = &Record{Place: r.place, Of: r.of, Cluster: r.cluster}
	}
	_, err = p.judge(f)
	switch {
	case err == nil:
	case recorded && r.of != p.of:
		s.fault(p, FaultRecord, err, "name as many places as there are, in their order: the number is fixed")
	case recorded && r.place != p.index:
		s.fault(p, FaultRecord, err, "name the places in their order, each with its own schema")
	case errors.Is(err, ErrUninitialised):
		s.fault(p, FaultRecord, err, "gendurable cluster init, or cluster.Init")
	default:
		s.fault(p, FaultIDs, err, "no place may give or hold the ids of another: was the sequence altered, or a table restored here that is of another place?")
	}
	return nil
}

func (s *PlaceStatus) see(load *engine.Load) {
	s.load, s.At = load, load.At
	for _, q := range load.Queues {
		s.Due += q.Due
		s.AtLeast = s.AtLeast || q.AtLeast
		if !q.OldestDue.IsZero() {
			s.Oldest = earliest(s.Oldest, q.OldestDue)
		}
		if !q.PausedSince.IsZero() {
			s.Paused = append(s.Paused, q.Queue)
		}
	}
	for _, w := range load.Workers {
		if serves(&w) {
			s.Workers++
		}
	}
}

func (s *PlaceStatus) count(counts *engine.Counts) {
	s.Counts = map[fsm.Status]int64{}
	for _, status := range fsm.Statuses() {
		s.Counts[status] = 0
	}
	for _, group := range counts.Counts {
		s.Counts[group.Status] += group.Count
	}
}

// serves reports whether a worker still claims.
func serves(w *engine.WorkerLoad) bool { return w.Live && !w.Draining }

// server names the server and the database.
func (p *place) server() string {
	to := p.db.Pool().Config().ConnConfig
	return net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))) + "/" + to.Database
}
