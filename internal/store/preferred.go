package store

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
)

// preferred is a connection beside the pool on which a worker claims and polls. Each connection
// plans each statement for itself, and again after each ANALYZE. Claims and polls are the dearest
// to plan: together they cost the server some 20 ms, as much as a thousand claimed rows. The pool
// would spread them over all of its connections, of each process of a fleet.
//
// No claim waits for another caller here: if the connection is in use, or cannot be had, the claim
// takes one of the pool. A poll waits for a moment first, since the claim that has the connection
// may only be waiting for its turn (see claimTurnSQL).
type preferred struct {
	turn    chan struct{} // held by the caller that uses the fields below it
	conn    *pgx.Conn
	dials   dialler
	expires time.Time // of the connection
	used    time.Time // when the last turn ended
	closed  bool
	doomed  atomic.Bool // the end of the turn closes the connection

	without absence // while it lasts, all callers use the pool
}

const (
	// preferredWait is how long a caller waits for the connection to be made. The attempt then goes on
	// without the caller.
	preferredWait = 500 * time.Millisecond
	// preferredIdle is after how long the connection is tried before it is used, as the pool does.
	preferredIdle = time.Second
	preferredPing = time.Second
	// pollPatience is how long a poll waits until a claim has ended.
	pollPatience = 250 * time.Millisecond
)

// Prefer gives the claims and polls of this store a connection beside the pool, which is made when
// it is first needed. The caller must call Unprefer in the end. Stores of a company get none: there
// may be a hundred of them in a process.
//
// The pool's hooks of acquiring and releasing cannot be called for such a connection, so a pool
// that has some serves the claims and polls itself.
func (s *Store) Prefer() {
	pool := s.db.Pool()
	if pool == nil || s.company != nil {
		return
	}
	if c := pool.Config(); c.PrepareConn != nil || c.BeforeAcquire != nil || c.AfterRelease != nil { //nolint:staticcheck // hosts still use BeforeAcquire
		return
	}
	s.preferred.Store(&preferred{turn: make(chan struct{}, 1)})
}

// Unprefer closes the connection of Prefer. It waits for a caller that uses it until ctx ends; then
// the caller closes it.
func (s *Store) Unprefer(ctx context.Context) {
	p := s.preferred.Swap(nil)
	if p == nil {
		return
	}
	select {
	case p.turn <- struct{}{}:
		p.closed = true
		p.dials.stop(ctx)
		p.close()
		<-p.turn
	case <-ctx.Done():
		p.doomed.Store(true)
	}
}

// onConnection lets a claim use the preferred connection, or one of the pool.
func (s *Store) onConnection(ctx context.Context, use func(*pgx.Conn) error) error {
	if p := s.prefers(ctx, nil); p != nil {
		defer p.give()
		return use(p.conn)
	}
	return s.db.Pool().AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return use(conn.Conn()) })
}

// pollAlone sends a poll on the preferred connection, or on one of the pool.
func (s *Store) pollAlone(ctx context.Context, reads ...entpgx.Stmt) error {
	late := time.NewTimer(pollPatience)
	defer late.Stop()
	if p := s.prefers(ctx, late.C); p != nil {
		defer p.give()
		return s.pipelineOn(ctx, p.conn, s.enclose(fastLock, reads)...)
	}
	return s.transaction(ctx, fastLock, reads...)
}

// prefers begins a turn at the preferred connection, or returns nil. It waits for its turn until
// late; nil: not at all.
//
// If all connections of the pool are in use, claims and polls have to wait for one, as outcomes do:
// a process that cannot commit should leave rows to others, and health goes by the polls. If the
// pool has no connection, it makes one, or fails: so a host that has closed the pool ends the
// claims.
func (s *Store) prefers(ctx context.Context, late <-chan time.Time) *preferred {
	p := s.preferred.Load()
	if p == nil || p.without.lasts() {
		return nil
	}
	if stat := s.db.Pool().Stat(); stat.TotalConns() == 0 || stat.AcquiredConns() >= stat.MaxConns() {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
	default:
		if late == nil {
			return nil
		}
		select {
		case p.turn <- struct{}{}:
		case <-late:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	if p.closed || !p.open(ctx, s) {
		<-p.turn
		return nil
	}
	return p
}

// open makes the connection, if there is none that is alive, and reports whether there is one. The
// caller has the turn.
func (p *preferred) open(ctx context.Context, s *Store) bool {
	if p.conn != nil && time.Since(p.used) > preferredIdle {
		trying, cancel := context.WithTimeout(ctx, preferredPing)
		_ = p.conn.Ping(trying) // it closes the connection if it fails
		cancel()
	}
	if p.conn != nil && p.conn.IsClosed() {
		p.conn = nil
	}
	if p.conn != nil {
		return true
	}
	waiting, cancel := context.WithTimeout(ctx, preferredWait)
	defer cancel()
	conn, err := p.dials.open(waiting, s.db.Dial)
	switch {
	case err == nil:
		c := s.db.Pool().Config()
		p.conn, p.expires = conn, time.Now().Add(c.MaxConnLifetime+rand.N(c.MaxConnLifetimeJitter+1)) //nolint:gosec // jitter
	case waiting.Err() == nil:
		p.without.begin() // e.g. the role may have no more connections
	}
	return err == nil
}

// give ends a turn.
func (p *preferred) give() {
	if p.used = time.Now(); p.doomed.Swap(false) || p.used.After(p.expires) {
		p.close()
	}
	<-p.turn
}

// yields closes the preferred connection for a while if another one of this process failed for want
// of connections, and reports whether it has: then the other may try again. A heartbeat must not
// miss a connection because claims have one, and neither must outcomes.
func (s *Store) yields(err error) bool {
	p := s.preferred.Load()
	if p == nil || !hasCode(err, codeTooMany) {
		return false
	}
	if !p.without.lasts() {
		p.without.begin()
	}
	select {
	case p.turn <- struct{}{}:
	default:
		p.doomed.Store(true)
		return false
	}
	defer func() { <-p.turn }()
	had := p.conn != nil
	p.close()
	return had
}

func (p *preferred) close() {
	if p.conn == nil {
		return
	}
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(closing)
	p.conn = nil
}
