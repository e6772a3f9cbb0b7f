// Package deliveries is the machine of the column status of Delivery: each status is a step.
// Its first draft is by "gendurable new"; it is yours to change.
//
// It was drawn like this; "gendurable machine graph" draws it as it is:
//
//	%% delivery/1
//	flowchart TD
//	  s0(["pending"])
//	  s1["packed"]
//	  s2["cancelled"]
//	  s3["out-for-delivery"]
//	  s4["delivered"]
//	  s0 --> s0
//	  s0 --> s1
//	  s0 --> s2
//	  s1 --> s3
//	  s3 --> s3
//	  s3 --> s4
//	  s3 --> s1
package deliveries

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/delivery"
)

// State is what an instance carries. The row has the rest.
type State struct {
	ID int64
}

// Status is the type of the column. The steps have the names of its values.
type Status = delivery.Status

// Machine is the identity, for programs that insert, signal or wait.
var Machine = fsm.Declare[State, fsm.None]("delivery", fsm.Initial("pending"), fsm.KeyBy(func(s State) fsm.Key { return Key(s.ID) }))

// Key is the key of an instance, by which it is signalled. It has one holder at a time.
func Key(id int64) fsm.Key { return fsm.Key(fmt.Sprintf("delivery:%v", id)) }

// New is the instance of a delivery. It begins at the step of the row's status.
func New(row *ent.Delivery) fsm.Spec { return Machine.New(State{ID: row.ID}).Step(string(row.Status)) }

// A signal moves a delivery that waits. One that comes too early stays until the delivery waits at
// that status; DedupKey drops repetitions.
var (
	PendingToPacked           = fsm.DeclareSignal[fsm.None]("pending:packed")
	PendingToCancelled        = fsm.DeclareSignal[fsm.None]("pending:cancelled")
	OutForDeliveryToDelivered = fsm.DeclareSignal[fsm.None]("out-for-delivery:delivered")
	OutForDeliveryToPacked    = fsm.DeclareSignal[fsm.None]("out-for-delivery:packed")
)

// Work is the part of your program: what a status is for. A method returns the next status. It may
// be called more than once for one visit: hand on the key, which stays the same.
type Work interface {
	// AtPacked returns "out-for-delivery".
	AtPacked(ctx context.Context, id int64, key string) (Status, error)
}

// Definition is the behaviour. Each move also writes the column, in one transaction.
func Definition(client *ent.Client, work Work) fsm.Definition {
	return machine{work: work, move: writing(client)}.definition()
}

// writing moves an instance and writes the column: both, or neither. Without the column, a move is
// v.Next(string(to), v.State).
func writing(client *ent.Client) func(v *visit, to Status) fsm.Outcome {
	return func(v *visit, to Status) fsm.Outcome {
		return client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
			if err := tx.Delivery.UpdateOneID(v.State.ID).SetStatus(to).Exec(ctx); err != nil {
				return nil, err
			}
			return v.Next(string(to), v.State), nil
		})
	}
}

type visit = fsm.Visit[State, fsm.None]

type machine struct {
	work Work
	move func(v *visit, to Status) fsm.Outcome // goes on at another status
}

func (m machine) definition() fsm.Definition {
	return Machine.Define(
		fsm.Step("pending", m.atPending).To("pending", "packed", "cancelled"),
		fsm.Step("packed", m.atPacked).To("out-for-delivery"),
		fsm.Step("out-for-delivery", m.atOutForDelivery).To("out-for-delivery", "delivered", "packed"),
		fsm.Step("delivered", m.end).To(),
		fsm.Step("cancelled", m.end).To(),
	).Retry(fsm.RetryPolicy{})
}

func (m machine) atPending(_ context.Context, v *visit) (fsm.Outcome, error) {
	return m.wait(v, exit{PendingToPacked, "packed"}, exit{PendingToCancelled, "cancelled"}), nil
}

func (m machine) atPacked(ctx context.Context, v *visit) (fsm.Outcome, error) {
	to, err := m.work.AtPacked(ctx, v.State.ID, v.IdempotencyKey("packed"))
	if err != nil {
		return nil, err
	}
	return m.move(v, to), nil
}

func (m machine) atOutForDelivery(_ context.Context, v *visit) (fsm.Outcome, error) {
	return m.wait(v, exit{OutForDeliveryToDelivered, "delivered"}, exit{OutForDeliveryToPacked, "packed"}), nil
}

// exit is a way on from a status that waits.
type exit struct {
	on fsm.AnySignal
	to Status
}

// wait parks an instance at its step until one of the signals is there. The oldest one decides.
func (m machine) wait(v *visit, exits ...exit) fsm.Outcome {
	signals := make([]fsm.AnySignal, len(exits))
	for i, e := range exits {
		if got := v.Awaited(); len(got) > 0 && got[0].Name == e.on.Name() {
			return m.move(v, e.to)
		}
		signals[i] = e.on
	}
	return v.Await(v.Step, v.State, signals...)
}

// end is the step of each status from which no transition leads. Signals that came too late go;
// Unless would have the machine go on at another step.
func (machine) end(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Done(fsm.None{}).Discard(), nil
}
