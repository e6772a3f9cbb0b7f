package integration

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type (
	// oldFare and newFare are the states of two versions: the JSON of one decodes into the other as
	// zero values.
	oldFare struct {
		Cents int
		What  string
		Pad   string `json:",omitempty"`
	}
	newFare struct {
		Amount   int
		What     string
		Currency string
		Pad      string `json:",omitempty"`
	}
)

var (
	fareV1 = fsm.Declare[oldFare, int]("fare")
	fareV2 = fsm.Declare[newFare, int]("fare", fsm.Version(2), fsm.Initial("settle"))
	fareGo = fsm.DeclareSignal[int]("go")
)

var errFare = errors.New("no such currency")

func convertFare(broken *atomic.Bool) func(oldFare) (newFare, error) {
	return func(o oldFare) (newFare, error) {
		if broken != nil && broken.Load() {
			switch o.What {
			case "error":
				return newFare{}, errFare
			case "panic":
				panic("a bad deploy")
			case "goexit":
				runtime.Goexit()
			}
		}
		return newFare{o.Cents, o.What, "EUR", o.Pad}, nil
	}
}

// fareTwo is version 2, which takes instances from version 1 at their steps start and wait.
func fareTwo(broken *atomic.Bool) fsm.Definition {
	return fareV2.Define(
		fsm.Step("settle", func(_ context.Context, v *fsm.Visit[newFare, int]) (fsm.Outcome, error) {
			if v.State.Currency != "EUR" || v.Version != 2 {
				return v.Fail(errors.New("not converted")), nil
			}
			switch state := v.State; {
			case v.State.What == "retry" && v.Attempt == 0:
				return v.Retry(v.State, time.Millisecond), nil
			case v.State.What == "next":
				state.What = "went on"
				return v.Next("settle", state), nil
			case v.State.What == "await":
				state.What = "awaited"
				return v.Await("settle", state, fareGo), nil
			case v.State.What == "fail":
				return v.Fail(errors.New("on purpose")), nil
			}
			return v.Done(v.State.Amount), nil
		})).From(fsm.Migrate(fareV1, fareV2, convertFare(broken), fsm.StepNames{"start": "settle", "wait": "settle"}))
}

// TestMigrationAtTheClaim converts instances of version 1 when they run as version 2. Whatever the
// first outcome is, it writes version, step and state together.
func TestMigrationAtTheClaim(t *testing.T) {
	t.Parallel()
	conf := config(t, fareTwo(nil))
	asks := client(t, conf.Pool)
	ids := map[string]fsm.ID{}
	for _, what := range []string{"done", "next", "retry", "await", "fail", "large"} {
		state := oldFare{Cents: 5, What: what}
		if what == "large" {
			state.Pad = strings.Repeat("x", 900_000) // its state does not come with the claim
		}
		ids[what] = insert(t, asks, fareV1.New(state))
	}
	keyed := insert(t, asks, fareV1.New(oldFare{Cents: 6, What: "next"}).PartitionKey("k"))
	eng := start(t, conf)
	for _, what := range []string{"done", "next", "retry", "large"} {
		require.Equal(t, 5, result(t, eng, fareV2, ids[what]), what)
	}
	require.Equal(t, 6, result(t, eng, fareV2, keyed))
	eventuallyStatus(t, eng, ids["await"], fsm.StatusAwaitingSignal)
	i, err := fareV2.Get(t.Context(), eng, ids["await"])
	require.NoError(t, err)
	require.Equal(t, []any{2, "settle", newFare{5, "awaited", "EUR", ""}}, []any{i.Version, i.Step, i.State})
	eventuallyStatus(t, eng, ids["fail"], fsm.StatusFailed)
	for what, id := range ids {
		i, err := fareV2.Get(t.Context(), eng, id)
		require.NoError(t, err)
		require.Equal(t, []any{2, "settle", "EUR", 5}, []any{i.Version, i.Step, i.State.Currency, i.State.Amount}, what)
	}
}

