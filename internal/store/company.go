package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pace"
)

// Company is shared by the engines of one process that reach several schemas through one pool.
// Their idle polls go together, in rounds, and their heartbeats share one connection (trunk.go). It
// is safe for concurrent use.
//
// No store stops the others. In a round each store has its own transaction, with shorter time
// limits than a transaction alone. If a store's transaction fails in the round, the store repeats
// it by itself at once, and the company sends the transactions behind it in the pipeline anew. A
// store that failed or was slow stays out of the rounds for a while; the while doubles if that
// happens again soon. A round that takes too long is given up: then every store polls by itself,
// and there are no rounds for a while. So a store in trouble delays the polls of the others by
// roundMost at most, once per while.
type Company struct {
	pool  *pgxpool.Pool
	phase time.Time
	trunk trunk
	looks wire // the connection of the rounds

	gathers, slow time.Duration // gatherTime and roundSlow; tests set others

	outside absence // while it lasts there are no rounds

	mu     sync.Mutex
	stores map[*Store]bool // those that have used the trunk or a round, and have not left
	gather *round          // the round that stores may join now; nil: none

	// of Citus (company_node.go):
	node  *node             // the only node of the rounds; nil: that of the pool
	nodes map[node]*Company // those of the distributed schemas
}

// NewCompany returns a company for engines with this pool. Without a pool, each engine has a
// separate pool, and only engines share polls whose schemas Citus has on one node.
func NewCompany(pool *pgxpool.Pool) *Company {
	// Processes that start at the same time should poll at different times.
	at := time.Now().Add(-rand.N(time.Second)) //nolint:gosec // jitter
	c := &Company{pool: pool, phase: at, gathers: gatherTime, slow: roundSlow, stores: map[*Store]bool{}}
	c.trunk.wire = wire{company: c, turn: make(chan struct{}, 1)}
	c.looks = wire{company: c, turn: make(chan struct{}, 1)}
	return c
}

// Pool returns the pool.
func (c *Company) Pool() *pgxpool.Pool { return c.pool }

// Until returns how long to wait instead of d, so that all callers that wait for d wake at the same
// time. The result is at most d, or little more if that time is only just ahead. Without a company
// Until returns d with jitter.
func (c *Company) Until(d time.Duration) time.Duration {
	if c == nil || d <= 0 {
		return pace.Jittered(d)
	}
	wait := d - time.Since(c.phase)%d
	if wait < min(2*gatherTime, d/8) {
		wait += d
	}
	return wait
}

// enter notes that a store uses the shared connections.
func (c *Company) enter(s *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores[s] = true
}

// leave notes that a store has stopped using them. The last store to leave closes them.
func (c *Company) leave(s *Store) {
	s.depart()
	c.forget(s)
}

func (c *Company) forget(s *Store) {
	c.mu.Lock()
	delete(c.stores, s)
	c.mu.Unlock()
	select {
	case c.looks.turn <- struct{}{}:
		c.looks.give()
	default: // a round is under way: its end closes the connection
	}
}

// inhabited reports whether some store uses the shared connections.
func (c *Company) inhabited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stores) > 0
}

// Join adds the store to a company whose pool is the store's own, or that has none. Call it before
// any other use. The pool's connections have to be sessions, so no proxy that pools transactions
// may be between.
func (s *Store) Join(c *Company) { s.company = c }

// Company returns the company of the store; nil: it has none.
func (s *Store) Company() *Company { return s.company }

const (
	// gatherTime is how long a round waits for stores that wake at the same time.
	gatherTime = 10 * time.Millisecond
	// roundMost bounds a round. A store without an answer by then polls by itself.
	roundMost = 3 * time.Second
	// roundLock bounds how long one statement of a round waits for a lock, roundLimit how long it
	// takes.
	roundLock  = "100ms"
	roundLimit = "1s"
	// roundSlow is how long the poll of one store may take, by the server's clock, before the store
	// leaves the rounds. The client cannot measure it, since the server sends the answers of a
	// pipeline together.
	roundSlow = 250 * time.Millisecond
)

// absence is the time during which a store works by itself.
type absence struct {
	mu    sync.Mutex
	falls int
	until time.Time
}

const (
	absentLeast = 10 * time.Second
	absentMost  = 5 * time.Minute
)

// begin begins an absence. It is twice as long as the last one if that ended less than absentMost
// ago.
func (a *absence) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.until) > absentMost {
		a.falls = 0
	}
	a.until = now.Add(min(absentMost, absentLeast<<min(a.falls, 16)))
	a.falls++
}

// lasts reports whether the absence still lasts.
func (a *absence) lasts() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until)
}

// reads sends reads as one transaction: in a round of the company, or else alone. It makes the
// statements anew for each attempt.
func (s *Store) reads(ctx context.Context, reads func() []entpgx.Stmt) error {
	if c := s.rounds(); c != nil && !s.outside.lasts() && !c.outside.lasts() {
		stmts := s.encloseWithin(roundLock, roundLimit, reads())
		err := s.db.Surround(ctx, func(ctx context.Context) error { return c.look(ctx, s, stmts) }, stmts...)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if s.rendered.Load().elsewhere(err) {
			s.depart()
		}
	}
	return s.alone(ctx, reads())
}

