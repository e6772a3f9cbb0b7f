package ceiling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
)

// lockedSQL reads what a claim reads of the most urgent rows behind a place: $1 priority, $2 time,
// $3 id.
const lockedSQL = `SELECT g.ctid, g.id, g.uid, g.fsm, g.fsm_version, g.step, g.state::text, g.attempt, g.crashes, g.visit, g.priority,
  g.correlation_key, g.partition_key, g.parent_id, g.parent_round, g.depth, g.round, g.timed_out, g.inserted_at, g.deadline, g.labels, g.trace,
  g.eligible_at, g.node
FROM gendurable.gen_durable g
WHERE g.queue = 'default' AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
  AND (g.priority, g.eligible_at, g.id) > ($1::smallint, $2::timestamptz, $3::bigint)
ORDER BY g.priority, g.eligible_at, g.id LIMIT `

// lockedDoneSQL ends rows that this transaction has locked. $1 their places in the table $2 visits
// $3 mark $4 results
const lockedDoneSQL = `UPDATE gendurable.gen_durable g SET status = 'done', result = u.result::jsonb, awaits = NULL, crashes = 0, last_error = NULL,
  finished_at = statement_timestamp(), commit_id = $3::uuid, updated_at = statement_timestamp()
FROM (SELECT unnest($1::tid[]) AS tid, unnest($2::bigint[]) AS visit, unnest($4::text[]) AS result OFFSET 0) u
WHERE g.ctid = u.tid AND g.status = 'runnable' AND g.visit = u.visit
RETURNING g.id`

// lockReadSQL locks what lockedSQL has read before, unless it has changed. $1 ids $2 visits
const lockReadSQL = `SELECT g.ctid, g.id, g.visit FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS visit OFFSET 0) u
CROSS JOIN LATERAL (SELECT x.ctid, x.id, x.visit FROM gendurable.gen_durable x
  WHERE x.id = u.id AND x.visit = u.visit AND x.status = 'runnable' AND NOT x.paused FOR NO KEY UPDATE SKIP LOCKED) g`