// TestMigrationLeavesStepsThatItDoesNotName runs both versions side by side: an instance at a step
// that the migration does not name stays with version 1, until it comes to one that it names.
func TestMigrationLeavesStepsThatItDoesNotName(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	one := fareV1.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[oldFare, int]) (fsm.Outcome, error) {
			return v.Next("pay", v.State), nil
		}),
		fsm.Step("pay", func(_ context.Context, v *fsm.Visit[oldFare, int]) (fsm.Outcome, error) {
			ran.Add(1)
			return v.Next("wait", v.State).After(time.Millisecond), nil
		}),
		fsm.Step("wait", func(_ context.Context, v *fsm.Visit[oldFare, int]) (fsm.Outcome, error) {
			return v.Retry(v.State, time.Millisecond), nil // version 1 would stay here for ever
		}))
	older := config(t, one)
	newer := hasty(configOn(t, older.Pool.Config().ConnString(), fareTwo(nil)))
	asks := client(t, older.Pool)
	var ids []fsm.ID
	for n := range 10 {
		ids = append(ids, insert(t, asks, fareV1.New(oldFare{Cents: n}).Step("pay")))
	}
	two := start(t, newer)
	eventually(t, func() bool {
		return query[int](t, older.Pool, `SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 4 AND aside_step = 'pay' AND fsm_version = 1`) == 10
	}, "it knows version 1 by its migration, and not this step")
	start(t, hasty(older))
	for n, id := range ids {
		require.Equal(t, n, result(t, two, fareV2, id))
	}
	require.EqualValues(t, 10, ran.Load())
}

// TestAMigrationThatFailsPausesUntouched: an instance whose state cannot be converted is paused as
// it was, costs no attempt, calls no handler, and holds up no other: neither others of its machine
// nor the next of its partition key. Typed reads, the dry run, and Why say so. It goes on in a
// program with a repaired conversion when it is resumed.
func TestAMigrationThatFailsPausesUntouched(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	conf := config(t, fareTwo(&broken))
	asks := client(t, conf.Pool)
	ids := map[string]fsm.ID{}
	for _, what := range []string{"error", "panic", "goexit"} {
		ids[what] = insert(t, asks, fareV1.New(oldFare{Cents: 5, What: what}))
	}
	before := map[string]fsm.Instance[oldFare, int]{}
	for what, id := range ids {
		i, err := fareV1.Get(t.Context(), asks, id)
		require.NoError(t, err)
		before[what] = i
	}
	keyed := insert(t, asks, fareV1.New(oldFare{Cents: 5, What: "error"}).PartitionKey("k"))
	behind := insert(t, asks, fareV1.New(oldFare{Cents: 6, What: "next"}).PartitionKey("k"))
	beside := insert(t, asks, fareV1.New(oldFare{Cents: 7, What: "next"}))
	eng := start(t, conf)
	require.Equal(t, 6, result(t, eng, fareV2, behind))
	require.Equal(t, 7, result(t, eng, fareV2, beside))
	require.True(t, get(t, eng, keyed).Paused)
	says := map[string]string{"error": errFare.Error(), "panic": "a bad deploy", "goexit": "Goexit"}
	for what, id := range ids {
		eventually(t, func() bool { return get(t, eng, id).Paused })
		i, err := fareV1.Get(t.Context(), eng, id)
		require.NoError(t, err)
		require.Contains(t, i.LastError, "cannot become version 2 of machine fare, paused as it was")
		require.Contains(t, i.LastError, says[what])
		causes, err := eng.Admin().Why(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, engine.CauseUnconverted, causes[0].Kind)
		require.Equal(t, "it "+i.LastError, causes[0].String())
		i.LastError, i.Paused = "", false
		require.Equal(t, before[what], i)
	}
	_, err := eng.Admin().Cancel(t.Context(), ids["goexit"]) // in a plan it would end this goroutine
	require.NoError(t, err)
	delete(ids, "goexit")
	_, err = fareV2.Get(t.Context(), eng, ids["error"])
	require.ErrorAs(t, err, new(*fsm.DecodeError))
	require.ErrorIs(t, err, errFare)
	dry, err := eng.Admin().Migrate(t.Context(), "fare", 1, 2)
	require.NoError(t, err)
	require.EqualValues(t, 3, dry.Faulty)
	require.Equal(t, []fsm.ID{ids["error"], ids["panic"], keyed}, []fsm.ID{dry.Faults[0].ID, dry.Faults[1].ID, dry.Faults[2].ID})
	require.NoError(t, stop(eng))

	eng = start(t, configOn(t, conf.Pool.Config().ConnString(), fareTwo(nil)))
	plan, err := eng.Admin().Bulk(t.Context(), engine.VerbResume, engine.Filter{Machine: "fare", Version: 1})
	require.NoError(t, err)
	_, err = plan.Apply(t.Context())
	require.NoError(t, err)
	ids["keyed"] = keyed
	for _, id := range ids {
		require.Equal(t, 5, result(t, eng, fareV2, id))
		require.Empty(t, get(t, eng, id).LastError)
	}
}

