// Package ceiling measures what Postgres allows: the writes of an engine on the engine's own table,
// by as few statements as possible, without an engine around them. The written columns, the fence
// and the order of the pick are the same as in internal/store. It leaves out everything that makes
// the engine's statements right beside others: row locks taken without waiting, partition keys,
// unknown machines, the inbox.
package ceiling

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
)

// batch is as large as one of the engine's.
const batch = 500

// claimSQL takes the most urgent rows. $1 queue $2 worker
var claimSQL = `WITH c AS MATERIALIZED (
  SELECT g.ctid AS tid FROM gendurable.gen_durable g
  WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND g.eligible_at <= statement_timestamp()
  ORDER BY g.priority, g.eligible_at, g.id LIMIT ` + strconv.Itoa(batch) + ` FOR NO KEY UPDATE OF g SKIP LOCKED)
UPDATE gendurable.gen_durable g SET status = 'executing', locked_by = $2, lease_expires_at = statement_timestamp() + interval '60 seconds',
  claim_token = nextval('gendurable.gen_durable_token'), updated_at = statement_timestamp()
FROM c WHERE g.ctid = c.tid
RETURNING g.id, g.uid, g.fsm, g.fsm_version, g.step, g.state::text, g.attempt, g.crashes, g.visit, g.claim_token`

// keptSQL commits a step and keeps the claim. $1 ids $2 tokens $3 visits $4 worker $5 mark $6 steps
// $7 states
const keptSQL = `UPDATE gendurable.gen_durable g SET step = u.step, state = u.state::jsonb, awaits = NULL, timed_out = false, attempt = 0,
  crashes = 0, last_error = NULL, visit = g.visit + 1, commit_id = $5::uuid, updated_at = statement_timestamp()
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS step,
  unnest($7::text[]) AS state) u
WHERE g.id = u.id AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id`

// doneSQL ends instances. $1 ids $2 tokens $3 visits $4 worker $5 mark $6 results
const doneSQL = `UPDATE gendurable.gen_durable g SET status = 'done', result = u.result::jsonb, awaits = NULL, crashes = 0, last_error = NULL,
  locked_by = NULL, lease_expires_at = NULL, finished_at = statement_timestamp(), commit_id = $5::uuid, updated_at = statement_timestamp()
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS result) u
WHERE g.id = u.id AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id`

// singleSQL is keptSQL for one row. $1 id $2 state
const singleSQL = `UPDATE gendurable.gen_durable g SET step = 'step1', state = $2::jsonb, awaits = NULL, timed_out = false, attempt = 0,
  crashes = 0, last_error = NULL, visit = g.visit + 1, commit_id = gen_random_uuid(), updated_at = statement_timestamp()
WHERE g.id = $1 AND g.status = 'executing'`

// insertSQL inserts one row that is executing, as the engine's insert of an idle process does.
// $1 uid $2 state
const insertSQL = `INSERT INTO gendurable.gen_durable (uid, fsm, step, queue, state, status, locked_by, lease_expires_at, claim_token)
VALUES ($1::uuid, 'noop', 'run', 'default', $2::jsonb, 'executing', 'bench', statement_timestamp() + interval '60 seconds',
  nextval('gendurable.gen_durable_token')) RETURNING id`

// Pool returns a pool of this many connections, which plan each statement once, in the way that is
// right on a full table.
func Pool(ctx context.Context, db *lab.Database, conns int) (*pgxpool.Pool, error) {
	return db.Pool(ctx, conns, func(c *pgxpool.Config) {
		p := c.ConnConfig.RuntimeParams
		for _, off := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
			p[off] = "off"
		}
		p["plan_cache_mode"] = "force_generic_plan"
	})
}

// Drain takes all runnable instances through this many steps. Each connection of the pool works by
// itself.
func Drain(ctx context.Context, pool *pgxpool.Pool, steps int) error {
	var all sync.WaitGroup
	errs := make([]error, pool.Config().MaxConns)
	for i := range errs {
		all.Go(func() {
			errs[i] = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return drain(ctx, c.Conn(), steps) })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// claims holds the columns of claimed rows.
type claims struct {
	ids, tokens, visits []int64
	states              []string
}

func drain(ctx context.Context, conn *pgx.Conn, steps int) error {
	worker := uuid.NewString()
	results := repeat(`{"ok":true}`, batch)
	for {
		c, err := claim(ctx, conn, worker)
		n := len(c.ids)
		if err != nil || n == 0 {
			return err
		}
		for step := 1; step < steps; step++ {
			names := repeat("step"+strconv.Itoa(step), n)
			if err := commit(ctx, conn, n, keptSQL, c.ids, c.tokens, c.visits, worker, uuid.NewString(), names, c.states); err != nil {
				return err
			}
			for i := range c.visits {
				c.visits[i]++
			}
		}
		if err := commit(ctx, conn, n, doneSQL, c.ids, c.tokens, c.visits, worker, uuid.NewString(), results[:n]); err != nil {
			return err
		}
	}
}

func claim(ctx context.Context, conn *pgx.Conn, worker string) (c claims, err error) {
	rows, err := conn.Query(ctx, claimSQL, "default", worker)
	if err != nil {
		return c, err
	}
	var (
		id, visit, token          int64
		uid                       [16]byte
		machine, step, state      string
		version, attempt, crashes int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &uid, &machine, &version, &step, &state, &attempt, &crashes, &visit, &token}, func() error {
		c.ids, c.tokens, c.visits, c.states = append(c.ids, id), append(c.tokens, token), append(c.visits, visit), append(c.states, state)
		return nil
	})
	return c, err
}

func commit(ctx context.Context, conn *pgx.Conn, want int, sql string, args ...any) error {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && len(ids) != want {
		err = fmt.Errorf("committed %d of %d rows", len(ids), want)
	}
	return err
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// Updates commits an update of a lone row n times and returns how long each took. A few more,
// before, warm up.
func Updates(ctx context.Context, pool *pgxpool.Pool, n int) ([]time.Duration, error) {
	const warm = 50
	var id int64
	var state string
	if err := pool.QueryRow(ctx, `UPDATE gendurable.gen_durable SET status = 'executing', locked_by = 'bench',
		lease_expires_at = now() + interval '1 hour' RETURNING id, state::text`).Scan(&id, &state); err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, n)
	for i := range n + warm {
		began := time.Now()
		tag, err := pool.Exec(ctx, singleSQL, id, state)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() != 1 {
			return nil, errors.New("the row is not what it was")
		}
		if i >= warm {
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}

// Insert commits an insert of a lone row.
func Insert(ctx context.Context, pool *pgxpool.Pool, state []byte) error {
	var id int64
	return pool.QueryRow(ctx, insertSQL, uuid.New(), string(state)).Scan(&id)
}
