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
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// site is an engine that the dashboard shows: the only one, or the engine of one place of a
// cluster. Each site has its own queues (turns), so that requests that wait for one place do not
// hold up another.
type site struct {
	place  int
	engine *engine.Engine
	turns  turns

	counting atomic.Int64 // how long the last count took, a time.Duration

	mu    sync.Mutex
	probe chan struct{} // open while the place is asked whether it answers; nil: nobody asks
	asked time.Time     // when that was known last
	down  error         // why it is left out
}

// NewCluster returns the handler of one dashboard for all places of a cluster. Its pages show the
// instances of all places. They leave out a place that does not answer, and say so. The cluster
// need not be started. Do not stop it before the handler.
//
// Errors: an *[OptionError] for each wrong field, joined.
func NewCluster(c *cluster.Cluster, o Options) (http.Handler, error) {
	s := &server{Options: o, cluster: c}
	for place := range c.Places() {
		s.sites = append(s.sites, &site{place: place, engine: c.Engine(place)})
	}
	return s.handler()
}

// downError is the error of a request that needs a place which does not answer.
type downError struct {
	place int
	err   error
}

func (e *downError) Error() string {
	return fmt.Sprintf("place %d does not answer: %v", e.place, e.err)
}

func (e *downError) Unwrap() error { return e.err }

// reach returns nil if a place answers, and otherwise why it is left out. The first request waits
// for the answer, and so do those that come an interval later. While a place is down, it is asked
// in the background, and no request waits for it.
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

// lacks has the places that an answer leaves out.
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

// lack is a place that an answer leaves out, and why.
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

// lacking returns the places that the answer of ctx leaves out so far.
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

// reached asks all places side by side, returns those that answer, and notes the others. It returns
// an error if none answers.
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

// found is the answer of one engine.
type found[T any] struct {
	site  *site
	value T
}

// gather asks all engines side by side. If there is only one, gather returns its error. Of several,
// it leaves out those that do not answer within half of the time limit, unless that is all of them.
// An error about the input is returned, since every place has the same.
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

// ofInput reports whether an error is about the input, so that every place returns it.
func ofInput(err error) bool {
	_, query := errors.AsType[*engine.QueryError](err)
	_, verb := errors.AsType[*engine.VerbError](err)
	return query || verb
}

// present removes the answers of places that have been left out since.
func present[T any](ctx context.Context, of []found[T]) []found[T] {
	left, _ := ctx.Value(lacksKey{}).(*lacks)
	if left == nil {
		return of
	}
	return slices.DeleteFunc(of, func(one found[T]) bool { return left.has(one.site.place) != nil })
}

// values returns the answers without their places.
func values[T any](of []found[T]) []T {
	all := make([]T, len(of))
	for n := range of {
		all[n] = of[n].value
	}
	return all
}

// home returns the engine of the place that the id of an instance carries.
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

// placeOf reads the place that a form names. With one engine a form names none.
func (s *server) placeOf(ctx context.Context, text string) (*site, error) {
	if s.cluster == nil {
		return s.sites[0], nil
	}
	place, err := strconv.Atoi(text)
	wrong := &misuse{http.StatusBadRequest, fmt.Sprintf("place: %q, want 0 to %d.", cut(text, 20), len(s.sites)-1), "Name the place: each has its own queues, schedules and limits."}
	if err != nil {
		return nil, wrong
	}
	return s.at(ctx, place, wrong)
}

// mark returns the number of a place, to show beside what it has; nil if there is only one engine.
func (s *server) mark(at *site) *int {
	if s.cluster == nil {
		return nil
	}
	return new(at.place)
}

// key returns the key under which readers of the same engine share an answer.
func (s *server) key(at *site, key string) string {
	if s.cluster == nil {
		return key
	}
	return strconv.Itoa(at.place) + " " + key
}
