package store_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrate"
)

// companions are stores on several schemas of one database, in a company.
type companions struct {
	t       *testing.T
	pool    *pgxpool.Pool // not the company's
	company *store.Company
	stores  []*store.Store
	wire    *wire // all that the company and its stores send
	watch   *steady.Watchdog
}

func newCompanions(t *testing.T, n int) *companions {
	t.Helper()
	if pgtest.IsDistributed() {
		t.Skip("TestPollsOfTheSchemasOfANode has schemas that Citus distributes")
	}
	c := &companions{t: t, pool: pgtest.Pool(t, pgtest.Migrated(t)), wire: &wire{}, watch: steady.Watch(t)}
	pool := pgtest.Pool(t, c.pool.Config().ConnString(), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["application_name"] = "company"
		config.ShouldPing = neverPing
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return wireEnd{conn, c.wire}, err
		}
	})
	c.company = store.NewCompany(pool)
	c.company.Wait(gathers, time.Minute) // a busy machine is no fault
	for i := range n {
		schema := fmt.Sprint("p", i)
		_, err := migrate.Migrator{Pool: c.pool, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		s := store.New(entpgx.New(pool), schema)
		s.Join(c.company)
		c.stores = append(c.stores, s)
	}
	return c
}

func (c *companions) exec(sql string, args ...any) {
	c.t.Helper()
	_, err := c.pool.Exec(c.t.Context(), sql, args...)
	require.NoError(c.t, err)
}

func (c *companions) number(sql string, args ...any) (n int) {
	c.t.Helper()
	require.NoError(c.t, c.pool.QueryRow(c.t.Context(), sql, args...).Scan(&n))
	return n
}

// connections counts the connections of the company and of its pool.
func (c *companions) connections() int {
	c.t.Helper()
	return c.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'company'`)
}

// poll lets all stores poll at a time, and returns their errors.
func (c *companions) poll() []error {
	c.t.Helper()
	errs := make([]error, len(c.stores))
	var all sync.WaitGroup
	for i, s := range c.stores {
		all.Go(func() {
			got, err := s.Poll(c.t.Context(), []string{"q"}, []string{"m/1"}, nil)
			if errs[i] = err; err == nil && got.Due["q"] > 0 {
				errs[i] = fmt.Errorf("due in %v", got.Due["q"])
			}
		})
	}
	all.Wait()
	return errs
}

// lock locks a table of a schema until the test calls what it returns.
func (c *companions) lock(schema int) (unlock func()) {
	c.t.Helper()
	tx, err := c.pool.Begin(c.t.Context())
	require.NoError(c.t, err)
	_, err = tx.Exec(c.t.Context(), fmt.Sprintf(`LOCK TABLE p%d.gen_durable IN ACCESS EXCLUSIVE MODE`, schema))
	require.NoError(c.t, err)
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	c.t.Cleanup(unlock)
	return unlock
}

// together requires that all stores poll in one round trip. Where the machine stood still, some may
// have come late to the round.
func (c *companions) together() {
	c.t.Helper()
	c.within(1)
}

// within is together for so many round trips.
func (c *companions) within(want int) {
	c.t.Helper()
	before := c.wire.count()
	require.Equal(c.t, make([]error, len(c.stores)), c.poll())
	if trips := c.wire.count() - before; trips != want {
		c.watch.SkipIfStood(gathers / 4)
		require.Equal(c.t, want, trips)
	}
}

// gathers is how long a round waits for those who come.
const gathers = time.Second

// The looks of however many stores are one round trip, and use no connection of the pool.
func TestPollsOfACompanyAreOneRoundTrip(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 4)
	for _, s := range c.stores {
		_, err := s.Poll(t.Context(), []string{"q"}, []string{"m/1"}, nil)
		require.NoError(t, err)
	}
	for range 5 {
		c.together()
	}
	require.Equal(t, 1, c.connections())
	c.exec(`INSERT INTO p2.gen_durable (fsm, step, queue, eligible_at) VALUES ('m', 's', 'q', now() + interval '1 hour')`)
	errs := c.poll()
	require.ErrorContains(t, errs[2], "due in 59m", "each gets the answers of its own schema")
	errs[2] = nil
	require.Equal(t, make([]error, 4), errs)
}

// T190: faults of some schemas of a server do not keep the others from being polled.
func TestPollsBesideSchemasThatFail(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]bool{"on a fresh connection": true, "on a used one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCompanions(t, 4)
			if !fresh {
				c.poll()
			}
			unlock := c.lock(1)
			c.exec(`ALTER SCHEMA p2 RENAME TO missing`)
			for range 2 { // two faults at once: the first round tells them apart at the latest
				errs := c.poll()
				require.NoError(t, errs[0])
				require.Error(t, errs[1])
				require.ErrorContains(t, errs[2], "does not exist")
				require.NoError(t, errs[3])
			}
			require.Equal(t, []bool{false, true, true, false}, c.outside())
			require.False(t, c.company.Outside())

			unlock()
			c.exec(`ALTER SCHEMA missing RENAME TO p2`)
			require.Equal(t, make([]error, 4), c.poll(), "by themselves")
			c.stores[1].Recover()
			c.stores[2].Recover()
			c.within(2) // pgx prepares all statements of a round that failed anew
			c.together()
		})
	}
}

func (c *companions) outside() (list []bool) {
	for _, s := range c.stores {
		list = append(list, s.Outside())
	}
	return list
}

// T190: a round that takes too long is given up, all ask by themselves, and there are no rounds for
// a while.
func TestARoundThatIsHeldUpIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 2)
	require.Equal(t, make([]error, 2), c.poll())
	letGo := c.company.HoldRounds()
	require.Equal(t, make([]error, 2), c.poll(), "after the round")
	require.True(t, c.company.Outside())
	require.Equal(t, make([]error, 2), c.poll(), "none waits for a round now")
	letGo()
	require.Equal(t, []bool{false, false}, c.outside(), "it was not theirs")
}

// A connection that is ended costs no line its place.
func TestPollsWhoseConnectionIsEnded(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 3)
	require.Equal(t, make([]error, 3), c.poll())
	c.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'company' AND datname = current_database()`)
	require.Equal(t, make([]error, 3), c.poll())
	require.Equal(t, []bool{false, false, false}, c.outside())
}

