package recipes

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Bill is the state of an invoice. Postgres holds it as JSON between steps.
type Bill struct {
	Number   string
	Customer string
	Cents    int64
	Sent     int // how many mails the customer has got
}

// Invoice and Paid are the names that the database stores, with their Go types: an invoice's state
// is a Bill, its result the cents that were paid. Programs that insert and signal need only these.
var (
	Invoice = fsm.Declare[Bill, int64]("invoice")
	Paid    = fsm.DeclareSignal[int64]("paid")
)

// invoices has what the steps need: here functions that send a mail and pay money back.
type invoices struct {
	mail   func(ctx context.Context, b Bill, idempotencyKey string) error
	refund func(ctx context.Context, b Bill, cents []int64, idempotencyKey string) error
}

type visit = fsm.Visit[Bill, int64]

// machine defines the steps, where each may lead, and how often a step that fails is tried.
func (m invoices) machine() fsm.Definition {
	return Invoice.Define(
		fsm.Step("start", m.send).To("settle").Timeout(time.Minute),
		fsm.Step("settle", m.settle).To("start", "refund"),
		fsm.Step("refund", m.payBack).To().Timeout(time.Minute),
	).Retry(fsm.RetryPolicy{MaxAttempts: 8}).Unless("refund", Paid)
}

// send mails the invoice, and parks it until it is paid, for two weeks at most. A parked instance
// is a row and nothing else. The idempotency key stays the same when a crash repeats the step.
func (m invoices) send(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := m.mail(ctx, v.State, v.IdempotencyKey("mail")); err != nil {
		return nil, err // the engine runs the step again, by the retry policy
	}
	v.State.Sent++
	return v.Await("settle", v.State, Paid).Timeout(14 * 24 * time.Hour), nil
}

// settle runs when the payment has arrived, or after two weeks without one.
func (m invoices) settle(_ context.Context, v *visit) (fsm.Outcome, error) {
	cents, paid, err := Paid.First(v)
	if err != nil {
		return nil, err
	}
	if !paid {
		return v.Next("start", v.State), nil // send it again
	}
	return v.Done(cents), nil
}

// payBack runs in place of an end that would delete a late payment.
func (m invoices) payBack(ctx context.Context, v *visit) (fsm.Outcome, error) {
	late, err := Paid.All(v)
	if err == nil {
		err = m.refund(ctx, v.State, late, v.IdempotencyKey("refund"))
	}
	return v.Done(v.State.Cents), err
}

// work runs steps in this process until ctx ends. Any number of processes may do so.
func work(ctx context.Context, pool *pgxpool.Pool, m invoices) error {
	eng, err := engine.New(engine.Config{
		Pool:     pool,
		Machines: []fsm.Definition{m.machine()},
		Queues:   map[string]engine.Queue{"default": {Concurrency: 10}},
	})
	if err != nil {
		return err
	}
	return eng.Run(ctx)
}

// bill inserts an invoice. Its key allows one live invoice of this number.
func bill(ctx context.Context, eng *engine.Engine, b Bill) (fsm.ID, error) {
	return eng.Insert(ctx, Invoice.New(b).Key(fsm.Key("invoice:"+b.Number)))
}

// pay is called by the bank's webhook. The bank may call twice: the second event changes nothing.
func pay(ctx context.Context, eng *engine.Engine, number string, cents int64, event string) error {
	_, err := eng.Signal(ctx, fsm.Key("invoice:"+number), Paid.With(cents).DedupKey(event))
	return err
}

// sent reads how many mails went out, from the state of the last step that has completed.
func sent(ctx context.Context, eng *engine.Engine, number string) (int, error) {
	at, err := Invoice.Get(ctx, eng, fsm.Key("invoice:"+number))
	return at.State.Sent, err
}

// again lets an invoice go on that failed because the mail server was down all day.
func again(ctx context.Context, eng *engine.Engine, id fsm.ID) error {
	_, err := eng.Admin().Retry(ctx, id)
	return err
}
