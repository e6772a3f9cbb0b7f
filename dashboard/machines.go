package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// machineRow is a version of a machine.
type machineRow struct {
	Machine string
	Version int
	Stored  bool
	Updated time.Time
	Counts  tally
}

// Path leads to the machine's page.
func (m *machineRow) Path() string { return machinePath(m.Machine, m.Version) }

// Instances leads to its instances.
func (m *machineRow) Instances() string {
	return "instances?" + url.Values{"machine": {m.Machine}, "version": {strconv.Itoa(m.Version)}}.Encode()
}

func machinePath(name string, version int) string {
	return "machine?" + url.Values{"name": {name}, "version": {strconv.Itoa(version)}}.Encode()
}

type machinesBody struct {
	Rows []*machineRow
	At   time.Time
}

func (s *server) machines(r *http.Request) (string, *page, error) {
	stored, counts, err := s.drawn(r.Context())
	if err != nil {
		return "", nil, err
	}
	return "machines", &page{Title: "Machines", Section: "machines", Refresh: 1, Body: &machinesBody{machineRows(stored, counts), counts.At}}, nil
}

// drawn reads what drawings are made of.
func (s *server) drawn(ctx context.Context) (mine []engine.StoredDefinition, counts engine.Counts, err error) {
	if counts, err = s.counts(ctx); err != nil {
		return nil, counts, err
	}
	stored, err := s.definitions(ctx)
	access := accessOf(ctx)
	for _, d := range stored {
		if access.defines(d.Machine) {
			mine = append(mine, d)
		}
	}
	return mine, counts, err
}

// machineRows lists what is stored or has instances, by name, the newest version first.
func machineRows(stored []engine.StoredDefinition, counts engine.Counts) (all []*machineRow) {
	type version struct {
		machine string
		number  int
	}
	known := map[version]*machineRow{}
	row := func(machine string, number int) *machineRow {
		v := version{machine, number}
		if known[v] == nil {
			known[v] = &machineRow{Machine: machine, Version: number}
			all = append(all, known[v])
		}
		return known[v]
	}
	for _, d := range stored {
		one := row(d.Machine, d.Version)
		one.Stored, one.Updated = true, d.UpdatedAt
	}
	for _, c := range counts.Counts {
		row(c.Machine, c.Version).Counts.add(c.Status, c.Count)
	}
	slices.SortFunc(all, func(a, b *machineRow) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(b.Version, a.Version))
	})
	return all
}

// machineBody is one version of a machine.
type machineBody struct {
	engine.Drawing

	Versions []*machineRow
	Figure   *figure
	Steps    []stepRow
	Failures []engine.StepFailure
	Ends     []engine.StepEdge // ways that led out of the machine
	Recorded bool              // the history knows something of this machine
	Unknown  string            // why the history could not be asked
	Days     int
	At       time.Time
	Mermaid  string
	DOT      string
	Path     string // of its instances
	Place    *int   // of a cluster, whose history is shown
	Others   []historyLink
}

// historyLink leads to the history of another place.
type historyLink struct {
	Place int
	Path  string
}

// stepRow is a step of a machine, with what the history says of it.
type stepRow struct {
	engine.StepCounts

	Tally tally
	Times *engine.StepTimes
	Path  string
}

// past is what the history says of a version of a machine.
type past struct {
	times    []engine.StepTimes
	edges    []engine.StepEdge
	failures []engine.StepFailure
}

