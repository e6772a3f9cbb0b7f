package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Filter selects instances that meet all of the given criteria. Lists and bulk verbs take the same
// Filter.
//
// The zero Filter has no criterion. A list by it returns everything, for a list changes nothing; a
// bulk verb selects nothing by it, unless All is set.
type Filter struct {
	Machine        string
	Version        int // 0: any version
	Step           string
	Queue          string
	Status         []Status          // one of these; none: any
	Failure        []Failure         // one of these; none: any; only failed instances have one
	Key            Key               // selects the instance that occupies it; "": any
	KeyPrefix      string            // of the correlation key, also of instances that have left its scope; "": any
	PartitionKey   string            //
	Labels         map[string]string // the instance has all of these, and maybe others
	Parent         ID                // selects the children of this instance, of any round; 0: any
	ErrorText      string            // a part of the last error, in upper or lower case, of at most MaxErrorText bytes; "": any
	Fingerprint    string            // selects exactly the failed instances of a group of engine.Failures; "": any
	InsertedAfter  time.Time         // at this time or later; zero: any
	InsertedBefore time.Time         // before this time; zero: any
	All            bool              // a bulk verb without any other criterion selects every instance
	Within         Bounds            // nothing outside of these is selected; they are no criterion of a bulk verb
}

// The default and the bound of Query.Limit.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// MaxErrorText is the bound of Filter.ErrorText, in bytes.
const MaxErrorText = 256

// Query is a [Filter], an order and a position in that order.
type Query struct {
	Filter

	OldestFirst bool   // by ascending id; else by descending id, the newest first
	Outline     bool   // leaves out State, Result and Progress of the instances, and reads none of them; not of a typed list
	Limit       int    // instances of one page: 1 to MaxLimit; 0: DefaultLimit
	After       string // Page.Next of the previous page of a query with the same Filter and order; "": from the beginning
}

// Page is one part of a list.
//
// A page visits a bounded number of rows, for a bounded time. Where few of them match, it is
// shorter than the limit, or empty, though the list goes on. Only Next says whether a page is the
// last.
type Page[S, R any] struct {
	Instances []Instance[S, R] `json:"instances"`
	Next      string           `json:"next,omitempty"` // the cursor for Query.After; "": this is the last page
	// SearchedTo is set if the page is shorter than the limit though the list goes on: the page has
	// searched up to instances that were inserted at this time.
	SearchedTo time.Time `json:"searched_to,omitzero"`
}

// RawPage is a page of instances whose machine is not known at compile time.
type RawPage = Page[json.RawMessage, json.RawMessage]

// Lister is what typed lists need of an engine; *engine.Engine implements it.
type Lister interface {
	// List reads one page.
	List(ctx context.Context, q Query) (RawPage, error)
	// All reads all pages, one after the other.
	All(ctx context.Context, q Query) iter.Seq2[RawInstance, error]
	// Codec returns the codec that decodes the states and results that List and All return.
	Codec() Codec
}

// QueryError is the fault of a query. Nothing was sent to Postgres.
type QueryError struct {
	Field string // e.g. "Limit", "Status[1]" or "After"
	Err   error  // the fault, with the bound
}

func (e *QueryError) Error() string { return fmt.Sprintf("query: %s: %v", e.Field, e.Err) }

// Unwrap returns the fault.
func (e *QueryError) Unwrap() error { return e.Err }

// List reads one page of this machine's instances, of any version unless the query names one.
//
// It returns a *[QueryError] if the query is wrong. If the state or result of some instances does
// not fit, or is one of a version that this one does not read, it returns a [DecodeError] or a
// *[VersionError] for each of them, joined, and the whole page with its cursor: only the fields
// that did not decode are zero.
func (m *Machine[S, R]) List(ctx context.Context, from Lister, q Query) (page Page[S, R], err error) {
	if q, err = m.d.only(q); err != nil {
		return page, err
	}
	raw, err := from.List(ctx, q)
	if err != nil {
		return page, err
	}
	page.Next, page.SearchedTo = raw.Next, raw.SearchedTo
	var wrong []error
	known := definition(from, &m.d)
	for j := range raw.Instances {
		i, err := typed[S, R](&m.d, known, from.Codec(), &raw.Instances[j])
		page.Instances = append(page.Instances, i)
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return page, errors.Join(wrong...)
}

// All yields this machine's instances, page by page, like the engine's method of that name. An
// instance whose state or result does not fit, or is of a version that this one does not read,
// comes with a [DecodeError] or a *[VersionError] and the rest of its fields, and the next instance
// follows. Any other error comes with the zero Instance and ends the sequence.
//
//go:noinline
func (m *Machine[S, R]) All(ctx context.Context, from Lister, q Query) iter.Seq2[Instance[S, R], error] {
	return func(yield func(Instance[S, R], error) bool) {
		q, err := m.d.only(q)
		if err != nil {
			yield(Instance[S, R]{}, err)
			return
		}
		known := definition(from, &m.d)
		for raw, err := range from.All(ctx, q) {
			var i Instance[S, R]
			if err == nil {
				i, err = typed[S, R](&m.d, known, from.Codec(), &raw)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// only restricts q to this machine.
func (d *declaration) only(q Query) (Query, error) {
	if q.Machine != "" && q.Machine != d.name {
		return q, &QueryError{"Machine", fmt.Errorf("%.80q, but the list is of machine %.80q", q.Machine, d.name)}
	}
	if q.Outline {
		return q, &QueryError{"Outline", errors.New("a typed list has states and results; use the list of the engine")}
	}
	q.Machine = d.name
	return q, nil
}
