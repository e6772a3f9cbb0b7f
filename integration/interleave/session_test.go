package interleave

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// session runs verbs of the store, one schedule after the other, over connections that it keeps.
// Its verbs note their results for the invariants, and what a worker would do afterwards.
type session struct {
	name string
	db   *store.Store
	// plain is db as each schedule begins. knowing is of a process that knows that signals are kept.
	// looking is of one that has polled before any were kept, in worlds that look.
	plain, knowing, looking *store.Store
	line                    *store.Line
	turn                    chan struct{} // something happened

	recorded bool // the store's sweeps record; so do the outcomes of this session

	mu        sync.Mutex
	gated     bool // statements wait for release
	gates     []*gate
	flying    *flight
	over      bool // the verb has returned
	heeds     bool // its worker heeds gates
	deadlocks int  // number that the server reported, whoever repeats the transaction then

	// The verb writes these fields, and the rig reads them when the verb is over.
	facts       facts
	after       []func(context.Context) error
	faults      []string
	leftOut     int  // outcomes and beats that found a lock and were left out
	free        bool // what a look was told
	emptyHanded bool // a claim found nothing
}

func (r *rig) newSession(url, name string) *session {
	t := r.t
	t.Helper()
	s := &session{name: name, turn: make(chan struct{}, 1)}
	pool := pgtest.Pool(t, url, func(c *pgxpool.Config) {
		c.MaxConns, c.HealthCheckPeriod, c.MaxConnIdleTime = 1, time.Hour, time.Hour
		c.ConnConfig.RuntimeParams["application_name"] = name
		c.ConnConfig.RuntimeParams["deadlock_timeout"] = "50ms" // deadlocks are to be found quickly
		c.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
			g := newGate(conn, s)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gates = append(s.gates, g)
			return g, nil
		}
		c.ConnConfig.Tracer = r.mutate(name)
	})
	s.plain, s.knowing = store.New(entpgx.New(pool), schema), store.New(entpgx.New(pool), schema)
	for _, knows := range []*store.Store{s.plain, s.knowing} {
		require.NoError(t, prepare(t.Context(), knows))
	}
	require.NoError(t, s.knowing.NoteKeeping(t.Context()))
	require.True(t, s.knowing.Keeping())
	s.db = s.plain
	s.line = s.db.Line()
	t.Cleanup(func() { _ = s.line.Close(context.Background()) })
	return s
}

// prepare lets a store know of graphs, so that each schedule sends the same statements.
func prepare(ctx context.Context, s *store.Store) error {
	return errors.Join(s.Locate(ctx), s.Feed(ctx, nil, 0))
}

// forget makes looking anew, since it remembers what it has found. No signal is kept now.
func (s *session) forget(ctx context.Context) error {
	s.looking = store.New(s.plain.Driver(), schema)
	_, err := s.looking.Poll(ctx, []string{"default"}, []string{"m/1"}, nil) // so that no insert asks for gates
	return errors.Join(err, prepare(ctx, s.looking), s.looking.NoteKeeping(ctx))
}

// poke tells the rig that something happened. It never blocks.
func (s *session) poke() {
	select {
	case s.turn <- struct{}{}:
	default:
	}
}

// begin starts a verb behind the gate.
func (s *session) begin(ctx context.Context, v verb) {
	s.mu.Lock()
	s.gated, s.over, s.deadlocks, s.db = true, false, 0, s.plain
	s.mu.Unlock()
	s.facts, s.after, s.faults, s.leftOut, s.emptyHanded = facts{}, nil, nil, 0, false
	go func() {
		v.run(ctx, s)
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.poke()
	}()
}

// learn polls, if the worker heeds gates in this world, or did so in the one before: an insert
// knows of gates by that.
func (s *session) learn(ctx context.Context, heeds bool) error {
	knew := s.heeds
	if s.heeds = heeds; !heeds && !knew {
		return nil
	}
	s.open()
	_, err := s.db.Poll(ctx, []string{"default"}, []string{"m/1"}, nil)
	return err
}

