package store

import (
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

// Company is what engines of one process share whose schemas are reached by one pool: their idle
// polls go together, in rounds, and their heartbeats have one connection (trunk.go). It is safe for
// concurrent use.
//
// Nobody stops the others. In a round each store has a transaction of its own, with shorter limits
// than one that goes alone. A store whose transaction fails there asks again by itself, at once;
// what stood behind it in the pipeline is sent anew. A store that has failed or was slow stays out
// of the rounds for a while, the longer the more often it happens. A round that takes too long is
// given up: all ask by themselves, and there are no rounds for a while. So whatever befalls some
// stores delays the looks of the others by roundMost at most, once in that while.
type Company struct {
	pool  *pgxpool.Pool
	phase time.Time
	trunk trunk
	looks wire // of the rounds

	gathers, slow time.Duration // gatherTime and roundSlow, but in tests

	outside absence // of all, from the rounds

	mu     sync.Mutex
	stores map[*Store]bool // those that have used the trunk or a round, and have not left
	gather *round          // the round that stores may join now; nil: none
}

// NewCompany makes a company of engines whose pool is this one.
func NewCompany(pool *pgxpool.Pool) *Company {
	// Processes that start together are not to poll together.
	at := time.Now().Add(-rand.N(time.Second)) //nolint:gosec // jitter
	c := &Company{pool: pool, phase: at, gathers: gatherTime, slow: roundSlow, stores: map[*Store]bool{}}
	c.trunk.wire = wire{company: c, turn: make(chan struct{}, 1)}
	c.looks = wire{company: c, turn: make(chan struct{}, 1)}
	return c
}

// Pool returns the pool.
func (c *Company) Pool() *pgxpool.Pool { return c.pool }

// Until returns how long to wait instead of d, so that all who wait for d wait until the same time:
// no longer than d, or little more just before such a time. Who has no company waits for about d.
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

// enter notes that a store uses what it shares.
func (c *Company) enter(s *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores[s] = true
}

// leave notes that a store does so no more. With the last one the connections are closed.
func (c *Company) leave(s *Store) {
	c.mu.Lock()
	delete(c.stores, s)
	c.mu.Unlock()
	select {
	case c.looks.turn <- struct{}{}:
		c.looks.give()
	default: // a round is under way: its end closes the connection
	}
}

// inhabited reports whether some store uses what is shared.
func (c *Company) inhabited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stores) > 0
}

// Join makes the store one of a company whose pool is its own. It comes before any other use. Its
// connections have to be sessions: not those of a pooler of transactions.
func (s *Store) Join(c *Company) { s.company = c }

// Company returns the company of the store; nil: it has none.
func (s *Store) Company() *Company { return s.company }

const (
	// gatherTime is how long a round waits for those who wake at the same time.
	gatherTime = 10 * time.Millisecond
	// roundMost bounds a round. Who has no answer by then asks by itself.
	roundMost = 3 * time.Second
	// roundLock and roundLimit bound what one statement of a round may wait for, and take.
	roundLock  = "100ms"
	roundLimit = "1s"
	// roundSlow is what the look of a store may take, by the server's clock, before it leaves the
	// rounds. The client cannot tell: the server sends the answers of a pipeline together.
	roundSlow = 250 * time.Millisecond
)

// absence is for how long a store goes by itself. Its owner locks it.
type absence struct {
	mu    sync.Mutex
	falls int
	until time.Time
}

const (
	absentLeast = 10 * time.Second
	absentMost  = 5 * time.Minute
)

// begin begins an absence. One that follows the last one soon is twice as long.
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

// lasts reports whether the store still goes by itself.
func (a *absence) lasts() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until)
}

// reads sends reads as one transaction: together with those of the company, or else alone. It makes
// them anew for each try.
func (s *Store) reads(ctx context.Context, reads func() []entpgx.Stmt) error {
	if s.accompanied() && !s.outside.lasts() && !s.company.outside.lasts() {
		stmts := s.encloseWithin(roundLock, roundLimit, reads())
		err := s.db.Surround(ctx, func(ctx context.Context) error { return s.company.look(ctx, s, stmts) }, stmts...)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return s.transaction(ctx, fastLock, reads()...)
}

// accompanied reports whether the store may share what its company shares. A schema that Citus
// distributes may move to another node.
func (s *Store) accompanied() bool { return s.company != nil && !s.rendered.Load().distributed() }

// round is one pipeline of several stores.
type round struct {
	seats   []*seat
	waiting int             // how many still want their answer
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

// errAlone says that a round has not answered a store, through no fault of its own.
var errAlone = errors.New("gendurable: the look of several schemas has ended before this one's")

// look sends the transaction of a store with those of others.
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

// expected returns how many stores may come to a round. The caller holds mu.
func (c *Company) expected() (n int) {
	for s := range c.stores {
		if !s.outside.lasts() {
			n++
		}
	}
	return n
}

// begin takes no more stores into a round, and reports whether it is still to be sent.
func (c *Company) begin(r *round) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gather != r {
		return false
	}
	c.gather = nil
	return true
}

// send sends a round, and again what stood behind a store that has failed in it.
func (c *Company) send(r *round) {
	defer r.cancel()
	seats := r.seats
	if c.looks.take(r.ctx) {
		defer c.looks.give()
		for len(seats) > 0 && r.ctx.Err() == nil && c.looks.open(r.ctx, seats[0].store, roundLock, roundLimit) == nil && !c.looks.conn.IsClosed() {
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

// sendSome sends the transactions of some stores, answers them up to the first that fails, and
// returns those behind it.
func (c *Company) sendSome(ctx context.Context, conn *pgx.Conn, seats []*seat) []*seat {
	last := time.Time{}
	clock := func(slow func()) entpgx.Stmt {
		return entpgx.Stmt{Name: "now", SQL: nowSQL, Read: func(rows pgx.Rows) error {
			now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
			if !last.IsZero() && now.Sub(last) > c.slow {
				slow()
			}
			last = now
			return err
		}}
	}
	stmts, of := []entpgx.Stmt{clock(nil)}, []int{0} // by statement, whose it is
	for i, one := range seats {
		stmts = append(append(stmts, one.stmts...), clock(one.store.outside.begin))
		for range len(one.stmts) + 1 {
			of = append(of, i)
		}
	}
	err := entpgx.New(c.pool).PipelineOn(ctx, conn, stmts...)
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
	if conn.IsClosed() { // nobody knows why
		return seats[done:]
	}
	seats[done].store.outside.begin()
	seats[done].answer(err)
	return seats[done+1:]
}
