package store_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// Another session has rows in every table, and holds them in an open transaction: some locked, some
// updated, some deleted, some inserted. They are what sweeps, claims and polls look for. No scene
// needs any of them, so each transition has to change its row as it does without them, and no
// statement that it sends may wait for that session.
func TestTransitionsBesideHeldRows(t *testing.T) {
	t.Parallel()
	notOnCitus(t)
	seed := uint64(tier.Size(t, "SEED", 1, 1, 1)) //nolint:gosec // any number
	share := tier.Size(t, "SHARE", 4, 1, 1)
	dice := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a sample
	var met meetings
	beside := func(t *testing.T) bench { return benchOn(t, pgtest.Pool(t, pgtest.Migrated(t))).meeting(&met) }
	for _, g := range matrix {
		t.Run(g.title, func(t *testing.T) { // each has a stranger for as long as it takes
			b := sync.OnceValue(func() bench { return beside(t) })
			for _, x := range g.transitions {
				for _, slow := range []bool{false, true} {
					if slow && x.outcome == nil || dice.IntN(share) != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s, slow %t", x.name, slow), func(t *testing.T) {
						b := b()
						b.t = t
						s := b.newScene(&x)
						s.require(&x, s.run(func() { s.happen(&x, slow) }))
					})
				}
			}
		})
	}
	if share == 1 {
		met.others(t, beside)
	}
}

// happen lets a transition happen.
func (s *scene) happen(x *transition, slow bool) {
	s.t.Helper()
	if x.outcome != nil {
		s.commit(s.mark, slow, s.entry(x))
		return
	}
	x.happens(s)
}

// ways are how the other session holds a row. Each has separate rows in each table.
var ways = []string{"locked", "updated", "deleted", "inserted"}

// held has the rows of the other session in one table: the rows of each way, in SQL, where $w is
// the way and $id the id of one of its instances; and a change of an indexed column.
type held struct {
	rows   string // columns and values
	change string // of the way "updated"
	which  string // the rows of a way
}

// heldInstances are the other session's rows in gen_durable: what each statement that goes round
// looks for. $p is the id of the parent, the first of them.
var heldInstances = []columns{
	{"status": `'awaiting_children'`, "children_pending": `3`, "round": `6`, "await_deadline": `now() - interval '1 hour'`, "wake_ended": `1`,
		"join_round": `6`, "join_size": `3`, "partition_key": `'held parents $w'`},
	{"correlation_key": `'held $w'`, "correlation_scope": liveScope, "labels": `'{"held": "$w"}'`},
	{"partition_key": `'held $w'`, "priority": `-9`},
	{"partition_key": `'held $w'`, "pick_lane": `1`},
	{"partition_key": `'held still $w'`, "pick_lane": `1`},
	{"status": `'executing'`, "locked_by": quote(heldWorker), "lease_expires_at": `now() - interval '1 hour'`, "claim_token": `7`,
		"partition_key": `'held lease $w'`, "parent_id": `$p`, "parent_round": `6`},
	{"status": `'executing'`, "locked_by": quote(heldWorker), "lease_expires_at": `now() + interval '1 hour'`, "claim_token": `8`},
	{"deadline": `now() - interval '1 hour'`, "parent_id": `$p`, "parent_round": `6`},
	{"status": `'awaiting_signal'`, "awaits": `'{go}'`, "await_deadline": `now() - interval '1 hour'`, "parent_id": `$p`, "parent_round": `6`},
	{"status": `'done'`, "finished_at": `now() - interval '1 year'`, "retain": `'{0,0,0}'`},
	{"status": `'failed'`, "failure": `'error'`, "last_error": `'held'`, "finished_at": `now() - interval '1 year'`},
	{"losers": `'{4}'`, "round": `6`},
	{"node": `'held'`, "parent_id": `$p`, "parent_round": `6`, "pick_lane": `5`},
	{"pick_lane": `4`, "aside_step": `'s'`},
	{"pick_lane": `2`, "fsm": `'held machine of $w'`},
	{"pick_lane": `3`, "gate": `'held $w'`, "eligible_at": `now() - interval '1 hour'`},
	{"gate": `'held $w'`, "place": `1`, "seat": `1`, "run_gate": `'held run $w'`, "run_place": `1`, "status": `'executing'`,
		"locked_by": quote(heldWorker), "lease_expires_at": `now() + interval '1 hour'`},
}

