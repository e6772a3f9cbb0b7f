package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// recorded lists the rows of the history, in no order of theirs.
func (b bench) recorded() []string {
	b.t.Helper()
	return b.column(`SELECT concat_ws(' ', kind, step || '>' || coalesce(to_step, '-'), attempt, coalesce(failure, '-'), coalesce(error, '-'),
		coalesce(took::text, '-'), round(waited / 1e6), diff) FROM gendurable.history WHERE fsm = 'm' ORDER BY 1`)
}

// Each applied outcome of whatever kind is recorded if it asks for it, in both lanes. Stale ones
// and those without a Record are not.
func TestHistoryOfEveryKind(t *testing.T) {
	b := newBench(t)
	state := json.RawMessage(`{}`)
	claim := func() *step.Claim {
		return b.executing(columns{"attempt": `2`, "eligible_at": `now() - interval '5 s'`, "updated_at": `now()`})
	}
	for _, slow := range []bool{false, true} {
		b.exec(`DELETE FROM gendurable.history`)
		parent := b.joiner(2)
		took := &store.Record{Took: time.Millisecond}
		stale, late, signalled := claim(), claim(), claim()
		_, err := b.Deliver(t.Context(), byID(signalled.ID), named("go"), 10)
		require.NoError(t, err)
		stale.Token++
		late.Visit++
		unrecorded := []*step.Claim{claim(), claim(), claim()}
		batch := []store.Entry{
			{Claim: unrecorded[0], Keep: true, Commit: &step.Commit{Kind: step.Next, Step: "kept", State: state}},
			{Claim: unrecorded[1], Commit: &step.Commit{Kind: step.Done, Result: state}},
			{Claim: unrecorded[2], Commit: &step.Commit{Kind: step.Next, Step: "next", State: state}},
			{Claim: claim(), Keep: true, Record: took, Commit: &step.Commit{Kind: step.Next, Step: "kept", State: state}},
			{Claim: claim(), Keep: true, Record: &store.Record{Took: time.Second, Ahead: true, Diff: json.RawMessage(`{"a": 1}`)},
				Commit: &step.Commit{Kind: step.Next, Step: "ahead", State: state}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Next, Step: "next", State: state}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Retry, State: state, Err: "again"}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Await, Step: "await", State: state, Names: []string{"go"}}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Children, Step: "join", State: state, Spawn: kids(2)}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Done, Result: state}},
			{Claim: b.kidOf(parent), Record: &store.Record{Ahead: true}, Commit: &step.Commit{Kind: step.Done, Result: state}},
			{Claim: b.kidOf(parent), Record: &store.Record{Ahead: true}, Commit: &step.Commit{Kind: step.Fail, Err: "no", Failure: "decided"}},
			{Claim: claim(), Record: took, Commit: &step.Commit{Kind: step.Done, Result: state, Unless: &step.Unless{Step: "late", Names: []string{"other"}}}},
			{Claim: signalled, Record: took, Commit: &step.Commit{Kind: step.Fail, Err: "no", Failure: "decided",
				Unless: &step.Unless{Step: "late", State: state, Names: []string{"other", "go"}}}},
			{Claim: stale, Record: took, Commit: &step.Commit{Kind: step.Next, Step: "stale", State: state}},
			{Claim: late, Record: took, Commit: &step.Commit{Kind: step.Done, Result: state}},
		}
		done, err := b.Commit(t.Context(), me, newMark(), batch, inLane(slow))
		require.NoError(t, err)
		require.Len(t, done.Applied, 14)
		require.ElementsMatch(t, []string{
			"next s>kept 2 - - 1000 5", `next s>ahead 2 - - 1000000 0 {"a": 1}`, "next s>next 2 - - 1000 5", "retry s>- 2 - again 1000 5",
			"await s>await 2 - - 1000 5", "children s>join 2 - - 1000 5", "done s>- 2 - - 1000 5", "done s>- 0 - - 0 0", "fail s>- 0 decided no 0 0",
			"done s>- 0 - - 1000", "next s>late 0 - - 1000", // waited is not known
		}, b.recorded())
		require.Equal(t, 11, b.number(`SELECT count(*) FROM gendurable.history h WHERE worker = $1::uuid AND fsm_version = 1
			AND instance = ANY($2::bigint[])`, me, idsOf(batch)))
		require.Equal(t, 9, b.number(`SELECT count(*) FROM gendurable.history h JOIN gendurable.gen_durable g ON g.id = h.instance
			WHERE h.at = g.updated_at AND h.visit = g.visit - (h.kind IN ('next', 'await', 'children', 'rejoin'))::int AND NOT EXISTS (SELECT FROM gendurable.gen_durable
			k WHERE k.id = g.id AND k.parent_id IS NOT NULL)`), "the time and the visit are the outcome's")
	}
}

