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

// indexed returns the criterion whose index finds few rows, or nil if none of the filter has an
// index. It is not part of a page's criteria, where no index could serve it.
func indexed(f *store.Filter) predicate.Instance {
	switch {
	case f.Key != "":
		return instance.CorrelationGuard(f.Key)
	case f.Parent != 0:
		return instance.ParentID(fsm.ID(f.Parent))
	case f.Labels != "" && f.Within.Labels != "": // the index has both
		return instance.And(instance.LabelsContain(own[map[string]string]([]byte(f.Labels))),
			instance.LabelsContain(own[map[string]string]([]byte(f.Within.Labels))))
	case f.Labels != "" || f.Within.Labels != "":
		return instance.LabelsContain(own[map[string]string]([]byte(cmp.Or(f.Labels, f.Within.Labels))))
	case len(f.Statuses) == 1 && f.Statuses[0] == string(fsm.StatusExecuting):
		return executing
	}
	return nil
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
