package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// site is an engine that the dashboard shows: the only one, or that of a place of a cluster. Each
// has lines of its own, so that what waits for one place holds up no other.
type site struct {
	place  int
	engine *engine.Engine
	turns  turns

	mu    sync.Mutex
	probe chan struct{} // open while the place is asked whether it answers; nil: nobody asks
	asked time.Time     // when that was known last
	down  error         // why it is left out
}

// NewCluster returns the handler of a dashboard of all places of a cluster: its pages have what is
// at any of them. A place that does not answer is left out, and the pages say so. The cluster need
// not be started, and has to outlive the handler.
//
// Errors: an *[OptionError] for each wrong field, joined.
func NewCluster(c *cluster.Cluster, o Options) (http.Handler, error) {
	s := &server{Options: o, cluster: c}
	for place := range c.Places() {
		s.sites = append(s.sites, &site{place: place, engine: c.Engine(place)})
	}
	return s.handler()
}

// downError is the error of what needs a place that does not answer.
type downError struct {
	place int
	err   error
}

func (e *downError) Error() string {
	return fmt.Sprintf("place %d does not answer: %v", e.place, e.err)
}

func (e *downError) Unwrap() error { return e.err }

// reach returns why a place is to be left out, nil if it answers. Whoever looks first waits for
// that, and so does everyone who looks an interval later. While a place is down it is asked beside
// the pages, and none of them waits for it.
func (s *server) reach(ctx context.Context, at *site) error {
	if s.cluster == nil {
		return nil
	}
	at.mu.Lock()
	if at.probe == nil && (at.asked.IsZero() || time.Since(at.asked) >= s.Refresh) {
		at.probe = make(chan struct{})
		go s.ask(context.WithoutCancel(ctx), at) // for all who look
	}
	probe, down := at.probe, at.down
	at.mu.Unlock()
	if probe == nil || down != nil {
		return down
	}
	select {
	case <-probe:
	case <-ctx.Done():
		return &downError{at.place, context.Cause(ctx)}
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.down
}

// ask finds out whether a place answers.
func (s *server) ask(ctx context.Context, at *site) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout/4) //nolint:mnd // the rest is for the others
	defer cancel()
	err := s.cluster.Reach(ctx, at.place)
	at.mu.Lock()
	defer at.mu.Unlock()
	if err != nil && at.down == nil {
		s.log.Warn("dashboard: a place is left out", slog.Int("place", at.place), slog.Any("error", err))
	}
	if at.asked, at.down = time.Now(), nil; err != nil {
		at.down = &downError{at.place, err}
	}
	close(at.probe)
	at.probe = nil
}

// lacks are the places that an answer is without.
type lacks struct {
	mu sync.Mutex
	of map[int]error
}

type lacksKey struct{}

func withLacks(ctx context.Context) context.Context {
	return context.WithValue(ctx, lacksKey{}, &lacks{of: map[int]error{}})
}

func (l *lacks) add(place int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[place] = err
}

func (l *lacks) has(place int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[place]
}

// lack is a place that is left out, and why.
type lack struct {
	Place int    `json:"place"`
	Why   string `json:"why"`
}

func lackOf(place int, err error) lack {
	_, text, _ := explain(err)
	if _, down := errors.AsType[*downError](err); !down {
		text = "Place " + strconv.Itoa(place) + ": " + text
	}
	return lack{place, text}
}

// lacking are the places that the answer of ctx is without so far.
func lacking(ctx context.Context) (all []lack) {
	l, _ := ctx.Value(lacksKey{}).(*lacks)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for place, err := range l.of {
		all = append(all, lackOf(place, err))
	}
	slices.SortFunc(all, func(a, b lack) int { return a.Place - b.Place })
	return all
}

// reached returns the places that answer, all asked side by side, and notes the others. An error
// says that there are none.
func (s *server) reached(ctx context.Context) (up []*site, err error) {
	if s.cluster == nil {
		return s.sites, nil
	}
	left, _ := ctx.Value(lacksKey{}).(*lacks)
	faults := make([]error, len(s.sites))
	var all sync.WaitGroup
	for n, at := range s.sites {
		if faults[n] = left.has(at.place); faults[n] == nil {
			all.Go(func() { faults[n] = s.reach(ctx, at) })
		}
	}
	all.Wait()
	for n, at := range s.sites {
		if faults[n] == nil {
			up = append(up, at)
			continue
		}
		left.add(at.place, faults[n])
	}
	if len(up) == 0 {
		return nil, errors.Join(faults...)
	}
	return up, nil
}

