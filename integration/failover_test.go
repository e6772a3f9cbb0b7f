package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// These machines run during a failover. Each machine's result, or the rows that it wrote, shows an
// outcome that was lost or applied twice.
var (
	strideMachine = fsm.Declare[counter, int]("stride") // each step writes a row in the transaction of its outcome
	tallyMachine  = fsm.Declare[int, int]("tally")      // adds up a number of signals
	broodMachine  = fsm.Declare[int, int]("brood")      // counts its children that are done
	behindMachine = fsm.Declare[int, int]("behind", fsm.Queue("behind"))
	entered       = fsm.DeclareSignal[int]("entered")
)

const (
	strides = 5
	entries = 3
	brood   = 4
)

func strideDefinition() fsm.Definition {
	type visit = fsm.Visit[counter, int]
	return strideMachine.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO strides VALUES ($1, $2)`, v.ID, v.State.N); err != nil {
				return nil, err
			}
			if v.State.N == strides {
				return v.Done(strides), nil
			}
			return v.Next("start", counter{v.State.N + 1}), nil
		}), nil
	}))
}

func tallyDefinition() fsm.Definition {
	return tallyMachine.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		got, err := entered.All(v)
		if err != nil || len(got) < v.State {
			return v.Await("start", v.State, entered), err
		}
		sum := 0
		for _, n := range got {
			sum += n
		}
		return v.Done(sum), nil
	}))
}

func broodDefinition() fsm.Definition {
	type visit = fsm.Visit[int, int]
	return broodMachine.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			children := make([]fsm.Spec, v.State)
			for n := range children {
				children[n] = legMachine.New(counter{})
			}
			return v.ScheduleChildren("join", v.State, children...), nil
		}),
		fsm.Step("join", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			done := 0
			for _, c := range v.Children() {
				if c.Status == fsm.StatusDone {
					done++
				}
			}
			return v.Done(done), nil
		}))
}

// replicated is a primary and a standby that has each commit before it is acknowledged.
type replicated struct {
	cluster

	standby *pgdev.Cluster
}

func ownReplicated(t *testing.T) replicated {
	t.Helper()
	primary := ownCluster(t)
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	// This comes after the copy, so that the promoted standby waits for no other server.
	pool := pgtest.Pool(t, primary.URL(""))
	defer pool.Close()
	execute(t, pool, "CREATE TABLE strides (instance bigint, n int)")
	execute(t, pool, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	execute(t, pool, "SELECT pg_reload_conf()")
	eventually(t, func() bool {
		return query[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync')`)
	})
	// Commits wait for the standby once the checkpointer, too, has read the setting. It does so before
	// its next checkpoint, and a checkpoint that is under way may take seconds on a busy machine.
	execute(t, pool, "CHECKPOINT")
	return replicated{primary, standby}
}

// pool returns a pool that finds the primary, whichever it is.
func (r replicated) pool() *pgxpool.Pool {
	r.t.Helper()
	url, err := r.WritableURL("", r.standby)
	require.NoError(r.t, err)
	return pgtest.Pool(r.t, url)
}

// customer is a program that inserts and signals all the time, and records the answers.
type customer struct {
	name string
	eng  *engine.Engine

	mu       sync.Mutex
	accepted map[fsm.ID]string // with the expected results
}

func (c *customer) orders() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.accepted)
}

func (c *customer) accept(id fsm.ID, result int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted[id] = strconv.Itoa(result)
}

// run goes on until ctx ends, and finishes what it has begun.
func (c *customer) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := c.order(context.WithoutCancel(ctx), n); err != nil {
			return err
		}
	}
	return nil
}

func (c *customer) order(ctx context.Context, n int) error {
	for result, spec := range map[int]fsm.Spec{
		strides: strideMachine.New(counter{}).PartitionKey(c.name),
		brood:   broodMachine.New(brood),
	} {
		id, err := c.insert(ctx, spec.Key(fsm.Key(fmt.Sprint(c.name, " ", n, " of ", result))))
		if err != nil {
			return err
		}
		c.accept(id, result)
	}
	// Without a key the insert is not repeated: after an error the instance may exist or not.
	if id, err := c.eng.Insert(ctx, legMachine.New(counter{})); err == nil {
		c.accept(id, legs)
	}
	return c.tally(ctx, n)
}

func (c *customer) tally(ctx context.Context, n int) error {
	id, err := c.insert(ctx, tallyMachine.New(entries).Key(fsm.Key(fmt.Sprint(c.name, " ", n, " tally"))))
	if err != nil {
		return err
	}
	sum := 0
	for entry := 1; entry <= entries; entry++ {
		sum += entry
		doubt := false
		err := persist(ctx, func(ctx context.Context) error {
			_, err := c.eng.Signal(ctx, id, entered.With(entry).DedupKey(strconv.Itoa(entry)))
			if doubt && entry == entries && errors.Is(err, engine.ErrNoTarget) {
				return nil // the attempt whose answer was lost has ended it
			}
			doubt = err != nil
			return err
		})
		if err != nil {
			return err
		}
	}
	c.accept(id, sum)
	return nil
}

