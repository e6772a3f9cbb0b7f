package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/transition"
	"github.com/gendurable/gendurable/fsm"
)

func ExampleEngine_History() {
	shop := openShop(func(c *engine.Config) { c.History = fsm.KeepTransitions })
	defer shop.close()
	id := shop.place(42)
	for t, err := range shop.eng.History(context.Background(), id) {
		fmt.Println(t.From, "→", t.To, t.Kind, t.Attempt, err)
	}
	// Output: start → ship await 0 <nil>
}

func ExampleEngine_StepTimes() {
	shop := openShop(func(c *engine.Config) { c.History = fsm.KeepTransitions })
	defer shop.close()
	shop.place(42)
	times, err := shop.eng.StepTimes(context.Background(), "checkout", engine.HistoryOptions{})
	for _, t := range times {
		fmt.Println(t.Step, t.Runs, t.Failed, t.Took.P99 < time.Minute)
	}
	fmt.Println(err)
	// Output:
	// start 1 0 true
	// <nil>
}

// Beside the declared graph, the edges show which ways instances really take; an operator's verb is
// no edge.
func ExampleEngine_StepEdges() {
	shop := openShop(func(c *engine.Config) { c.History = fsm.KeepTransitions })
	defer shop.close()
	shop.place(42)
	shop.place(43)
	edges, err := shop.eng.StepEdges(context.Background(), "checkout", engine.HistoryOptions{})
	for _, e := range edges {
		fmt.Println(e.From, "→", e.To, e.Kind, e.Count)
	}
	fmt.Println(err)
	// Output:
	// start → ship await 2
	// <nil>
}

// The most frequent failure comes first. Nothing has, at an order that waits.
func ExampleEngine_StepFailures() {
	shop := openShop(func(c *engine.Config) { c.History = fsm.KeepTransitions })
	defer shop.close()
	shop.place(42)
	failures, err := shop.eng.StepFailures(context.Background(), "checkout", engine.HistoryOptions{Since: time.Now().Add(-time.Hour)})
	for _, f := range failures {
		fmt.Println(f.Step, f.Kind, f.Error, f.Count, "of", f.Of)
	}
	fmt.Println(len(failures), err)
	// Output: 0 <nil>
}

type secret struct {
	N     int    `json:"n"`
	Card  string `json:"card,omitempty"`
	Blown bool   `json:"blown,omitempty"`
}

// recorders is the Config of a worker whose machine "kept" takes three steps, once each way, and
// whose machine "plain" is not recorded.
func recorders(c *engine.Config) {
	kept := fsm.Declare[secret, int]("kept").Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[secret, int]) (fsm.Outcome, error) {
			if v.Attempt == 0 {
				return v.RetryBy(fsm.RetryPolicy{Base: time.Millisecond}, errors.New("not yet")), nil
			}
			return v.Next("write", secret{N: 1, Card: "4242"}), nil
		}),
		fsm.Step("write", func(_ context.Context, v *fsm.Visit[secret, int]) (fsm.Outcome, error) {
			return engine.InTx(func(context.Context, pgx.Tx) (fsm.Outcome, error) {
				return v.Next("end", secret{N: 2, Card: "4242", Blown: true}), nil
			}), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[secret, int]) (fsm.Outcome, error) {
			if v.State.N == 2 {
				return v.Fail(errors.New("no good")), nil
			}
			return v.Done(v.State.N), nil
		})).History(fsm.KeepStates)
	c.Machines = []fsm.Definition{kept, fsm.Declare[string, string]("plain").Job(echo)}
	c.Queues = map[string]engine.Queue{"default": {}}
	c.Redact = func(machine string, diff json.RawMessage) json.RawMessage {
		var members map[string]any
		if err := json.Unmarshal(diff, &members); err != nil || members["blown"] != nil {
			panic("no idea")
		}
		if members["card"] != nil {
			members["card"] = machine + "'s"
		}
		diff, err := json.Marshal(members)
		if err != nil {
			panic(err)
		}
		return diff
	}
}

func timeline(t *testing.T, e *engine.Engine, of fsm.Target) (list []engine.Transition) {
	t.Helper()
	for x, err := range e.History(within(t), of) {
		require.NoError(t, err)
		list = append(list, x)
	}
	return list
}