// A store that is slow answers, and leaves the rounds.
func TestAStoreThatIsSlowLeavesTheRounds(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 3)
	const slow = 700 * time.Millisecond
	c.company.Wait(gathers, slow)
	require.Equal(t, make([]error, 3), c.poll())
	c.exec(`ALTER TABLE p1.schedules RENAME TO slow`)
	c.exec(`CREATE VIEW p1.schedules AS SELECT * FROM p1.slow WHERE (SELECT pg_sleep(0.8)) IS NOT NULL`)
	require.Equal(t, make([]error, 3), c.poll())
	want := []bool{false, true, false}
	if !slices.Equal(want, c.outside()) {
		c.watch.SkipIfStood(slow / 4) // which made others slow
	}
	require.Equal(t, want, c.outside())
}

// A poll that is given up leaves the others' round as it is.
func TestAPollOfACompanyThatIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 2)
	require.Equal(t, make([]error, 2), c.poll())
	letGo := c.company.HoldRounds()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		_, err := c.stores[1].Poll(t.Context(), []string{"q"}, nil, nil)
		require.NoError(t, err)
	})
	cancel()
	_, err := c.stores[0].Poll(ctx, []string{"q"}, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	letGo()
	all.Wait()
}

// heart is the line of a worker of one of the stores, with an instance that it has claimed.
type heart struct {
	c      *companions
	schema string
	worker string
	line   *store.Line
	claim  *step.Claim
}

func (c *companions) hearts() (list []*heart) {
	c.t.Helper()
	for i, s := range c.stores {
		h := &heart{c: c, schema: s.Schema(), worker: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), claim: &step.Claim{Token: 7}}
		h.line = s.LineOf(h.worker).Share(time.Second)
		c.t.Cleanup(func() { _ = h.line.Close(context.Background()) })
		h.claim.ID = int64(c.number(`INSERT INTO ` + h.schema + `.gen_durable (fsm, step, status, locked_by, lease_expires_at, claim_token)
			VALUES ('m', 's', 'executing', '` + h.worker + `', now(), 7) RETURNING id`))
		list = append(list, h)
	}
	return list
}

// beat sends a heartbeat, for however long that takes.
func (h *heart) beat() error { return h.beatIn(h.c.t.Context()) }

// beatInVain returns the error of a heartbeat that waits for a lock.
func (h *heart) beatInVain() error {
	ctx, cancel := context.WithTimeout(h.c.t.Context(), 5*time.Second)
	defer cancel()
	return h.beatIn(ctx)
}

func (h *heart) beatIn(ctx context.Context) error {
	got, err := h.line.Beat(ctx, h.worker, []*step.Claim{h.claim}, lease)
	if err == nil && len(got.Extended) != 1 {
		return fmt.Errorf("extended %d", len(got.Extended))
	}
	return err
}

