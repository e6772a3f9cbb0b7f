package durabletest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

func TestAnInstanceRunsThroughItsLife(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	id := insert(t, kit, checkout.New(order{ID: 42}).Key("order:42"))
	first := durabletest.RequireDrain(t, kit)
	require.Equal(t, 1, first.Steps)
	require.Equal(t, 1, first.Parked)
	durabletest.RequireParked(t, kit, fsm.Key("order:42"), "refused", "paid")
	durabletest.RequireParked(t, kit, id)

	send(t, kit, id, paid.With(100))
	inbox, err := kit.Signals(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, inbox, 1)
	require.JSONEq(t, "100", string(inbox[0].Payload))

	rest := durabletest.RequireDrain(t, kit)
	require.Equal(t, map[fsm.OutcomeKind]int{fsm.OutcomeNext: 1, fsm.OutcomeChildren: 1, fsm.OutcomeDone: 3}, rest.Outcomes)
	require.Equal(t, 3, rest.Done)
	require.Equal(t, 5, rest.Steps)
	require.Len(t, rest.Ran, 5)
	require.Zero(t, rest.Failed+rest.Parked+rest.Waiting)
	require.EqualValues(t, 100+len("sent left")+len("sent right"), durabletest.RequireDone(t, kit, checkout, id))
	inbox, err = kit.Signals(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, inbox)

	again := durabletest.RequireDrain(t, kit)
	require.Zero(t, again.Steps)
}

func TestParallelKitsAreApart(t *testing.T) {
	t.Parallel()
	for _, cents := range []int64{1, 2} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			kit := newShop(t)
			id := insert(t, kit, checkout.New(order{ID: cents}).Key("order"))
			send(t, kit, fsm.Key("order"), paid.With(cents))
			durabletest.RequireDrain(t, kit)
			require.Equal(t, cents+int64(len("sent left")+len("sent right")), durabletest.RequireDone(t, kit, checkout, id))
			durabletest.RequireNotInserted(t, kit, checkout, func(i fsm.Instance[order, int64]) bool { return i.State.ID != cents })
		})
	}
}

// A hundred kits at a time could open more connections than a server allows.
func TestManyKitsAtOnceDoNotExhaustTheServer(t *testing.T) {
	t.Parallel()
	const program = "many kits"
	server := pgtest.Pool(t, pgtest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = program })
	kits := make([]*durabletest.Kit, tier.Pick(30, 100)) // more than may have connections
	for i := range kits {
		kits[i] = durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, Pool: server})
		insert(t, kits[i], parcel.New("left"))
	}
	most := 0
	for _, kit := range kits {
		durabletest.RequireInserted(t, kit, parcel, nil)
		var open int
		row := server.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", program)
		require.NoError(t, row.Scan(&open))
		most = max(most, open)
	}
	require.Equal(t, 1, durabletest.RequireDrain(t, kits[0]).Done)
	require.Positive(t, most)
	require.LessOrEqual(t, most, 20+int(server.Stat().TotalConns()))
}

func TestAPanicIsTheStepsError(t *testing.T) {
	t.Parallel()
	broken := checkout.Define(fsm.Step("start", func(context.Context, *visit) (fsm.Outcome, error) { panic("no more ink") }))
	kit := newKit(t, broken)
	id := insert(t, kit, checkout.New(order{}))
	d := durabletest.RequireDrain(t, kit)
	require.Equal(t, 1, d.Failed)
	require.Len(t, d.Ran, 1)
	var panicked *fsm.PanicError
	require.ErrorAs(t, d.Ran[0].Err, &panicked)
	require.Equal(t, fsm.OutcomeFail, d.Ran[0].Outcome)
	require.Contains(t, d.Ran[0].String(), "no more ink")
	durabletest.RequireFailed(t, kit, id, fsm.FailureError, "no more ink")
}

func TestAnEndlessLoopMeetsTheLimit(t *testing.T) {
	t.Parallel()
	kit := newKit(t, endless)
	id := insert(t, kit, looping.New(0))
	d, err := kit.Drain(t.Context(), durabletest.Limit(25))
	var over *durabletest.StepLimitError
	require.ErrorAs(t, err, &over)
	require.Equal(t, 25, over.Limit)
	require.Len(t, over.Ran, 10)
	require.Contains(t, err.Error(), "looping/1")
	require.Equal(t, 25, d.Steps)
	at, err := looping.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusRunnable, at.Status, "the next step is given back, untouched")
	require.Equal(t, 25, at.State)
	require.Zero(t, at.Attempt)

	// A limit that just suffices is no error.
	other := newKit(t, parcels)
	insert(t, other, parcel.New("left"))
	_, err = other.Drain(t.Context(), durabletest.Limit(1))
	require.NoError(t, err)
}

