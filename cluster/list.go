package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// allLimit is the limit of the pages of All.
const allLimit = 200

// List reads one page of the instances of all places that a query selects. It reads the list of
// each place by [engine.Engine.List], which is in the order of ids, and merges the lists by the
// times of insertion, by the clocks of the servers. An instance that exists and matches throughout
// appears exactly once, whatever else changes meanwhile.
//
// List leaves out a place that does not answer within Patience, and its error joins that place's
// *[PlaceError]; the page is complete for the others. Next remembers where each place's list
// stands, so that a later page has what was left out once the place answers again.
//
// Errors: a *[engine.QueryError]; the *[PlaceError] of each place that is left out, joined.
func (c *Cluster) List(ctx context.Context, q engine.Query) (engine.Page, error) {
	page, lacking, err := c.list(ctx, q, nil, nil)
	if err != nil {
		return engine.Page{}, err
	}
	return page, errors.Join(lacking...)
}

// ListAt is [Cluster.List] at the given places only, e.g. where others are known to be down. Next
// goes on with the others, too.
func (c *Cluster) ListAt(ctx context.Context, q engine.Query, places []int) (engine.Page, error) {
	page, lacking, err := c.list(ctx, q, nil, places)
	if err != nil {
		return engine.Page{}, err
	}
	return page, errors.Join(lacking...)
}

// All yields all instances that a query selects, by the pages of [Cluster.List]. Limit is the size
// of a page: 200 unless given. After is where to begin. All leaves out a place from the moment it
// does not answer, and yields the *[PlaceError]s of such places at the end, joined, with the zero
// instance. Any other error ends the sequence.
func (c *Cluster) All(ctx context.Context, q engine.Query) iter.Seq2[fsm.RawInstance, error] {
	return func(yield func(fsm.RawInstance, error) bool) {
		if q.Limit == 0 {
			q.Limit = allLimit
		}
		var without []*PlaceError
		for q := q; ; { // its own, since a sequence may be ranged over again
			page, lacking, err := c.list(ctx, q, without, nil)
			if err != nil {
				yield(fsm.RawInstance{}, err)
				return
			}
			without = append(without, PlaceErrors(errors.Join(lacking...))...)
			for _, i := range page.Instances {
				if !yield(i, nil) {
					return
				}
			}
			if q.After = page.Next; page.Next == "" {
				break
			}
		}
		if len(without) > 0 {
			errs := make([]error, len(without))
			for i, e := range without {
				errs[i] = e
			}
			yield(fsm.RawInstance{}, errors.Join(errs...))
		}
	}
}

// merged is one page in the making.
type merged struct {
	cluster *Cluster
	query   engine.Query
	limit   int // of the page
	lists   []*list
	out     []fsm.RawInstance
	lacking []error // the errors of places that are left out of this page
}

// list is the list of one place.
type list struct {
	place *place
	after string            // the cursor behind all of the pages that have been shown
	over  bool              // nothing follows
	rest  []fsm.RawInstance // the part of the page read that has not been shown
	next  string            // the Next of that page
	full  bool              // the page had as many instances as were asked for
	shown fsm.ID            // the last instance of the page that has been shown; 0: none
	short bool              // the page had fewer, and has been shown: the next call goes on
	down  bool              // the place is left out of this page

	searched time.Time // how far the page read has searched
}

// list reads a page. It treats the lists of the places in without as ended. If only is not nil, it
// does not advance the lists of other places.
func (c *Cluster) list(ctx context.Context, q engine.Query, without []*PlaceError, only []int) (page engine.Page, lacking []error, err error) {
	m := merged{cluster: c, query: q, limit: q.Limit, out: []fsm.RawInstance{}}
	if m.limit == 0 {
		m.limit = fsm.DefaultLimit
	}
	// Each place is likely to have its share of the page. If it has more, its next page is read.
	if places := len(c.places); m.limit > 0 && m.limit <= fsm.MaxLimit {
		m.query.Limit = min(m.limit, 2*m.limit/places+shareLeast) //nolint:mnd // twice its share
	}
	if err := m.begin(); err != nil {
		return page, nil, err
	}
	for _, e := range without {
		m.lists[e.Place].over = true
	}
	for i, l := range m.lists {
		l.down = only != nil && !slices.Contains(only, i)
	}
	if err := m.fill(ctx); err != nil {
		return page, nil, err
	}
	page.Instances, page.SearchedTo = m.out, m.searched()
	page.Next, err = m.cursor()
	return page, m.lacking, err
}

// shareLeast is how many instances are read of a place beside its share of a page.
const shareLeast = 10

// fill merges the lists of the places.
func (m *merged) fill(ctx context.Context) error {
	for len(m.out) < m.limit || m.limit < 0 {
		if err := m.read(ctx); err != nil {
			return err
		}
		var first *list
		for _, l := range m.lists {
			switch {
			case len(l.rest) > 0 && (first == nil || m.before(&l.rest[0], &first.rest[0])):
				first = l
			case len(l.rest) == 0 && l.short:
				return nil // it may go on with what comes first
			}
		}
		if first == nil {
			return nil
		}
		m.out = append(m.out, first.rest[0])
		first.shown, first.rest = first.rest[0].ID, first.rest[1:]
		first.turn()
	}
	return nil
}