// open lets all statements pass from now on.
func (s *session) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gated = false
}

// at returns where the session is: waiting for its turn, with the label of the next unit; on its
// way, with its pid, which pg_blocking_pids needs; or over.
func (s *session) at() (next string, pid uint32, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying != nil {
		return "", s.flying.gate.pid, false
	}
	for _, g := range s.gates {
		if len(g.queue) > 0 {
			return g.queue[0].label, 0, false
		}
	}
	return "", 0, s.over
}

// release lets the next unit pass.
func (s *session) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		if len(g.queue) > 0 {
			return g.release()
		}
	}
	return fmt.Errorf("session %s has nothing to release", s.name)
}

// fault notes something that must not happen.
func (s *session) fault(format string, args ...any) {
	s.faults = append(s.faults, s.name+": "+fmt.Sprintf(format, args...))
}

// later notes an action of a worker after the transaction.
func (s *session) later(f func(context.Context) error) { s.after = append(s.after, f) }

// tries bounds how often a worker's repetition may fail in a world in which no other session acts
// any more.
const tries = 5

// transient reports whether a worker would repeat a statement after this error.
func (s *session) transient(verb string, err error) bool {
	if store.IsUniqueViolation(err) || store.Classify(err) == store.FaultTransient {
		return true
	}
	s.fault("%s: %v", verb, err)
	return false
}

