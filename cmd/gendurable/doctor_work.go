package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

const leasesSQL = `SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - lease_expires_at)), 0)::bigint
FROM {s}.gen_durable WHERE status = 'executing' AND lease_expires_at < clock_timestamp() - $1::float8 * interval '1 second'`

func (p *patient) leases(ctx context.Context) (finding, error) {
	var count, oldest int64
	if err := p.pool.QueryRow(ctx, within(p.schema, leasesSQL), p.Patience.Seconds()).Scan(&count, &oldest); err != nil {
		return finding{}, err
	}
	if count == 0 {
		return ok("none that is over for more than %s", span(p.Patience)), nil
	}
	return ok("%d leases are over for more than %s, the oldest for %s", count, span(p.Patience), span(seconds(oldest))).or(gradeFail,
		"no engine reaps them: start one with queues and without NoReaper; until then their instances do not run"), nil
}

// repeatsSQL finds instances whose step begins again and again: runs whose process was lost, and
// runs that the engine cut off. Such an instance executes nearly always, or is due since long, so
// it looks at what executes, as far as $1, and at the front of each queue, as far as $1.
// $2 runs without an outcome
const repeatsSQL = store.LanesText + `,
seen AS (
  (SELECT id, fsm, fsm_version, step, visit, crashes, errors FROM {s}.gen_durable WHERE status = 'executing' ORDER BY lease_expires_at LIMIT $1)
  UNION ALL SELECT s.* FROM ready r, LATERAL (
    SELECT id, fsm, fsm_version, step, visit, crashes, errors FROM {s}.gen_durable
    WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane front} AND queue = r.queue ORDER BY priority, eligible_at, id LIMIT $1) s),
counted AS (
  SELECT s.id, s.fsm, s.fsm_version, s.step, s.crashes + coalesce((
    SELECT sum((e->>'times')::numeric) FROM jsonb_path_query(s.errors, '$[*] ? (@.kind == "release" && @.times.type() == "number")') e
    WHERE e->>'visit' = s.visit::text), 0)::bigint AS runs FROM seen s)
SELECT fsm, fsm_version, step, count(*), max(runs), (array_agg(id ORDER BY runs DESC, id))[1] FROM counted
WHERE runs >= $2 GROUP BY fsm, fsm_version, step ORDER BY 5 DESC LIMIT 5`

func (p *patient) repeats(ctx context.Context) (finding, error) {
	var seen []string
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, walkSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, within(p.schema, repeatsSQL), p.limits.walk, p.limits.repeats)
		if err != nil {
			return err
		}
		var name, at string
		var version int
		var count, most, first int64
		_, err = pgx.ForEachRow(rows, []any{&name, &version, &at, &count, &most, &first}, func() error {
			seen = append(seen, fmt.Sprintf("%d of %s/%d at step %q, %d times instance %d", count, name, version, at, most, first))
			return nil
		})
		return err
	})
	if err != nil || len(seen) == 0 {
		return ok("no step has begun %d times without an outcome", p.limits.repeats), err
	}
	return ok("%s have begun without an outcome", strings.Join(seen, "; ")).or(gradeWarn,
		"gendurable instance get shows why each run ended: a lease that heartbeats do not extend (look at /ready), a step longer than DrainTimeout in each deploy, "+
			"or one that kills its process"), nil
}

// unservedSQL finds due instances in queues that are not paused and that no live worker can run, in
// each queue as far as $2. It leaves out instances behind their partition key, since the first one
// of the key counts.
const unservedSQL = store.LanesText + `,
seen AS (
  SELECT r.queue, s.fsm, s.fsm_version, s.eligible_at, count(*) OVER (PARTITION BY r.queue) >= $2 AS more FROM ready r, LATERAL (
    SELECT fsm, fsm_version, eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane front} AND queue = r.queue
    ORDER BY priority, eligible_at, id LIMIT $2) s
  UNION ALL SELECT a.queue, s.fsm, s.fsm_version, s.eligible_at, count(*) OVER (PARTITION BY a.queue) >= $2 FROM aside a, LATERAL (
    SELECT fsm, fsm_version, eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane aside} AND queue = a.queue
    ORDER BY fsm, fsm_version, priority, eligible_at, id LIMIT $2) s)
SELECT g.queue, g.fsm, g.fsm_version, count(*), bool_or(g.more), extract(epoch FROM c.now - min(g.eligible_at))::bigint,
  EXISTS (SELECT FROM {s}.workers w WHERE w.expires_at > c.now AND NOT w.draining AND w.queues ? g.queue)
FROM seen g, c
WHERE g.eligible_at < c.now - $1::float8 * interval '1 second'
  AND NOT EXISTS (SELECT FROM {s}.paused_queues q WHERE q.queue = g.queue)
  AND NOT EXISTS (SELECT FROM {s}.workers w WHERE w.expires_at > c.now AND NOT w.draining
    AND w.queues ? g.queue AND g.fsm || '/' || g.fsm_version = ANY(w.machines))
GROUP BY g.queue, g.fsm, g.fsm_version, c.now ORDER BY 4 DESC LIMIT 5`