// guardSQL has the settings of each transaction of the engine.
const guardSQL = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
  set_config('idle_in_transaction_session_timeout', '1s', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
  set_config('datestyle', 'ISO', true)`

// BatchesSQL makes the table of batch leases: the death of a worker under one counts as a crash of
// its rows.
const BatchesSQL = `CREATE TABLE IF NOT EXISTS gendurable.bench_batches (id uuid PRIMARY KEY, worker text NOT NULL,
  lease_expires_at timestamptz NOT NULL, ids bigint[] NOT NULL)`

// Locked drains all runnable instances without claims: steps would run under the row locks of one
// transaction, which then ends the rows, by one update a row.
//
// Guarded, it does what an engine would have to. It reads the rows before it locks them, since a
// client that stops reading would keep the locks. It notes the batch durably before its steps, by a
// separate connection, so that a crash can be counted, and deletes the note with their end. And
// each transaction has the engine's settings.
func Locked(ctx context.Context, pool *pgxpool.Pool, workers, batch int, guarded bool) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	d := &locking{place: startOfQueue, batch: batch, guarded: guarded, results: repeat(`{"ok":true}`, batch), sql: lockedSQL + strconv.Itoa(batch)}
	if !guarded {
		d.sql += " FOR NO KEY UPDATE OF g SKIP LOCKED"
	}
	for i := range errs {
		all.Go(func() { errs[i] = d.drain(ctx, pool) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// startOfQueue is before all rows.
var startOfQueue = place{-32768, time.Time{}, 0}

// place is one in the order of the queue.
type place struct {
	priority int16
	at       time.Time
	id       int64
}

// locking is what the workers share.
type locking struct {
	sql     string
	batch   int
	guarded bool
	results []string

	mu    sync.Mutex
	place place
}

func (d *locking) drain(ctx context.Context, pool *pgxpool.Pool) error {
	work, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer work.Release()
	note := work
	if d.guarded {
		if note, err = pool.Acquire(ctx); err != nil {
			return err
		}
		defer note.Release()
	}
	worker := uuid.NewString()
	for {
		n, err := d.once(ctx, work.Conn(), note.Conn(), worker)
		if err != nil || n == 0 {
			return err
		}
	}
}

// once takes one batch from its locks to its end.
func (d *locking) once(ctx context.Context, work, note *pgx.Conn, worker string) (int, error) {
	rows, err := d.lock(ctx, work)
	n := len(rows.ids)
	if err != nil || n == 0 {
		_, rolled := work.Exec(ctx, "ROLLBACK") // guarded, there is none: a warning
		return 0, errors.Join(err, rolled)
	}
	mark := uuid.NewString()
	if d.guarded {
		if rows, err = d.relock(ctx, work, rows); err != nil {
			return 0, err
		}
		if n = len(rows.ids); n == 0 {
			_, err := work.Exec(ctx, "ROLLBACK")
			return d.batch, err
		}
		if _, err := note.Exec(ctx, `INSERT INTO gendurable.bench_batches VALUES ($1, $2, statement_timestamp() + interval '60 seconds', $3)`,
			mark, worker, rows.ids); err != nil {
			return 0, err
		}
	}
	out := &pgx.Batch{}
	ended := 0
	out.Queue(lockedDoneSQL, rows.tids, rows.visits, mark, d.results[:n]).Query(func(r pgx.Rows) error {
		ids, err := pgx.CollectRows(r, pgx.RowTo[int64])
		ended = len(ids)
		return err
	})
	if d.guarded {
		out.Queue(`DELETE FROM gendurable.bench_batches WHERE id = $1`, mark)
	}
	out.Queue("COMMIT")
	err = work.SendBatch(ctx, out).Close()
	if err == nil && ended != n {
		err = fmt.Errorf("ended %d of %d rows", ended, n)
	}
	return n, err
}

// lockedRows holds columns of locked rows.
type lockedRows struct {
	tids        []pgtype.TID
	ids, visits []int64
}

// begin begins a transaction.
func (d *locking) begin(out *pgx.Batch) {
	out.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	if d.guarded {
		out.Queue(guardSQL, "500ms", "60s")
	}
}

// relock begins a transaction that locks rows which were read before.
func (d *locking) relock(ctx context.Context, conn *pgx.Conn, read lockedRows) (l lockedRows, err error) {
	out := &pgx.Batch{}
	d.begin(out)
	out.Queue(lockReadSQL, read.ids, read.visits).Query(func(rows pgx.Rows) error {
		var tid pgtype.TID
		var id, visit int64
		_, err := pgx.ForEachRow(rows, []any{&tid, &id, &visit}, func() error {
			l.tids, l.ids, l.visits = append(l.tids, tid), append(l.ids, id), append(l.visits, visit)
			return nil
		})
		return err
	})
	return l, conn.SendBatch(ctx, out).Close()
}

// lock decodes all that a claim would, of rows that it locks in a transaction which it begins. If
// guarded, it only reads them.
func (d *locking) lock(ctx context.Context, conn *pgx.Conn) (l lockedRows, err error) {
	d.mu.Lock()
	from := d.place
	d.mu.Unlock()
	var at any = from.at
	if from == startOfQueue {
		at = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	var (
		tid                              pgtype.TID
		id, visit, round, parentRound    int64
		uid                              [16]byte
		machine, step                    string
		state, labels, trace             []byte
		version, attempt, crashes, depth int
		priority                         int16
		key, partition, node             *string
		parent                           *int64
		timedOut                         bool
		inserted, eligible               time.Time
		deadline                         *time.Time
	)
	into := []any{&tid, &id, &uid, &machine, &version, &step, &state, &attempt, &crashes, &visit, &priority, &key, &partition, &parent,
		&parentRound, &depth, &round, &timedOut, &inserted, &deadline, &labels, &trace, &eligible, &node}
	out := &pgx.Batch{}
	d.begin(out)
	out.Queue(d.sql, from.priority, at, from.id).Query(func(rows pgx.Rows) error {
		var states []json.RawMessage
		_, err := pgx.ForEachRow(rows, into, func() error {
			l.tids, l.ids, l.visits = append(l.tids, tid), append(l.ids, id), append(l.visits, visit)
			states = append(states, state)
			return nil
		})
		return err
	})
	if d.guarded {
		out.Queue("COMMIT")
	}
	if err := conn.SendBatch(ctx, out).Close(); err != nil {
		return l, err
	}
	if len(l.ids) > 0 {
		d.mu.Lock()
		if last := (place{priority, eligible, id}); last.id > d.place.id { // one priority, inserted in the order of ids
			d.place = last
		}
		d.mu.Unlock()
	}
	return l, nil
}

// LockedPool is a pool for Locked, whose connections plan like Pool's.
func LockedPool(ctx context.Context, db *lab.Database, workers int) (*pgxpool.Pool, error) {
	return Pool(ctx, db, 2*workers)
}