func (s *server) machine(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	name := r.FormValue("name")
	stored, counts, err := s.drawn(ctx)
	if err != nil {
		return "", nil, err
	}
	b := &machineBody{At: counts.At}
	from, err := s.historian(ctx, r.FormValue("place"))
	if err != nil {
		return "", nil, err
	}
	for _, row := range machineRows(stored, counts) {
		if row.Machine == name {
			b.Versions = append(b.Versions, row)
		}
	}
	if len(b.Versions) == 0 {
		return "", nil, &misuse{
			http.StatusNotFound, fmt.Sprintf("No worker has registered a machine %q, and no instance of it exists.", cut(name, 100)),
			"A machine appears once a program that has it has started, or has inserted instances of it.",
		}
	}
	version := b.Versions[0].Version
	if text := r.FormValue("version"); text != "" {
		if version, err = strconv.Atoi(text); err != nil || !slices.ContainsFunc(b.Versions, func(m *machineRow) bool { return m.Version == version }) {
			return "", nil, &misuse{
				http.StatusNotFound, fmt.Sprintf("No worker has registered version %q of this machine, and no instance of it exists.", cut(text, 20)), "The page of the machine lists its versions.",
			}
		}
	}
	b.Drawing = engine.Draw(name, version, stored, counts.Counts)
	b.Path = "instances?" + url.Values{"machine": {name}, "version": {strconv.Itoa(version)}}.Encode()
	b.Mermaid, b.DOT = b.Graph.Mermaid(), b.Graph.DOT()
	b.Place = s.mark(from)
	for _, other := range s.sites {
		if other != from {
			b.Others = append(b.Others, historyLink{other.place, machinePath(name, version) + "&place=" + strconv.Itoa(other.place)})
		}
	}
	taken, err := s.recorded(ctx, from, b, version)
	if err != nil {
		return "", nil, err
	}
	if b.Figure = draw(b.Drawing, taken); b.Figure != nil {
		for n := range b.Figure.Boxes {
			b.Figure.Boxes[n].Path = b.Path + "&step=" + url.QueryEscape(b.Figure.Boxes[n].Step)
		}
	}
	return "machine", &page{Title: name, Section: "machines", Refresh: 1, Body: b}, nil
}

// historian returns the engine whose history is shown. Of several it is the one that the request
// names, or the first that answers, since durations of several places cannot be merged.
func (s *server) historian(ctx context.Context, place string) (*site, error) {
	if place != "" {
		return s.placeOf(ctx, place)
	}
	up, err := s.reached(ctx)
	if err != nil {
		return nil, err
	}
	return up[0], nil
}

// recorded reads the history of the steps of a machine, and returns which transitions have
// occurred; nil if nothing is recorded. The history does not have the queues and labels of
// instances, so readers who may see only some of these see nothing of it.
func (s *server) recorded(ctx context.Context, at *site, b *machineBody, version int) (taken map[[2]string]int64, err error) {
	const days = 7
	var p past
	if access := accessOf(ctx); access.Within.Queues == nil && len(access.Within.Labels) == 0 {
		p, err = heavy(ctx, s, at, fmt.Sprintf("past %s/%d", b.Machine, version), historyAge, func(ctx context.Context) (p past, err error) {
			o := engine.HistoryOptions{Version: version, Since: time.Now().Add(-days * 24 * time.Hour), Timeout: s.Timeout}
			if p.times, err = at.engine.StepTimes(ctx, b.Machine, o); err != nil || len(p.times) == 0 {
				return p, err
			}
			if p.edges, err = at.engine.StepEdges(ctx, b.Machine, o); err != nil {
				return p, err
			}
			p.failures, err = at.engine.StepFailures(ctx, b.Machine, o)
			return p, err
		})
	}
	if wrong, ok := errors.AsType[*engine.QueryError](err); ok { // more transitions than it reads
		b.Unknown, err = wrong.Error(), nil
	}
	if err != nil {
		return nil, err
	}
	b.Recorded, b.Days, b.Failures = len(p.times) > 0, days, p.failures
	if len(b.Failures) > 20 {
		b.Failures = b.Failures[:20]
	}
	times := map[string]*engine.StepTimes{}
	for n := range p.times {
		times[p.times[n].Step] = &p.times[n]
	}
	for _, step := range b.Drawing.Steps {
		row := stepRow{StepCounts: step, Times: times[step.Step], Path: b.Path + "&step=" + url.QueryEscape(step.Step)}
		for status, n := range step.Counts {
			row.Tally.add(status, n)
		}
		b.Steps = append(b.Steps, row)
	}
	if !b.Recorded {
		return nil, nil
	}
	taken = map[[2]string]int64{}
	for _, e := range p.edges {
		if e.To == "" {
			b.Ends = append(b.Ends, e)
			continue
		}
		taken[[2]string{e.From, e.To}] += e.Count
	}
	return taken, nil
}
