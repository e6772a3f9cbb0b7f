package integration

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// freezer stands for a process that is stopped: from a moment on, none of its connections reads.
type freezer struct {
	left   atomic.Int64 // bytes that are read until then, once it is armed
	armed  atomic.Bool
	texts  atomic.Pointer[[2]string] // see cutOff
	once   sync.Once
	frozen chan struct{}
	thawed chan struct{}
}

func newFreezer() *freezer {
	return &freezer{frozen: make(chan struct{}), thawed: make(chan struct{})}
}

func (f *freezer) arm(bytes int64) {
	f.left.Store(bytes)
	f.armed.Store(true)
}

// cutOff freezes in the middle of a write that has two texts, one after the other: before the
// second.
func (f *freezer) cutOff(after, before string) { f.texts.Store(&[2]string{after, before}) }

func (f *freezer) through(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(8 << 10)
		}
		return &freezing{conn, f}, err
	}
}

type freezing struct {
	net.Conn
	f *freezer
}

func (c *freezing) Read(p []byte) (int, error) {
	if c.f.armed.Load() && c.f.left.Load() <= 0 {
		c.f.once.Do(func() { close(c.f.frozen) })
		<-c.f.thawed
	}
	n, err := c.Conn.Read(p)
	if c.f.armed.Load() {
		c.f.left.Add(-int64(n))
	}
	return n, err
}

func (c *freezing) Write(p []byte) (int, error) {
	texts := c.f.texts.Load()
	if texts == nil {
		return c.Conn.Write(p)
	}
	after := bytes.Index(p, []byte(texts[0]))
	if after < 0 {
		return c.Conn.Write(p)
	}
	before := bytes.Index(p[after:], []byte(texts[1]))
	if before < 0 {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:after+before])
	c.f.arm(0)
	c.f.once.Do(func() { close(c.f.frozen) })
	<-c.f.thawed
	return n, errors.Join(err, c.Conn.Close(), net.ErrClosed)
}

