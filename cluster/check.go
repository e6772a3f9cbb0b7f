package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/migrations"
)

// FaultKind names what is wrong.
type FaultKind string

// These are the kinds, in the order in which [Cluster.Check] returns them.
const (
	FaultUnreachable FaultKind = "unreachable"           // a place does not answer
	FaultUnread      FaultKind = "unread"                // a place answers, and could not be read
	FaultSchema      FaultKind = "schema"                // the schema is missing, older or newer than this program
	FaultVersions    FaultKind = "differing-versions"    // schemas of different versions
	FaultRecord      FaultKind = "record"                // no record, or one of another place, number of places or cluster
	FaultTwice       FaultKind = "twice"                 // two places are one schema
	FaultIDs         FaultKind = "ids"                   // ids of another place, or a sequence that would give some
	FaultStrays      FaultKind = "strays"                // live instances and schedules that belong to other places
	FaultDefinitions FaultKind = "differing-definitions" // one version of a machine is stored differently
	FaultGates       FaultKind = "differing-gates"       // a gate is at some places only, or bounds differently there
	FaultPauses      FaultKind = "differing-pauses"      // a queue is paused at some places only
	FaultWorkers     FaultKind = "workers"               // a place has no worker, or none for a queue or machine that other places serve
)

// FaultKinds returns all kinds, in their order.
func FaultKinds() []FaultKind {
	return []FaultKind{
		FaultUnreachable, FaultUnread, FaultSchema, FaultVersions, FaultRecord, FaultTwice, FaultIDs, FaultStrays, FaultDefinitions, FaultGates, FaultPauses, FaultWorkers,
	}
}

// Fault is something that is wrong with one place, or that differs between several.
type Fault struct {
	Places  []int     `json:"places"` // the places that it concerns, in their order
	Kind    FaultKind `json:"kind"`
	Warning bool      `json:"warning"` // it may be intended, or pass by itself, e.g. during a deploy
	Seen    string    `json:"seen"`    // what Check found
	Do      string    `json:"do"`      // what to do about it
}

// Check looks for faults across the places, and returns them in the order of [FaultKinds]. It does
// not look for faults within one schema, such as expired leases: gendurable doctor finds those, and
// gendurable cluster check runs it at each place. The cluster need not be started.
//
// Check asks all places side by side, each for at most twice Patience, and reports a place that
// does not answer as a fault. Then it reads the tables of each server one after the other, each for
// at most Patience, to find instances and schedules that belong to other places.
func (c *Cluster) Check(ctx context.Context) []Fault {
	answers := side(c.places, func(p *place) (*PlaceStatus, error) { return p.status(ctx, c.patience), nil })
	statuses := c.compared(answers)
	all := make([]*sight, len(statuses))
	for i, a := range side(c.places, func(p *place) (*sight, error) { return p.look(ctx, c.patience, statuses[p.index]), nil }) {
		all[i] = a.value
	}
	c.lookForStrays(ctx, all)
	var found []Fault
	for _, s := range all {
		found = append(found, s.faults...)
	}
	for _, compare := range []func([]*sight) []Fault{versions, twice, definitions, gates, pauses, workers} {
		found = append(found, compare(all)...)
	}
	kinds := FaultKinds()
	slices.SortStableFunc(found, func(a, b Fault) int { return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind) })
	return found
}

// sight is what Check reads of a place, beside its status.
type sight struct {
	*PlaceStatus

	home        string // the same for two places only if they are one schema; "": not known
	definitions map[string]string
	gates       map[string]string
}

// notes adds a fault of this place alone.
func (s *sight) notes(kind FaultKind, seen, do string) {
	s.faults = append(s.faults, Fault{Places: []int{s.Place}, Kind: kind, Seen: seen, Do: do})
}

const (
	// homeSQL names the schema among all of all servers. A copy of a server has its own time of start.
	// $1 any table of the schema
	homeSQL = `SELECT concat_ws('/', extract(epoch FROM pg_catalog.pg_postmaster_start_time()), d.oid, c.relnamespace)
FROM pg_catalog.pg_database d, pg_catalog.pg_class c WHERE d.datname = current_database() AND c.oid = $1::text::regclass`

	storedSQL = `SELECT definition, graph::text FROM {s}.definitions`
)

// look reads what Check compares with other places. It does not ask a place again that the status
// found to be down.
func (p *place) look(ctx context.Context, patience time.Duration, status *PlaceStatus) *sight {
	s := &sight{PlaceStatus: status}
	if status.load == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unread := func(err error) { s.notes(FaultUnread, err.Error(), doLook) }
	if err := p.db.QueryRow(ctx, homeSQL, p.quoted("gen_durable")).Scan(&s.home); err != nil {
		unread(fmt.Errorf("read where the schema is: %w", err))
	}
	rows, err := p.db.Pool().Query(ctx, p.sql(storedSQL))
	if err == nil {
		var name, graph string
		s.definitions = map[string]string{}
		_, err = pgx.ForEachRow(rows, []any{&name, &graph}, func() error {
			s.definitions[name] = graph
			return nil
		})
	}
	if err != nil {
		unread(fmt.Errorf("read the definitions: %w", err))
	}
	if err = s.readGates(ctx, p); err != nil {
		unread(err)
	}
	return s
}

