package query

import (
	"cmp"

	"entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// Where returns the predicates of a filter, one for each of its criteria.
func Where(f *store.Filter) (all []predicate.Instance) {
	add := func(given bool, criterion func() predicate.Instance) {
		if given {
			all = append(all, criterion())
		}
	}
	add(f.Machine != "", func() predicate.Instance { return instance.Machine(f.Machine) })
	add(f.Version != 0, func() predicate.Instance { return instance.Version(f.Version) })
	add(f.Step != "", func() predicate.Instance { return instance.Step(f.Step) })
	add(f.Queue != "", func() predicate.Instance { return instance.Queue(f.Queue) })
	add(f.Statuses != nil, func() predicate.Instance { return instance.StatusIn(texts[fsm.Status](f.Statuses)...) })
	add(f.Failures != nil, func() predicate.Instance { return instance.FailureIn(texts[fsm.Failure](f.Failures)...) })
	add(f.KeyPrefix != "", func() predicate.Instance { return instance.CorrelationKeyHasPrefix(f.KeyPrefix) })
	add(f.Key != "", func() predicate.Instance { return instance.CorrelationGuard(f.Key) })
	add(f.EndedKey != "", func() predicate.Instance { return keyed(f) })
	add(f.PartitionKey != "", func() predicate.Instance { return instance.PartitionKey(f.PartitionKey) })
	add(f.Labels != "", func() predicate.Instance { return instance.LabelsContain(own[map[string]string]([]byte(f.Labels))) })
	add(f.Parent != 0, func() predicate.Instance { return instance.ParentID(fsm.ID(f.Parent)) })
	add(!f.InsertedAfter.IsZero(), func() predicate.Instance { return instance.InsertedAtGTE(f.InsertedAfter) })
	add(!f.InsertedBefore.IsZero(), func() predicate.Instance { return instance.InsertedAtLT(f.InsertedBefore) })
	add(f.Fingerprint != "", func() predicate.Instance { return alike(f) })
	add(f.ErrorText != "", func() predicate.Instance { return errorHas(f.ErrorText) })
	return append(all, within(f.Within)...)
}

// within returns the predicates of bounds, which every other criterion is added to.
func within(b store.Bounds) (all []predicate.Instance) {
	if b.Queues != nil {
		all = append(all, instance.QueueIn(b.Queues...))
	}
	if b.Machines != nil {
		all = append(all, instance.MachineIn(b.Machines...))
	}
	if b.Labels != "" {
		all = append(all, instance.LabelsContain(own[map[string]string]([]byte(b.Labels))))
	}
	return all
}

// keyed selects the instances that have left the scope of a key.
func keyed(f *store.Filter) predicate.Instance {
	return instance.And(instance.CorrelationGuardIsNil(), instance.CorrelationKey(f.EndedKey))
}

// alike selects the failed instances of a fingerprint.
func alike(f *store.Filter) predicate.Instance {
	if of := store.FingerprintOf(f.Fingerprint); of != nil {
		return instance.Fingerprint(*of)
	}
	return instance.And(instance.FingerprintIsNil(), instance.FingerprintNotNil()) // no text of a fingerprint is that of none
}

// errorHas selects by a part of the last error. No index holds it: it is checked of the rows that a
// page visits.
func errorHas(text string) predicate.Instance {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.WriteString("strpos(lower(").Ident(s.C(instance.FieldLastError)).WriteString("), lower(").Arg(text).WriteString("::text)) > 0")
		}))
	}
}

func texts[T ~string](of []string) []T {
	out := make([]T, len(of))
	for i, text := range of {
		out[i] = T(text)
	}
	return out
}

// applies returns the predicates of the instances to which a verb applies.
func applies(v store.Verb) []predicate.Instance {
	a := v.Applies()
	all := []predicate.Instance{instance.StatusIn(texts[fsm.Status](a.Statuses)...)}
	if a.Paused != nil {
		all = append(all, instance.Paused(*a.Paused))
	}
	if a.Later {
		all = append(all, later)
	}
	return all
}