func TestHistory(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	reader, pool := client(t)
	e := working(t, pool, recorders)
	id, err := e.Insert(ctx, fsm.Declare[secret, int]("kept").New(secret{}).Key("k").Scope(fsm.ScopeAll))
	require.NoError(t, err)
	plain, err := e.Insert(ctx, fsm.Declare[string, string]("plain").New("x"))
	require.NoError(t, err)
	ended, err := e.Wait(ctx, id)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusFailed, ended.Status)
	_, err = e.Wait(ctx, plain)
	require.NoError(t, err)

	var lines []string
	for i, x := range timeline(t, reader, id) {
		lines = append(lines, fmt.Sprintf("%d %s %s>%s %d %s %s %s", x.Visit, x.Kind, x.From, x.To, x.Attempt, x.Failure, x.Error, x.Diff))
		require.Equal(t, id, x.Instance)
		require.Equal(t, "kept", x.Machine)
		require.Equal(t, 1, x.Version)
		require.NotEmpty(t, x.Worker)
		require.False(t, x.At.IsZero())
		require.True(t, i < 2 || x.Waited == 0, "it ran ahead")
	}
	require.Equal(t, []string{
		"0 retry start> 0  not yet ", `0 next start>write 1   {"n": 1, "card": "kept's"}`, "1 next write>end 0   ", "2 fail end> 0 decided no good ",
	}, lines)
	require.Empty(t, timeline(t, reader, plain))
	require.Equal(t, timeline(t, reader, id), timeline(t, reader, fsm.Key("k")))
	rows, err := reader.Ent().Transition.Query().Where(transition.Instance(int64(id)), transition.Kind("next")).All(ctx)
	require.NoError(t, err)
	require.Len(t, rows, 2)

	_, err = pool.Exec(ctx, `DELETE FROM gendurable.gen_durable`) // as the GC
	require.NoError(t, err)
	require.Len(t, timeline(t, reader, id), 4)
	for _, err := range reader.History(ctx, plain) {
		require.ErrorIs(t, err, engine.ErrNotFound)
	}

	times, err := reader.StepTimes(ctx, "kept", engine.HistoryOptions{Version: 1})
	require.NoError(t, err)
	require.Len(t, times, 3)
	require.Equal(t, []int64{1, 1, 0, 0}, []int64{times[0].Runs, times[0].Failed, times[0].Retried, times[0].Crashed}, times[0].Step)
	require.Equal(t, []int64{2, 0, 1, 0}, []int64{times[1].Runs, times[1].Failed, times[1].Retried, times[1].Crashed}, times[1].Step)
	require.LessOrEqual(t, times[1].Took.P50, times[1].Took.P99)
	failures, err := reader.StepFailures(ctx, "kept", engine.HistoryOptions{})
	require.NoError(t, err)
	require.Len(t, failures, 2)
	require.Equal(t, engine.StepFailure{Step: "start", Kind: "retry", Error: "not yet", Count: 1, Of: 2, Last: failures[1].Last}, failures[1])
	edges, err := reader.StepEdges(ctx, "kept", engine.HistoryOptions{})
	require.NoError(t, err)
	require.Equal(t, []engine.StepEdge{{"end", "", "fail", 1}, {"start", "write", "next", 1}, {"write", "end", "next", 1}}, edges)
	edges, err = reader.StepEdges(ctx, "kept", engine.HistoryOptions{Version: 2})
	require.NoError(t, err)
	require.Empty(t, edges)
}

// A timeline of several pages has each row once, in order, also where many have the same time.
func TestHistoryInPages(t *testing.T) {
	t.Parallel()
	reader, pool := client(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.history (at, instance, visit, kind, fsm, step)
		SELECT now() - interval '1 h' + n / 300 * interval '1 ms', 7, n, 'next', 'm', 's' FROM generate_series(0, 1999) n`)
	require.NoError(t, err)
	list := timeline(t, reader, fsm.ID(7))
	require.Len(t, list, 2000)
	for i, x := range list {
		require.EqualValues(t, i, x.Visit)
	}
	for range reader.History(t.Context(), fsm.ID(7)) {
		break // ends the reading, too
	}
	var back []engine.Transition
	for x, err := range reader.HistoryBack(t.Context(), fsm.ID(7), 0) {
		require.NoError(t, err)
		back = append(back, x)
	}
	slices.Reverse(back)
	require.Equal(t, list, back)
	for range reader.HistoryBack(t.Context(), fsm.ID(8), 0) {
		require.Fail(t, "there is no row")
	}
	for _, err := range reader.HistoryBack(t.Context(), fsm.Key("nobody"), 0) {
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
}

// Of the newest transitions the documents are read that fit, and of all others their size.
func TestHistoryBackLeavesOutLargeDocuments(t *testing.T) {
	t.Parallel()
	reader, pool := client(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO gendurable.history (at, instance, visit, kind, fsm, step, diff)
		SELECT now() - n * interval '1 s', 7, n, 'next', 'm', 's', jsonb_build_object('n', repeat('x', 991)) FROM generate_series(1, 600) n`)
	require.NoError(t, err)
	all := reader.HistoryBack(t.Context(), fsm.ID(7), 300_500)
	for range 2 { // also if it is gone through again
		shown, out := 0, int64(0)
		for x, err := range all {
			require.NoError(t, err)
			if len(x.Diff) > 0 {
				require.Zero(t, x.LeftOut)
				shown++
				require.EqualValues(t, shown, x.Visit, "the newest first, without a gap")
			}
			out += x.LeftOut
		}
		require.Equal(t, 300, shown)
		require.EqualValues(t, 300*1000, out)
	}
}