// insist repeats a failed statement after the schedule, if a worker would repeat it.
func (s *session) insist(verb string, err error, again func(context.Context) error) {
	if err == nil || !s.transient(verb, err) {
		return
	}
	s.later(func(ctx context.Context) error {
		var err error
		for range tries {
			if err = again(ctx); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%s, repeated: %w", verb, err)
	})
}

// promoteMissed does what the worker does about keys whose head was locked.
func (s *session) promoteMissed(keys []string) {
	if len(keys) == 0 {
		return
	}
	s.later(func(ctx context.Context) error {
		for range tries {
			p, err := s.db.Promote(ctx, keys)
			if err == nil && len(p.Missed) == 0 {
				return nil
			}
		}
		return fmt.Errorf("keys %q cannot be promoted", keys)
	})
}

// slowly is how long a commit of the slow lane waits for rows that others hold.
const slowly = 2 * time.Second

// commit does what the committer does with one batch: it uses the fast lane, and then the slow lane
// for the outcomes that were left out, each attempt under a separate mark.
func (s *session) commit(ctx context.Context, worker string, entries []store.Entry, slow bool) {
	c := &committing{session: s, worker: worker, entries: s.noted(entries...)}
	if slow {
		c.wait = slowly
	}
	if err := c.round(ctx, uuid.NewString()); err != nil && !s.transient("commit", err) {
		return
	}
	s.later(c.conclude)
}

// committing is a batch that is being committed.
type committing struct {
	*session
	worker  string
	entries []store.Entry // those not decided yet
	marks   []string      // of all attempts that may have been made, also by other sessions
	wait    time.Duration
	tried   bool // this session has made an attempt
}

// round makes one attempt.
func (c *committing) round(ctx context.Context, mark string) error {
	c.marks, c.tried = append(c.marks, mark), true
	done, err := c.db.Commit(ctx, c.worker, mark, c.entries, c.wait)
	for i := range c.entries {
		c.facts.outcome(mark, c.name, c.worker, &c.entries[i], done.Applied[c.entries[i].Claim.ID])
	}
	if _, unfit := errors.AsType[*step.AddError](err); unfit { // additions go alone
		c.entries = []store.Entry{stopped(c.entries[0].Claim)}
		return nil
	}
	if err != nil {
		return err
	}
	c.promoteMissed(done.Missed)
	c.entries = slices.DeleteFunc(slices.Clone(c.entries), func(e store.Entry) bool { return done.Applied[e.Claim.ID] })
	return nil
}

// look drops the outcomes that are decided, and returns those whose claim is surely current.
func (c *committing) look(ctx context.Context, wait time.Duration) (current []store.Entry, err error) {
	verdicts, err := c.db.Resolve(ctx, c.worker, slices.Repeat([][]string{c.marks}, len(c.entries)), c.entries, wait)
	if err != nil {
		return nil, err
	}
	var rest []store.Entry
	for _, e := range c.entries {
		switch verdict := verdicts[e.Claim.ID]; {
		case verdict == store.Current:
			current, rest = append(current, e), append(rest, e)
		case verdict == store.Held:
			rest = append(rest, e)
		case verdict == store.Stale, c.tried: // or another session's attempt was it
			c.facts.gone(c.name, c.worker, e.Claim)
		}
	}
	c.entries = rest
	return current, nil
}

// conclude looks, and commits in the slow lane, until every outcome is decided.
func (c *committing) conclude(ctx context.Context) error {
	for range tries {
		if len(c.entries) == 0 {
			return nil
		}
		if _, err := c.look(ctx, 0); err != nil {
			return err
		}
		c.leftOut += len(c.entries)
		if len(c.entries) == 0 {
			return nil
		}
		c.wait = slowly
		if err := c.round(ctx, uuid.NewString()); err != nil && !c.transient("commit, slow lane", err) {
			return err
		}
	}
	return fmt.Errorf("%d outcomes are still not committed", len(c.entries))
}

// transact does what the executor does with a step's own transaction, whose function writes a row
// of the application.
func (s *session) transact(ctx context.Context, worker string, e store.Entry) {
	e = s.noted(e)[0]
	once := func(ctx context.Context) error {
		mark := uuid.NewString()
		s.facts.owned = append(s.facts.owned, []any{mark})
		t, err := s.db.Transact(ctx, ctx, worker, mark, e.Claim, 0, func(tx any) (store.Entry, error) {
			_, err := tx.(pgx.Tx).Exec(ctx, `INSERT INTO interleave.booked VALUES ($1::text::uuid)`, mark)
			return e, err
		})
		applied := t.Applied[e.Claim.ID]
		s.facts.outcome(mark, s.name, worker, &e, applied)
		if err == nil && !applied {
			s.facts.gone(s.name, worker, e.Claim)
		}
		s.promoteMissed(t.Missed)
		return err
	}
	s.insist("own transaction", once(ctx), once)
}

// claim claims like a scheduler and returns what it got.
func (s *session) claim(ctx context.Context, queue, worker string, limit int) []*step.Claim {
	got, _ := s.pick(ctx, queue, worker, limit)
	return got
}

// pick claims, and returns the keys of blocked rows that it has moved.
func (s *session) pick(ctx context.Context, queue, worker string, limit int, change ...func(*store.ClaimParams)) (got []*step.Claim, unsettled []string) {
	p := store.ClaimParams{Queue: queue, Worker: worker, Machines: []string{"m/1"}, Limit: limit, Window: 100, Lease: time.Minute}
	for _, f := range change {
		f(&p)
	}
	once := func(ctx context.Context) error {
		c, err := s.db.Claim(ctx, p)
		unsettled = c.Unsettled
		if err == nil {
			got = c.Claims
			s.facts.claims(s.name, worker, got)
		}
		return err
	}
	s.insist("claim", once(ctx), once)
	return got, unsettled
}

// pipeline sends statements that are not the store's, in the same form.
func (s *session) pipeline(ctx context.Context, stmts ...entpgx.Stmt) error {
	all := []entpgx.Stmt{
		{Name: "begin", SQL: `BEGIN ISOLATION LEVEL READ COMMITTED`},
		{Name: "settings", SQL: `SELECT set_config('lock_timeout', '2s', true)`},
	}
	all = append(all, stmts...)
	return s.db.Driver().Pipeline(ctx, append(all, entpgx.Stmt{Name: "commit", SQL: `COMMIT`})...)
}