// accompanied reports whether the store may use the connections of its company. A schema that Citus
// distributes may not, since it may move to another node.
func (s *Store) accompanied() bool {
	return s.company != nil && s.company.pool != nil && !s.rendered.Load().distributed()
}

// round is one pipeline with the transactions of several stores.
type round struct {
	seats   []*seat
	waiting int             // how many seats still wait for their answer
	ctx     context.Context //nolint:containedctx // the round's own life
	cancel  context.CancelFunc
}

// seat is the transaction of one store in a round.
type seat struct {
	store    *Store
	stmts    []entpgx.Stmt
	err      error
	answered chan struct{}
}

func (s *seat) answer(err error) {
	s.err = err
	close(s.answered)
}

// errAlone tells a store that the round ended without an answer for it, for no fault of the store.
var errAlone = errors.New("gendurable: the poll of several schemas ended before it reached this one")

// look sends the transaction of a store together with other stores'.
func (c *Company) look(ctx context.Context, s *Store, stmts []entpgx.Stmt) error {
	mine := &seat{store: s, stmts: stmts, answered: make(chan struct{})}
	c.mu.Lock()
	c.stores[s] = true
	r := c.gather
	if r == nil {
		r = &round{}
		r.ctx, r.cancel = context.WithTimeout(context.Background(), c.gathers+roundMost)
		c.gather = r
		time.AfterFunc(c.gathers, func() {
			if c.begin(r) {
				c.send(r)
			}
		})
	}
	r.seats = append(r.seats, mine)
	r.waiting++
	if len(r.seats) == c.expected() {
		c.gather = nil
		go c.send(r)
	}
	c.mu.Unlock()
	select {
	case <-mine.answered:
		return mine.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.waiting--; r.waiting == 0 {
			r.cancel()
			if c.gather == r {
				c.gather = nil
			}
		}
		return ctx.Err()
	}
}

// expected returns how many stores may join a round. The caller holds mu.
func (c *Company) expected() (n int) {
	for s := range c.stores {
		if !s.outside.lasts() {
			n++
		}
	}
	return n
}

// begin closes a round to further stores, and reports whether the caller has to send it.
func (c *Company) begin(r *round) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gather != r {
		return false
	}
	c.gather = nil
	return true
}

// send sends a round. If a store fails in it, send sends the transactions behind that one again.
func (c *Company) send(r *round) {
	defer r.cancel()
	seats := r.seats
	if c.looks.take(r.ctx) {
		defer c.looks.give()
		for len(seats) > 0 && r.ctx.Err() == nil && c.reach(r.ctx, seats[0].store) {
			seats = c.sendSome(r.ctx, c.looks.conn, seats)
		}
	}
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		c.outside.begin()
	}
	for _, left := range seats {
		left.answer(errAlone)
	}
}

// reach reports whether there is a connection for a round. If there is none, the store dials one.
func (c *Company) reach(ctx context.Context, s *Store) bool {
	err := c.looks.open(ctx, s, roundLock, roundLimit)
	if err != nil && c.node != nil && ctx.Err() == nil {
		s.outside.begin() // another store is to make the next connection, since this schema may have moved
		s.depart()
	}
	return err == nil && !c.looks.conn.IsClosed()
}

// sendSome sends the transactions of some stores, answers them up to the first that fails, and
// returns those behind it.
func (c *Company) sendSome(ctx context.Context, conn *pgx.Conn, seats []*seat) []*seat {
	last := time.Time{}
	clock := func(slow func()) entpgx.Stmt {
		return seats[0].store.stmt(nowSQL, func(rows pgx.Rows) error {
			now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
			if !last.IsZero() && now.Sub(last) > c.slow {
				slow()
			}
			last = now
			return err
		})
	}
	stmts, of := []entpgx.Stmt{clock(nil)}, []int{0} // the index of the seat, by statement
	for i, one := range seats {
		for _, stmt := range one.stmts {
			stmt.Ahead = false // the session has limits of its own, and the settings of the last do not hold for the others
			stmts = append(stmts, stmt)
		}
		stmts = append(stmts, clock(one.store.outside.begin))
		for range len(one.stmts) + 1 {
			of = append(of, i)
		}
	}
	err := entpgx.New(cmp.Or(c.pool, seats[0].store.db.Pool())).PipelineOn(ctx, conn, stmts...)
	done := len(seats)
	if failed, ok := errors.AsType[*entpgx.StmtError](err); ok {
		done = of[failed.Index]
	}
	for _, one := range seats[:done] {
		one.answer(nil)
	}
	if err == nil {
		return nil
	}
	if conn.IsClosed() { // which store caused it is not known
		return seats[done:]
	}
	if c.node != nil && seats[done].store.rendered.Load().hasMoved(err) {
		c.looks.doomed = true // it may lead to a node that is no primary any more
	}
	seats[done].store.outside.begin()
	seats[done].answer(err)
	return seats[done+1:]
}
