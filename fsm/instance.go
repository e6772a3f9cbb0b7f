package fsm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// Instance is a snapshot of an instance, as it was when it was read.
type Instance[S, R any] struct {
	ID           ID                `json:"id"`
	Machine      string            `json:"machine"`
	Version      int               `json:"version"`
	Step         string            `json:"step"`
	Queue        string            `json:"queue"`
	Priority     int               `json:"priority"` // lower runs first
	Status       Status            `json:"status"`
	State        S                 `json:"state"`
	Result       R                 `json:"result"` // zero unless StatusDone
	Attempt      int               `json:"attempt"`
	Crashes      int               `json:"crashes"`
	Visit        int64             `json:"visit"`
	Failure      Failure           `json:"failure,omitempty"`       // "" unless StatusFailed
	LastError    string            `json:"last_error,omitempty"`    // the newest error, also of a retried attempt; progress clears it
	Key          Key               `json:"key,omitempty"`           // "": none
	PartitionKey string            `json:"partition_key,omitempty"` // "": none
	Paused       bool              `json:"paused"`                  // an operator paused it: no worker claims it until it is resumed
	EligibleAt   time.Time         `json:"eligible_at"`
	InsertedAt   time.Time         `json:"inserted_at"`
	FinishedAt   time.Time         `json:"finished_at,omitzero"` // zero unless terminal
	Deadline     time.Time         `json:"deadline,omitzero"`    // the instance fails if it has not ended by then; zero: no deadline
	Labels       map[string]string `json:"labels,omitempty"`
	// Progress is the value that its steps have published last, as JSON; nil: nothing. See
	// [Visit.Publish].
	Progress json.RawMessage `json:"progress,omitempty"`
}

// RawInstance is an instance whose machine is not known at compile time. Its state and result are
// JSON, as the codec encoded them.
type RawInstance = Instance[json.RawMessage, json.RawMessage]

// Texts are the labels of an instance, or its trace, as rows of the ent client have them. What SQL
// of others has put there, and is no text, decodes as the text that Postgres' ->> makes of it.
type Texts map[string]string

// UnmarshalJSON implements [json.Unmarshaler]. It fails for nothing that Postgres stores.
func (t *Texts) UnmarshalJSON(raw []byte) error {
	*t = step.Texts(raw)
	return nil
}

// Reader is what typed reads need of an engine; *engine.Engine implements it.
type Reader interface {
	// Get reads the instance.
	Get(ctx context.Context, of Target) (RawInstance, error)
	// Wait blocks until the instance is terminal, and returns it.
	Wait(ctx context.Context, of Target) (RawInstance, error)
	// Codec returns the codec that decodes the states and results that Get and Wait return.
	Codec() Codec
}

// ParkedReader is what [Machine.WaitParked] needs of an engine; *engine.Engine implements it.
type ParkedReader interface {
	Reader
	// WaitParked blocks until the instance is parked at a visit after past, or terminal, and returns
	// it.
	WaitParked(ctx context.Context, of Target, past int64) (RawInstance, error)
}

// typed decodes an instance for a version of its machine. m is that version's definition, which may
// convert older states; nil: it is not known.
func typed[S, R any](d *declaration, m *step.Machine, codec Codec, raw *RawInstance) (Instance[S, R], error) {
	i := Instance[S, R]{
		ID: raw.ID, Machine: raw.Machine, Version: raw.Version, Step: raw.Step, Queue: raw.Queue, Priority: raw.Priority,
		Status: raw.Status, Attempt: raw.Attempt, Crashes: raw.Crashes, Visit: raw.Visit, Failure: raw.Failure,
		LastError: raw.LastError, Key: raw.Key, PartitionKey: raw.PartitionKey, Paused: raw.Paused,
		EligibleAt: raw.EligibleAt, InsertedAt: raw.InsertedAt, FinishedAt: raw.FinishedAt,
		Deadline: raw.Deadline, Labels: raw.Labels, Progress: raw.Progress,
	}
	state, err := d.stateOf(m, codec, raw.ID, raw.Version, raw.State)
	if err == nil {
		if i.State, err = decode[S](codec, state, "state"); err != nil {
			return i, fmt.Errorf("instance %d: %w", i.ID, err)
		}
	}
	if raw.Status != StatusDone {
		return i, err
	}
	var unread error
	i.Result, unread = resultOf[R](d, m, codec, raw)
	return i, cmp.Or(err, unread)
}

