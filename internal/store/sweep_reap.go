package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// crashedText is last_error of an instance over its crash limit.
const crashedText = `'lost its worker ' || (least(g.crashes, 2147483646) + 1) || ' times at step ' || g.step || ': over the crash limit'`

// overText is the condition that a lost claim exceeds its machine's crash limit.
const overText = `coalesce(m.most > 0 AND x.crashes >= m.most, false)`

// parentGate joins each row x of a sweep with p.open, which is whether the sweep may end it. It is
// false for a child whose parent is locked, since the child's join would have to wait. ends is the
// SQL condition under which the sweep would end x at all: only then the gate locks the parent. Of
// a node of a graph it locks what waits for the node, too.
//
// The gate stands before the LIMIT, so that the children of a locked parent do not use it up,
// however many they are and although they come first. Each costs a probe of its parent, which
// writes nothing, and one sweep costs no more than one pass over the due rows. A sweep that has to
// pass over many is followed by a pause in proportion (sweepPace, in internal/work).
//
// All parents are locked before the first row is updated, as in commitSQL. A sweep that ends a
// parent together with its child could not lock the row any more that it has updated itself, and
// would leave the child out. So the UPDATE has the condition "(SELECT count(*) …) > 0", which is
// true: Postgres evaluates it first, and with it all of the rows.
func parentGate(ends string) string {
	return `CROSS JOIN LATERAL (SELECT NOT (` + ends + `) OR x.parent_id IS NULL
    OR ((SELECT true FROM {s}.gen_durable f WHERE f.id = x.parent_id FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL
      OR ` + goneText("x.parent_id") + `)
      AND (x.node IS NULL OR NOT EXISTS (` + heldText("ARRAY[x.id]") + `)) AS open OFFSET 0) p`
}

// sweepForm is a form of a sweep.
type sweepForm struct {
	these    bool // it sweeps the rows with given ids; else it passes over these
	recorded bool // it also appends to the history: see sweptInto
}

// sweepsOf makes the statements of a sweep in all forms.
func sweepsOf(name string, text func(sweepForm) string) map[sweepForm]*statement {
	return map[sweepForm]*statement{
		{}:                            named(name, text(sweepForm{})),
		{these: true}:                 named(name, text(sweepForm{these: true}), "these"),
		{recorded: true}:              named(name, text(sweepForm{recorded: true}), "recorded"),
		{these: true, recorded: true}: named(name, text(sweepForm{these: true, recorded: true}), "these recorded"),
	}
}

// among selects rows x by their ids. ids is the parameter.
func (f sweepForm) among(ids string) string {
	return `x.id ` + either(f.these, `= ANY(`, `<> ALL(`) + ids + `::bigint[])`
}

// order begins with the rows that are due longest.
func (f sweepForm) order(due string) string { return `ORDER BY ` + either(f.these, `x.id`, due) }

// open stands before the UPDATE, behind the list of the due rows.
func (f sweepForm) open() string { return either(f.recorded, ",\nh AS (", "\n") }

// as names a column that the UPDATE returns.
func (f sweepForm) as(name string) string { return when(f.recorded, ` AS `+name) }

var reapForms = sweepsOf("reap", sweepForm.reap)

// reap ends claims whose lease has expired. The row runs again as another attempt, or fails if
// that would exceed its machine's crash limit. The first reap has no delay and keeps the row's
// place. Later ones wait 1 s · 2^(crashes−2), at most 5 min, so that an instance that kills its
// process does not take the fleet with it (T21). It uses SKIP LOCKED throughout: a committing
// owner, or another reaper, goes first. A failing child whose parent is locked waits for a later
// sweep: see parentGate.
//
// The literal status is intended here: the lease index leads to these rows.
//
// $1 most rows $2 mark $3 machines $4 their crash limits $5 ids to pass over
func (f sweepForm) reap() string {
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
expired AS MATERIALIZED (
  SELECT x.ctid AS tid, x.parent_id, coalesce(x.locked_by, '') AS worker, x.claim_token AS token, ` + overText + ` AS over
  FROM {s}.gen_durable x LEFT JOIN unnest($3::text[], $4::int[]) AS m(machine, most) ON m.machine = x.fsm || '/' || x.fsm_version
  ` + parentGate(overText) + `
  WHERE x.status = 'executing' AND x.lease_expires_at < (SELECT now FROM c) AND p.open
    AND ` + f.among("$5") + `
  ` + f.order("x.lease_expires_at") + ` LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED)` + f.open() + `UPDATE {s}.gen_durable g SET
  status = CASE WHEN e.over THEN 'failed'::{s}.durable_status ELSE 'runnable' END,
  pick_lane = {lane front}, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  attempt = least(g.attempt, 2147483646) + 1,
  crashes = least(g.crashes, 2147483646) + 1,
  eligible_at = CASE WHEN e.over OR g.crashes = 0 THEN g.eligible_at
    ELSE (SELECT now FROM c) + least(300, power(2, least(g.crashes - 1, 20))) * interval '1 s' END,
  failure = CASE WHEN e.over THEN 'crashes' END,
  last_error = CASE WHEN e.over THEN ` + crashedText + ` ELSE g.last_error END,
  errors = ` + remembered + `'at', (SELECT now FROM c), 'kind', 'crash', 'worker', g.locked_by,
    'error', CASE WHEN e.over THEN left(` + crashedText + `, 1024) ELSE 'lost its worker' END),
  finished_at = CASE WHEN e.over THEN (SELECT now FROM c) END,
  joined = CASE WHEN e.over AND g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  commit_id = CASE WHEN e.over THEN $2::uuid ELSE g.commit_id END,
  updated_at = (SELECT now FROM c)
