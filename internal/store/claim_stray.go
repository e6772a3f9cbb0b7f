package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A stray stands at a step that the worker which claimed it does not know, though it knows the
// machine and its version: a deploy was rolled back, or a machine was changed without a new
// version. The claim statement cannot tell, since no index may name the column step (T82). So the
// worker that has claimed a stray sets it aside in lane stray, which no claim statement looks at,
// and notes the step in aside_step, which has an index. A worker that knows the step takes it from
// there: recallSQL brings it to lane front in the transaction that claims it, so that no worker
// which does not know the step can claim it in between. So a stray costs one claim in each process
// that does not know its step, each time when it comes to the front, and no process spins.
//
// A stray with a partition key stays the head of its key, as one that is set aside for its machine:
// the others of its key wait behind it, as ordered.

// StepKey is a step of one version of a machine.
type StepKey struct {
	Machine string
	Version int
	Step    string
}

// Aside is a claim to give back because its step cannot run here.
type Aside struct {
	Claim *step.Claim
	// Fault is why its state cannot be converted: the instance is paused, and this becomes its
	// last_error. "": the step is unknown here.
	Fault string
}

// asideSQL gives claims back, as releaseForms, and sets the rows aside: at their step, or paused
// with the reason. $1 ids $2 tokens $3 worker $4 what is wrong, NULL: the step is unknown
var asideSQL = named("set aside", `UPDATE {s}.gen_durable g SET status = 'runnable', gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  pick_lane = CASE WHEN u.fault IS NULL THEN {lane stray} ELSE {lane front} END, aside_step = g.step, paused = g.paused OR u.fault IS NOT NULL,
  last_error = coalesce(u.fault, g.last_error)
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($4::text[]) AS fault) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND `+claimFence("$3", "u.token")+`
RETURNING g.id`)

// SetAside gives claims back, like Release, and sets their rows aside.
func (s *Store) SetAside(ctx context.Context, worker string, aside []Aside) (out Released, err error) {
	set := func(aside []Aside, promote bool) error {
		claims, faults := make([]*step.Claim, len(aside)), make([]*string, len(aside))
		for i, a := range aside {
			claims[i], faults[i] = a.Claim, optional(a.Fault)
		}
		one, err := s.giveBack(ctx, worker, claims, promote, func(ids, tokens []int64, read func(pgx.Rows) error) entpgx.Stmt {
			return s.stmt(asideSQL, read, ids, tokens, worker, faults)
		})
		out.add(one)
		return err
	}
	if err = set(aside, true); blames(err) {
		out.Refused, err = narrow(aside, func(aside []Aside) error { return set(aside, false) },
			func(a Aside, err error) Refused { return ofClaim(a.Claim, err) })
	}
	return out, err
}

// straysSQL lists strays of a queue whose steps a worker knows, most urgent first within each step.
// It visits the distinct steps in lane stray by a loose index scan, and of those that are known the
// first rows. $1 queue $2 machines $3 versions $4 steps $5 most rows $6 ids to pass over
var straysSQL = named("strays", `WITH RECURSIVE aside(f, v, s) AS (
  (SELECT g.fsm, g.fsm_version, g.aside_step FROM {s}.gen_durable g
   WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane stray} ORDER BY g.fsm, g.fsm_version, g.aside_step LIMIT 1)
  UNION ALL
  SELECT n.* FROM aside CROSS JOIN LATERAL (
    SELECT g.fsm, g.fsm_version, g.aside_step FROM {s}.gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane stray}
      AND (g.fsm, g.fsm_version, g.aside_step) > (aside.f, aside.v, aside.s) ORDER BY g.fsm, g.fsm_version, g.aside_step LIMIT 1) n),
known AS MATERIALIZED (SELECT * FROM unnest($2::text[], $3::int[], $4::text[]) AS k(f, v, s))
SELECT r.id FROM (SELECT a.* FROM aside a WHERE EXISTS (SELECT FROM known k WHERE k.f = a.f AND k.v = a.v AND k.s = a.s)) a
CROSS JOIN LATERAL (
  SELECT g.id FROM {s}.gen_durable g
  WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane stray} AND g.fsm = a.f AND g.fsm_version = a.v AND g.aside_step = a.s
    AND g.eligible_at <= statement_timestamp() AND g.id <> ALL($6::bigint[])
  ORDER BY g.priority, g.eligible_at, g.id LIMIT $5) r
LIMIT $5`)

// recallSQL brings strays to the front, for the claim that follows in its transaction. $1 ids
var recallSQL = named("recall", `UPDATE {s}.gen_durable g SET pick_lane = {lane front}
FROM (SELECT unnest($1::bigint[]) AS id) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.pick_lane = {lane stray} AND coalesce(g.status = 'runnable', false)`)

// ClaimStrays claims strays of a queue that stand at given steps, which the caller knows. p.After
// and p.Window do not count.
func (s *Store) ClaimStrays(ctx context.Context, p ClaimParams, steps []StepKey) (out Claimed, err error) {
	apart := s.apart.claim.queue(p.Queue)
	names, versions, at := make([]string, len(steps)), make([]int32, len(steps)), make([]string, len(steps))
	for i, k := range steps {
		names[i], versions[i], at[i] = k.Machine, int32(k.Version), k.Step //nolint:gosec // a version fits the column
	}
	p.After, p.Window = Place{}, p.Limit
	err = s.onConnection(ctx, func(conn *pgx.Conn) error {
		var ids []int64
		err := s.pipelineOn(ctx, conn, s.enclose(fastLock, []entpgx.Stmt{
			s.stmt(straysSQL, readIDs(&ids), p.Queue, names, versions, at, p.Limit, apart.ids())})...)
		if err != nil || len(ids) == 0 {
			out = Claimed{NextDue: -1}
			return err
		}
		out, err = s.claimRecalled(ctx, conn, &p, ids)
		apart.add(out.Refused)
		return err
	})
	if err != nil {
		return Claimed{}, fmt.Errorf("claim instances of queue %q that were set aside: %w", p.Queue, err)
	}
	return out, nil
}

// claimRecalled recalls and claims some strays, without those that Postgres refuses to change.
func (s *Store) claimRecalled(ctx context.Context, conn *pgx.Conn, p *ClaimParams, ids []int64) (Claimed, error) {
	out := Claimed{NextDue: -1}
	began := time.Now()
	claim := func(ids []int64) error {
		some := *p
		some.Limit, some.Window = max(1, len(ids)), max(1, len(ids))
		if time.Since(began) > p.Lease/4 {
			return nil // nobody extends leases meanwhile; the next claim finds the others
		}
		got, err := s.claimSome(ctx, conn, &some, ids, s.stmt(recallSQL, nil, ids))
		if err == nil {
			out.add(&got)
		}
		return err
	}
	err := claim(ids)
	if blames(err) && !collided(err) && !unknown(err) {
		out.Refused, err = narrow(ids, claim, ofID)
	}
	if len(out.Claims) > 0 && err != nil && !unknown(err) {
		err = nil // what was claimed counts
	}
	return out, err
}