const heldWorker = "44444444-4444-4444-8444-444444444444"

// heldTables has all other tables. TestEveryTableHasHeldRows fails if one is missing.
var heldTables = map[string]held{
	"signals":           {`(target_id, name, dedup_key) VALUES ($id, 'held $w', '$w')`, `dedup_key = 'changed'`, `name = 'held $w'`},
	"kept_signals":      {`(key, name, dedup_key, expires_at) VALUES ('held $w', 'go', 'held', now() - interval '1 hour')`, `key = 'held too'`, `key = 'held $w'`},
	"edges":             {`(from_id, to_id, needs) VALUES ($id, $id, 0)`, `to_id = 0`, `from_id IN (SELECT id FROM gendurable.gen_durable WHERE queue = 'held $w')`},
	"gates":             {`(name, queue, places) VALUES ('held $w', 'held $w', 1)`, `name = 'held too'`, `name = 'held $w'`},
	"gate_keys":         {`(key, debt, at) VALUES ('held $w', 0, now() - interval '1 day')`, `key = 'held too'`, `key = 'held $w'`},
	"paused_queues":     {`(queue) VALUES ('held $w')`, `queue = 'held too'`, `queue = 'held $w'`},
	"lost_claims":       {`(partition_key, worker, claim_token, lost_at) VALUES ('held $w', '` + heldWorker + `', 7, now() - interval '1 day')`, `partition_key = 'held too'`, `partition_key = 'held $w'`},
	"windows":           {`(name, uid, opened_at, until) VALUES ('held $w', gen_random_uuid(), now() - interval '1 day', now() - interval '1 hour')`, `name = 'held too'`, `name = 'held $w'`},
	"schedules":         {`(name, spec, expression, next_at) VALUES ('held $w', '{}', '@daily', now() - interval '1 hour')`, `next_at = now()`, `name = 'held $w'`},
	"workers":           {`(id, host, pid, version, queues, machines, expires_at) VALUES (md5('$w')::uuid, 'held', 1, '', '{}', '{}', now() - interval '1 day')`, `id = md5('too')::uuid`, `id = md5('$w')::uuid`},
	"definitions":       {`(definition, machine, version, graph) VALUES ('held $w/1', 'held $w', 1, '{}')`, `definition = 'held too/1', machine = 'held too'`, `machine = 'held $w'`},
	"recorded_machines": {`(machine) VALUES ('held $w')`, `machine = 'held too'`, `machine = 'held $w'`},
	"history":           {`(kind, subject, actor, instance) VALUES ('held', 'held $w', 'held', $id)`, `subject = 'held too'`, `subject = 'held $w'`},
}

