package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/store"
)

// Filter selects instances: for [Engine.List] and [Admin.Bulk].
type Filter = fsm.Filter

// Bounds are the part of all instances within which a read or a verb stays.
type Bounds = fsm.Bounds

// Where returns the predicates of a filter, for queries through [Engine.Ent] and
// [Engine.HasInstance]. Filter.All makes no difference: the zero Filter has no predicates, and so
// selects everything.
//
// Errors: a *[QueryError].
func Where(f Filter) ([]predicate.Instance, error) {
	c, _, err := criteria(&f)
	if err != nil {
		return nil, err
	}
	return query.Where(&c), nil
}

// QueryError is a query that cannot be asked; nothing was sent.
type QueryError = fsm.QueryError

func badQuery(field, format string, args ...any) error {
	return &QueryError{Field: field, Err: fmt.Errorf(format, args...)}
}

// criteria checks a filter. some: there is a criterion. Errors: a *[QueryError].
func criteria(f *Filter) (c store.Filter, some bool, err error) {
	for _, name := range []struct{ field, text string }{
		{"Machine", f.Machine}, {"Step", f.Step}, {"Queue", f.Queue}, {"Key", string(f.Key)}, {"KeyPrefix", f.KeyPrefix},
		{"PartitionKey", f.PartitionKey},
	} {
		if name.text == "" {
			continue
		}
		if err := checkName(name.text, fsm.MaxNameBytes); err != nil {
			return c, false, badQuery(name.field, "%w", err)
		}
	}
	if f.ErrorText != "" {
		if err := checkName(f.ErrorText, fsm.MaxErrorText); err != nil {
			return c, false, badQuery("ErrorText", "%w", err)
		}
	}
	switch {
	case f.Fingerprint != "" && store.FingerprintOf(f.Fingerprint) == nil:
		return c, false, badQuery("Fingerprint", "%.80q, want 16 hexadecimal digits in lower case, as Failures returns them", f.Fingerprint)
	case f.Version < 0:
		return c, false, badQuery("Version", "%d, at least 1", f.Version)
	case f.Version > math.MaxInt32:
		return c, false, badQuery("Version", "%d, at most %d", f.Version, math.MaxInt32)
	case f.Parent < 0:
		return c, false, badQuery("Parent", "%d, at least 1", f.Parent)
	}
	c = store.Filter{Machine: f.Machine, Version: f.Version, Step: f.Step, Queue: f.Queue, Key: string(f.Key), KeyPrefix: f.KeyPrefix,
		PartitionKey: f.PartitionKey, Parent: int64(f.Parent), ErrorText: f.ErrorText, Fingerprint: f.Fingerprint}
	for i, s := range f.Status {
		if !slices.Contains(fsm.Statuses(), s) {
			return c, false, badQuery(fmt.Sprintf("Status[%d]", i), "%.80q is no status, want one of %s", string(s), listed(fsm.Statuses()))
		}
		c.Statuses = append(c.Statuses, string(s))
	}
	for i, k := range f.Failure {
		if !slices.Contains(failures, k) {
			return c, false, badQuery(fmt.Sprintf("Failure[%d]", i), "%.80q is no kind of failure, want one of %s", string(k), listed(failures))
		}
		c.Failures = append(c.Failures, string(k))
	}
	// One text of each set: a cursor is of the same query however they were written.
	c.Statuses, c.Failures = set(c.Statuses), set(c.Failures)
	if c.InsertedAfter, err = instant("InsertedAfter", f.InsertedAfter); err != nil {
		return c, false, err
	}
	if c.InsertedBefore, err = instant("InsertedBefore", f.InsertedBefore); err != nil {
		return c, false, err
	}
	if c.Labels, err = labels(f.Labels); err != nil {
		return c, false, err
	}
	some = !reflect.DeepEqual(c, store.Filter{})
	c.Within, err = bounds(f.Within)
	return c, some, err
}

// bounds checks Bounds. Equal ones have one form, however they were written.
func bounds(b Bounds) (out store.Bounds, err error) {
	const field = "Within"
	for _, list := range []struct {
		name string
		of   []string
		into *[]string
	}{{"Queues", b.Queues, &out.Queues}, {"Machines", b.Machines, &out.Machines}} {
		for i, name := range list.of {
			if err := checkName(name, fsm.MaxNameBytes); err != nil {
				return out, badQuery(fmt.Sprintf("%s.%s[%d]", field, list.name, i), "%w", err)
			}
		}
		if len(list.of) > MaxBounds {
			return out, badQuery(field+"."+list.name, "%d of them, at most %d", len(list.of), MaxBounds)
		}
		if *list.into = set(list.of); list.of != nil && *list.into == nil {
			*list.into = []string{} // which covers no instance
		}
	}
	out.Labels, err = labels(b.Labels)
	if bad, ok := errors.AsType[*QueryError](err); ok {
		err = badQuery(field+"."+bad.Field, "%w", bad.Err)
	}
	return out, err
}

// MaxBounds is how many queues, and how many machines, [Bounds] may name.
const MaxBounds = 1000

// listed returns names as text.
func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

func set(of []string) []string { return slices.Compact(slices.Sorted(slices.Values(of))) }

var failures = []fsm.Failure{
	fsm.FailureDecided, fsm.FailureError, fsm.FailureExhausted, fsm.FailureCrashes, fsm.FailureCancelled, fsm.FailureDeadline,
	fsm.FailureSkipped,
}

// instant is a time as Postgres has it: in microseconds.
func instant(field string, t time.Time) (time.Time, error) {
	if t.IsZero() {
		return t, nil
	}
	if t = t.UTC().Truncate(time.Microsecond); t.Year() < 1 || t.Year() > 9999 {
		return t, badQuery(field, "the year %d, want 1 to 9999", t.Year())
	}
	return t, nil
}

// labels as JSON; "" if there are none.
func labels(of map[string]string) (string, error) {
	if len(of) == 0 {
		return "", nil
	}
	if len(of) > fsm.MaxLabels {
		return "", badQuery("Labels", "%d of them, at most %d", len(of), fsm.MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if err := checkName(name, fsm.MaxLabelNameBytes); err != nil {
			return "", badQuery("Labels", "name %.80q: %w", name, err)
		}
		if value := of[name]; value != "" {
			if err := checkName(value, fsm.MaxLabelValueBytes); err != nil {
				return "", badQuery(fmt.Sprintf("Labels[%s]", name), "%w", err)
			}
		}
	}
	text, err := json.Marshal(of)
	return string(text), err
}