FROM expired e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM expired) > 0
RETURNING g.id, g.queue, g.partition_key, e.worker, e.token, e.over, e.parent_id IS NOT NULL` + f.as("child") + `, g.node IS NOT NULL` + f.as("node") + `,
  g.parent_round < 0` + f.as("streamed") +
		when(f.recorded, sweptInto("id, queue, partition_key, worker, token, over, child, node, streamed",
			"e.worker", "'crash'", "g.attempt - 1", "CASE WHEN e.over THEN g.last_error ELSE 'lost its worker' END"))
}

// Reaped reports what a sweep did.
type Reaped struct {
	Released int     // rows that will run again
	Failed   []int64 // ids that were over their machine's crash limit
	Promotion
}

// CrashLimits holds the limits of the machines that a reaper knows, by MachineID; 0 is unlimited.
// The reaper reaps other machines without a limit.
type CrashLimits struct {
	Machines []string
	Limits   []int32
}

// Reap sweeps up to limit claims whose lease has expired. Rows that Postgres refuses to change do
// not keep it from reaping the others (T22).
func (s *Store) Reap(ctx context.Context, mark string, limits CrashLimits, limit int) (out Reaped, err error) {
	pass := s.apart.reap.ids()
	if err = s.reap(ctx, &out, false, mark, limits, limit, pass, true); !holdsUp(err) {
		return out, err
	}
	var ids []int64
	if err = s.one(ctx, fastLock, expiredSQL, readIDs(&ids), limit, pass); err != nil {
		return out, fmt.Errorf("list expired leases: %w", err)
	}
	out.Refused, err = narrow(ids, func(ids []int64) error {
		return s.reap(ctx, &out, true, mark, limits, len(ids), ids, false)
	}, ofID)
	s.apart.reap.add(out.Refused)
	return out, err
}

// reap runs one transaction. Without promote it leaves the next rows of the keys to Promote, since
// one of them may be the row that Postgres refuses to change.
func (s *Store) reap(ctx context.Context, sum *Reaped, these bool, mark string, limits CrashLimits, limit int, ids []int64, promote bool) error {
	var out Reaped
	err := s.interactive(ctx, fastLock, func(send send) error {
		var keys []string
		var joiners joiners
		var nodes []int64
		var lost lostClaims
		read := func(rows pgx.Rows) error {
			var id int64
			var queue string
			var key *string
			var worker string
			var token int64
			var over, child, node, streamed bool
			_, err := pgx.ForEachRow(rows, []any{&id, &queue, &key, &worker, &token, &over, &child, &node, &streamed}, func() error {
				if key != nil {
					keys = append(keys, *key)
					lost.add(*key, worker, token)
				}
				if over && node {
					nodes = append(nodes, id)
				}
				switch {
				case over && child:
					joiners.add(id, streamed)
					fallthrough
				case over:
					out.Failed = append(out.Failed, id)
				default:
					out.Released++
					out.Queues = append(out.Queues, queue)
				}
				return nil
			})
			return err
		}
		if err := send(s.stmt(reapForms[sweepForm{these, s.recording.Load()}], read, limit, mark, limits.Machines, limits.Limits, ids)); err != nil {
			return err
		}
		return s.follow(send, &joiners, nodes, keys, mark, promote, &out.Promotion, s.noted(&lost)...)
	})
	if err != nil {
		return fmt.Errorf("reap expired leases: %w", err)
	}
	sum.Released += out.Released
	sum.Failed = append(sum.Failed, out.Failed...)
	sum.add(out.Promotion)
	return nil
}

// follow sends the statements that a sweep owes to other rows in the same transaction, after it
// has ended some rows or released them: for the parents of ended children, for rows that wait for
// nodes, which are among the joiners, and for the next rows of partition keys, and stmts. Without
// promote it reports the keys as missed.
func (s *Store) follow(send send, joiners *joiners, nodes []int64, keys []string, mark string, promote bool, p *Promotion, stmts ...entpgx.Stmt) error {
	stmts = append(stmts, s.join(joiners, mark, readWoken(&p.Queues, &p.Rest))...)
	if len(nodes) > 0 {
		stmts = append(stmts, s.stmt(settleEdgesSQL, readSettled(&p.Queues, &p.Skips), nodes, mark))
	}
	switch {
	case len(keys) > 0 && promote:
		stmts = append(stmts, s.stmt(promoteSQL, p.read, keys, nil, nil))
	case len(keys) > 0:
		p.Missed = append(p.Missed, keys...)
	}
	if len(stmts) == 0 {
		return nil
	}
	return send(stmts...)
}

// expiredSQL lists the rows that a reap would reap. $1 most rows $2 ids to pass over
var expiredSQL = named("expired", `SELECT x.id FROM {s}.gen_durable x
WHERE x.status = 'executing' AND x.lease_expires_at < (SELECT clock_timestamp()) AND x.id <> ALL($2::bigint[])
ORDER BY x.lease_expires_at LIMIT $1`)

var uptimeSQL = named("uptime", `SELECT (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint`)

// Uptime returns how long the server has been running.
func (s *Store) Uptime(ctx context.Context) (up time.Duration, err error) {
	err = s.pipeline(ctx, s.stmt(uptimeSQL, func(rows pgx.Rows) error {
		us, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		up = time.Duration(us) * time.Microsecond
		return err
	}))
	if err != nil {
		return 0, fmt.Errorf("ask how long the server runs: %w", err)
	}
	return up, nil
}
