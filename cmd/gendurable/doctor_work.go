package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
		"nobody reaps them: start an engine with queues and without NoReaper; until then what they hold does not run"), nil
}

// unservedSQL is what is due, in queues that nobody paused, and that no live worker can run.
const unservedSQL = `SELECT g.queue, g.fsm, g.fsm_version, count(*), extract(epoch FROM clock_timestamp() - min(g.eligible_at))::bigint,
  EXISTS (SELECT FROM {s}.workers w WHERE w.expires_at > clock_timestamp() AND NOT w.draining AND w.queues ? g.queue)
FROM {s}.gen_durable g
WHERE g.status = 'runnable' AND NOT g.paused AND g.eligible_at < clock_timestamp() - $1::float8 * interval '1 second'
  AND NOT EXISTS (SELECT FROM {s}.paused_queues q WHERE q.queue = g.queue)
  AND NOT EXISTS (SELECT FROM {s}.workers w WHERE w.expires_at > clock_timestamp() AND NOT w.draining
    AND w.queues ? g.queue AND g.fsm || '/' || g.fsm_version = ANY(w.machines))
GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 5`

func (p *patient) unserved(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, within(p.schema, unservedSQL), p.Patience.Seconds())
	if err != nil {
		return finding{}, err
	}
	var seen []string
	var queue, name string
	var version int
	var count, oldest int64
	var served bool
	_, err = pgx.ForEachRow(rows, []any{&queue, &name, &version, &count, &oldest, &served}, func() error {
		why := "no live worker serves the queue"
		if served {
			why = "no live worker of the queue registers the machine"
		}
		seen = append(seen, fmt.Sprintf("%d of %s/%d in queue %q, due for %s: %s", count, name, version, queue, span(seconds(oldest)), why))
		return nil
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

// retentionMost bounds what is counted.
const retentionMost = 10_000

// retentionSQL goes by the index that the GC goes by.
const retentionSQL = `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(finished_at)), 0)::bigint FROM (
  SELECT finished_at FROM {s}.gen_durable
  WHERE finished_at < clock_timestamp() - $1::float8 * interval '1 second' ORDER BY finished_at LIMIT $2) ended`

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