func idsOf(entries []store.Entry) (ids []int64) {
	for _, e := range entries {
		ids = append(ids, e.Claim.ID)
	}
	return ids
}

// An outcome that the commit leaves out, since its row is locked, is recorded when it is applied,
// once; a transaction that is rolled back leaves neither the outcome nor its row.
func TestHistoryIsTheOutcomes(t *testing.T) {
	b := newBench(t)
	held, bad := b.executing(nil), b.executing(nil)
	entry := store.Entry{Claim: held, Record: &store.Record{}, Commit: &step.Commit{Kind: step.Done, Result: json.RawMessage(`{}`)}}
	stranger := b.begin()
	b.inTx(stranger, `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`, held.ID)
	done, err := b.Commit(t.Context(), me, newMark(), []store.Entry{entry}, 0)
	require.NoError(t, err)
	require.Empty(t, done.Applied)
	require.Empty(t, b.recorded())
	waits := make(chan error, 1)
	go func() {
		_, err := b.Commit(t.Context(), me, newMark(), []store.Entry{entry}, patient)
		waits <- err
	}()
	b.waiting(1)
	require.Empty(t, b.recorded())
	require.NoError(t, stranger.Commit(t.Context()))
	require.NoError(t, <-waits)
	require.Len(t, b.recorded(), 1)

	_, err = b.Commit(t.Context(), me, newMark(), []store.Entry{
		{Claim: bad, Record: &store.Record{Diff: json.RawMessage(`{"a": "\u0000"}`)}, Commit: &step.Commit{Kind: step.Done}},
	}, 0)
	require.Error(t, err)
	require.Len(t, b.recorded(), 1)
	require.Equal(t, "executing", b.status(bad.ID))
}

// The sweeps record what they do to instances of recorded machines, and nothing else, whichever
// process recorded the machine. They learn of it by the poll.
func TestHistoryOfSweeps(t *testing.T) {
	b := newBench(t)
	lost := columns{"lease_expires_at": `now() - interval '1 h'`, "locked_by": quote(other)}
	sweep := func() {
		t.Helper()
		limits := store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}
		b.exec(`DELETE FROM gendurable.gen_durable`)
		for _, machine := range []string{"m", "n"} {
			of := columns{"fsm": quote(machine)}
			b.executing(lost.with(of))
			b.executing(lost.with(of).with(columns{"crashes": `1`, "attempt": `3`}))
			b.insert(overdueRow.with(of))
		}
		_, err := b.Poll(t.Context(), nil, nil, nil)
		require.NoError(t, err)
		got, err := b.Reap(t.Context(), newMark(), limits, 100)
		require.NoError(t, err)
		require.Len(t, got.Failed, 1)
		require.Equal(t, 3, got.Released)
		require.Len(t, b.sweepOverdue().Failed, 2)
	}
	sweep()
	require.Empty(t, b.recorded())
	another := b.beside(func(*pgxpool.Config) {})
	require.NoError(t, another.SetRecorded(t.Context(), []string{"m"}, nil))
	sweep()
	rows := b.recorded()
	require.Len(t, rows, 3)
	require.Equal(t, []string{"crash s>- 0 - lost its worker -",
		"crash s>- 3 crashes lost its worker 2 times at step s: over the crash limit -"}, rows[:2])
	require.Contains(t, rows[2], "deadline s>- 0 deadline over its deadline of ")
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.history WHERE worker = $1::uuid AND kind = 'crash'`, other))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.history WHERE fsm <> 'm'`))
	require.NoError(t, another.SetRecorded(t.Context(), nil, []string{"m", "n"}))
	sweep()
	require.Len(t, b.recorded(), 3)
}

