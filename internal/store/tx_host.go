package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Transaction runs statements in order inside a transaction that the host began and will end.
// [Pgx], [SQL] and [Foreign] make one.
type Transaction interface {
	// run sends within what surrounds the store's driver.
	run(ctx context.Context, db *entpgx.Driver, stmts ...entpgx.Stmt) error
}

// Pgx returns a Transaction of pgx. It sends statements that need no answer between them in one
// round trip.
func Pgx(tx pgx.Tx) Transaction {
	if tx == nil {
		return nothing{}
	}
	return native{tx}
}

type native struct{ pgx.Tx }

func (t native) run(ctx context.Context, db *entpgx.Driver, stmts ...entpgx.Stmt) error {
	return db.Within(t.Tx).Pipeline(ctx, stmts...)
}

type nothing struct{}

func (nothing) run(context.Context, *entpgx.Driver, ...entpgx.Stmt) error {
	return errors.New("the transaction is nil: give an open one")
}

// Hosted sends the store's writes inside a transaction of the host. It changes no setting of that
// transaction: lock_timeout, isolation and search_path are the host's, so every statement must keep
// its plan without our settings. An error of Postgres has aborted the transaction, like an error of
// the host's own statements. ErrNoTarget, ErrInboxFull and a duplicate have not.
type Hosted struct {
	s   *Store
	tx  Transaction
	own int64
}

// Within returns the store's writes inside a transaction.
func (s *Store) Within(tx Transaction) *Hosted { return &Hosted{s: s, tx: tx} }

// run sends statements inside the host's transaction.
func (h *Hosted) run(ctx context.Context, stmts ...entpgx.Stmt) error {
	return h.s.placed(ctx, h.tx.run(ctx, h.s.db, h.s.entered(stmts)...), h.s.db.Pipeline)
}

// Spare keeps inserts from cancelling an instance: the one whose step the transaction belongs to.
// Its outcome decides what becomes of it.
func (h *Hosted) Spare(id int64) { h.own = id }

// Insert is [Store.Insert], and returns what it did to other instances. by is for the audit of
// those that it cancels. It repeats nothing: only the host can repeat its transaction.
func (h *Hosted) Insert(ctx context.Context, list []*step.Spec, by By) (out []Inserted, effects Effects, err error) {
	send := func(stmts ...entpgx.Stmt) error { return h.run(ctx, stmts...) }
	if anyRuled(list) {
		out, effects, err = h.s.insertRuled(send, list, h.own, by)
	} else {
		var cols specs
		for _, x := range list {
			cols.add(x)
		}
		h.s.arrange(&cols)
		out, err = h.s.insertIn(send, &cols, list)
		if err == nil {
			if last := h.s.takeKept(list, out); len(last) > 0 {
				err = send(last...)
			}
		}
	}
	if err != nil {
		h.s.unlearn(err)
		return nil, Effects{}, fmt.Errorf("insert %s in your transaction: %w", instances(len(list)), err)
	}
	return out, effects, nil
}

// Deliver is [Store.Deliver]. The target stays locked until the host's transaction ends. Its
// outcome waits for that, and no other outcome does.
func (h *Hosted) Deliver(ctx context.Context, to Address, m *step.Signal, inbox int) (Delivery, error) {
	got, err := h.s.deliver(&delivery{to: to, signal: m, inbox: inbox}, func(stmts ...entpgx.Stmt) error { return h.run(ctx, stmts...) })
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to %s in your transaction: %w", m.Name, to, err)
	}
	return got, nil
}

// DeliverOrInsert is [Store.DeliverOrInsert].
func (h *Hosted) DeliverOrInsert(ctx context.Context, x *step.Spec, m *step.Signal, inbox int) (Delivery, error) {
	got, err := h.s.deliverOrInsert(newArrival(x, m, inbox), func(stmts ...entpgx.Stmt) error { return h.run(ctx, stmts...) })
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to key %q or insert it in your transaction: %w", m.Name, x.Key, err)
	}
	return got, nil
}

// Cancel is [Store.Operate] of an order to cancel. The rows, and their parents, stay locked until
// the host's transaction ends. As in a transaction of the store's own, each statement is later than
// the locks that it relies on, so a commit, a claim or a delivery goes before or after the order.
//
// Where a family grew while it was locked in order, only the host can begin anew: it gets an error.
func (h *Hosted) Cancel(ctx context.Context, ids []int64, o *Order) (out Operated, err error) {
	o.Verb = Cancel
	send := func(stmts ...entpgx.Stmt) error { return h.run(ctx, stmts...) }
	err = h.s.operate(send, ids, o, &out)
	if errors.Is(err, errNodes) { // what it has locked stays locked, so what waits for the nodes is locked out of order, once per process
		out = Operated{}
		err = h.s.operate(send, ids, o, &out)
	}
	if err != nil {
		return Operated{}, fmt.Errorf("cancel %s in your transaction: %w", instances(len(ids)), err)
	}
	return out, nil
}

// stillLiveSQL locks instances, and lists them. It locks no parent, which a cancel does: a verb
// that makes an instance live again locks its row, and an ended instance has nothing to tell its
// parent any more. So the parent of an ended child goes on while the host's transaction is open.
// $1 ids
var stillLiveSQL = named("still live", `SELECT x.id, x.status::text FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[]) ORDER BY x.id FOR NO KEY UPDATE`)

// Live locks instances in order of ids, and returns the ones that have not ended. Until the host's
// transaction ends no verb can make one of the others live, which takes its lock.
func (h *Hosted) Live(ctx context.Context, ids []int64) (out []Change, err error) {
	read := func(rows pgx.Rows) error {
		out = nil
		var id int64
		var status string
		_, err := pgx.ForEachRow(rows, []any{&id, &status}, func() error {
			if slices.Contains(live, status) {
				out = append(out, Change{ID: id, Was: status, Is: status, Asked: true})
			}
			return nil
		})
		return err
	}
	if err := h.run(ctx, h.s.stmt(stillLiveSQL, read, slices.Compact(slices.Sorted(slices.Values(ids))))); err != nil {
		return nil, fmt.Errorf("check in your transaction whether %s have ended: %w", instances(len(ids)), err)
	}
	return out, nil
}
