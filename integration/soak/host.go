package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// hosted is a transaction of a host. Its commit makes everything that it has written visible;
// without one, nothing ever is.
type hosted struct {
	*engine.Tx
	exec     func(ctx context.Context, sql string, args ...any) error
	commit   func(ctx context.Context) error
	rollback func(ctx context.Context) error

	written []string // labels of instances and tags of signals
}

// begin begins a transaction of either kind.
func (u *undertaking) begin(ctx context.Context) (*hosted, error) {
	if u.IntN(2) == 0 {
		tx, err := u.pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return &hosted{Tx: u.eng.WithPgx(tx), commit: tx.Commit, rollback: tx.Rollback, exec: func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}}, nil
	}
	tx, err := u.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &hosted{
		Tx: u.eng.WithSQL(tx), commit: func(context.Context) error { return tx.Commit() }, rollback: func(context.Context) error { return tx.Rollback() },
		exec: func(ctx context.Context, sql string, args ...any) error {
			_, err := tx.ExecContext(ctx, sql, args...)
			return err
		},
	}, nil
}

var errRolledBack = errors.New("rolled back on purpose")

// The log has these words for the end of a host's transaction.
const (
	hostCommitted  = "committed"
	hostRolledBack = "rolled back"
	hostUnknown    = "unknown"
)

// within runs f in a transaction of a host, beside a row of the host's own, and logs what must be
// true of everything that it has written. An error says that nothing was written, or that it is
// unknown.
func (u *undertaking) within(ctx context.Context, name string, onPurpose bool, f func(ctx context.Context, tx *hosted) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := u.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after the commit it does nothing
	told := event{Kind: evHosted, Label: name, Outcome: hostRolledBack}
	defer func() {
		told.Tags = tx.written
		u.log.write(told)
	}()
	if err := tx.exec(ctx, `INSERT INTO soak.hosted (name) VALUES ($1)`, name); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	if onPurpose {
		return errors.Join(errRolledBack, tx.rollback(ctx))
	}
	if err := tx.commit(ctx); err != nil {
		told.Outcome = hostUnknown
		if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone) {
			told.Outcome = hostRolledBack
		}
		return err
	}
	told.Outcome = hostCommitted
	if u.IntN(2) == 0 {
		tx.Nudge() // else the next poll finds it
	}
	return nil
}

// order does what a shop does: in one transaction it writes a row, inserts an instance, and signals
// to another instance.
func (u *undertaking) order(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", u.name, n)
		task, box := u.work(), u.work()
		task.Label, box.Label, box.Want = name+"/job", name+"/box", 2
		key := fsm.Key("letters:" + box.Label)
		var ids [2]fsm.ID
		first, second := ping{0, box.Label + "/0#0"}, ping{1, box.Label + "/1#0"}
		err := u.within(ctx, name, u.IntN(3) == 0, func(ctx context.Context, tx *hosted) (err error) {
			tx.written = []string{task.Label, box.Label, first.Tag, second.Tag}
			if ids[0], err = tx.Insert(ctx, job.New(task)); err != nil {
				return err
			}
			in, err := tx.SignalOrInsert(ctx, mailbox.New(box).Key(key), pings.With(first))
			if err != nil {
				return err
			}
			if in.Duplicate {
				return fmt.Errorf("key %s is instance %d's already", key, in.ID)
			}
			if _, err := tx.Signal(ctx, in.ID, pings.With(second)); err != nil {
				return err
			}
			ids[1] = in.ID
			return nil
		})
		if err != nil {
			u.again(ctx, "transaction", err)
			continue // an unknown result stays unknown: the next one has another name
		}
		u.log.write(event{Kind: evAccepted, ID: int64(ids[0]), Label: task.Label})
		u.log.write(event{Kind: evAccepted, ID: int64(ids[1]), Label: box.Label, Key: string(key)})
		for _, p := range []ping{first, second} {
			u.log.write(event{Kind: evAcked, Label: u.name, Tag: p.Tag, Target: int64(ids[1])})
		}
		u.outcome(ctx, ids[0])
		u.outcome(ctx, ids[1])
		return
	}
}