// searched returns the time up to which all lists have been searched, if the page ended because the
// list of a place did not find enough.
func (m *merged) searched() (to time.Time) {
	if len(m.out) == m.limit {
		return to
	}
	for _, l := range m.lists {
		if l.short && len(l.rest) == 0 && (to.IsZero() || l.searched.After(to) != m.query.OldestFirst) {
			to = l.searched
		}
	}
	return to
}

// turn moves on to the next page once a page has been shown.
func (l *list) turn() {
	switch {
	case len(l.rest) > 0:
	case l.next == "":
		l.over = true
	default:
		l.after, l.shown, l.short = l.next, 0, !l.full
	}
}

// before reports whether an instance comes before another one of another place.
func (m *merged) before(a, b *fsm.RawInstance) bool {
	if m.query.OldestFirst {
		a, b = b, a
	}
	if c := a.InsertedAt.Compare(b.InsertedAt); c != 0 {
		return c > 0
	}
	return a.ID > b.ID
}

// read reads a page of each list that has nothing left to show.
func (m *merged) read(ctx context.Context) error {
	var empty []*place
	at := map[*place]*list{}
	for _, l := range m.lists {
		if len(l.rest) == 0 && !l.over && !l.short && !l.down {
			empty = append(empty, l.place)
			at[l.place] = l
		}
	}
	if len(empty) == 0 {
		return nil
	}
	answers, err := each(ctx, m.cluster, empty, func(ctx context.Context, p *place) (engine.Page, error) {
		q := m.query
		q.After = at[p].after
		return p.engine.List(ctx, q)
	})
	if err != nil {
		return err
	}
	for _, a := range answers {
		l := at[a.place]
		if a.err != nil {
			l.down = true
			m.lacking = append(m.lacking, a.err)
			continue
		}
		l.rest, l.next, l.shown, l.full = a.value.Instances, a.value.Next, 0, len(a.value.Instances) >= m.query.Limit
		l.searched = a.value.SearchedTo
		l.turn()
	}
	return nil
}

// cursor is where each place's list stands: the place's own cursor, or that the list is over.
type cursor struct {
	Query string   `json:"q"` // fingerprint: a cursor of another query would skip and repeat in silence
	Lists []string `json:"l"`
}

// ended stands for the cursor of a list that is over.
const ended = "-"

// fingerprint returns a hash of the query without the place to begin.
func (m *merged) fingerprint() (string, error) {
	text, err := json.Marshal(struct {
		Filter      engine.Filter `json:"filter"`
		OldestFirst bool          `json:"oldestFirst"`
	}{m.query.Filter, m.query.OldestFirst})
	if err != nil {
		return "", fmt.Errorf("encode a query: %w", err)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:8]), nil
}

// begin makes the lists of the query and its cursor. The children of an instance are at its place.
func (m *merged) begin() error {
	c := m.cluster
	for i, p := range c.places {
		parent := m.query.Parent
		m.lists = append(m.lists, &list{place: p, over: parent > 0 && PlaceOfID(parent) != i})
	}
	if m.query.After == "" {
		return nil
	}
	of, err := m.fingerprint()
	if err != nil {
		return err
	}
	bad := func(format string, a ...any) error {
		return &engine.QueryError{Field: "After", Err: fmt.Errorf(format, a...)}
	}
	var at cursor
	text, err := base64.RawURLEncoding.DecodeString(m.query.After)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	switch {
	case err != nil:
		return bad("damaged: want the Next of a page, as it was")
	case len(at.Lists) != len(m.lists):
		return bad("it comes from a cluster of %d places, and this one has %d", len(at.Lists), len(m.lists))
	case at.Query != of:
		return bad("it comes from a query with another Filter or order")
	}
	for i, l := range m.lists {
		if l.over = at.Lists[i] == ended; !l.over {
			l.after = at.Lists[i]
		}
	}
	return nil
}

// cursor encodes where the lists stand; "" if all are over.
func (m *merged) cursor() (string, error) {
	at := cursor{Lists: make([]string, len(m.lists))}
	goesOn := false
	for i, l := range m.lists {
		switch {
		case l.over:
			at.Lists[i] = ended
			continue
		case l.shown > 0:
			var err error
			if at.Lists[i], err = engine.CursorAt(m.query, l.next, l.shown); err != nil {
				return "", err
			}
		default:
			at.Lists[i] = l.after
		}
		goesOn = true
	}
	if !goesOn {
		return "", nil
	}
	var err error
	if at.Query, err = m.fingerprint(); err != nil {
		return "", err
	}
	text, err := json.Marshal(at)
	if err != nil {
		return "", fmt.Errorf("encode a cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}