func (s *sight) readGates(ctx context.Context, p *place) error {
	list, err := p.engine.Admin().Gates(ctx)
	if err != nil {
		return err
	}
	s.gates = map[string]string{}
	for _, g := range list {
		text, err := json.Marshal(g.Gate)
		if err != nil {
			return err
		}
		s.gates[g.Name] = string(text)
	}
	return nil
}

// canceled is the code of a statement that was cut off.
const canceled = "57014"

// lookForStrays looks for instances and schedules of other places, one table of a server at a time,
// since it reads them from end to end.
func (c *Cluster) lookForStrays(ctx context.Context, all []*sight) {
	on := map[*pgxpool.Pool][]*sight{}
	for _, s := range all {
		misplaced := slices.ContainsFunc(s.faults, func(f Fault) bool { return f.Kind == FaultRecord })
		if s.load != nil && !misplaced { // else all that is there would be a stray
			pool := c.places[s.Place].db.Pool()
			on[pool] = append(on[pool], s)
		}
	}
	var servers sync.WaitGroup
	for _, there := range on {
		servers.Go(func() {
			for _, s := range there {
				if err := s.lookForStrays(ctx, c.places[s.Place], c.patience); err != nil {
					s.notes(FaultUnread, err.Error(), doLook)
				}
			}
		})
	}
	servers.Wait()
}

// lookForStrays reads the whole table. It has the server stop it after most.
func (s *sight) lookForStrays(ctx context.Context, p *place, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 2*most) //nolint:mnd // a server that does not answer keeps nothing
	defer cancel()
	var found strays
	err := pgx.BeginTxFunc(ctx, p.db.Pool(), pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, `SELECT pg_catalog.set_config('statement_timeout', $1, true)`, strconv.FormatInt(most.Milliseconds(), 10)); err != nil {
			return err
		}
		found, err = p.strays(ctx, tx)
		return err
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == canceled {
		s.notes(FaultUnread, fmt.Sprintf("not looked for what belongs to other places: the table takes longer than %v to read", most), "look again with more patience")
		return nil
	}
	if err != nil {
		return err
	}
	var seen []string
	if found.instances > 0 {
		seen = append(seen, fmt.Sprintf("%d live instances by their keys, the first is %d", found.instances, found.instance))
	}
	if found.schedules > 0 {
		seen = append(seen, fmt.Sprintf("%d schedules by their names, the first is %q", found.schedules, found.schedule))
	}
	if len(seen) > 0 {
		s.notes(FaultStrays, strings.Join(seen, "; ")+" belong to other places, where calls look for them",
			"who inserts here past the cluster? Let the instances end, or cancel them and insert them at the cluster; delete the schedules")
	}
	return nil
}

// versions compares how far the schemas are migrated.
func versions(all []*sight) []Fault {
	at := map[string][]int{}
	for _, s := range all {
		if s.Reached && s.Migrated.State != migrations.StateMissing {
			at[s.Migrated.Current] = append(at[s.Migrated.Current], s.Place)
		}
	}
	if len(at) < 2 { //nolint:mnd // all alike
		return nil
	}
	return []Fault{{Places: joined(at), Kind: FaultVersions, Seen: "schemas have " + grouped("version ", at), Do: "migrate all of them to one version: gendurable cluster init --migrate"}}
}

// twice looks for two places that are one schema, reached by two addresses.
func twice(all []*sight) (found []Fault) {
	at := map[string]*sight{}
	for _, s := range all {
		first := at[s.home]
		switch {
		case s.home == "":
		case first == nil:
			at[s.home] = s
		default:
			found = append(found, Fault{Places: []int{first.Place, s.Place}, Kind: FaultTwice,
				Seen: fmt.Sprintf("%s, schema %q, is place %d already, as %s", s.Server, s.Schema, first.Place, first.Server), Do: "name each schema once"})
		}
	}
	return found
}

// definitions compares the machines that programs have stored, version by version.
func definitions(all []*sight) []Fault {
	return differing(all, func(s *sight) map[string]string { return s.definitions }, func(name string, at map[string][]int, _ []int) (Fault, bool) {
		return Fault{Places: joined(at), Kind: FaultDefinitions, Warning: true, Seen: fmt.Sprintf("%s is stored with %s", name, alternatives("form", at)),
			Do: "run one program at all places; a deploy that is under way ends this, or start the program there again"}, len(at) > 1
	})
}

