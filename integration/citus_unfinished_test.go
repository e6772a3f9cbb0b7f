package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/fsm"
)

// unfinishedSQL reads what may keep instances from ending: them, with their signals, and the tables
// that say who may run. It is for the owner, through Citus.
var unfinishedSQL = []string{
	`SELECT 'the server says', now()::text || ', home ' || (SELECT h::text FROM gendurable.gen_durable_home h)`,
	`SELECT status::text, concat_ws(' ', count(*), 'last changed', max(updated_at), 'last ended', max(finished_at)) FROM gendurable.gen_durable GROUP BY status`,
	`SELECT 'instance', jsonb_strip_nulls(to_jsonb(g))::text FROM gendurable.gen_durable g WHERE status NOT IN ('done', 'failed')
ORDER BY status = 'runnable', id LIMIT 20`,
	`SELECT 'signal', to_jsonb(s)::text FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id
WHERE g.status NOT IN ('done', 'failed') ORDER BY s.id LIMIT 20`,
	`SELECT 'lost claim', to_jsonb(l)::text FROM gendurable.lost_claims l LIMIT 20`,
	`SELECT 'worker', to_jsonb(w)::text FROM gendurable.workers w`,
	`SELECT 'gate', to_jsonb(x)::text FROM gendurable.gates x`,
}

// sessionsSQL reads who is busy, waits or has locks on a node.
var sessionsSQL = []string{
	`SELECT 'session', concat_ws(' ', a.pid, a.application_name, a.state, a.wait_event_type, a.wait_event, 'since', a.state_change, 'transaction since',
  a.xact_start, 'blocked by', pg_blocking_pids(a.pid), regexp_replace(left(a.query, 200), '\s+', ' ', 'g'))
FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() ORDER BY a.pid`,
	`SELECT 'lock', concat_ws(' ', l.pid, l.locktype, l.mode, CASE WHEN NOT l.granted THEN 'WAITS' END, l.relation::regclass, l.page, l.tuple, l.transactionid,
  l.classid, l.objid, l.objsubid)
FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.pid IS DISTINCT FROM pg_backend_pid() ORDER BY l.pid LIMIT 200`,
	`SELECT 'prepared transaction', to_jsonb(x)::text FROM pg_prepared_xacts x WHERE x.database = current_database()`,
}

// unfinished says what there is to know about instances that do not end: their rows and all that
// may keep them from ending, at the owner, and the busy sessions of each node.
func (w *orders) unfinished() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	var said strings.Builder
	say := func(pool *pgxpool.Pool, queries []string) {
		for _, sql := range queries {
			rows, err := pool.Query(ctx, sql)
			if err == nil {
				var what, how *string
				_, err = pgx.ForEachRow(rows, []any{&what, &how}, func() error {
					fmt.Fprintln(&said, value(what), value(how))
					return nil
				})
			}
			if err != nil {
				fmt.Fprintf(&said, "cannot ask %s: %v\n", sql, err)
			}
		}
	}
	owner := w.d.follow(w.t)
	say(owner, unfinishedSQL)
	ids, _ := owner.Query(ctx, `SELECT id FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed') ORDER BY id LIMIT 5`)
	if found, err := pgx.CollectRows(ids, pgx.RowTo[fsm.ID]); err != nil {
		fmt.Fprintln(&said, "cannot list them:", err)
	} else {
		for _, id := range found {
			causes, err := w.eng.Admin().Why(ctx, id)
			fmt.Fprintln(&said, "why", id, causes, err)
		}
	}
	for i, url := range w.d.Nodes {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			fmt.Fprintf(&said, "node %d: %v\n", i, err)
			continue
		}
		fmt.Fprintf(&said, "node %d, port %d\n", i, pool.Config().ConnConfig.Port)
		say(pool, sessionsSQL)
		pool.Close()
	}
	return said.String()
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
