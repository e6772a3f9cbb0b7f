package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// These bound [Relations].
const (
	MaxAncestors    = 20
	MaxChildRounds  = 10 // of which children are listed
	MaxRoundListed  = 20 // children of a round that are listed
	MaxInboxListed  = 50
	MaxInboxPayload = 1 << 20 // bytes of all payloads together
)

// Relative is an instance as its ancestors and children see it.
type Relative struct {
	ID        fsm.ID     `json:"id"`
	Machine   string     `json:"machine"`
	Version   int        `json:"version"`
	Step      string     `json:"step"`
	Status    fsm.Status `json:"status"`
	Paused    bool       `json:"paused"`
	Queue     string     `json:"queue"`
	Key       fsm.Key    `json:"key,omitempty"`
	LastError string     `json:"last_error,omitempty"` // its first 200 characters
	Round     int64      `json:"round,omitempty"`      // of a child: the visit that joins it
}

// PendingSignal is a signal in an inbox.
type PendingSignal struct {
	ID         int64           `json:"id"`
	Name       string          `json:"name"`
	DedupKey   string          `json:"dedup_key,omitempty"`
	InsertedAt time.Time       `json:"inserted_at"`
	Bytes      int64           `json:"bytes"`             // of the payload, as it is stored
	Payload    json.RawMessage `json:"payload,omitempty"` // as it is stored; nil: it is beyond MaxInboxPayload
}

// Relations are what belongs to an instance: its ancestors, its children, its inbox.
type Relations struct {
	Ancestors []Relative      `json:"ancestors"` // the parent first, up to MaxAncestors
	Counts    []ChildCount    `json:"counts"`    // of its children, as ChildCounts has them
	AtLeast   bool            `json:"at_least"`  // MaxChildren were counted: there may be more
	Children  []Relative      `json:"children"`  // the first of each of the newest rounds, the newest round first
	Inbox     []PendingSignal `json:"inbox"`     // the oldest first, up to MaxInboxListed
	More      bool            `json:"more"`      // in the inbox
}

// Relations returns what belongs to an instance, and nothing if the instance has been deleted. It
// sends one statement, which reads a bounded number of rows by indexes. Within bounds it has the
// ancestors and children that lie within, and no counts.
func (a *Admin) Relations(ctx context.Context, id fsm.ID) (out Relations, err error) {
	defer a.engine.explain(ctx, toRead("gen_durable", "signals"), &err)
	if a.bound() {
		switch _, err := a.find(ctx, id); {
		case errors.Is(err, ErrNotFound):
			return Relations{Ancestors: []Relative{}, Counts: []ChildCount{}, Children: []Relative{}, Inbox: []PendingSignal{}}, nil
		case err != nil:
			return out, err
		}
	}
	var got store.Relations
	err = a.engine.patiently(ctx, task{doing: "read what belongs to an instance"}, func() error {
		got, err = a.engine.store.Relations(ctx, int64(id), &store.RelationsBounds{
			Count: MaxChildren, Rounds: MaxChildRounds, Children: MaxRoundListed, Ancestors: MaxAncestors, Inbox: MaxInboxListed + 1, Bytes: MaxInboxPayload,
		})
		return err
	})
	if err != nil {
		return out, err
	}
	out = Relations{Ancestors: relatives(got.Ancestors), Children: relatives(got.Children), Counts: make([]ChildCount, len(got.Counts))}
	var all int64
	for i, c := range got.Counts {
		out.Counts[i] = ChildCount{c.Round, c.Machine, fsm.Status(c.Status), c.Count}
		all += c.Count
	}
	out.AtLeast = all >= MaxChildren
	if out.More = len(got.Inbox) > MaxInboxListed; out.More {
		got.Inbox = got.Inbox[:MaxInboxListed]
	}
	out.Inbox = make([]PendingSignal, len(got.Inbox))
	for i := range got.Inbox {
		m := &got.Inbox[i]
		out.Inbox[i] = PendingSignal{ID: m.ID, Name: m.Name, DedupKey: m.DedupKey, InsertedAt: m.InsertedAt.UTC(), Bytes: m.Bytes, Payload: m.Payload}
	}
	err = a.keep(ctx, &out)
	return out, err
}

// keep leaves out of the relations those that lie outside of the bounds.
func (s scope) keep(ctx context.Context, r *Relations) error {
	if !s.bound() {
		return nil
	}
	var ids []fsm.ID
	for _, all := range [][]Relative{r.Ancestors, r.Children} {
		for n := range all {
			ids = append(ids, all[n].ID)
		}
	}
	seen, err := s.covered(ctx, ids)
	hidden := func(one Relative) bool { return err != nil || !seen(one.ID) }
	r.Ancestors, r.Children = slices.DeleteFunc(r.Ancestors, hidden), slices.DeleteFunc(r.Children, hidden)
	r.Counts, r.AtLeast = []ChildCount{}, false
	return err
}

func relatives(all []store.Relative) []Relative {
	out := make([]Relative, len(all))
	for i := range all {
		r := &all[i]
		out[i] = Relative{
			ID: fsm.ID(r.ID), Machine: r.Machine, Version: r.Version, Step: r.Step, Status: fsm.Status(r.Status), Paused: r.Paused, Queue: r.Queue,
			Key: fsm.Key(r.Key), LastError: r.LastError, Round: r.Round,
		}
	}
	return out
}