func TestHistoryOfBadInput(t *testing.T) {
	t.Parallel()
	reader, pool := client(t)
	now := time.Now()
	for want, o := range map[string]engine.HistoryOptions{
		"Version": {Version: -1},
		"Since":   {Since: now, Until: now},
		"Timeout": {Timeout: time.Hour},
	} {
		_, err := reader.StepTimes(t.Context(), "m", o)
		var bad *engine.QueryError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, want, bad.Field)
	}
	for _, machine := range []string{"", "a\x00b", "\xff"} {
		_, err := reader.StepTimes(t.Context(), machine, engine.HistoryOptions{})
		var bad *engine.QueryError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "Machine", bad.Field)
	}
	_, err := reader.StepEdges(t.Context(), "m", engine.HistoryOptions{Since: now.AddDate(-1, 0, 0)})
	require.ErrorContains(t, err, "at most 744h")
	_, err = reader.StepFailures(t.Context(), "", engine.HistoryOptions{})
	require.ErrorContains(t, err, "Machine")
	for _, err := range reader.History(t.Context(), fsm.ID(-1)) {
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	for field, change := range map[string]func(*engine.Config){
		"History":       func(c *engine.Config) { c.History = "all" },
		"RetainHistory": func(c *engine.Config) { c.RetainHistory = time.Hour },
		"Machines[0].history": func(c *engine.Config) {
			c.Machines = []fsm.Definition{fsm.Declare[string, string]("m").Job(echo).History("all")}
		},
	} {
		c := engine.Config{Pool: pool}
		change(&c)
		_, err := engine.New(c)
		require.ErrorContains(t, err, field)
	}
}

// Start says which machines are recorded, for the sweeps of other processes, and makes the days.
func TestStartNotesWhatIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	_, pool := client(t)
	count := func(sql string) (n int) {
		require.NoError(t, pool.QueryRow(ctx, sql).Scan(&n))
		return n
	}
	const recorded, days = `SELECT count(*) FROM gendurable.recorded_machines`, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'gendurable.history'::regclass`
	// A start changes what is noted only if that is something else.
	_, err := pool.Exec(ctx, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''noted again''; END';
		CREATE TRIGGER refuse BEFORE INSERT OR DELETE ON gendurable.recorded_machines EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	e := open(t, pool, rarely)
	require.NoError(t, e.Start(ctx))
	require.NoError(t, e.Stop(ctx))
	require.Zero(t, count(recorded))
	require.Equal(t, 1, count(days))
	e = open(t, pool, rarely, func(c *engine.Config) { c.History = fsm.KeepTransitions })
	require.ErrorContains(t, e.Start(ctx), "noted again")
	_, err = pool.Exec(ctx, `ALTER TABLE gendurable.recorded_machines DISABLE TRIGGER refuse`)
	require.NoError(t, err)
	e = open(t, pool, rarely, func(c *engine.Config) { c.History = fsm.KeepTransitions })
	require.NoError(t, e.Start(ctx))
	require.NoError(t, e.Stop(ctx))
	require.Equal(t, 2, count(recorded))
	require.Equal(t, 9, count(days))
	_, err = pool.Exec(ctx, `ALTER TABLE gendurable.recorded_machines ENABLE TRIGGER refuse`)
	require.NoError(t, err)
	e = open(t, pool, rarely, func(c *engine.Config) { c.History = fsm.KeepTransitions })
	require.NoError(t, e.Start(ctx))
	require.NoError(t, e.Stop(ctx))
	_, err = pool.Exec(ctx, `DROP TRIGGER refuse ON gendurable.recorded_machines`)
	require.NoError(t, err)
	e = open(t, pool, rarely)
	require.NoError(t, e.Start(ctx))
	require.NoError(t, e.Stop(ctx))
	require.Zero(t, count(recorded))
}