// straysSQL finds due instances that are set aside at a step: a worker that knows the step takes
// them within seconds. It reads each queue as far as $2.
const straysSQL = store.LanesText + `,
seen AS (
  SELECT t.queue, s.fsm, s.fsm_version, s.aside_step, s.eligible_at, count(*) OVER (PARTITION BY t.queue) >= $2 AS more FROM stray t, LATERAL (
    SELECT fsm, fsm_version, aside_step, eligible_at FROM {s}.gen_durable
    WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane stray} AND queue = t.queue
    ORDER BY fsm, fsm_version, aside_step, priority, eligible_at, id LIMIT $2) s)
SELECT g.queue, g.fsm, g.fsm_version, g.aside_step, count(*), bool_or(g.more), extract(epoch FROM c.now - min(g.eligible_at))::bigint
FROM seen g, c
WHERE g.eligible_at < c.now - $1::float8 * interval '1 second' AND NOT EXISTS (SELECT FROM {s}.paused_queues q WHERE q.queue = g.queue)
GROUP BY g.queue, g.fsm, g.fsm_version, g.aside_step, c.now ORDER BY 5 DESC LIMIT 5`

func (p *patient) strays(ctx context.Context) (finding, error) {
	var seen []string
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, walkSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, within(p.schema, straysSQL), p.Patience.Seconds(), p.limits.walk)
		if err != nil {
			return err
		}
		var queue, name, at string
		var version int
		var count, oldest int64
		var more bool
		_, err = pgx.ForEachRow(rows, []any{&queue, &name, &version, &at, &count, &more, &oldest}, func() error {
			number := strconv.FormatInt(count, 10)
			if more {
				number += " or more"
			}
			seen = append(seen, fmt.Sprintf("%s of %s/%d at step %q in queue %q, due for %s", number, name, version, at, queue, span(seconds(oldest))))
			return nil
		})
		return err
	})
	if err != nil || len(seen) == 0 {
		return ok("nothing is set aside at a step that its workers do not have"), err
	}
	return ok("%s: no worker of the queue that met them has the step", strings.Join(seen, "; ")).or(gradeFail,
		"start a process whose definition of this version has the step: was a deploy rolled back, or a step added without a new version?"), nil
}

// unconvertedSQL finds instances that are paused since their state could not be converted. No index
// is of paused instances, since they are few and this is the only question about all of them, so it
// reads the table, within limits.unconverted. $1 how the last error of such an instance begins
const unconvertedSQL = `SELECT fsm, fsm_version, count(*), (array_agg(id ORDER BY id))[1], (array_agg(last_error ORDER BY id))[1]
FROM {s}.gen_durable WHERE status = 'runnable' AND paused AND starts_with(last_error, $1) GROUP BY fsm, fsm_version ORDER BY 3 DESC LIMIT 5`

// canceled is the code of a statement that was cut off.
const canceled = "57014"

func (p *patient) unconverted(ctx context.Context) (finding, error) {
	var seen []string
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, strconv.FormatInt(p.limits.unconverted.Milliseconds(), 10)); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, within(p.schema, unconvertedSQL), step.Unconverted)
		if err != nil {
			return err
		}
		var name, why string
		var version int
		var count, first int64
		_, err = pgx.ForEachRow(rows, []any{&name, &version, &count, &first, &why}, func() error {
			seen = append(seen, fmt.Sprintf("%d of %s/%d, the first is %d, which %s", count, name, version, first, why))
			return nil
		})
		return err
	})
	if pg, is := errors.AsType[*pgconn.PgError](err); is && pg.Code == canceled {
		return ok("not looked for: the table takes longer than %s to read", span(p.limits.unconverted)), nil
	}
	if err != nil || len(seen) == 0 {
		return ok("nothing is paused since it could not be converted to a newer version"), err
	}
	return ok("%s", strings.Join(seen, "; ")).or(gradeFail,
		"repair the conversion, start the program, then gendurable instance resume --machine NAME --version N"), nil
}

