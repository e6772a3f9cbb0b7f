package store_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// T35, T83, T94, T98: plans made on an empty table, on one never analyzed, and on one analyzed
// while nothing executed, all hold on a large table on which much executes. Each verb uses the
// index meant for it, touches a bounded number of buffers per row, and sorts no more rows than it
// takes. PLAN_ROWS is the number of runnable rows, of which a tenth is nodes of one graph, and
// PLAN_PAGES where to write the pages about plans (make explain). In the short tier the tables are
// smaller, but not so small that the bounds would let a plan pass that walks through them.
func TestPlansHold(t *testing.T) {
	b := newBench(t)
	for _, table := range []string{"gen_durable", "signals", "kept_signals"} { // an automatic ANALYZE would let all plans be made anew
		b.exec(`ALTER TABLE gendurable.` + table + ` SET (autovacuum_enabled = off)`)
	}
	empty := b.explained("planned on an empty table")
	empty.useAll()
	b.exec(`DELETE FROM gendurable.gen_durable`)

	rows := tier.Size(t, "PLAN_ROWS", 12_000, 30_000, 1_000_000)
	// A concurrent ANALYZE would keep dead entries from being skipped, and so decide how many buffers
	// a claim touches.
	b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
	b.exec(`ALTER TABLE gendurable.signals SET (autovacuum_enabled = off)`)
	b.load(rows)
	b.keeps(rows)
	b.largeGraph(rows / 10)
	large := []explained{empty}
	if tier.Long() { // plans without statistics are as those on an empty table, mostly
		unanalyzed := b.explained("planned on a table never analyzed")
		unanalyzed.useAll()
		large = append(large, unanalyzed)
	}
	b.execute(4000)
	b.waitingNodes(4000)
	for _, e := range large {
		e.measureAll()
	}

	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL WHERE status = 'executing'`)
	b.exec(`UPDATE gendurable.gen_durable SET node = NULL WHERE node IS NOT NULL AND queue <> 'nodes'`)
	b.exec(`ANALYZE gendurable.gen_durable, gendurable.signals, gendurable.kept_signals`)
	idle := b.explained("planned while nothing executed, without graphs")
	idle.useAll()
	b.execute(4000)
	b.waitingNodes(4000)
	pages := idle.measureAll()
	if dir := os.Getenv("PLAN_PAGES"); dir != "" {
		pages.write(t, dir, b.number(`SELECT count(*) FROM gendurable.gen_durable`))
	}
}

// A plan that was made on a small table, and that ANALYZE knew to be small, holds on a large one:
// none goes through all of an index for a few rows.
func TestPlansOfASmallTableHold(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = off)`)
	b.exec(`ALTER TABLE gendurable.edges SET (autovacuum_enabled = off)`)
	fill := func(n int) {
		b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue) SELECT 'm', 's', q FROM generate_series(1, $1::int) n, (VALUES ('bulk'), ('rest of all')) AS q(q)`, n)
	}
	var of []*measured
	for i := range allMeasures {
		if slices.Contains([]string{"commit of Await", "commit of ScheduleChildren", "commit of ScheduleChildren with a policy", "commit of Rejoin", "cancel the rest",
			"commit of a graph", "commit of ends of nodes", "commit of ends of nodes in the slow lane", "what nodes have waited for"}, allMeasures[i].verb) {
			of = append(of, &allMeasures[i])
		}
	}
	require.Len(t, of, 9)
	fill(100)
	b.exec(`ANALYZE gendurable.gen_durable, gendurable.edges`)
	e := b.explained("planned on a small table")
	for _, m := range of {
		e.use(m)
	}
	fill(40_000)
	b.waitingNodes(4000)
	for _, m := range of {
		c, rows := e.measure(m)
		t.Logf("%-40s %5d buffers for %d", m.verb, c.buffers, rows)
		assert.LessOrEqual(t, c.buffers, max(rows, 1)*m.most, m.verb)
	}
}

func (e explained) useAll() {
	e.t.Helper()
	for i := range allMeasures {
		e.use(&allMeasures[i])
	}
}

// use uses a verb, and returns what that cost and for how many rows.
func (e explained) use(m *measured) (cost, int) {
	e.t.Helper()
	var prepared any
	if m.prepare != nil {
		prepared = m.prepare(e)
	}
	e.cost()
	rows := m.use(e, prepared)
	return e.cost(), rows
}

// measure is use, again if it cost too much: a snapshot that another session had meanwhile raises
// the cost once, a wrong plan each time.
func (e explained) measure(m *measured) (cost, int) {
	e.t.Helper()
	c, rows := e.use(m)
	for range 4 {
		if c.buffers <= max(rows, 1)*m.most {
			break
		}
		e.unwatched(m.verb + ", " + e.when)
		c, rows = e.use(m)
	}
	return c, rows
}

// unwatched waits until no other transaction of the database has a snapshot, as autovacuum's
// analyze of a catalog does. Rows that it might see count as alive, and each scan that meets their
// index entries looks them up again. unwatched also waits until all transactions have ended, in any
// database, that ran when the test last wrote: as long as the oldest running one stays the same, a
// backend does not check again which rows are dead. Beside a transaction that stays open nothing
// can be measured, and the test is skipped.
func (e explained) unwatched(what string) {
	e.t.Helper()
	var written int64
	require.NoError(e.t, e.pool.QueryRow(e.t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&written))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(3 * time.Minute); ; <-tick.C {
		var free bool
		require.NoError(e.t, e.pool.QueryRow(e.t.Context(), `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1
			AND NOT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND coalesce(backend_xmin, backend_xid) IS NOT NULL)`,
			written).Scan(&free))
		if free {
			return
		}
		if time.Now().After(late) {
			e.t.Skipf("%s: somebody's transaction has been open for three minutes, and what cannot be cleaned up beside it is in the way", what)
		}
	}
}

func (e explained) measureAll() planPages {
	e.t.Helper()
	pages := planPages{}
	for i := range allMeasures {
		m := &allMeasures[i]
		c, rows := e.measure(m)
		e.t.Logf("%-34s %-40s %5d buffers for %d", e.when, m.verb, c.buffers, rows)
		require.GreaterOrEqual(e.t, rows, m.rows, "%s, %s", m.verb, e.when)
		require.LessOrEqual(e.t, c.buffers, max(rows, 1)*m.most, "%s, %s: buffers for %d", m.verb, e.when, rows)
		require.Empty(e.t, c.scanned, "%s, %s", m.verb, e.when)
		require.LessOrEqual(e.t, c.sorted, max(rows, planRows)*mostSorted, "%s, %s: rows sorted for %d", m.verb, e.when, rows)
		for index := range strings.FieldsSeq(m.indexes) {
			require.Contains(e.t, c.indexes, index, "%s, %s", m.verb, e.when)
		}
		pages.add(m, &c, rows)
	}
	return pages
}

// load fills the tables with n runnable rows, and with the other rows of a busy installation, of
// which the measures use up thousands.
func (b bench) load(n int) {
	b.t.Helper()
	fifth := max(n/5, 9_000)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, priority, eligible_at, partition_key)
		SELECT 'm', 's', q.name, q.priority, now() - n * interval '1 ms' + q.later * interval '1 hour', replace(q.key, '#', n::text)
		FROM (VALUES ('default', 0, 0, NULL, 30), ('default', 3, 0, NULL, 25), ('keyed', 0, 0, 'key #', 10), ('hot', 0, 0, 'hot', 15),
			('future', -5, 1, NULL, 15), ('future', 0, 0, NULL, 5)) AS q(name, priority, later, key, percent)
		CROSS JOIN LATERAL generate_series(1, $1::int / 100 * q.percent) n`, n)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, eligible_at)
		SELECT 'm', 's', q, now() - interval '1 hour' FROM generate_series(1, $1::int) n, (VALUES ('bulk'), ('apart')) AS q(q)`, fifth)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane)
		SELECT 'x' || n % 5, 's', 'aside', 2 FROM generate_series(1, $1::int / 50) n`, n)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, labels)
		SELECT 'm', 's', 'done', now(), jsonb_build_object('tenant', 'big', 'order', (n % ($1::int / 24))::text)
			FROM generate_series(1, $1::int) n`, fifth)
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, labels)
		SELECT 'm', 's', 'listed', jsonb_build_object('order', (n % 2)::text || '8') FROM generate_series(1, 20) n`)
	b.exec(`UPDATE gendurable.gen_durable SET labels = '{"order": "8"}' WHERE queue = 'listed'`)
	b.exec(`WITH g AS (
			INSERT INTO gendurable.gen_durable (fsm, step, status, awaits, await_deadline) SELECT 'm', 's', 'awaiting_signal', '{go}',
				now() + interval '1 day' FROM generate_series(1, $1::int / 2) n RETURNING id)
		INSERT INTO gendurable.signals (target_id, name) SELECT g.id, 'unasked' FROM g CROSS JOIN generate_series(1, 2)`, fifth)
	b.exec(`UPDATE gendurable.gen_durable SET correlation_key = 'address ' || id, correlation_scope = ` + liveScope + `
		WHERE status = 'awaiting_signal'`)
	b.exec(`UPDATE gendurable.gen_durable SET deadline = now() + interval '1 day' WHERE id % 2 = 0`)
}

// execute makes another worker hold n rows, spread over the table.
func (b bench) execute(n int) {
	b.t.Helper()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'w', claim_token = id, lease_expires_at = now() + interval '1 hour'
		WHERE id IN (SELECT id FROM gendurable.gen_durable WHERE status = 'runnable' AND queue = 'default' ORDER BY random() LIMIT $1)`, n)
}

// waitingNodes makes a graph with n nodes that wait.
func (b bench) waitingNodes(n int) {
	b.t.Helper()
	b.exec(`WITH r AS (INSERT INTO gendurable.gen_durable (fsm, step, status, visit, round, children_pending)
			VALUES ('m', 's', 'awaiting_children', 1, 1, $1::int) RETURNING id)
		INSERT INTO gendurable.gen_durable (fsm, step, status, children_pending, parent_id, parent_round, node)
		SELECT 'm', 's', 'awaiting_children', 1, r.id, 1, 'waiting ' || n FROM r, generate_series(1, $1::int) n`, n)
}