func TestRetriesRunWhenTheirTimeComes(t *testing.T) {
	t.Parallel()
	broke := errors.New("the van broke down")
	kit := newKit(t, shop{ship: func(_ context.Context, v *visit) error {
		if v.Attempt < 2 {
			return broke
		}
		return nil
	}}.Definition(), parcels)
	id := insert(t, kit, checkout.New(order{}).Step("ship"))
	d := durabletest.RequireDrain(t, kit)
	require.Equal(t, 1, d.Steps, "a back-off is not waited for")
	require.Equal(t, 1, d.Waiting)
	require.ErrorIs(t, d.Ran[0].Err, broke)
	require.Equal(t, fsm.OutcomeRetry, d.Ran[0].Outcome)
	d = durabletest.RequireAdvance(t, kit, 10*time.Minute)
	require.Equal(t, 2, d.Outcomes[fsm.OutcomeRetry]+d.Outcomes[fsm.OutcomeChildren])
	durabletest.RequireDone(t, kit, checkout, id)
}

func TestAdvanceFiresInOrder(t *testing.T) {
	t.Parallel()
	var d diary
	kit := newKit(t, d.ticking())
	insert(t, kit, ticker.New(tick{Name: "a", Every: 30 * time.Minute, Left: 3}).Priority(9).After(time.Minute))
	insert(t, kit, ticker.New(tick{Name: "b", Every: 45 * time.Minute, Left: 2}))
	insert(t, kit, ticker.New(tick{Name: "c", Every: time.Hour, Left: 1}).Queue("aaa").After(2*time.Hour-time.Second))
	require.Equal(t, 1, durabletest.RequireDrain(t, kit).Steps)
	require.Equal(t, "b2", d.all())
	require.Zero(t, durabletest.RequireAdvance(t, kit, 30*time.Second).Steps, "nothing is due yet")
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.Equal(t, "b2 a3 a2 b1", d.all())
	durabletest.RequireAdvance(t, kit, 24*time.Hour)
	require.Equal(t, "b2 a3 a2 b1 a1 b0 a0 c1 c0", d.all())
	require.Zero(t, durabletest.RequireAdvance(t, kit, 24*time.Hour).Steps)
}

// A timer that starts anew fires as often as its period fits into the time that passes, however
// long its steps take.
func TestAdvanceCountsPeriods(t *testing.T) {
	t.Parallel()
	var d diary
	kit := newKit(t, d.ticking())
	insert(t, kit, ticker.New(tick{Every: time.Hour, Left: 1000}))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, 24, durabletest.RequireAdvance(t, kit, 24*time.Hour).Steps)
	require.Equal(t, 1, durabletest.RequireAdvance(t, kit, time.Hour).Steps)
	_, err := kit.Advance(t.Context(), 1000*time.Hour, durabletest.Limit(5))
	var over *durabletest.StepLimitError
	require.ErrorAs(t, err, &over)
	_, err = kit.Advance(t.Context(), -1)
	require.ErrorContains(t, err, "advance by -1ns")
}

// An event that becomes due by itself while Advance looks for the next time takes none of the time
// with it.
func TestAdvanceMissesNothingThatBecomesDueMeanwhile(t *testing.T) {
	t.Parallel()
	var d diary
	kit := newKit(t, d.ticking())
	left := tier.Pick(40, 200)
	insert(t, kit, ticker.New(tick{Every: 3 * time.Millisecond, Left: left}))
	require.Equal(t, left+1, durabletest.RequireAdvance(t, kit, time.Hour).Steps)
}

