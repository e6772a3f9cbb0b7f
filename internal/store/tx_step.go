package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// ownFenceSQL leads a step's own transaction, so that a claim that is over does not even begin to
// write. It locks nothing: while the step's function runs, heartbeats, signals and joins reach the
// row as usual. The fenced update in the same transaction keeps a zombie's writes from being
// committed. $1 id $2 token $3 visit $4 worker
var ownFenceSQL = named("own fence", `SELECT `+visitFence("$2", "$3")+` FROM {s}.gen_durable g WHERE g.id = $1`)

// ownWaitSQL, before the fence, bounds what the function waits for a lock, unless the role has a
// bound: such transactions take turns, and one that waits for a foreign lock for ever would keep
// its turn. $1 how long
var ownWaitSQL = named("own wait", `SELECT CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $1, true) END`)

// ownWait is how long a step's own transaction waits for a lock: 1 s, doubled at each repetition
// up to 5 s. So a turn that waits for a foreign lock is soon free for others, and a row that many
// lock is reached in the end.
func ownWait(tries int) time.Duration { return min(5*time.Second, time.Second<<min(tries, 3)) }

// StepTx is a step's own transaction in the form that its function gets. Only the engine may end
// it.
type StepTx struct {
	pgx.Tx
	Instance int64 // whose step it is
	queues   []string
	arounds  []Around // whose first part has not run
	leads    []*lead  // whose first part has run
	released []*stepPoint
}

// Step returns the transaction itself.
func (t *StepTx) Step() *StepTx { return t }

// Begin sets a savepoint that knows whose step it belongs to.
func (t *StepTx) Begin(ctx context.Context) (pgx.Tx, error) { return savepoint(ctx, t.Tx, t) }

// Outermost returns true: Commit fails by itself.
func (t *StepTx) Outermost() bool { return true }

// stepPoint is a savepoint in a step's own transaction. Its function ends it.
type stepPoint struct {
	pgx.Tx
	step     *StepTx
	before   int // the functions around the commit when it was set
	released bool
}

func (p *stepPoint) Step() *StepTx                             { return p.step }
func (p *stepPoint) Begin(ctx context.Context) (pgx.Tx, error) { return savepoint(ctx, p.Tx, p.step) }

// Commit releases the savepoint.
func (p *stepPoint) Commit(ctx context.Context) error {
	if p.released {
		return pgx.ErrTxClosed
	}
	if err := p.Tx.Commit(ctx); err != nil {
		return err
	}
	p.released = true
	p.step.released = append(p.step.released, p)
	return nil
}

// Rollback undoes what was written since the savepoint, and takes back the functions around the
// commit that came since.
func (p *stepPoint) Rollback(ctx context.Context) error {
	if p.released {
		return pgx.ErrTxClosed
	}
	p.step.arounds = p.step.arounds[:min(p.before, len(p.step.arounds))]
	return p.Tx.Rollback(ctx)
}

func savepoint(ctx context.Context, within pgx.Tx, step *StepTx) (pgx.Tx, error) {
	tx, err := within.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &stepPoint{Tx: tx, step: step, before: len(step.arounds)}, nil
}

var errNotYours = errors.New("the engine ends a step's own transaction after its function has returned: return an error to undo it")

// Commit always returns an error.
func (*StepTx) Commit(context.Context) error { return errNotYours }

// Rollback always returns an error. A function that returns an error undoes what it wrote.
func (*StepTx) Rollback(context.Context) error { return errNotYours }

// Note adds queues to nudge after the commit.
func (t *StepTx) Note(queues ...string) { t.queues = append(t.queues, queues...) }

// Transacted reports the fate of a step's own transaction.
type Transacted struct {
	Committed
	Begun   bool  // the function was called, unless the claim was over
	Decided bool  // the function returned Entry; an error beside it comes from the engine's own statements
	Entry   Entry // the outcome; without an error and not Applied, it was stale, and nothing was written
	Lost    bool  // the connection broke under the function
	// Wait is how long the function was let wait for a lock.
	Wait time.Duration
	// Settle runs the second parts of the functions around the commit; see StepTx.Settle. It is nil if
	// there are none.
	Settle func(fate error) error
}