func resultOf[R any](d *declaration, m *step.Machine, codec Codec, raw *RawInstance) (result R, err error) {
	switch raw.Status { //nolint:exhaustive // the others have no result
	case StatusDone:
		if err := d.readsResult(m, raw.ID, raw.Version); err != nil {
			return result, err
		}
		if result, err = decode[R](codec, raw.Result, "result"); err != nil {
			return result, fmt.Errorf("instance %d: %w", raw.ID, err)
		}
		return result, nil
	case StatusFailed:
		return result, &FailedError{ID: raw.ID, Machine: raw.Machine, Failure: raw.Failure, Message: raw.LastError}
	}
	return result, fmt.Errorf("instance %d is %s: %w", raw.ID, raw.Status, ErrNotTerminal)
}

// Child is one child of the round that joins at this visit.
type Child[R any] struct {
	ID        ID      `json:"id"`
	Node      string  `json:"node,omitempty"` // its name in the graph; "": it is no node of one
	Machine   string  `json:"machine"`
	Version   int     `json:"version"`
	Status    Status  `json:"status"` // terminal, unless the join did not wait for the child, or an operator has retried it since
	Failure   Failure `json:"failure,omitempty"`
	LastError string  `json:"last_error,omitempty"`

	raw   step.Child
	codec Codec
	as    *declaration  // the version that reads it; nil: whichever it is of
	with  *step.Machine // its definition; nil: it is not known
}

// Result returns the result of the child. It returns a *[FailedError] if the child failed,
// [ErrNotTerminal] if it has not ended (the join did not wait for it, or an operator has retried it
// since), a *[VersionError] if it is of a version that the reading machine does not read, and a
// [DecodeError] if the result does not fit R.
func (c Child[R]) Result() (R, error) {
	return resultOf[R](c.as, c.with, c.codec, &RawInstance{ID: c.ID, Machine: c.Machine, Version: c.Version, Status: c.Status, Result: c.raw.Result,
		Failure: c.Failure, LastError: c.LastError})
}

// DecodeState decodes the child's last committed state into v. For a child that [Machine.Children]
// returned, it returns a *[VersionError] if the child is of a version that the machine does not
// read; of others, Version says which type the state has.
func (c Child[R]) DecodeState(v any) error {
	if c.codec == nil {
		return &DecodeError{Field: "state", Err: ErrNotTerminal}
	}
	state, err := c.as.stateOf(c.with, c.codec, c.ID, c.Version, c.raw.State)
	if err != nil {
		return err
	}
	if err := c.codec.Decode(state, v); err != nil {
		return fmt.Errorf("instance %d: %w", c.ID, &DecodeError{Field: "state", Err: err})
	}
	return nil
}

// children returns the children that join, of one machine, or of all if d is nil.
func children[R any](x *execution, d *declaration) []Child[R] {
	out := make([]Child[R], 0, len(x.claim.Children))
	for i := range x.claim.Children {
		if c := &x.claim.Children[i]; d.ofMachine(c) {
			out = append(out, childOf[R](x, c, d))
		}
	}
	return out
}

func childOf[R any](x *execution, c *step.Child, d *declaration) Child[R] {
	var m *step.Machine
	if d != nil && x.env.Machine != nil && c.Version < d.version {
		m = x.env.Machine(d.name, d.version)
	}
	return Child[R]{as: d, with: m, ID: ID(c.ID), Node: c.Node, Machine: c.Machine, Version: c.Version, Status: Status(c.Status),
		Failure: Failure(c.Failure), LastError: c.LastError, raw: *c, codec: x.env.Codec}
}

// eachRawChild reads children of all machines. It is compiled once, not for each type of a visit.
//
//go:noinline
func eachRawChild(ctx context.Context, x *execution) iter.Seq2[Child[json.RawMessage], error] {
	return eachChild[json.RawMessage](ctx, x, nil)
}

// eachChild is children, read in pages if there is a database.
//
//go:noinline
func eachChild[R any](ctx context.Context, x *execution, d *declaration) iter.Seq2[Child[R], error] {
	return func(yield func(Child[R], error) bool) {
		given := x.claim.Children
		next := func() (page []step.Child, err error) {
			page, given = given, nil
			return page, nil
		}
		if given == nil && x.claim.ReadRound != nil {
			next = x.claim.ReadRound(ctx)
		}
		for {
			page, err := next()
			if err != nil {
				yield(Child[R]{}, fmt.Errorf("read the children of instance %d: %w", x.claim.ID, err))
			}
			if err != nil || len(page) == 0 {
				return
			}
			for i := range page {
				if d.ofMachine(&page[i]) && !yield(childOf[R](x, &page[i], d), nil) {
					return
				}
			}
		}
	}
}
