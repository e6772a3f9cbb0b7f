package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

// The tests run on these versions of Postgres.
const oldestServer, newestServer = 15, 18

func (p *patient) schemaVersion(ctx context.Context) (finding, error) {
	status, err := migrate.Migrator{Pool: p.pool, Schema: p.schema}.Status(ctx)
	if err != nil {
		return finding{}, err
	}
	f := ok("schema %q is %s, at version %s", p.schema, status.State, status.Current)
	if status.State == migrations.StateCurrent {
		return f, nil
	}
	return f.or(gradeFail, p.app.unfit(status.State, status.Current, status.Latest)), nil
}

func (p *patient) serverVersion(ctx context.Context) (finding, error) {
	var number int
	var text string
	var standby bool
	err := p.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()`).
		Scan(&number, &text, &standby)
	if err != nil {
		return finding{}, err
	}
	f := ok("PostgreSQL %s", text)
	switch major := number / 10_000; {
	case standby:
		f.Seen += ", a standby"
		return f.or(gradeFail, "engines need the primary: point at it (target_session_attrs=read-write)"), nil
	case major < oldestServer:
		return f.or(gradeFail, fmt.Sprintf("PostgreSQL %d is the oldest that the engine works on", oldestServer)), nil
	case major > newestServer:
		return f.or(gradeWarn, fmt.Sprintf("the tests run on %d to %d: look for a newer release", oldestServer, newestServer)), nil
	}
	return f, nil
}

func (p *patient) clock(ctx context.Context) (finding, error) {
	var best, skew time.Duration
	for n := range 3 { // the quickest answer is the most exact
		began := p.here()
		server, err := serverTime(ctx, p.pool)
		if err != nil {
			return finding{}, err
		}
		if took := p.here().Sub(began); n == 0 || took < best {
			best, skew = took, server.Sub(began.Add(took/2))
		}
	}
	side := "ahead of"
	if skew < 0 {
		side = "behind"
	}
	f := ok("the server's clock is %v %s this machine's, give or take %v", skew.Abs().Round(time.Millisecond), side, (best / 2).Round(time.Millisecond))
	if skew.Abs() > p.limits.skewWarn {
		return f.or(gradeWarn, "the engine goes by the server's clock; hosts that compute times for it, and their logs, do not: synchronise them"), nil
	}
	return f, nil
}

func (p *patient) durability(ctx context.Context) (finding, error) {
	var fsync, commit, pages string
	err := p.pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&fsync, &commit, &pages)
	if err != nil {
		return finding{}, err
	}
	f := ok("fsync %s, synchronous_commit %s, full_page_writes %s", fsync, commit, pages)
	switch {
	case fsync == "off" || pages == "off":
		return f.or(gradeFail, "a crash of the server can lose or damage what was acknowledged: turn them on"), nil
	case commit == "off":
		return f.or(gradeFail, "a crash of the server can lose acknowledged steps: turn synchronous_commit on, for the engine's role at least"), nil
	}
	return f, nil
}

// connectionsSQL does not use pg_stat_activity, which does not show every role the sessions of
// others.
const connectionsSQL = `SELECT sum(numbackends)::int, current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
FROM pg_stat_database`

func (p *patient) connections(ctx context.Context) (finding, error) {
	var used, most int
	if err := p.pool.QueryRow(ctx, connectionsSQL).Scan(&used, &most); err != nil {
		return finding{}, err
	}
	f := ok("%d of %d connections are in use", used, most)
	do := "each process takes its pool and two beside it: smaller pools, a proxy, or a higher max_connections"
	switch {
	case used*100 >= most*95:
		return f.or(gradeFail, do), nil
	case used*100 >= most*80:
		return f.or(gradeWarn, do), nil
	}
	return f, nil
}

// proxy starts a client of the engine in a mode that no proxy of transactions can serve. The
// client's own check then finds such a proxy.
func (p *patient) proxy(ctx context.Context) (finding, error) {
	pool, err := p.app.connect(ctx, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec })
	if err != nil {
		return finding{}, err
	}
	eng, err := engine.New(engine.Config{Pool: pool, Schema: p.schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return finding{}, err
	}
	err = eng.Start(ctx)
	switch {
	case errors.Is(err, engine.ErrPooler):
		return ok("a proxy that pools transactions is in between").or(gradeWarn,
			"engines that go through it need LockLease, and pgx a mode without prepared statements: see \"PgBouncer\" in the guide to operations"), nil
	case err != nil && !errors.Is(err, engine.ErrSchema) && !errors.Is(err, engine.ErrElsewhere): // the check for a proxy comes before that of the schema
		return finding{}, err
	}
	return ok("none in between that pools transactions"), nil
}

// horizonSQL finds what keeps dead rows from being removed, the oldest first: transactions of this
// database, replication slots, standbys with feedback, prepared transactions.
const horizonSQL = `SELECT what, xids, seconds FROM (
  SELECT format('session %s of %s, application %s, %s: %s', pid, coalesce(usename, '?'), coalesce(nullif(application_name, ''), '(none)'),
      coalesce(state, backend_type), left(coalesce(query, ''), 60)) AS what,
    greatest(age(backend_xmin), age(backend_xid)) AS xids, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
  FROM pg_stat_activity
  WHERE pid <> pg_backend_pid() AND (datname = current_database() OR backend_type = 'walsender')
    AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  UNION ALL SELECT format('replication slot %s%s', slot_name, CASE WHEN active THEN '' ELSE ', which nobody uses' END), age(xmin), NULL
  FROM pg_replication_slots WHERE xmin IS NOT NULL
  UNION ALL SELECT format('prepared transaction %s of %s', gid, owner), age(transaction), extract(epoch FROM clock_timestamp() - prepared)::float8
  FROM pg_prepared_xacts WHERE database = current_database()
) held ORDER BY xids DESC, seconds DESC NULLS LAST LIMIT 1`

func (p *patient) horizon(ctx context.Context) (finding, error) {
	var sees bool
	if err := p.pool.QueryRow(ctx, `SELECT pg_has_role(current_user, 'pg_read_all_stats', 'usage')`).Scan(&sees); err != nil {
		return finding{}, err
	}
	blind := ""
	if !sees {
		blind = " (of its own sessions: this role does not see those of others; GRANT pg_read_all_stats)"
	}
	var what string
	var xids int64
	var seconds *float64
	err := p.pool.QueryRow(ctx, horizonSQL).Scan(&what, &xids, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return ok("nothing keeps dead rows alive%s", blind), nil
	}
	if err != nil {
		return finding{}, err
	}
	var old time.Duration
	f := ok("the oldest that keeps dead rows alive is %s, since %d transactions", what, xids)
	if seconds != nil {
		old = time.Duration(*seconds * float64(time.Second))
		f.Seen += " and " + span(old)
	}
	f.Seen += blind
	do := "end it, or look for what does not: while it lasts, every queue becomes slower"
	if strings.HasPrefix(what, "session ") {
		do += " (SELECT pg_terminate_backend(pid))"
	}
	switch {
	case old > p.limits.horizonFail, xids > p.limits.horizonFailXIDs:
		return f.or(gradeFail, do), nil
	case old > p.limits.horizonWarn, xids > p.limits.horizonWarnXIDs:
		return f.or(gradeWarn, do), nil
	}
	return f, nil
}