// lives reports in how many sessions the worker has its liveness lock.
func (h *heart) lives() int {
	return h.c.number(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32 | objid::bigint) = hashtextextended('gendurable ' || $1 || ' ' || $2, 0)`, h.schema, h.worker)
}

// Heartbeats have one connection, which holds the liveness locks of all until each leaves.
func TestHeartbeatsOfACompanyHaveOneConnection(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 3)
	hearts := c.hearts()
	for _, h := range hearts {
		require.False(t, h.line.Connected())
		require.NoError(t, h.beat())
		require.True(t, h.line.Connected())
		before := c.wire.count()
		require.NoError(t, h.beat())
		require.Equal(t, 1, c.wire.count()-before)
		require.NoError(t, h.line.Check(t.Context()))
		require.Equal(t, 1, h.lives())
	}
	require.Equal(t, 1, c.connections())
	require.NoError(t, hearts[1].line.Close(t.Context()))
	for i, want := range []int{1, 0, 1} {
		require.Equal(t, want, hearts[i].lives())
	}
	require.NoError(t, hearts[0].line.Close(t.Context()))
	require.Equal(t, 1, hearts[2].lives())
	require.NoError(t, hearts[2].line.Close(t.Context()))
	c.gone()
}

// gone waits until the server has noticed that the company's connections are closed.
func (c *companions) gone() {
	c.t.Helper()
	steady.Eventually(c.t, func() bool { return c.connections() == 0 })
}

// A beat that waits for a row has its own connection, which goes with the next beat.
func TestInsistingKeepsNoHeartbeat(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 2)
	hearts := c.hearts()
	require.NoError(t, hearts[0].beat())
	tx, err := c.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM p0.gen_durable FOR UPDATE`)
	require.NoError(t, err)
	insisted := make(chan error, 1)
	go func() {
		got, err := hearts[0].line.Insist(t.Context(), hearts[0].worker, hearts[0].claim, lease, 30*time.Second)
		if err == nil && len(got.Extended) != 1 {
			err = fmt.Errorf("extended %d", len(got.Extended))
		}
		insisted <- err
	}()
	steady.Eventually(t, func() bool {
		return c.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	require.NoError(t, hearts[1].beat())
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-insisted)
	require.Equal(t, 2, c.connections())
	require.NoError(t, hearts[0].beat())
	steady.Eventually(t, func() bool { return c.connections() == 1 })
	require.Equal(t, 1, hearts[0].lives())
}

// T190: a place that is locked, and another that is gone, cost no lease of a third, nor its lock.
func TestHeartbeatsBesideSchemasThatFail(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 3)
	hearts := c.hearts()
	require.NoError(t, hearts[2].beat())
	unlock := c.lock(0)
	c.exec(`ALTER SCHEMA p1 RENAME TO missing`)
	for range 2 {
		require.Error(t, hearts[0].beatInVain())
		require.ErrorContains(t, hearts[1].beat(), "does not exist")
		require.NoError(t, hearts[2].beat())
		require.Equal(t, 1, hearts[2].lives(), "the connection is still there")
	}
	for i, want := range []bool{true, true, false} {
		require.Equal(t, want, hearts[i].line.Outside())
	}
	unlock()
	require.NoError(t, hearts[0].beat())
	require.NoError(t, hearts[0].line.Close(t.Context()))
	steady.Eventually(t, func() bool { return hearts[0].lives() == 0 })
}

// T190: an engine that does not get the connection, since another has it, beats by itself, also
// beside a place that fails; and an engine that leaves meanwhile leaves no lock.
func TestHeartbeatsWhoseConnectionIsTaken(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 3)
	hearts := c.hearts()
	for _, h := range hearts {
		require.NoError(t, h.beat())
	}
	letGo := c.company.HoldTrunk()
	unlock := c.lock(0)
	require.Error(t, hearts[0].beatInVain())
	require.NoError(t, hearts[1].beat())
	require.False(t, hearts[1].line.Outside(), "it has done nothing")
	require.Equal(t, 2, hearts[1].lives())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = hearts[2].line.Close(ctx)
	unlock()
	letGo()
	steady.Eventually(t, func() bool { return hearts[2].lives() == 0 })
	require.NoError(t, hearts[1].beat())
	steady.Eventually(t, func() bool { return hearts[1].lives() == 1 })
}

// A connection that is ended is made again, with each one's lock as it comes.
func TestHeartbeatsWhoseConnectionIsEnded(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 2)
	hearts := c.hearts()
	for _, h := range hearts {
		require.NoError(t, h.beat())
	}
	c.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'company' AND datname = current_database()`)
	require.NoError(t, hearts[0].beat())
	require.False(t, hearts[1].line.Connected(), "the lock is not there")
	require.NoError(t, hearts[1].line.Check(t.Context()))
	require.True(t, hearts[1].line.Connected())
	require.Equal(t, 1, hearts[1].lives())
	require.Equal(t, 1, c.connections())
}

// Another session asks at this moment whether a worker lives: it does not wait for that on the
// connection of the others.
func TestALivenessLockThatSomebodyAsksFor(t *testing.T) {
	t.Parallel()
	c := newCompanions(t, 2)
	hearts := c.hearts()
	tx, err := c.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('gendurable ' || $1 || ' ' || $2, 0))`, hearts[0].schema, hearts[0].worker)
	require.NoError(t, err)
	beaten := make(chan error, 1)
	go func() { beaten <- hearts[0].beat() }()
	steady.Eventually(t, func() bool {
		return c.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`) > 0
	})
	require.NoError(t, hearts[1].beat())
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-beaten)
	require.False(t, hearts[0].line.Outside())
}
