package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// trunk is the one connection of the heartbeats of a company. It holds the liveness locks of all
// its workers. Each uses it in turn, for a moment: what may take longer goes by the line's own
// connection, as does whatever is refused here. The bounds are the line's turn, a part of its
// heartbeat:
//
//   - A line waits for one turn to have the trunk.
//   - A statement takes one turn at most, its wait for a lock included, by the server's clock.
//   - Its holder gives up after trunkTurns turns, dialling included. Then the connection is closed,
//     and with it go the liveness locks of all, until each has taken its own again (at its next
//     tick, as after any loss of a connection).
//
// So a beat that the trunk does not take begins elsewhere after 1 + trunkTurns turns at the latest,
// whatever the others do. A line that fails here stays away for a while, the longer the more often
// it happens.
type trunk struct{ wire }

// trunkTurns is for how many turns of its own a line may have the trunk.
const trunkTurns = 4

var errTrunkBusy = errors.New("gendurable: the connection of the heartbeats is in use")

// aliveAtOnceSQL is the lock of aliveSQL where others wait for the connection: it does not wait for
// somebody who asks, at this moment, whether the worker lives. $1 schema $2 worker
var aliveAtOnceSQL = `SELECT pg_try_advisory_lock_shared(` + livenessKey("$1::text", "$2::text") + `)`

// goneSQL gives a worker's liveness lock back. $1 schema $2 worker
var goneSQL = `SELECT pg_advisory_unlock_shared(` + livenessKey("$1::text", "$2::text") + `)`

// use lets a line use the connection, which has the line's liveness lock then.
func (t *trunk) use(ctx context.Context, l *Line, send func(ctx context.Context, conn *pgx.Conn) error) error {
	waiting, stop := context.WithTimeout(ctx, l.turn)
	defer stop()
	if !t.take(waiting) {
		return errTrunkBusy
	}
	defer t.give()
	t.company.enter(l.s)
	ctx, cancel := context.WithTimeout(ctx, trunkTurns*l.turn)
	defer cancel()
	err := t.try(ctx, l, send)
	if err != nil && ctx.Err() == nil && t.conn != nil && t.conn.IsClosed() {
		t.lose() // it was dead before
		err = t.try(ctx, l, send)
	}
	if err != nil && t.conn != nil && (!t.conn.IsClosed() || errors.Is(ctx.Err(), context.DeadlineExceeded)) && !errors.Is(err, errTrunkBusy) {
		l.outside.begin()
	}
	return err
}

func (t *trunk) try(ctx context.Context, l *Line, send func(ctx context.Context, conn *pgx.Conn) error) error {
	err := t.open(ctx, l.s, millis(l.turn), millis(l.turn))
	if err == nil {
		err = t.live(ctx, l)
	}
	if err == nil {
		err = send(ctx, t.conn)
	}
	return err
}

// live takes the liveness lock of a line on the connection, once.
func (t *trunk) live(ctx context.Context, l *Line) error {
	if l.worker == "" || l.held == t.made {
		return nil
	}
	var alive bool
	if err := l.s.pipelineOn(ctx, t.conn, l.s.stmt("alive at once", aliveAtOnceSQL, readOne(&alive), l.s.schema, l.worker)); err != nil {
		t.doomed = true // the lock may be there, and would be there twice
		return fmt.Errorf("lock that worker %s lives: %w", l.worker, err)
	}
	if !alive {
		return errTrunkBusy
	}
	l.held = t.made
	return nil
}

// leave gives the liveness lock of a line back, for good. With the last line of the company the
// connection goes. Where the turn does not come before ctx ends, that happens later.
func (t *trunk) leave(ctx context.Context, l *Line) {
	if t.take(ctx) {
		t.left(l)
		return
	}
	go func() { // the turn of another ends soon
		t.turn <- struct{}{}
		t.left(l)
	}()
}

// left is leave with the turn.
func (t *trunk) left(l *Line) {
	defer t.give()
	t.company.leave(l.s)
	if t.conn == nil || l.worker == "" || l.held != t.made || !t.company.inhabited() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l.s.pipelineOn(ctx, t.conn, l.s.stmt("gone", goneSQL, nil, l.s.schema, l.worker)) != nil {
		t.doomed = true
	}
}
