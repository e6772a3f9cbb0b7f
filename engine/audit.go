package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// AuditEntry is what an operator's verb has changed. Each verb of [Admin], and [Tx.Cancel], inserts
// one for each instance, queue, gate or schedule that it changes, in its own transaction. A verb
// that changes nothing leaves none.
type AuditEntry struct {
	At       time.Time       `json:"at"`
	Verb     Verb            `json:"verb"`
	Actor    string          `json:"actor"`
	Reason   string          `json:"reason,omitempty"`
	Instance fsm.ID          `json:"instance,omitempty"` // it may have been collected; 0: a verb on something else
	Machine  string          `json:"machine,omitempty"`  // of the instance
	Version  int             `json:"version,omitempty"`
	Subject  string          `json:"subject,omitempty"` // "queue …", "gate …" or "schedule …"; "": an instance
	Before   json.RawMessage `json:"before,omitempty"`  // what the verb found, an object; nil: nothing
	After    json.RawMessage `json:"after,omitempty"`   // what it left
}

// AuditQuery selects entries. All criteria must hold; a zero one always holds.
type AuditQuery struct {
	Instance fsm.ID
	Verb     Verb
	Actor    string
	Subject  string    // like "queue emails"
	Since    time.Time // not before
	Before   time.Time // earlier than this; of the next page: AuditPage.Next
	Limit    int       // of one page: 1 to fsm.MaxLimit; 0: fsm.DefaultLimit
}

// AuditPage is one part of the audit, newest first. Entries of the same microsecond are on the same
// page, which may so be a few longer than its limit.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    time.Time    `json:"next,omitzero"` // for AuditQuery.Before; zero: there is no more
}

// Audit lists what operators' verbs have changed, newest first. Entries stay as long as the history
// does, also of instances that are gone. Within bounds the query has to have an Instance, and one
// that lies outside, or is gone, has no entries.
//
// Errors: a *[QueryError].
func (a *Admin) Audit(ctx context.Context, q AuditQuery) (page AuditPage, err error) {
	defer a.engine.explain(ctx, toRead("history"), &err)
	if err := q.validate(); err != nil {
		return AuditPage{}, err
	}
	if page.Entries = []AuditEntry{}; a.bound() {
		if q.Instance == 0 {
			return AuditPage{}, &BoundsError{"Audit", errors.New("give Instance: other entries are about all instances")}
		}
		switch _, err := a.find(ctx, q.Instance); {
		case errors.Is(err, ErrNotFound):
			return page, nil
		case err != nil:
			return AuditPage{}, err
		}
	}
	limit := cmp.Or(q.Limit, fsm.DefaultLimit)
	var rows []store.Audited
	err = a.engine.patiently(ctx, task{doing: "list operators' verbs"}, func() error {
		rows, err = a.engine.store.Verbs(ctx, store.AuditFilter{Instance: int64(q.Instance), Verb: string(q.Verb), Actor: q.Actor,
			Subject: q.Subject, Since: q.Since, Before: q.Before, Limit: limit})
		return err
	})
	if err != nil {
		return AuditPage{}, err
	}
	page.Entries = make([]AuditEntry, len(rows))
	for i, r := range rows {
		page.Entries[i] = AuditEntry{At: r.At, Verb: Verb(r.Verb), Actor: r.Actor, Reason: r.Reason, Instance: fsm.ID(r.Instance),
			Machine: r.Machine, Version: r.Version, Subject: r.Subject, Before: r.Before, After: r.After}
	}
	if len(rows) >= limit {
		page.Next = rows[len(rows)-1].At
	}
	return page, nil
}

func (q *AuditQuery) validate() error {
	if q.Limit < 0 || q.Limit > fsm.MaxLimit {
		return badQuery("Limit", "%d, want 1 to %d", q.Limit, fsm.MaxLimit)
	}
	if q.Instance < 0 {
		return badQuery("Instance", "%d is negative", q.Instance)
	}
	for _, f := range []struct {
		field, value string
		most         int
	}{
		{"Verb", string(q.Verb), fsm.MaxNameBytes},
		{"Actor", q.Actor, MaxActorBytes},
		{"Subject", q.Subject, fsm.MaxNameBytes + len("schedule ")},
	} {
		if f.value == "" {
			continue
		}
		if err := checkName(f.value, f.most); err != nil {
			return badQuery(f.field, "%w", err)
		}
	}
	return nil
}

// AllAudit yields the entries that q selects, newest first, as [Admin.Audit] pages through them. An
// error ends the sequence, and comes with the zero entry.
func (a *Admin) AllAudit(ctx context.Context, q AuditQuery) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		q.Limit = cmp.Or(q.Limit, allLimit)
		for q := q; ; { // its own, since a sequence may be ranged over again
			page, err := a.Audit(ctx, q)
			if err != nil {
				yield(AuditEntry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if q.Before = page.Next; page.Next.IsZero() {
				return
			}
		}
	}
}