// insert repeats until it gets an answer: a key in the scope of all statuses makes that safe.
func (c *customer) insert(ctx context.Context, spec fsm.Spec) (id fsm.ID, err error) {
	err = persist(ctx, func(ctx context.Context) error {
		in, err := c.eng.GetOrInsert(ctx, spec.Scope(fsm.ScopeAll))
		id = in.ID
		return err
	})
	return id, err
}

// persist repeats what may be repeated, at most for the test's patience. An instance that is gone
// does not come back.
func persist(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := f(ctx)
	for err != nil && !errors.Is(err, engine.ErrNoTarget) && ctx.Err() == nil {
		err = f(ctx)
	}
	return err
}

func TestAFailoverLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	l := &leg{runs: map[fsm.ID]map[int64]int{}}
	log := newJournal(t)
	for range 2 {
		c := hasty(configOn(t, r.URL(""), l.definition(), strideDefinition(), tallyDefinition(), broodDefinition()))
		c.Pool, c.Logger = r.pool(), log.logger()
		start(t, c)
	}

	ctx, end := context.WithCancel(t.Context())
	defer end()
	customers, ended := make([]*customer, 3), make(chan error, 3)
	for i := range customers {
		c := &customer{name: fmt.Sprint("customer ", i), eng: client(t, r.pool()), accepted: map[fsm.ID]string{}}
		customers[i] = c
		go func() { ended <- c.run(ctx) }()
	}
	busy := func(than map[*customer]int) {
		t.Helper()
		for _, c := range customers {
			eventually(t, func() bool {
				select {
				case err := <-ended:
					require.NoError(t, err, "a customer has given up")
					return false
				default:
					return c.orders() >= than[c]+tier.Pick(12, 40)
				}
			})
		}
	}
	busy(nil)
	require.NoError(t, r.StopImmediate())
	require.NoError(t, r.standby.Promote(t.Context()))
	before := map[*customer]int{}
	for _, c := range customers {
		before[c] = c.orders()
	}
	busy(before)
	end()
	for range customers {
		require.NoError(t, <-ended)
	}

	pool := pgtest.Pool(t, r.standby.URL(""))
	eventually(t, func() bool {
		return query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE finished_at IS NULL`) == 0
	})
	for _, c := range customers {
		for id, want := range c.accepted {
			i := get(t, c.eng, id)
			require.Equal(t, fsm.StatusDone, i.Status, "%s's instance %d: %s", c.name, id, i.LastError)
			require.Equal(t, want, string(i.Result), "%s's instance %d", c.name, id)
		}
	}
	require.Zero(t, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'failed'`))
	require.Zero(t, query[int](t, pool, `SELECT count(*) FROM (SELECT FROM strides GROUP BY instance, n HAVING count(*) > 1) AS twice`))
	require.Equal(t, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE fsm = 'stride'`)*(strides+1),
		query[int](t, pool, `SELECT count(*) FROM strides`))
	require.Zero(t, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE fsm = 'leg' AND visit <> $1`, legs))
	log.isShort(t)
	require.Empty(t, log.lines("level=ERROR"))
}

// An engine waits for a server in recovery, also if it knows no other.
func TestAnEngineOnAStandbyWaitsUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	id := insert(t, client(t, r.pool()), behindMachine.New(21).PartitionKey("k"))
	log := newJournal(t)
	c := hasty(configOn(t, r.standby.URL(""), behindMachine.Job(func(_ context.Context, n int) (int, error) { return 2 * n, nil })))
	c.Queues, c.Logger = map[string]engine.Queue{"behind": quick(1)}, log.logger()
	eng := start(t, c)
	eventually(t, func() bool { return len(log.lines("level=WARN", "cannot claim; retrying", "25006")) > 0 })
	// An insert waits as well, for as long as its caller's context does: it says what it has waited
	// for, and has not happened.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := eng.Insert(ctx, behindMachine.New(4).Key("refused"))
	require.ErrorContains(t, err, "25006")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, fsm.StatusRunnable, get(t, eng, id).Status)
	unready := func(kind engine.ReasonKind) func() bool {
		return func() bool {
			h, err := eng.Health(t.Context())
			return err == nil && !h.Ready && slices.ContainsFunc(h.Reasons, func(r engine.HealthReason) bool { return r.Kind == kind })
		}
	}
	eventually(t, unready(engine.ReasonReadOnly), "its server is a standby, and it says that it could work")
	eventually(t, unready(engine.ReasonHeartbeat), "it has no heartbeat, and does not say so")
	eventually(t, unready(engine.ReasonClaim), "it cannot claim, and does not say so")

	require.NoError(t, r.StopImmediate())
	require.NoError(t, r.standby.Promote(t.Context()))
	require.Equal(t, 42, result(t, eng, behindMachine, id))
	eventually(t, func() bool { h, err := eng.Health(t.Context()); return err == nil && h.Ready }, "its server is the primary")
	require.Equal(t, 1, query[int](t, pgtest.Pool(t, r.standby.URL("")), `SELECT count(*) FROM gendurable.gen_durable`))
	i := get(t, eng, id)
	require.Zero(t, i.Attempt+i.Crashes)
	log.isShort(t)
	require.Empty(t, log.lines("level=ERROR"))
}