// Transact commits one outcome together with the writes of its function. It begins, checks the
// fence, calls the function, and sends the statements of a commit that waits and the COMMIT. ctx
// bounds the function, and finish the statements after it: once the function has returned an
// outcome, Transact commits it even if the step is cancelled. tries is how often it was repeated
// before: repetitions have no more than half of the turns. An outcome that adds to a graph which is
// over is undone with all that its function has written, and its node cancelled then.
//
// After an error nothing was written, unless Unknown reports that this is open. If the function
// panics or ends its goroutine, Transact rolls back.
func (s *Store) Transact(ctx, finish context.Context, worker, mark string, c *step.Claim, tries int, decide func(tx any) (Entry, error)) (t Transacted, err error) {
	if tries > 0 {
		select {
		case s.again <- struct{}{}:
			defer func() { <-s.again }()
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
	t.Wait = ownWait(tries)
	select {
	case s.own <- struct{}{}:
		defer func() { <-s.own }()
	case <-ctx.Done():
		return t, ctx.Err()
	}
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return t, fmt.Errorf("begin a step's transaction: %w", err)
	}
	defer conn.Release()
	tx, err := s.begin(ctx, conn)
	if err != nil {
		return t, fmt.Errorf("begin a step's transaction: %w", err)
	}
	defer s.undo(finish, tx)
	current := false
	wait := s.stmt(ownWaitSQL, nil, millis(t.Wait))
	wait.Ahead = true
	fence := s.stmt(ownFenceSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&current}, func() error { return nil })
		return err
	}, c.ID, c.Token, c.Visit, worker)
	if err := s.pipelineOn(ctx, conn.Conn(), s.entered([]entpgx.Stmt{wait, fence})...); err != nil {
		return t, fmt.Errorf("begin a step's transaction: %w", err)
	}
	t.Begun = true
	if !current {
		return t, nil
	}
	own := &StepTx{Tx: tx, Instance: c.ID}
	t.Entry, err = decide(own)
	if len(own.leads) > 0 {
		t.Settle = own.Settle
	}
	t.Lost = conn.Conn().IsClosed()
	if err == nil {
		err = usable(conn)
	}
	if err != nil {
		return t, err
	}
	t.Decided = true
	limit := ownFinish + time.Duration(t.Entry.Bytes()>>20)*time.Second
	timed, cancel := context.WithTimeout(finish, limit)
	defer cancel()
	b := newBatch(worker, mark, []Entry{t.Entry}, true)
	err = s.finish(timed, conn.Conn(), tx, b, &t)
	if err == nil && b.growth != nil && b.growth.over {
		s.undo(finish, tx)
		err = s.overtakenApart(timed, conn, millis(t.Wait), b, &t.Committed)
	}
	if err != nil {
		return t, fmt.Errorf("commit a step's transaction: %w", err)
	}
	t.Queues = append(t.Queues, own.queues...)
	return t, nil
}

// ownFinish bounds the end of a step's transaction from the client's side, for networks that
// swallow answers. Each mebibyte of the outcome adds a second.
const ownFinish = 75 * time.Second

// These are transaction states of a connection, as the server reports them.
const (
	inTransaction = 'T'
	inFailed      = 'E'
)

// usable returns an error if a function has left its transaction unfit to commit.
func usable(conn *pgxpool.Conn) error {
	switch status := conn.Conn().PgConn().TxStatus(); {
	case conn.Conn().IsClosed():
		return errors.New("the connection of the step's transaction is closed")
	case status == inFailed:
		return errors.New("the step's transaction is aborted, since a statement failed and the function returned no error: return it, or set a savepoint before a statement that may fail")
	case status != inTransaction:
		return errors.New("the step's function has ended its transaction by COMMIT or ROLLBACK, so its writes are not undone, and its outcome does not count: leave both to the engine")
	}
	return nil
}

// finish applies the outcome and commits. The settings of hot transactions apply only from here on:
// set before, they would affect the function's statements, too (T98).
func (s *Store) finish(ctx context.Context, conn *pgx.Conn, tx pgx.Tx, b *batch, t *Transacted) error {
	out := &t.Committed
	out.Applied = map[int64]bool{}
	b.revocable = true
	if b.growth != nil {
		b.growth.own = true
	}
	settings := []entpgx.Stmt{s.settings(millis(t.Wait), statementLimit)}
	send := func(stmts ...entpgx.Stmt) error {
		stmts, settings = append(settings, stmts...), nil
		return s.pipelineOn(ctx, conn, stmts...)
	}
	var err error
	if b.inParts() {
		err = s.commitInParts(send, b, out)
	} else {
		err = send(append(s.outcomes(b, out), s.settle(b, out)...)...)
	}
	if failed, ok := errors.AsType[*entpgx.StmtError](err); ok && failed.Name == promoting && blames(err) {
		// Postgres refuses to change the next row of the key, not the outcome's own: Promote deals with
		// it.
		out.Missed = append(out.Missed, b.keys...)
		err = send(s.stmt(unpromoteSQL, nil))
	}
	if err != nil {
		return uncommittedError{err}
	}
	if len(out.Applied) == 0 {
		return nil // the outcome is stale: whoever began the transaction rolls it back
	}
	if err := s.db.Surround(ctx, tx.Commit, s.stmt(endSQL, nil)); err != nil {
		return &entpgx.StmtError{Name: "commit", Sent: true, Err: err}
	}
	out.Runnable(b.entries)
	return nil
}

var (
	promoting = "promote"
	// revocableSQL precedes the promotion in a step's own transaction. Without it, a row that Postgres
	// refuses to bring forward would undo what the step wrote, and its outcome would be blamed.
	revocableSQL = named("revocable", `SAVEPOINT gendurable_promotion`)
	unpromoteSQL = named("unpromote", `ROLLBACK TO SAVEPOINT gendurable_promotion`)
)

// uncommittedError is an error before COMMIT was sent. So nothing was committed, whatever else is
// unknown.
type uncommittedError struct{ error }

func (e uncommittedError) Unwrap() error { return e.error }

// Unknown returns false.
func (uncommittedError) Unknown() bool { return false }

func (s *Store) begin(ctx context.Context, conn *pgxpool.Conn) (tx pgx.Tx, err error) {
	err = s.db.Surround(ctx, func(ctx context.Context) (err error) {
		tx, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL.text})
		return err
	}, s.stmt(beginSQL, nil))
	return tx, err
}

// undo rolls back a transaction that is still open. A connection that cannot do even that is
// closed.
func (s *Store) undo(ctx context.Context, tx pgx.Tx) {
	if tx.Conn() == nil || tx.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = s.db.Surround(ctx, tx.Rollback, s.stmt(rollbackSQL, nil)) // an error if it has ended already
}