// T22: a sweep around rows that Postgres refuses to change records those that it changes.
func TestHistoryOfSweepsAroundARowThatCannotChange(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.SetRecorded(t.Context(), []string{"m"}, nil))
	var rows []int64
	for range 3 {
		rows = append(rows, b.insert(overdueRow), b.executing(columns{"lease_expires_at": `now() - interval '1 h'`}).ID)
	}
	b.exec(fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ADD CHECK (id NOT IN (%d, %d) OR status = 'runnable' AND failure IS NULL AND crashes = 0
		OR status = 'executing')`, rows[2], rows[3]))
	require.Len(t, b.sweepOverdue().Failed, 2)
	got, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 100)
	require.NoError(t, err)
	require.Equal(t, 2, got.Released)
	recorded := b.column(`SELECT instance::text FROM gendurable.history ORDER BY instance`)
	require.Equal(t, texts(slices.Concat(rows[:2], rows[4:])), recorded)
}

// Beside commits and readers the partitions of the days ahead are made, old days go, and days that
// a session reads go later; no session waits for long.
func TestRollHistory(t *testing.T) {
	b := newBench(t)
	roll := func() [2]int {
		t.Helper()
		done, err := b.RollHistory(t.Context(), 30*24*time.Hour)
		require.NoError(t, err)
		require.Zero(t, done.Refused, done.Because)
		return [2]int{done.Made, done.Dropped}
	}
	day := func(ago int) string {
		return b.text(`SELECT 'history_' || to_char((now() AT TIME ZONE 'UTC')::date - $1::int, 'YYYYMMDD')`, ago)
	}
	partitions := func() int {
		return b.number(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'gendurable.history'::regclass`)
	}
	appended := func(ago int) (into string) {
		return b.text(`INSERT INTO gendurable.history AS h (at, kind) VALUES (now() - $1::int * interval '1 day', 'k') RETURNING h.tableoid::regclass::text`, ago)
	}
	old := func(ago int) {
		b.exec(fmt.Sprintf(`CREATE TABLE gendurable.%s PARTITION OF gendurable.history
			FOR VALUES FROM ('%s') TO ('%s')`, day(ago), b.text(`SELECT ((now() AT TIME ZONE 'UTC')::date - $1::int)::timestamp::text || 'Z'`, ago),
			b.text(`SELECT ((now() AT TIME ZONE 'UTC')::date - $1::int + 1)::timestamp::text || 'Z'`, ago)))
	}

	writer := b.begin() // as a commit under way
	b.inTx(writer, `INSERT INTO gendurable.history (at, kind) VALUES (now() + interval '200 days', 'k')`)
	// It holds history_rest, which ATTACH would lock: the days come later.
	require.Equal(t, [2]int{0, 0}, roll())
	require.NoError(t, writer.Rollback(t.Context()))
	require.Equal(t, [2]int{8, 0}, roll())
	require.Equal(t, [2]int{0, 0}, roll())
	require.Equal(t, "gendurable."+day(0), appended(0))
	require.Equal(t, "gendurable."+day(-7), appended(-7))
	require.Equal(t, "gendurable.history_rest", appended(-8))
	require.Equal(t, "gendurable.history_rest", appended(60))

	b.exec(`DROP TABLE gendurable.` + day(-7))
	old(40)
	old(29)
	writer = b.begin() // now in a day of its own
	b.inTx(writer, `INSERT INTO gendurable.history (kind) VALUES ('k')`)
	require.Equal(t, [2]int{1, 0}, roll(), "beside a commit")
	require.Equal(t, "gendurable."+day(40), appended(40))
	require.Equal(t, "gendurable."+day(29), appended(29))
	require.Equal(t, [2]int{0, 0}, roll(), "emptied, but it cannot be dropped beside a commit")
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.`+day(40)))
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.history WHERE at < now() - interval '30 days'`), "nor is it in history_rest")
	require.NoError(t, writer.Commit(t.Context()))
	was := partitions()
	require.Equal(t, [2]int{0, 1}, roll())
	require.Equal(t, was-1, partitions())
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.`+day(29)))

	// Rows of a day without a partition move into it, also such as were dated ahead.
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.history_rest`))
	for _, ago := range []int{0, -3} {
		b.exec(`DROP TABLE gendurable.` + day(ago))
		require.Equal(t, "gendurable.history_rest", appended(ago))
	}
	writer = b.begin()
	b.inTx(writer, `INSERT INTO gendurable.history (kind) VALUES ('k')`)
	require.Equal(t, [2]int{0, 0}, roll(), "beside a commit of today's")
	require.NoError(t, writer.Commit(t.Context()))
	require.Equal(t, [2]int{2, 0}, roll())
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.`+day(0)))
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.`+day(-3)))
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.history_rest`))
	_, err := b.RollHistory(t.Context(), time.Hour)
	require.ErrorContains(t, err, "want at least a day")
}

// No process has made days for a time, for want of a right, say: today's rows are in history_rest,
// and too many to be moved while commits wait. Two calls lead back, and no row is lost.
func TestRollHistoryLeadsBack(t *testing.T) {
	b := newBench(t)
	roll := func() (made, dropped int) {
		t.Helper()
		done, err := b.RollHistory(t.Context(), 30*24*time.Hour)
		require.NoError(t, err)
		require.Zero(t, done.Refused, done.Because)
		return done.Made, done.Dropped
	}
	count := func(what string) int { return b.number(`SELECT count(*) FROM gendurable.` + what) }
	b.exec(`INSERT INTO gendurable.history (at, kind) SELECT now() - n * interval '1 microsecond', 'today' FROM generate_series(1, 10001) n`)
	b.exec(`INSERT INTO gendurable.history (at, kind) SELECT now() - n * interval '1 day', 'before' FROM generate_series(1, 20) n`)
	b.exec(`INSERT INTO gendurable.history (at, kind) VALUES (now() + interval '20 days', 'ahead'), (now() + interval '3 days', 'ahead')`)
	all := count("history")

	writer := b.begin()
	b.inTx(writer, `INSERT INTO gendurable.history (kind) VALUES ('k')`)
	made, _ := roll()
	require.Zero(t, made, "beside a commit")
	require.NoError(t, writer.Rollback(t.Context()))
	made, _ = roll()
	require.Equal(t, 8, made)
	require.Zero(t, count("history_rest"))
	b.exec(`INSERT INTO gendurable.history (at, kind) VALUES (now() - interval '2 s', 'late'), (now() + interval '2 s', 'new')`)
	require.Equal(t, 1, count("history_rest"), "its time is that of what was set aside")

	// Rows that were set aside are taken in up to their second; rows that were dated ahead of it move.
	made, _ = roll()
	require.Equal(t, 2, made)
	require.Equal(t, all+2, count("history"))
	require.Equal(t, []string{"ahead"}, b.column(`SELECT kind FROM gendurable.history_rest`))
	require.Equal(t, 10001+20+1, b.number(`SELECT count(*) FROM gendurable.history WHERE tableoid::regclass::text LIKE '%history_rest_%'`))
	made, _ = roll()
	require.Zero(t, made)

	// The next days come as ever, and the whole goes when its last day is old.
	b.exec(`DO $$ DECLARE part text; BEGIN
		SELECT relname INTO part FROM pg_class WHERE relname LIKE 'history\_rest\_2%' AND relkind = 'r';
		EXECUTE format('ALTER TABLE gendurable.%s RENAME TO history_rest_20200101235959', part); END $$`)
	_, dropped := roll()
	require.Equal(t, 1, dropped)
	require.Equal(t, 3, count("history"))
}

// roll makes and drops the days of a history that is kept for 30 days.
func (b bench) roll() store.Rolled {
	b.t.Helper()
	done, err := b.RollHistory(b.t.Context(), 30*24*time.Hour)
	require.NoError(b.t, err)
	return done
}

// T200: a trigger of the host reports a conflict for one row each time that it is moved or deleted.
// It stays in history_rest, and so does what is before it on its day; the other rows move, other
// days are made, and old ones go.
func TestRollHistoryAroundARowThatCannotMove(t *testing.T) {
	b := newBench(t)
	where := func() []string {
		return b.column(`SELECT step || ' ' || CASE WHEN tableoid = 'gendurable.history_rest'::regclass THEN 'rest' ELSE 'day' END
			FROM gendurable.history WHERE step IS NOT NULL ORDER BY 1`)
	}
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF OLD.kind = 'stuck' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '40001'; END IF; RETURN OLD; END $$`)
	b.exec(`CREATE TRIGGER refuse BEFORE DELETE ON gendurable.history FOR EACH ROW EXECUTE FUNCTION refuse()`)
	b.exec(`INSERT INTO gendurable.history (at, kind, step) SELECT date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + d * interval '1 day' +
			n * interval '1 second', CASE WHEN n = 60 AND d = 2 THEN 'stuck' ELSE 'k' END, d || '/' || to_char(n, 'FM000')
		FROM generate_series(1, 3) d, unnest('{59,60,61,62,100}'::int[]) n`)
	b.exec(`INSERT INTO gendurable.history (at, kind, step) SELECT now() - interval '40 days' - n * interval '1 second',
		CASE WHEN n = 2 THEN 'stuck' ELSE 'k' END, 'old/' || n FROM generate_series(1, 3) n`)
	done := b.roll()
	require.Equal(t, 8, done.Made)
	require.Equal(t, 2, done.Refused)
	require.Equal(t, "not this one (SQLSTATE 40001)", done.Because)
	require.Equal(t, []string{"1/059 day", "1/060 day", "1/061 day", "1/062 day", "1/100 day", "2/059 rest", "2/060 rest", "2/061 day", "2/062 day",
		"2/100 day", "3/059 day", "3/060 day", "3/061 day", "3/062 day", "3/100 day", "old/2 rest"}, where())
	require.Equal(t, 1, b.roll().Refused, "the old one: its day is over")

	// Rows from before it find their place, too.
	b.exec(`INSERT INTO gendurable.history (at, kind, step) SELECT at - interval '1 microsecond', 'k', 'late' FROM gendurable.history WHERE step = '2/060'`)
	require.Contains(t, where(), "late rest")
	b.exec(`DROP TRIGGER refuse ON gendurable.history`)
	require.Equal(t, store.Rolled{}, b.roll())
	require.NotContains(t, where(), "old/2 rest")
}