// found is what one of the engines answered.
type found[T any] struct {
	site  *site
	value T
}

// gather asks all engines side by side. With one, its error is the error. Of several, those that do
// not answer in half of the time are left out, unless all are; a wrong query is wrong at each.
func gather[T any](ctx context.Context, s *server, ask func(context.Context, *site) (T, error)) ([]found[T], error) {
	if s.cluster == nil {
		value, err := ask(ctx, s.sites[0])
		return []found[T]{{s.sites[0], value}}, err
	}
	up, err := s.reached(ctx)
	if err != nil {
		return nil, err
	}
	half, cancel := context.WithTimeout(ctx, s.Timeout/2) //nolint:mnd // the rest is for what follows
	defer cancel()
	answers, faults := make([]found[T], len(up)), make([]error, len(up))
	var all sync.WaitGroup
	for n, at := range up {
		all.Go(func() {
			defer func() { // net/http guards its own goroutines only
				if fault := recover(); fault != nil {
					faults[n] = fmt.Errorf("a read panicked: %v", fault)
				}
			}()
			answers[n].site = at
			answers[n].value, faults[n] = ask(half, at)
		})
	}
	all.Wait()
	left, _ := ctx.Value(lacksKey{}).(*lacks)
	var got []found[T]
	for n, at := range up {
		switch {
		case faults[n] == nil:
			got = append(got, answers[n])
		case ofInput(faults[n]):
			return nil, faults[n]
		default:
			s.log.Warn("dashboard: a place is left out", slog.Int("place", at.place), slog.Any("error", faults[n]))
			left.add(at.place, faults[n])
		}
	}
	if len(got) == 0 {
		return nil, errors.Join(faults...)
	}
	return got, nil
}

// ofInput reports whether an error says that the input is wrong, as it is to each place.
func ofInput(err error) bool {
	_, query := errors.AsType[*engine.QueryError](err)
	_, verb := errors.AsType[*engine.VerbError](err)
	return query || verb
}

// present leaves out the answers of places that are left out by now.
func present[T any](ctx context.Context, of []found[T]) []found[T] {
	left, _ := ctx.Value(lacksKey{}).(*lacks)
	if left == nil {
		return of
	}
	return slices.DeleteFunc(of, func(one found[T]) bool { return left.has(one.site.place) != nil })
}

// values are the answers alone.
func values[T any](of []found[T]) []T {
	all := make([]T, len(of))
	for n := range of {
		all[n] = of[n].value
	}
	return all
}

// home returns the engine at which an instance is: its id says so.
func (s *server) home(ctx context.Context, id fsm.ID) (*site, error) {
	if s.cluster == nil {
		return s.sites[0], nil
	}
	return s.at(ctx, cluster.PlaceOfID(id), engine.ErrNotFound)
}

// at returns the engine of a place that answers.
func (s *server) at(ctx context.Context, place int, absent error) (*site, error) {
	if place < 0 || place >= len(s.sites) {
		return nil, absent
	}
	return s.sites[place], s.reach(ctx, s.sites[place])
}

// placeOf reads the place that a form names. With one engine there is none to name.
func (s *server) placeOf(ctx context.Context, text string) (*site, error) {
	if s.cluster == nil {
		return s.sites[0], nil
	}
	place, err := strconv.Atoi(text)
	wrong := &misuse{http.StatusBadRequest, fmt.Sprintf("place: %q, 0 to %d.", cut(text, 20), len(s.sites)-1), "Say at which place: each has its own."}
	if err != nil {
		return nil, wrong
	}
	return s.at(ctx, place, wrong)
}

// mark is the number of a place for what is shown of several; nil: there is one engine.
func (s *server) mark(at *site) *int {
	if s.cluster == nil {
		return nil
	}
	return new(at.place)
}

// key is of what is shared by those who ask the same engine.
func (s *server) key(at *site, key string) string {
	if s.cluster == nil {
		return key
	}
	return strconv.Itoa(at.place) + " " + key
}