// signalWithin sends a signal in a host's transaction, which may be rolled back on purpose.
func (u *undertaking) signalWithin(ctx context.Context, to fsm.Target, p ping, dedup string) (d engine.Delivery, err error) {
	m := pings.With(p)
	if dedup != "" {
		m = m.DedupKey(dedup)
	}
	err = u.within(ctx, p.Tag, u.IntN(4) == 0, func(ctx context.Context, tx *hosted) (err error) {
		tx.written = []string{p.Tag}
		d, err = tx.Signal(ctx, to, m)
		if d.Duplicate {
			tx.written = nil
		}
		return err
	})
	return d, err
}

// arrive sends signals to an instance that does not exist yet: the first one inserts it.
func (u *undertaking) arrive(ctx context.Context) {
	w := u.work()
	w.Want = 2 + u.IntN(4)
	// Its scope keeps the key for good, so that there is one instance, however often a signal is sent.
	key := fsm.Key("once:" + u.name)
	spec := mailbox.New(w).Key(key).Scope(fsm.ScopeAll)
	var id fsm.ID
	for _, i := range u.Perm(w.Want) {
		for try := 0; ctx.Err() == nil; try++ {
			p := ping{i, fmt.Sprintf("%s/%d#%d", u.name, i, try)}
			e := event{Label: u.name, Tag: p.Tag, Dedup: fmt.Sprintf("d%d", i), Detail: withStart}
			calling, cancel := context.WithTimeout(ctx, patience)
			in, err := u.eng.SignalOrInsert(calling, spec, pings.With(p).DedupKey(e.Dedup))
			cancel()
			if errors.Is(err, engine.ErrNoTarget) {
				e.Kind = evRefused
				u.log.write(e)
				break // it has all that it wants, or was cancelled
			}
			if err != nil {
				e.Kind, e.Detail = evUnknown, err.Error()
				u.log.write(e)
				u.again(ctx, "signal with start", err)
				continue
			}
			// An attempt before this one may have delivered the signal.
			e.Kind, e.Target, e.Duplicate = evAcked, int64(in.ID), true
			u.log.write(e)
			if id == 0 {
				u.log.write(event{Kind: evAccepted, ID: int64(in.ID), Label: u.name, Key: string(key)})
			}
			id = in.ID
			break
		}
		pause(ctx, time.Duration(u.IntN(100))*time.Millisecond)
	}
	if id != 0 {
		u.outcome(ctx, id)
	}
}

// withStart tells a signal with start from others.
const withStart = "with start"

// book inserts a teller, whose steps write to the host's tables in their own transactions, and send
// letters from them.
func (u *undertaking) book(ctx context.Context) {
	box := u.work()
	box.Label, box.Want = u.name+"/box", 2+u.IntN(4)
	key := fsm.Key("letters:" + box.Label)
	id, ok := u.insert(ctx, mailbox.New(box).Key(key))
	if !ok {
		return
	}
	w := u.work()
	w.Steps, w.Sends = box.Want, int64(id)
	spec := teller.New(w).Key(fsm.Key("teller:" + u.name))
	if u.IntN(4) == 0 {
		w.Busy %= quick
		spec = teller.New(w).Key(fsm.Key("teller:" + u.name)).PartitionKey(fmt.Sprintf("tellers:%d", u.IntN(5)))
	}
	if teller, ok := u.insert(ctx, spec); ok {
		u.outcome(ctx, teller)
	}
	// A cancelled teller has not sent all letters, so the client sends those that the mailbox does not
	// have.
	for i := range box.Want {
		if !slices.Contains(u.got(ctx, id), i) && !u.deliver(ctx, id, box.Label, i, true) {
			return
		}
	}
	u.outcome(ctx, id)
}

// got returns what a mailbox has taken out.
func (u *undertaking) got(ctx context.Context, id fsm.ID) []int {
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	i, err := mailbox.Get(calling, u.eng, id)
	if err != nil {
		return nil
	}
	return i.State.Got
}