func later(s *sql.Selector) {
	s.Where(sql.P(func(b *sql.Builder) {
		b.Ident(s.C(instance.FieldEligibleAt)).WriteString(" > (SELECT clock_timestamp())")
	}))
}

// lookup is a way by which indexes find the rows of a criterion: all that one of its parts selects,
// of which no row is of two. No part is one of a page's criteria, where no index could serve it.
type lookup struct {
	parts   []predicate.Instance
	bitmaps bool // an index that Postgres reads by bitmap scans only
}

// lookups returns the ways that may find few rows, the most promising first. There are none if no
// criterion of the filter has an index.
func lookups(f *store.Filter) (all []lookup) {
	one := func(p ...predicate.Instance) { all = append(all, lookup{p, true}) }
	if low, high := keyRange(f.KeyPrefix); low != "" {
		all = append(all, lookup{parts: []predicate.Instance{between(instance.FieldCorrelationGuard, low, high),
			instance.And(instance.CorrelationGuardIsNil(), between(instance.FieldCorrelationKey, low, high))}})
	}
	switch {
	case f.Key != "":
		return []lookup{{[]predicate.Instance{instance.CorrelationGuard(f.Key)}, true}}
	case f.EndedKey != "":
		return []lookup{{[]predicate.Instance{keyed(f)}, true}}
	case f.Parent != 0:
		one(instance.ParentID(fsm.ID(f.Parent)))
	case f.Labels != "" && f.Within.Labels != "": // the index has both
		one(instance.And(instance.LabelsContain(own[map[string]string]([]byte(f.Labels))),
			instance.LabelsContain(own[map[string]string]([]byte(f.Within.Labels)))))
	case f.Labels != "" || f.Within.Labels != "":
		one(instance.LabelsContain(own[map[string]string]([]byte(cmp.Or(f.Labels, f.Within.Labels)))))
	case len(f.Statuses) == 1 && f.Statuses[0] == string(fsm.StatusExecuting):
		one(executing)
	}
	return all
}

// keyRange returns the range of keys, by their bytes, in which all keys with a prefix lie: from low
// on and below high. Only ASCII characters are counted up, since another one may have no successor
// in the database's encoding. So the range goes by the prefix up to its last such character. low
// is "" if it has none.
func keyRange(prefix string) (low, high string) {
	for n := len(prefix); n > 0; n-- {
		if c := prefix[n-1]; c < '\x7f' {
			return prefix[:n], prefix[:n-1] + string(rune(c+1))
		}
	}
	return "", ""
}

// between selects the rows of a range. It compares bytes, as the indexes of keys do, whatever the
// database's collation is.
func between(field, low, high string) predicate.Instance {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.Ident(s.C(field)).WriteString(" ~>=~ ").Arg(low).WriteString("::text AND ")
			b.Ident(s.C(field)).WriteString(" ~<~ ").Arg(high).WriteString("::text")
		}))
	}
}

// along returns the criterion of the rows that an index has in the order of ids, or nil if there is
// no such index for the filter. A page visits these rows only.
func along(f *store.Filter) []predicate.Instance {
	switch {
	case f.Fingerprint != "": // the index gen_durable_alike
		return []predicate.Instance{alike(f)}
	case len(f.Statuses) == 1 && f.Statuses[0] == string(fsm.StatusFailed), len(f.Failures) > 0: // gen_durable_failed
		return []predicate.Instance{failed}
	}
	return nil
}

// failed names the status in the text, as executing does.
func failed(s *sql.Selector) {
	s.Where(sql.P(func(b *sql.Builder) { b.Ident(s.C(instance.FieldStatus)).WriteString(" = 'failed'") }))
}

// executing names the status in the text: Postgres has to see that the partial index holds all.
func executing(s *sql.Selector) {
	s.Where(sql.P(func(b *sql.Builder) { b.Ident(s.C(instance.FieldStatus)).WriteString(" = 'executing'") }))
}