// TestEagerMigration moves what waits, at once, beside a worker of the old version, and says what
// it cannot move.
func TestEagerMigration(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	conf := config(t, fareTwo(&broken))
	conf.Queues = nil
	eng := client(t, conf.Pool)
	ids := map[string]fsm.ID{
		"later":   insert(t, eng, fareV1.New(oldFare{Cents: 1}).After(time.Hour)),
		"paused":  insert(t, eng, fareV1.New(oldFare{Cents: 2})),
		"waiting": insert(t, eng, fareV1.New(oldFare{Cents: 3}).Step("pay").After(time.Hour)),
		"fault":   insert(t, eng, fareV1.New(oldFare{Cents: 4, What: "error"}).After(time.Hour)),
		"parked":  insert(t, eng, fareV1.New(oldFare{Cents: 5}).Step("wait")),
	}
	_, err := eng.Admin().Pause(t.Context(), ids["paused"])
	require.NoError(t, err)
	execute(t, conf.Pool, `UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{go}' WHERE id = $1`, ids["parked"])
	_, err = eng.Admin().Migrate(t.Context(), "fare", 1, 2)
	require.ErrorContains(t, err, `machine "fare" version 2 is not registered here`)

	two, err := engine.New(conf)
	require.NoError(t, err)
	_, err = two.Admin().Migrate(t.Context(), "fare", 2, 2)
	require.ErrorAs(t, err, new(*engine.VerbError))
	plan, err := two.Admin().Migrate(t.Context(), "fare", 1, 2)
	require.NoError(t, err)
	require.EqualValues(t, 3, plan.Ready)
	require.Equal(t, map[string]int64{"pay": 1}, plan.Waiting)
	require.Equal(t, []engine.MigrationFault{{ID: ids["fault"], Step: "start", Error: errFare.Error()}}, plan.Faults)
	require.ErrorContains(t, plan.Err(), "1 instances cannot be converted, the first is")
	require.Equal(t, 1, get(t, eng, ids["later"]).Version, "it was a dry run")

	done, err := plan.Apply(t.Context(), engine.Actor("deploy"), engine.Reason("version 2"))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 0, 1}, []int64{done.Moved, done.Skipped, done.Plan.Faulty})
	for _, what := range []string{"later", "paused", "parked"} {
		i, err := fareV2.Get(t.Context(), eng, ids[what])
		require.NoError(t, err)
		require.Equal(t, []any{2, "settle", "EUR"}, []any{i.Version, i.Step, i.State.Currency}, what)
	}
	require.True(t, get(t, eng, ids["paused"]).Paused)
	require.Equal(t, fsm.StatusAwaitingSignal, get(t, eng, ids["parked"]).Status)
	audit, err := eng.Admin().Audit(t.Context(), engine.AuditQuery{Verb: engine.VerbMigrate})
	require.NoError(t, err)
	require.Len(t, audit.Entries, 3)
	require.Equal(t, []string{"deploy", "version 2"}, []string{audit.Entries[0].Actor, audit.Entries[0].Reason})
	require.JSONEq(t, `{"version": 2, "step": "settle"}`, string(audit.Entries[0].After))

	broken.Store(false)
	done, err = plan.Apply(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Moved, "the rest")
	require.NoError(t, done.Plan.Err())
	require.Equal(t, 1, get(t, eng, ids["waiting"]).Version)
}