// gates compares what the gates bound.
func gates(all []*sight) []Fault {
	return differing(all, func(s *sight) map[string]string { return s.gates }, func(name string, at map[string][]int, lacking []int) (Fault, bool) {
		seen := fmt.Sprintf("gate %q has %s", name, alternatives("bound", at))
		if len(lacking) > 0 {
			seen += ", none at " + numbers(lacking)
		}
		return Fault{Places: sorted(append(joined(at), lacking...)), Kind: FaultGates, Warning: true, Seen: seen,
			Do: "gendurable gate set at each place, unless it is meant: a gate bounds its place only"}, len(at) > 1 || len(lacking) > 0
	})
}

// pauses compares the paused queues.
func pauses(all []*sight) []Fault {
	paused := func(s *sight) map[string]string {
		if s.load == nil {
			return nil
		}
		set := map[string]string{}
		for _, queue := range s.Paused {
			set[queue] = ""
		}
		return set
	}
	return differing(all, paused, func(name string, at map[string][]int, lacking []int) (Fault, bool) {
		return Fault{Places: joined(at), Kind: FaultPauses, Warning: true,
			Seen: fmt.Sprintf("queue %q is paused at %s, and not at %s", name, numbers(joined(at)), numbers(lacking)),
			Do:   "pause or resume it at all places: Admin.PauseQueue and ResumeQueue of the cluster do"}, len(lacking) > 0
	})
}

// workers compares which queues and machines the workers of each place serve.
func workers(all []*sight) (found []Fault) {
	var idle, busy []int
	for _, s := range all {
		switch {
		case s.load == nil:
		case s.Workers > 0:
			busy = append(busy, s.Place)
		default:
			idle = append(idle, s.Place)
		}
	}
	switch {
	case len(idle) == 0:
	case len(busy) == 0:
		found = append(found, Fault{Places: idle, Kind: FaultWorkers, Warning: true, Seen: "no live worker at any place", Do: "start the program, unless it is meant to stand"})
	default:
		found = append(found, Fault{Places: idle, Kind: FaultWorkers, Seen: fmt.Sprintf("no live worker at %s, but at %s", numbers(idle), numbers(busy)),
			Do: "can the program reach this place? Cluster.Pending and its log say why a place was not started"})
	}
	for _, of := range []struct {
		what  string
		names func(*engine.WorkerLoad) []string
	}{
		{"serves queue", func(w *engine.WorkerLoad) []string { return slices.Collect(maps.Keys(w.Queues)) }},
		{"registers", func(w *engine.WorkerLoad) []string { return w.Machines }},
	} {
		known := func(s *sight) map[string]string {
			if s.load == nil || s.Workers == 0 {
				return nil
			}
			set := map[string]string{}
			for i := range s.load.Workers {
				if w := &s.load.Workers[i]; serves(w) {
					for _, name := range of.names(w) {
						set[name] = ""
					}
				}
			}
			return set
		}
		found = append(found, differing(all, known, func(name string, at map[string][]int, lacking []int) (Fault, bool) {
			return Fault{Places: lacking, Kind: FaultWorkers, Warning: true,
				Seen: fmt.Sprintf("no live worker %s %s at %s, but at %s", of.what, name, numbers(lacking), numbers(joined(at))),
				Do:   "run one program at all places; a deploy that is under way ends this"}, len(lacking) > 0
		})...)
	}
	return found
}

// differing compares what places have by name, of those that could be read. judge gets the places
// by what they have under a name, and those that lack it.
func differing(all []*sight, of func(*sight) map[string]string, judge func(name string, at map[string][]int, lacking []int) (Fault, bool)) (found []Fault) {
	names := map[string]bool{}
	for _, s := range all {
		for name := range of(s) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := map[string][]int{}
		var lacking []int
		for _, s := range all {
			has := of(s)
			text, there := has[name]
			switch {
			case has == nil:
			case there:
				at[text] = append(at[text], s.Place)
			default:
				lacking = append(lacking, s.Place)
			}
		}
		if f, is := judge(name, at, lacking); is {
			found = append(found, f)
		}
	}
	return found
}

func sorted(of []int) []int {
	slices.Sort(of)
	return of
}

// joined returns the places of all groups.
func joined(at map[string][]int) (all []int) {
	for _, places := range at {
		all = append(all, places...)
	}
	return sorted(all)
}

// grouped says which places have what.
func grouped(what string, at map[string][]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(at)) {
		parts = append(parts, fmt.Sprintf("%s%s at %s", what, name, numbers(at[name])))
	}
	return strings.Join(parts, ", ")
}

// alternatives says which places have the same, without saying what.
func alternatives(what string, at map[string][]int) string {
	groups := slices.SortedFunc(maps.Values(at), slices.Compare)
	parts := make([]string, len(groups))
	for i, places := range groups {
		parts[i] = "one " + what + " at " + numbers(places)
		if i > 0 {
			parts[i] = "another at " + numbers(places)
		}
	}
	return strings.Join(parts, ", ")
}

// numbers names places.
func numbers(places []int) string {
	texts := make([]string, len(places))
	for i, n := range places {
		texts[i] = strconv.Itoa(n)
	}
	if len(places) == 1 {
		return "place " + texts[0]
	}
	return "places " + strings.Join(texts, ", ")
}