// The test lists every column with a time, and whether Advance moves it.
func TestAdvanceKnowsEveryTime(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	rows, err := kit.Pool.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'gendurable' AND data_type LIKE 'timestamp%' AND table_name <> 'atlas_schema_revisions'`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"gen_durable.eligible_at", "gen_durable.await_deadline", "gen_durable.deadline", "windows.opened_at", "windows.until", "kept_signals.expires_at", // moved
		"gate_keys.at", "gate_keys.closed_until", "gate_keys.slowed_at", "gates.updated_at", // moved
		"gen_durable.inserted_at", "gen_durable.updated_at", "gen_durable.finished_at", "gen_durable.lease_expires_at",
		"signals.inserted_at", "signals.consumed_at", "kept_signals.inserted_at", "paused_queues.paused_at",
		"lost_claims.lost_at",
		"history.at", "history_rest.at", "recorded_machines.since", "workers.started_at", "workers.beat_at", "workers.expires_at",
		"definitions.declared_at", "definitions.updated_at",
		"schedules.next_at", "schedules.last_at", "schedules.paused_at", "schedules.updated_at", // by the kit's calendar
	}, columns)

	id := insert(t, kit, checkout.New(order{}))
	durabletest.RequireDrain(t, kit)
	before := durabletest.RequireParked(t, kit, id)
	durabletest.RequireAdvance(t, kit, time.Hour)
	after := durabletest.RequireParked(t, kit, id)
	require.Equal(t, before.InsertedAt, after.InsertedAt)
	require.Equal(t, time.Hour, before.EligibleAt.Sub(after.EligibleAt))
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	day := insert(t, kit, checkout.New(order{ID: 1}))
	now := insert(t, kit, checkout.New(order{ID: 2}))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireAdvance(t, kit, 23*time.Hour)
	durabletest.RequireParked(t, kit, day, "paid", "refused")

	require.NoError(t, kit.FireTimeout(t.Context(), now))
	durabletest.RequireStatus(t, kit, now, fsm.StatusRunnable)
	require.Equal(t, 1, durabletest.RequireDrain(t, kit).Steps)
	durabletest.RequireFailed(t, kit, now, fsm.FailureDecided, "not paid")
	durabletest.RequireParked(t, kit, day)
	require.ErrorIs(t, kit.FireTimeout(t.Context(), now), durabletest.ErrNoTimeout)
	require.ErrorIs(t, kit.FireTimeout(t.Context(), fsm.ID(99)), engine.ErrNotFound)

	durabletest.RequireAdvance(t, kit, time.Hour)
	durabletest.RequireFailed(t, kit, day, fsm.FailureDecided, errUnpaid.Error())
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	var d diary
	kit := newKit(t, d.ticking())
	a := insert(t, kit, ticker.New(tick{Name: "a"}))
	b := insert(t, kit, ticker.New(tick{Name: "b"}))
	c := insert(t, kit, ticker.New(tick{Name: "c"}).PartitionKey("k"))
	e := insert(t, kit, ticker.New(tick{Name: "e"}).PartitionKey("k"))
	ran, err := kit.Step(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, b, ran.Info.ID)
	require.Equal(t, fsm.OutcomeDone, ran.Outcome)
	require.Equal(t, "b0", d.all())
	durabletest.RequireStatus(t, kit, a, fsm.StatusRunnable)

	_, err = kit.Step(t.Context(), b)
	require.ErrorIs(t, err, durabletest.ErrNotRunnable)
	_, err = kit.Step(t.Context(), e)
	require.ErrorIs(t, err, durabletest.ErrNotRunnable, "not the head of its key")
	_, err = kit.Step(t.Context(), c)
	require.NoError(t, err)
	_, err = kit.Step(t.Context(), e)
	require.NoError(t, err)

	ran, ok, err := kit.DrainOne(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, a, ran.Info.ID)
	_, ok, err = kit.DrainOne(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, "b0 c0 e0 a0", d.all())
}

func TestQueuesAreChosen(t *testing.T) {
	t.Parallel()
	kit := newKit(t, parcels)
	left := insert(t, kit, parcel.New("left"))
	right := insert(t, kit, parcel.New("right").Queue("other"))
	require.Equal(t, 1, durabletest.RequireDrain(t, kit, durabletest.Queue("other")).Steps)
	durabletest.RequireStatus(t, kit, left, fsm.StatusRunnable)
	durabletest.RequireDone(t, kit, parcel, right)

	only := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, DatabaseURL: pgtest.URL(t),
		Options: func(c *engine.Config) { c.Queues = map[string]engine.Queue{"other": {}} }})
	insert(t, only, parcel.New("left"))
	drained := durabletest.RequireDrain(t, only)
	require.Zero(t, drained.Steps, "as production, it works on the queues of its Config")
	require.Equal(t, []string{"parcels"}, drained.Unserved)

	_, err := kit.Engine.Admin().PauseQueue(t.Context(), "parcels")
	require.NoError(t, err)
	require.Zero(t, durabletest.RequireDrain(t, kit).Steps)
	_, err = kit.Engine.Admin().ResumeQueue(t.Context(), "parcels")
	require.NoError(t, err)
	require.Equal(t, 1, durabletest.RequireDrain(t, kit).Steps)
}

func TestUnknownMachinesAreNamed(t *testing.T) {
	t.Parallel()
	kit := newKit(t, parcels)
	insert(t, kit, checkout.New(order{}))
	d := durabletest.RequireDrain(t, kit)
	require.Zero(t, d.Steps)
	require.Equal(t, []string{"checkout/1"}, d.Unknown)
	require.Empty(t, d.Unserved, "a kit without queues serves all")
}

func TestTheEndOfTheContextCancelsTheStep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	kit := newKit(t, shop{ship: func(ctx context.Context, _ *visit) error {
		cancel(gone)
		<-ctx.Done()
		return ctx.Err()
	}}.Definition())
	id := insert(t, kit, checkout.New(order{}).Step("ship"))
	d, err := kit.Drain(ctx)
	require.ErrorIs(t, err, gone)
	require.Equal(t, fsm.OutcomeNone, d.Ran[0].Outcome)
	at := durabletest.RequireStatus(t, kit, id, fsm.StatusRunnable)
	require.Zero(t, at.Attempt)
	require.Empty(t, at.LastError)
}

// The transaction in which the code under test inserts sees the instance before its commit; no
// other one does.
func TestInsertsInOpenTransactions(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	is := func(id int64) func(fsm.Instance[order, int64]) bool {
		return func(i fsm.Instance[order, int64]) bool { return i.State.ID == id }
	}
	native, err := kit.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer native.Rollback(context.Background())
	_, err = kit.Engine.WithPgx(native).Insert(t.Context(), checkout.New(order{ID: 1}).Key("one").After(time.Hour))
	require.NoError(t, err)
	found := durabletest.RequireInserted(t, kit.WithPgx(native), checkout, is(1))
	require.Equal(t, fsm.Key("one"), found.Key)
	durabletest.RequireNotInserted(t, kit.WithPgx(native), checkout, is(2))
	durabletest.RequireNotInserted(t, kit, checkout, nil)

	db := stdlib.OpenDBFromPool(kit.Pool)
	defer db.Close()
	foreign, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = kit.Engine.WithSQL(foreign).Insert(t.Context(), checkout.New(order{ID: 2}))
	require.NoError(t, err)
	durabletest.RequireInserted(t, kit.WithSQL(foreign), checkout, is(2))
	durabletest.RequireNotInserted(t, kit, checkout, nil)
	require.NoError(t, foreign.Commit())
	durabletest.RequireInserted(t, kit, checkout, is(2))

	said := failing(t, func(t testing.TB) { durabletest.RequireInserted(t, kit, checkout, is(7)) })
	require.Contains(t, said, `no such instance of machine "checkout" was inserted; there are 1:`)
	require.Contains(t, said, "ID:2")
	said = failing(t, func(t testing.TB) { durabletest.RequireNotInserted(t, kit, checkout, is(2)) })
	require.Contains(t, said, "ID:2")
}

// A step works in the engine's transaction, on a table of the host's.
func TestSetupAndInTx(t *testing.T) {
	t.Parallel()
	books := checkout.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			_, err := tx.Exec(ctx, "INSERT INTO book VALUES ($1)", v.State.ID)
			return v.Done(v.State.ID), err
		}), nil
	}))
	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{books}, DatabaseURL: pgtest.URL(t), MaxConns: 2,
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, "CREATE TABLE book (id bigint)")
			return err
		}})
	id := insert(t, kit, checkout.New(order{ID: 7}))
	durabletest.RequireDrain(t, kit)
	require.EqualValues(t, 7, durabletest.RequireDone(t, kit, checkout, id))
	var booked int64
	require.NoError(t, kit.Pool.QueryRow(t.Context(), "SELECT id FROM book").Scan(&booked))
	require.EqualValues(t, 7, booked)

	out, err := durabletest.RunStep(t.Context(), books, "start", durabletest.Visit{State: order{ID: 8}})
	require.NoError(t, err)
	require.Equal(t, durabletest.KindInTx, out.Kind)
	tx, err := kit.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	out, err = out.InTx(t.Context(), tx)
	require.NoError(t, err)
	require.Equal(t, fsm.OutcomeDone, out.Kind)
	_, err = out.InTx(t.Context(), tx)
	require.ErrorContains(t, err, "decided already")
}

// Where no database may be created, each test has a schema.
func TestSchemasWhereDatabasesAreNotAllowed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	admin := pgtest.Pool(t, url)
	name := admin.Config().ConnConfig.Database
	role := "poor_" + name
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'poor'", "GRANT CREATE ON DATABASE " + name + " TO " + role,
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			_, err := admin.Exec(context.Background(), statement)
			require.NoError(t, err)
		}
	})
	config := admin.Config()
	config.ConnConfig.User, config.ConnConfig.Password = role, "poor"
	poor, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(poor.Close)

	var schemas []string
	t.Run("theirs", func(t *testing.T) {
		kits := []*durabletest.Kit{
			durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, Pool: poor}),
			durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, Pool: admin, InSchema: true}),
		}
		for _, kit := range kits {
			id := insert(t, kit, parcel.New("left").After(time.Hour))
			require.Zero(t, durabletest.RequireDrain(t, kit).Steps)
			durabletest.RequireAdvance(t, kit, time.Hour)
			require.Equal(t, "sent left", durabletest.RequireDone(t, kit, parcel, id))
			require.Equal(t, name, kit.Pool.Config().ConnConfig.Database)
		}
		schemas = testSchemas(t, admin)
		require.Len(t, schemas, 2)
	})
	require.Empty(t, testSchemas(t, admin))
}

// A step that still runs elsewhere under a key is waited for until ctx ends, and the claim goes
// back.
func TestAKeyInUseElsewhereIsWaitedFor(t *testing.T) {
	t.Parallel()
	waits := make(chan struct{}, 1000)
	kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, DatabaseURL: pgtest.URL(t),
		Options: func(c *engine.Config) {
			c.PartitionLock = engine.LockAdvisory
			c.Hooks = []engine.Hooks{{Contended: func(context.Context, engine.ContendedEvent) { waits <- struct{}{} }}}
		}})
	id := insert(t, kit, parcel.New("left").PartitionKey("k"))
	_, err := kit.Pool.Exec(t.Context(), "INSERT INTO gendurable.lost_claims (partition_key, worker, claim_token) VALUES ('k', 'other', 7)")
	require.NoError(t, err)
	other := store.New(entpgx.New(kit.Pool), "gendurable").LineOf("other")
	require.NoError(t, other.Check(t.Context()))
	defer other.Close(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	drained := make(chan error, 1)
	go func() {
		_, err := kit.Drain(ctx)
		drained <- err
	}()
	<-waits
	cancel()
	err = <-drained
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `partition key "k"`)
	require.Zero(t, durabletest.RequireStatus(t, kit, id, fsm.StatusRunnable).Attempt)
	require.NoError(t, other.Close(t.Context()))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireDone(t, kit, parcel, id)
}

// A step that goes on after the end of its context keeps neither Drain nor later work waiting.
func TestAStepThatDoesNotHeedItsContext(t *testing.T) {
	t.Parallel()
	deaf, over := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	kit := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t),
		Machines: []fsm.Definition{parcel.Job(func(_ context.Context, side string) (string, error) {
			if side == "left" {
				cancel()
				<-deaf
			}
			return side, nil
		})},
		Options: func(c *engine.Config) {
			c.DrainGrace = 10 * time.Millisecond
			c.Hooks = []engine.Hooks{{Step: func(_ context.Context, e engine.StepEvent) {
				if e.Instance.ID == 1 {
					close(over)
				}
			}}}
		}})
	insert(t, kit, parcel.New("left"))
	right := insert(t, kit, parcel.New("right"))
	_, err := kit.Drain(ctx)
	require.ErrorContains(t, err, `step "start" of instance 1 still runs after the end of its context`)
	durabletest.RequireDrain(t, kit)
	durabletest.RequireDone(t, kit, parcel, right)
	close(deaf)
	<-over
}

func TestURLs(t *testing.T) {
	t.Parallel()
	kit := newKit(t)
	conn, err := pgx.Connect(t.Context(), kit.URL())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.Equal(t, kit.Pool.Config().ConnConfig.Database, conn.Config().Database)

	c := conn.Config()
	words := durabletest.New(t, durabletest.Config{DatabaseURL: fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=postgres sslmode=disable",
		c.Host, c.Port, c.User, c.Password)})
	require.Contains(t, words.URL(), "dbname=postgres")
	other, err := pgx.Connect(t.Context(), words.URL())
	require.NoError(t, err)
	defer other.Close(context.Background())
	require.Equal(t, words.Pool.Config().ConnConfig.Database, other.Config().Database)
}

func TestAKitSweepsTheDatabaseOfAKilledTest(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.URL(t))
	left := fmt.Sprintf("gendurable_test_%x_%s", time.Now().Add(-2*time.Hour).Unix(), strings.ToLower(rand.Text()))
	_, err := pool.Exec(t.Context(), "CREATE DATABASE "+left)
	require.NoError(t, err)
	// A process sweeps a server once for each schema.
	durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{parcels}, Schema: "swept"})
	var there bool
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", left).Scan(&there))
	require.False(t, there)
}

func testSchemas(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, 'gendurable_test_')")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func TestFailuresTellTheStory(t *testing.T) {
	t.Parallel()
	kit := newShop(t)
	id := insert(t, kit, checkout.New(order{ID: 42}).Key("order:42"))
	durabletest.RequireDrain(t, kit)
	send(t, kit, id, refused.With("card expired"))
	for _, c := range []struct {
		fails func(t testing.TB)
		says  []string
	}{
		{func(t testing.TB) { durabletest.RequireStatus(t, kit, id, fsm.StatusDone) },
			[]string{"status is runnable, want done", "checkout/1", "order:42", "inbox: 1", "card expired", `"ID": 42`, "settle, visit 1"}},
		{func(t testing.TB) { durabletest.RequireParked(t, kit, id) }, []string{"want it parked"}},
		{func(t testing.TB) { durabletest.RequireParked(t, kit, id, "paid") }, []string{`want it to await ["paid"]`}},
		{func(t testing.TB) { durabletest.RequireDone(t, kit, checkout, id) }, []string{"want done"}},
		{func(t testing.TB) { durabletest.RequireFailed(t, kit, id, "", "") }, []string{"want failed"}},
		{func(t testing.TB) { durabletest.RequireStatus(t, kit, fsm.ID(99), fsm.StatusDone) }, []string{"no such instance"}},
	} {
		said := failing(t, c.fails)
		for _, want := range c.says {
			require.Contains(t, said, want)
		}
	}

	durabletest.RequireDrain(t, kit)
	said := failing(t, func(t testing.TB) { durabletest.RequireFailed(t, kit, id, fsm.FailureCancelled, "") })
	require.Contains(t, said, `failure is "decided", want "cancelled"`)
	require.Contains(t, said, errUnpaid.Error())
	said = failing(t, func(t testing.TB) { durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "something else") })
	require.Contains(t, said, "does not contain")

	waits := insert(t, kit, checkout.New(order{}))
	parent := insert(t, kit, checkout.New(order{}).Step("ship"))
	durabletest.RequireDrain(t, kit, durabletest.Queue("default"))
	said = failing(t, func(t testing.TB) { durabletest.RequireParked(t, kit, waits, "paid") })
	require.Contains(t, said, `awaits ["paid" "refused"], want ["paid"]`)
	story, err := kit.Story(t.Context(), parent)
	require.NoError(t, err)
	require.Contains(t, story, "children: 2")
	require.Equal(t, 2, strings.Count(story, "parcel/1"))

	stuck := newKit(t, endless)
	insert(t, stuck, looping.New(0))
	require.Contains(t, failing(t, func(t testing.TB) { durabletest.RequireDrain(t, stuck, durabletest.Limit(3)) }), "over the limit of 3 steps")
	require.Contains(t, failing(t, func(t testing.TB) { durabletest.RequireAdvance(t, stuck, time.Hour, durabletest.Limit(3)) }), "limit of 3")
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	said := failing(t, func(t testing.TB) { durabletest.New(t, durabletest.Config{DatabaseURL: "postgres://%"}) })
	require.Contains(t, said, "read the server's URL")
}
