package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"

	"example.com/bakery/ent"
)

// Cake is the state of an order: what to bake, and for whom.
type Cake struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Name     string `json:"name"`
	Cents    int64  `json:"cents"`
	Back     int64  `json:"back,omitempty"`   // cents that were paid too much
	Parcel   string `json:"parcel,omitempty"` // its number, once it is sent
}

// The names that the database stores. Programs that only place or pay orders need no more.
var (
	Ordered = fsm.Declare[Cake, string]("bakery.order") // its result is the parcel's number
	Made    = fsm.Declare[Cake, string]("bakery.make")
	Paid    = fsm.DeclareSignal[int64]("paid")
)

// OrderKey returns the address of an order for programs that know only its number.
func OrderKey(id int) fsm.Key { return fsm.Key(fmt.Sprintf("bakery:%d", id)) }

// World is what the bakery cannot undo. Each call gets a key that stays the same when a step runs
// again, so that the other side can tell a repetition.
type World interface {
	Bake(ctx context.Context, cake, key string) error
	Write(ctx context.Context, card, key string) error
	Send(ctx context.Context, customer string, key string) (parcel string, err error)
	Refund(ctx context.Context, customer string, cents int64, key string) error
}

type bakery struct {
	world  World
	client *ent.Client
}

type visit = fsm.Visit[Cake, string]

// machines returns the machine of an order, and the machines of the graph that makes a cake.
func (b *bakery) machines() []fsm.Definition {
	order := Ordered.Define(
		fsm.Step("start", b.start).To("settle"),
		fsm.Step("settle", b.settle).To("deliver", "refund"),
		fsm.Step("deliver", b.deliver).To("finish", "refund"),
		fsm.Step("finish", b.finish).To("refund"),
		fsm.Step("refund", b.refund).To(),
	).Retry(fsm.RetryPolicy{MaxAttempts: 8}).History(fsm.KeepStates)
	order.Unless("refund", Paid) // a second payment is given back, also if it comes in the last moment
	return append(b.making(), order)
}

// making is a graph: a cake is baked while its card is written, and both go into a box.
func (b *bakery) making() []fsm.Definition {
	g := dag.New(Made)
	baked := dag.Do(g, "bake", dag.In(g), func(ctx context.Context, c Cake) (string, error) {
		return c.Name, b.world.Bake(ctx, c.Name, key(ctx))
	}, dag.Retry(fsm.RetryPolicy{MaxAttempts: 5}))
	written := dag.Do(g, "card", dag.In(g), func(ctx context.Context, c Cake) (string, error) {
		card := "for " + c.Customer
		return card, b.world.Write(ctx, card, key(ctx))
	})
	return g.Return(dag.Do2(g, "box", baked, written, func(_ context.Context, cake, card string) (string, error) {
		return cake + " " + card, nil
	}))
}

// oven bounds how many cakes are baked at a time, in all processes together.
var oven = engine.Gate{Name: "oven", Machine: "bakery.make.bake", Places: 2}

func key(ctx context.Context) string {
	info, _ := fsm.InfoFrom(ctx)
	return info.IdempotencyKey()
}

// start parks the order until it is paid. Meanwhile it is a row.
func (b *bakery) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("settle", v.State, Paid).Timeout(24 * time.Hour), nil
}

func (b *bakery) settle(_ context.Context, v *visit) (fsm.Outcome, error) {
	payments, err := Paid.All(v)
	if err != nil {
		return nil, err
	}
	for _, cents := range payments {
		v.State.Back += cents
	}
	v.State.Back -= v.State.Cents
	switch {
	case len(payments) == 0:
		return v.Fail(errors.New("not paid within a day")), nil
	case v.State.Back < 0: // too little
		v.State.Back += v.State.Cents
		return v.Next("refund", v.State), nil
	}
	return v.ScheduleChildren("deliver", v.State, Made.New(v.State)), nil
}

// deliver runs when the graph has ended.
func (b *bakery) deliver(ctx context.Context, v *visit) (fsm.Outcome, error) {
	for _, made := range Made.Children(v) {
		if _, err := made.Result(); err != nil { // burnt, time and again
			v.State.Back += v.State.Cents
			return v.Next("refund", v.State), nil
		}
	}
	parcel, err := b.world.Send(ctx, v.State.Customer, v.IdempotencyKey("parcel"))
	v.State.Parcel = parcel
	return v.Next("finish", v.State), err // an error runs the step again, by the policy
}

// finish notes the delivery in the bakery's own table, in the transaction that ends the instance:
// both are committed, or neither.
func (b *bakery) finish(_ context.Context, v *visit) (fsm.Outcome, error) {
	return b.client.InTx(func(ctx context.Context, tx *ent.Tx) (fsm.Outcome, error) {
		err := tx.Order.UpdateOneID(v.State.Order).SetDelivered(time.Now()).Exec(ctx)
		if v.State.Back > 0 {
			return v.Next("refund", v.State), err
		}
		return v.Done(v.State.Parcel), err
	}), nil
}

// refund gives back what was paid too much, too little or too late, or for a cake that burnt.
func (b *bakery) refund(ctx context.Context, v *visit) (fsm.Outcome, error) {
	payments, err := Paid.All(v)
	if err != nil {
		return nil, err
	}
	back := v.State.Back
	for _, cents := range payments {
		back += cents
	}
	if err := b.world.Refund(ctx, v.State.Customer, back, v.IdempotencyKey("refund")); err != nil {
		return nil, err
	}
	v.State.Back = 0
	if v.State.Parcel == "" {
		return v.Fail(errors.New("no cake was sent, and the money went back")), nil
	}
	return v.Done(v.State.Parcel).With(v.State), nil
}

// place saves an order and starts its instance: both, or neither.
func place(ctx context.Context, client *ent.Client, eng *engine.Engine, customer, cake string, cents int64) (*ent.Order, error) {
	return client.Order.Create().SetCustomer(customer).SetCake(cake).SetCents(cents).
		SaveWith(ctx, eng, func(o *ent.Order) fsm.Spec {
			return Ordered.New(Cake{Order: o.ID, Customer: customer, Name: cake, Cents: cents}).Key(OrderKey(o.ID)).Label("customer", customer)
		})
}