// tablesOf lists all tables of the schema, without partitions.
func tablesOf(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = 'gendurable'::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'atlas_schema_revisions' ORDER BY 1`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func TestEveryTableHasHeldRows(t *testing.T) {
	b := newBench(t)
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(heldTables)), "gen_durable"), tablesOf(t, b.pool))
}

// heldPatience is how long a bench may be in use beside held rows, of the time in which the process
// runs.
const heldPatience = steady.Patience

// holder holds rows in the database of a bench. Its watch fails the test if a session waits for
// it, and ends its session then.
type holder struct {
	t    testing.TB
	pool *pgxpool.Pool
	conn *pgx.Conn
	tx   pgx.Tx
}

// holdRows lets another session hold rows in all tables until the test ends.
func (b bench) holdRows() {
	b.t.Helper()
	ctx := context.Background() // the test's ends before its cleanup
	conn, err := pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig.Copy())
	require.NoError(b.t, err)
	other := &holder{t: b.t, pool: b.pool, conn: conn}
	for _, way := range ways[:len(ways)-1] {
		other.insert(way, func(sql string) (id int64, err error) { return id, b.pool.QueryRow(ctx, sql).Scan(&id) })
	}
	other.hold()
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { other.watch(end) })
	b.t.Cleanup(func() {
		close(end)
		done.Wait()
		_ = conn.Close(ctx)
	})
}

// hold begins the transaction in which the holder has its rows.
func (s *holder) hold() {
	ctx := context.Background()
	var err error
	s.tx, err = s.conn.Begin(ctx)
	require.NoError(s.t, err)
	for _, way := range ways[:len(ways)-1] {
		for table, h := range s.tables() {
			which := strings.ReplaceAll(h.which, "$w", way)
			sql := map[string]string{
				"locked":  `SELECT FROM gendurable.` + table + ` WHERE ` + which + ` FOR UPDATE`,
				"updated": `UPDATE gendurable.` + table + ` SET ` + h.change + ` WHERE ` + which,
				"deleted": `DELETE FROM gendurable.` + table + ` WHERE ` + which,
			}[way]
			tag, err := s.tx.Exec(ctx, sql)
			require.NoError(s.t, err, sql)
			require.NotZero(s.t, tag.RowsAffected(), sql)
		}
	}
	s.insert("inserted", func(sql string) (id int64, err error) { return id, s.tx.QueryRow(ctx, sql).Scan(&id) })
}

// tables yields the tables in which the holder has rows. The rows of other tables come before the
// instances to which they refer, since a deleted instance takes them along.
func (s *holder) tables() iter.Seq2[string, held] {
	return func(yield func(string, held) bool) {
		for _, table := range append(slices.Sorted(maps.Keys(heldTables)), "gen_durable") {
			h := heldTables[table]
			if table == "gen_durable" {
				h = held{which: `queue = 'held $w'`, change: `queue = 'held too'`}
			}
			if !yield(table, h) {
				return
			}
		}
	}
}

// insert inserts the rows of one way.
func (s *holder) insert(way string, send func(sql string) (id int64, err error)) {
	var first, last int64
	for _, row := range heldInstances {
		row = columns{"fsm": `'m'`, "step": `'s'`, "queue": `'held $w'`}.with(row)
		names := slices.Sorted(maps.Keys(row))
		var values []string
		for _, n := range names {
			values = append(values, strings.NewReplacer("$w", way, "$p", number(first)).Replace(row[n]))
		}
		sql := `INSERT INTO gendurable.gen_durable (` + strings.Join(names, ", ") + `) VALUES (` + strings.Join(values, ", ") + `) RETURNING id`
		var err error
		last, err = send(sql)
		require.NoError(s.t, err, sql)
		first = cmp.Or(first, last)
	}
	for table, h := range s.tables() {
		if table != "gen_durable" {
			sql := `INSERT INTO gendurable.` + table + ` ` + strings.NewReplacer("$w", way, "$id", number(last)).Replace(h.rows) + ` RETURNING 0`
			_, err := send(sql)
			require.NoError(s.t, err, sql)
		}
	}
}

// watch fails the test if a session waits for the holder, and ends the holder's then.
func (s *holder) watch(end <-chan struct{}) {
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig.Copy())
	if !assert.NoError(s.t, err) {
		return
	}
	defer func() { assert.NoError(s.t, conn.Close(ctx)) }()
	w := steady.Begin()
	defer w.End()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	pid := int32(s.conn.PgConn().PID()) //nolint:gosec // as Postgres has it
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		rows, err := conn.Query(ctx, `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $1 = ANY(pg_blocking_pids(pid))`, pid)
		if !assert.NoError(s.t, err) {
			return
		}
		waiting, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if !assert.NoError(s.t, err) {
			return
		}
		over := w.Ran() > heldPatience
		if !over && assert.Empty(s.t, waiting, "it waits for rows that it does not need") {
			continue
		}
		if over && !s.t.Failed() {
			assert.Fail(s.t, "it does not come to its end beside held rows")
		}
		// A loop that goes round until something holds would do so for ever: it is to find no database.
		_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND ($1 OR pid = $2)`, over, pid)
		if !assert.NoError(s.t, err) || !over {
			return
		}
	}
}