func (p *patient) unserved(ctx context.Context) (finding, error) {
	var seen []string
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, walkSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, within(p.schema, unservedSQL), p.Patience.Seconds(), p.limits.walk)
		if err != nil {
			return err
		}
		var queue, name string
		var version int
		var count, oldest int64
		var more, served bool
		_, err = pgx.ForEachRow(rows, []any{&queue, &name, &version, &count, &more, &oldest, &served}, func() error {
			number, why := strconv.FormatInt(count, 10), "no live worker serves the queue"
			if more {
				number += " or more"
			}
			if served {
				why = "no live worker of the queue registers the machine"
			}
			seen = append(seen, fmt.Sprintf("%s of %s/%d in queue %q, due for %s: %s", number, name, version, queue, span(seconds(oldest)), why))
			return nil
		})
		return err
	})
	if err != nil || len(seen) == 0 {
		return ok("nothing is due that no live worker can run"), err
	}
	return ok("%s", strings.Join(seen, "; ")).or(gradeFail, "start a process that serves the queue and registers this version of the machine"), nil
}

func (p *patient) pausedQueues(ctx context.Context) (finding, error) {
	d, err := p.app.client(p.pool)
	if err != nil {
		return finding{}, err
	}
	paused, err := d.Admin().PausedQueues(ctx)
	if err != nil || len(paused) == 0 {
		return ok("none"), err
	}
	var seen []string
	for _, q := range paused {
		seen = append(seen, fmt.Sprintf("%q since %s", q.Queue, text(q.Since)))
	}
	return ok("%s", strings.Join(seen, ", ")).or(gradeWarn, "gendurable queue resume, if nobody means it any more"), nil
}

// retentionMost bounds the count.
const retentionMost = 10_000

// retentionSQL uses the same index as the GC. Instances with their own retention may rightly be
// there for longer.
const retentionSQL = `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(finished_at)), 0)::bigint FROM (
  SELECT finished_at FROM {s}.gen_durable
  WHERE finished_at < clock_timestamp() - $1::float8 * interval '1 second' AND retain IS NULL ORDER BY finished_at LIMIT $2) ended`

func (p *patient) retention(ctx context.Context) (finding, error) {
	var count, oldest int64
	if err := p.pool.QueryRow(ctx, within(p.schema, retentionSQL), p.Retention.Seconds(), retentionMost).Scan(&count, &oldest); err != nil {
		return finding{}, err
	}
	if count == 0 {
		return ok("nothing has ended more than %s ago", span(p.Retention)), nil
	}
	number := strconv.FormatInt(count, 10)
	if count == retentionMost {
		number += " or more"
	}
	return ok("%s instances ended more than %s ago, the oldest %s", number, span(p.Retention), span(seconds(oldest))).or(gradeWarn,
		"if no engine retains for so long (--retention), nobody collects: start one with queues and without NoGC; "+
			"children of a living parent, and what a foreign key refers to, stay rightly"), nil
}

const definitionsSQL = `SELECT definition, graph FROM {s}.definitions ORDER BY machine, version`

// definitions looks for steps of the stored machines that nothing leads to, and for dead ends.
func (p *patient) definitions(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, within(p.schema, definitionsSQL))
	if err != nil {
		return finding{}, err
	}
	var name string
	var text []byte
	var odd []string
	stored := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		var g fsm.Diagram
		if err := json.Unmarshal(text, &g); err != nil {
			return fmt.Errorf("the definition of %s: %w", name, err)
		}
		stored++
		for _, w := range g.Warnings() {
			odd = append(odd, w.Error())
		}
		return nil
	})
	switch {
	case err != nil:
		return finding{}, err
	case len(odd) == 0:
		return ok("%d versions of machines are stored; machine graph draws them", stored), nil
	}
	return ok("%s", strings.Join(odd[:min(len(odd), 5)], "; ")).or(gradeWarn,
		fmt.Sprintf("%d in all: an arrow was forgotten, or a step is not needed; fsm.Check finds them in a test", len(odd))), nil
}