// Likewise where Postgres refuses each row, or the table of a day.
func TestRollHistoryWhereEverythingIsRefused(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the past stays' USING ERRCODE = '40001'; END $$`)
	b.exec(`CREATE TRIGGER refuse BEFORE DELETE ON gendurable.history FOR EACH ROW EXECUTE FUNCTION refuse()`)
	b.exec(`INSERT INTO gendurable.history (at, kind) SELECT now() - d * interval '1 day' - n * interval '1 microsecond', 'k'
		FROM unnest('{-5,-1,0,40}'::int[]) d, generate_series(1, 100) n`)
	for _, day := range []string{"20200101", "20200102"} {
		b.exec(fmt.Sprintf(`CREATE TABLE gendurable.history_%s PARTITION OF gendurable.history
			FOR VALUES FROM ('%[1]s 00:00Z') TO ('%[1]s 23:00Z')`, day))
	}
	b.exec(`INSERT INTO gendurable.history (at, kind) VALUES ('2020-01-01 12:00Z', 'k'), ('2020-01-02 12:00Z', 'k')`)
	b.exec(`CREATE TRIGGER refuse_all BEFORE TRUNCATE ON gendurable.history_20200101 FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
	done := b.roll()
	require.Equal(t, store.Rolled{Made: 8, Dropped: 1, Refused: 3 + 10 + 1, Because: "the past stays (SQLSTATE 40001)"}, done)
	require.Equal(t, 400, b.number(`SELECT count(*) FROM gendurable.history_rest`))
	require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.history_20200101`))
	for _, in := range []int{-5, -1, 0} {
		require.Equal(t, 1, b.number(`WITH i AS (INSERT INTO gendurable.history AS h (at, kind) VALUES (now() - $1::int * interval '1 day', 'k')
			RETURNING h.tableoid) SELECT count(*) FROM i WHERE tableoid <> 'gendurable.history_rest'::regclass`, in), "each day has a table")
	}
}

