package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/internal/step"
)

// StateSince says that the state has been S since version n: typed reads then decode the states of
// the versions from n to this one as they are. Unless given, they decode this version's alone;
// others they convert by a [Migrate], or refuse with a *[VersionError].
func StateSince(n int) DeclareOption { return func(d *declaration) { d.stateSince = n } }

// ResultSince says that the result has been R since version n: typed reads then decode the results
// of the versions from n to this one. Unless given, they decode this version's alone, and refuse
// others with a *[VersionError], unless a [Migrate] between two versions with the same R says the
// same.
func ResultSince(n int) DeclareOption { return func(d *declaration) { d.resultSince = n } }

// VersionError is returned by typed reads of an instance of another version of the machine, where
// nothing says how to read it: another version's JSON might decode into zero values. The caller can
// read the instance by a [Machine] of the version Got.
type VersionError struct {
	ID      ID
	Machine string
	Field   string // "state" or "result"
	Got     int    // the instance's version
	Want    int    // the version that reads
}

func (e *VersionError) Error() string {
	what := fmt.Sprintf("instance %d is of machine %q version %d, and its %s is not read as version %d's: ", e.ID, e.Machine, e.Got, e.Field, e.Want)
	if e.Got > e.Want {
		return what + fmt.Sprintf("read it by the declaration of version %d", e.Got)
	}
	since := "StateSince"
	if e.Field == "result" {
		since = "ResultSince"
	}
	return what + fmt.Sprintf("read it by the declaration of version %d, register a migration (Defined.From), or declare fsm.%s(%d) if the type is the same",
		e.Got, since, e.Got)
}

// sinceFaults checks the options of the versions that this one reads.
func (d *declaration) sinceFaults() (faults []error) {
	for _, s := range []struct {
		field string
		n     int
	}{{"state_since", d.stateSince}, {"result_since", d.resultSince}} {
		if s.n < 0 || s.n > max(d.version, 0) {
			faults = append(faults, d.fault(s.field, fmt.Errorf("%d, want 1 to %d, the version", s.n, d.version)))
		}
	}
	return faults
}

// readsState returns an error unless the states of a version are of the declared S as they are.
func (d *declaration) readsState(id ID, version int) error {
	if d == nil || d.covers(version, d.stateSince) {
		return nil
	}
	return &VersionError{ID: id, Machine: d.name, Field: "state", Got: version, Want: d.version}
}

// stateOf returns a state of a version in the form of the declared one: as it is, or converted by
// a migration of the definition m. A nil declaration reads every version.
func (d *declaration) stateOf(m *step.Machine, codec Codec, id ID, version int, raw json.RawMessage) (json.RawMessage, error) {
	unread := d.readsState(id, version)
	if unread == nil {
		return raw, nil
	}
	raw, ok, err := converted(m, codec, version, raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("instance %d: %w", id, err)
	case !ok:
		return nil, unread
	}
	return raw, nil
}

// readsResult returns an error unless the results of a version are of the declared R, by the
// declaration or by the migrations of the definition m.
func (d *declaration) readsResult(m *step.Machine, id ID, version int) error {
	if d == nil || d.covers(version, d.resultSince) {
		return nil
	}
	chain := m.Chain(version)
	if len(chain) > 0 && !slices.ContainsFunc(chain, func(one *step.Migration) bool { return !one.SameResult }) {
		return nil
	}
	return &VersionError{ID: id, Machine: d.name, Field: "result", Got: version, Want: d.version}
}

// covers reports whether a version is between the one since which a type is the same and this one.
// A child that a test has made by hand has version 0.
func (d *declaration) covers(version, since int) bool {
	return version == 0 || version <= d.version && version >= cmp.Or(since, d.version)
}

// ofMachine reports whether a child is of the declared machine. Nil stands for every machine.
func (d *declaration) ofMachine(c *step.Child) bool { return d == nil || c.Machine == d.name }