// A process freezes while what it has claimed comes in, several megabytes. The server waits for it
// in a write, until the connection ends; but the rows are free: another process executes all of
// them when the lease is over, and each counts a crash.
func TestAProcessThatFreezesInTheMiddleOfAClaimHoldsNothing(t *testing.T) {
	t.Parallel()
	rows := tier.Pick(300, 400)
	m := fsm.Declare[string, int]("large")
	def := m.Job(func(_ context.Context, s string) (int, error) { return len(s), nil })
	database := pgtest.Migrated(t)
	f := newFreezer()
	c := hasty(configOn(t, database, def))
	c.Pool = pgtest.Pool(t, database, f.through)
	c.Queues["default"] = quick(rows)
	start(t, c)
	t.Cleanup(func() { close(f.thawed) })
	outside := client(t, pgtest.Pool(t, database))
	_, err := outside.Admin().PauseQueue(t.Context(), "default")
	require.NoError(t, err)
	var specs []fsm.Spec
	for range rows {
		specs = append(specs, m.New(strings.Repeat("x", 10_000)))
	}
	ids := insertAll(t, outside, specs)
	pool := pgtest.Pool(t, database)
	// Uncompressed, so that they come with the claim; and as much again in signals.
	execute(t, pool, `ALTER TABLE gendurable.gen_durable ALTER state SET STORAGE EXTERNAL`)
	execute(t, pool, `UPDATE gendurable.gen_durable SET state = to_jsonb(repeat('y', 10000)), awaits = '{go}'`)
	execute(t, pool, `INSERT INTO gendurable.signals (target_id, name, payload)
		SELECT id, 'go', to_jsonb(repeat('z', 10000)) FROM gendurable.gen_durable`)
	f.arm(100_000)
	_, err = outside.Admin().ResumeQueue(t.Context(), "default")
	require.NoError(t, err)
	<-f.frozen
	// A waiting session wakes up for an instant now and then, to hear what others have changed.
	eventually(t, func() bool {
		return query[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'`) > 0
	}, "the answer did not fill what the kernels hold")

	other := hasty(configOn(t, database, def))
	start(t, other)
	allDone(t, outside, ids...)
	require.Equal(t, rows, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done' AND crashes = 1`))
}

// More signals than fit into a visit: each visit is given some, and consumes them, until all have
// come, in order. Where a step collects without consuming, its handler is told, and may consume.
func TestMoreSignalsThanFitIntoAVisit(t *testing.T) {
	t.Parallel()
	all := tier.Pick(25, 40)
	type note struct {
		N    int
		Text string
	}
	chunk := fsm.DeclareSignal[note]("chunk")
	type state struct{ Seen, Visits int }
	take := func(v *fsm.Visit[state, state]) (fsm.Outcome, error) {
		notes, err := chunk.All(v)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, one := range notes {
			if one.N != v.State.Seen {
				return nil, errors.New("out of order")
			}
			v.State.Seen++
			size += len(one.Text)
		}
		if size > 64<<10 && len(notes) > 1 {
			return nil, errors.New("more than fits")
		}
		v.State.Visits++
		switch {
		case v.State.Seen == all:
			return v.Done(v.State), nil
		case len(notes) > 0:
			return v.Next("start", v.State), nil
		}
		return v.Await("start", v.State, chunk), nil
	}
	consuming := fsm.Declare[state, state]("consuming")
	collecting := fsm.Declare[state, state]("collecting")
	var refused atomic.Int64
	c := config(t,
		consuming.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[state, state]) (fsm.Outcome, error) { return take(v) })),
		collecting.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[state, state]) (fsm.Outcome, error) {
			if len(v.Awaited()) == all {
				return nil, errors.New("all at once")
			}
			return v.Await("start", v.State, chunk), nil
		})).OnError(func(_ context.Context, v *fsm.Visit[state, state], err error) (fsm.Outcome, error) {
			if errors.Is(err, fsm.ErrTooLarge) {
				refused.Add(1)
				return take(v)
			}
			return nil, err
		}))
	c.Limits.AwaitedBytes = 64 << 10
	eng := start(t, c)
	for _, m := range []*fsm.Machine[state, state]{consuming, collecting} {
		_, err := eng.Admin().PauseQueue(t.Context(), "default")
		require.NoError(t, err)
		id := insert(t, eng, m.New(state{}))
		for n := range all - 3 {
			_, err := eng.Signal(t.Context(), id, chunk.With(note{n, strings.Repeat("x", 10_000)}))
			require.NoError(t, err)
		}
		_, err = eng.Signal(t.Context(), id, chunk.With(note{all - 3, strings.Repeat("larger than all", 10_000)}))
		require.NoError(t, err)
		_, err = eng.Admin().ResumeQueue(t.Context(), "default")
		require.NoError(t, err)
		if m == consuming {
			eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
		}
		for n := all - 2; n < all; n++ {
			_, err := eng.Signal(t.Context(), id, chunk.With(note{n, strings.Repeat("x", 10_000)}))
			require.NoError(t, err)
		}
		if m == collecting { // it sleeps on the rest, which fits
			eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
			require.Positive(t, refused.Load())
			continue
		}
		require.LessOrEqual(t, result(t, eng, m, id).Visits, 2*all)
	}
}

// States that are too large to come with their claims are read one by one, by those who run.
func TestManyLargeStates(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[string, int]("large")
	database := pgtest.Migrated(t)
	c := configOn(t, database, m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			return v.Next("end", v.State+"!"), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
			return v.Done(len(v.State)), nil
		})))
	c.Queues["default"] = quick(20)
	eng := start(t, c)
	var specs []fsm.Spec
	for range tier.Pick(25, 50) { // the race detector makes several times as much of their bytes
		specs = append(specs, m.New(strings.Repeat("large ", 150_000)))
	}
	for _, id := range insertAll(t, eng, specs) {
		require.Equal(t, 900_001, result(t, eng, m, id))
	}
}