// The table that was set aside cannot become a partition, since a row of it is of another time and
// cannot leave: the others are found again, and the table waits for its row.
func TestRollHistoryOfATableSetAsideWithARowThatCannotMove(t *testing.T) {
	b := newBench(t)
	b.exec(`INSERT INTO gendurable.history (at, kind) SELECT now() - n * interval '1 microsecond', 'today' FROM generate_series(1, 10001) n`)
	b.exec(`INSERT INTO gendurable.history (at, kind) VALUES (now() + interval '20 days', 'stuck'), (now() + interval '19 days', 'ahead')`)
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.kind = 'stuck' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$`)
	b.exec(`CREATE TRIGGER refuse BEFORE INSERT ON gendurable.history FOR EACH ROW EXECUTE FUNCTION refuse()`)
	require.Equal(t, store.Rolled{Made: 8}, b.roll(), "set aside, and nothing moved")
	require.Zero(t, b.number(`SELECT count(*) FROM gendurable.history`))
	for range 3 {
		done := b.roll()
		require.Equal(t, 1, done.Refused)
		require.Equal(t, "not this one (SQLSTATE 40001)", done.Because)
	}
	require.Equal(t, 10002, b.number(`SELECT count(*) FROM gendurable.history`))
	b.exec(`DROP TRIGGER refuse ON gendurable.history`)
	require.Equal(t, store.Rolled{Made: 2}, b.roll())
	require.Equal(t, 10003, b.number(`SELECT count(*) FROM gendurable.history`))
	require.Equal(t, 2, b.number(`SELECT count(*) FROM gendurable.history_rest`))
	require.Equal(t, store.Rolled{}, b.roll())
}

// A commit was on its way into history_rest when its day got a partition: it is tried again.
func TestACommitWaitsForThePartitionOfItsDay(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.SetRecorded(t.Context(), []string{"m"}, nil))
	roll := b.begin() // as gen_durable_roll_history, which has moved the rows
	b.inTx(roll, `LOCK TABLE gendurable.history_rest IN ACCESS EXCLUSIVE MODE`)
	row := b.insert(overdueRow)
	failed := make(chan error, 1)
	go func() {
		_, err := b.pool.Exec(t.Context(), `INSERT INTO gendurable.history (kind, instance) VALUES ('k', $1)`, row)
		failed <- err
	}()
	b.waiting(1)
	b.inTx(roll, `SELECT gendurable.gen_durable_roll_history('30 days')`)
	require.NoError(t, roll.Commit(t.Context()))
	err := <-failed
	require.Error(t, err)
	require.Equal(t, store.FaultTransient, store.Classify(err), err)
	require.True(t, store.MayPass(err))
}

// Rows of every table can be deleted, also in a database with a publication for all tables.
func TestEveryTableHasAReplicaIdentity(t *testing.T) {
	b := newBench(t)
	_, err := b.RollHistory(t.Context(), 30*24*time.Hour)
	require.NoError(t, err)
	require.Empty(t, b.column(`SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'gendurable'::regnamespace AND c.relkind IN ('r', 'p')
		AND NOT (c.relreplident = 'f' OR c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))`))
	tx := b.begin()
	b.inTx(tx, `CREATE PUBLICATION everything FOR ALL TABLES`)
	b.inTx(tx, `INSERT INTO gendurable.history (at, kind) VALUES (now(), 'k'), (now() - interval '9 days', 'k')`)
	b.inTx(tx, `DELETE FROM gendurable.history`)
	require.NoError(t, tx.Rollback(t.Context()))
}
