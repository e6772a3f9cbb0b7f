package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Filter selects instances: all criteria that are given must hold. What can be listed can be operated on in bulk, by the same Filter.
//
// The zero Filter has no criterion. A list of it is of everything, for it changes nothing; a bulk verb selects nothing by it, unless All is
// set.
type Filter struct {
	Machine        string
	Version        int // 0: any
	Step           string
	Queue          string
	Status         []Status          // one of these
	Failure        []Failure         // one of these; only failed instances have one
	Key            Key               // the instance that occupies it
	KeyPrefix      string            // of the correlation key, also of instances that have left its scope
	PartitionKey   string            //
	Labels         map[string]string // it has all of these, and maybe others
	Parent         ID                // its children, of any round; 0: whoever it is a child of
	InsertedAfter  time.Time         // then or later; zero: any
	InsertedBefore time.Time         // earlier; zero: any
	All            bool              // of a bulk verb: also where no criterion is given
}

// Bounds of Query.Limit.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Query is a [Filter], an order and a place in it.
type Query struct {
	Filter

	OldestFirst bool   // by id, ascending; else descending: the newest first
	Limit       int    // of one page: 1 to MaxLimit; 0: DefaultLimit
	After       string // Page.Next of the page before, by a query with the same Filter and order; "": from the beginning
}

// Page is one part of a list.
//
// A page visits a bounded number of rows: where few of them match it is shorter than its limit, or empty, and goes on all the same. Only
// Next says whether it is the last.
type Page[S, R any] struct {
	Instances []Instance[S, R]
	Next      string // the cursor for Query.After; "": there is no more
}

// RawPage is one of instances whose machine is not known at compile time.
type RawPage = Page[json.RawMessage, json.RawMessage]

// Lister is what typed lists go through: *engine.Engine.
type Lister interface {
	// List reads one page.
	List(ctx context.Context, q Query) (RawPage, error)
	// All reads them one after the other.
	All(ctx context.Context, q Query) iter.Seq2[RawInstance, error]
	// Codec decodes what they return.
	Codec() Codec
}

// QueryError is a query that cannot be asked; nothing was sent.
type QueryError struct {
	Field string // e.g. "Limit", "Status[1]" or "After"
	Err   error  // what is wrong, with the bound
}

func (e *QueryError) Error() string { return fmt.Sprintf("query: %s: %v", e.Field, e.Err) }
func (e *QueryError) Unwrap() error { return e.Err }

// List reads one page of this machine's instances, of any version unless the query says which.
//
// Errors: a *[QueryError]; a [DecodeError] for each instance whose state or result does not fit, joined: the page holds all of them, with
// the rest filled in, and its cursor.
func (m Machine[S, R]) List(ctx context.Context, from Lister, q Query) (page Page[S, R], err error) {
	if q, err = m.only(q); err != nil {
		return page, err
	}
	raw, err := from.List(ctx, q)
	if err != nil {
		return page, err
	}
	page.Next = raw.Next
	var wrong []error
	for _, r := range raw.Instances {
		i, err := typed[S, R](from.Codec(), r)
		page.Instances = append(page.Instances, i)
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	return page, errors.Join(wrong...)
}

// All yields this machine's instances, page by page; see the method of the engine. One whose state or result does not fit comes with a
// [DecodeError] and the rest filled in, and the next one follows; any other error is the end, and comes with the zero Instance.
func (m Machine[S, R]) All(ctx context.Context, from Lister, q Query) iter.Seq2[Instance[S, R], error] {
	return func(yield func(Instance[S, R], error) bool) {
		q, err := m.only(q)
		if err != nil {
			yield(Instance[S, R]{}, err)
			return
		}
		for raw, err := range from.All(ctx, q) {
			var i Instance[S, R]
			if err == nil {
				i, err = typed[S, R](from.Codec(), raw)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// only asks for this machine.
func (m Machine[S, R]) only(q Query) (Query, error) {
	if q.Machine != "" && q.Machine != m.d.name {
		return q, &QueryError{"Machine", fmt.Errorf("%.80q, but the list is of machine %.80q", q.Machine, m.d.name)}
	}
	q.Machine = m.d.name
	return q, nil
}
