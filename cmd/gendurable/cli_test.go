package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrations"
)

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	h := &host{t: t, url: "postgres://nobody@127.0.0.1:1/nothing"}
	for text, args := range map[string][]string{
		"expected one of":                                  {},
		"unexpected argument nonsense":                     {"nonsense"},
		"unknown flag --nonsense":                          {"queue", "list", "--nonsense"},
		"expected \"<target>\"":                            {"instance", "get"},
		"\"abc\" is no address":                            {"instance", "get", "abc"},
		"\"0\" is no address":                              {"instance", "why", "0"},
		"\"key:\" is no address":                           {"instance", "wait", "key:"},
		"\"9223372036854775808\" is no address":            {"instance", "tree", "9223372036854775808"},
		"--depth is at least 0":                            {"instance", "tree", "1", "--depth=-1"},
		"--limit: 0, at least 1":                           {"instance", "list", "--limit", "0"},
		"the payload is not JSON":                          {"instance", "signal", "1", "paid", "cents"},
		"which instances?":                                 {"instance", "cancel"},
		"name the instances, or select them by a filter":   {"instance", "retry", "1", "--machine", "order"},
		"--dry-run needs a filter":                         {"instance", "pause", "1", "--dry-run"},
		"--at: \"tomorrow\" is neither":                    {"instance", "reschedule", "1", "--at", "tomorrow"},
		"missing flags: --at":                              {"instance", "reschedule", "1"},
		"expected \"<schedule>\"":                          {"schedule", "delete"},
		"no check \"nonsense\"; there are schema, server,": {"doctor", "--skip", "nonsense"},
		"--every: 1ms, at least 100ms":                     {"top", "--every", "1ms"},
		"top needs a terminal; --once":                     {"top"},
		"--jobs is 1 to 1000000":                           {"bench", "--jobs", "0"},
		"must be one of \"bash\",\"zsh\",\"fish\"":         {"completion", "tcsh"},
		"invalid duration":                                 {"queue", "list", "--timeout", "soon"},
	} {
		h.run(args...).is(codeUsage).complains(text)
		wrong := h.run(append(args, "--json")...).is(codeUsage)
		var said failure
		require.NoError(t, json.Unmarshal([]byte(wrong.errs), &said), wrong.errs)
		require.Equal(t, failure{said.Error, "usage", 2}, said)
		require.Contains(t, said.Error, text)
		require.Empty(t, wrong.out)
	}
	h.in("queue", "list", "--database-url", "postgres://u:secret@[").is(codeUsage).complains("--database-url").complains("want postgres://")
	h.run("instance", "wait").is(codeUsage).complains("see gendurable instance wait --help")
	h.run("nonsense").is(codeUsage).complains("see gendurable --help")
	require.NotContains(t, h.in("queue", "list", "--database-url", "postgres://u:secret@[").errs, "secret")
}

// Only the database or the engine can tell that these values are bad.
func TestBadValues(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for text, args := range map[string][]string{
		"--status: there is no \"gone\"; there are runnable":     {"instance", "list", "--status", "done,gone"},
		"--failure: there is no \"bad luck\"; there are decided": {"instance", "cancel", "--failure", "bad luck"},
		"--parent: \"me\" is no id":                              {"instance", "list", "--parent", "me"},
		"--since: \"yesterday\" is neither":                      {"instance", "list", "--since", "yesterday"},
		"After: damaged":                                         {"instance", "list", "--after", "nonsense"},
		"Labels: name \"\"":                                      {"instance", "list", "--label", "=x"},
		"Version: -1, at least 1":                                {"instance", "list", "--version=-1"},
		"--to: no version \"1\"":                                 {"migrate", "down", "--to", "1"},
		"is over 100 years from now":                             {"instance", "reschedule", "1", "--at", "9999-01-01T00:00:00Z"},
	} {
		h.run(args...).is(codeUsage).complains(text)
	}
	h.run("migrate", "up", "--to", "20260101000000").is(codeUsage).complains("migrate down --to")
}

func TestWithoutADatabase(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	h := &host{t: t}
	h.in("queue", "list").is(codeUsage).complains("set DATABASE_URL, or give --database-url")
	h.in("version").is(codeDone).says("gendurable", "schema "+migrations.Latest())
	require.Equal(t, migrations.Latest(), read[versions](h.in("version", "--json").is(codeDone)).Schema)

	t.Setenv("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2")
	for _, args := range [][]string{
		{"queue", "list"}, {"worker", "list"}, {"machine", "list"}, {"doctor"}, {"top", "--once"}, {"bench"}, {"instance", "list"},
		{"machine", "graph", "m"}, {"schedule", "list"}, {"schedule", "delete", "s"}, {"instance", "retry", "1"}, {"migrate", "status"}, {"migrate", "up"}, {"migrate", "sql"},
	} {
		h.in(args...).is(codeNoConnection).complains("is the server up, and is --database-url")
	}
	require.Contains(t, h.in("queue", "list", "--json").is(codeNoConnection).errs, `"kind": "no_connection"`)
	refused := h.in("queue", "list", "--database-url", "postgres://nobody@127.0.0.1:1/nothing").is(codeNoConnection).errs // with and without TLS
	require.Equal(t, 1, strings.Count(refused, "connection refused"), refused)
}

func TestSchemasThatDoNotFit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("queue", "list", "--schema", "elsewhere").is(codeSchema).complains("gendurable migrate up --schema elsewhere")
	h.run("bench", "--jobs", "1", "--singles", "0", "--schema", "elsewhere").is(codeDone) // needs none

	h.exec(`UPDATE gendurable.atlas_schema_revisions SET applied = 0`) // the newest migration was interrupted
	h.run("instance", "list").is(codeSchema).complains("is older than this program").complains(": gendurable migrate up")
	h.exec(`UPDATE gendurable.atlas_schema_revisions SET applied = total`)

	h.exec(`INSERT INTO gendurable.atlas_schema_revisions SELECT (jsonb_populate_record(r, '{"version": "29991231235959"}')).*
		FROM gendurable.atlas_schema_revisions r WHERE version = $1`, migrations.Latest())
	h.run("instance", "list").is(codeSchema).complains("is newer than this program").complains("of that release")
	h.run("migrate", "up").is(codeSchema)
	h.run("migrate", "status").is(codeUnmet).says("state    newer", "of that release")
}

func TestRightsThatLack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`REVOKE ALL ON SCHEMA gendurable FROM PUBLIC`)
	role := "cli_" + fmt.Sprint(h.pool.Config().ConnConfig.Database)
	h.exec(`CREATE ROLE ` + role + ` LOGIN`)
	t.Cleanup(func() {
		_, err := pgtest.Pool(t, pgtest.URL(t)).Exec(context.Background(), `DROP ROLE `+role)
		require.NoError(t, err)
	})
	h.exec(`GRANT USAGE ON SCHEMA gendurable TO ` + role)
	h.exec(`GRANT SELECT ON gendurable.atlas_schema_revisions TO ` + role)
	separator := "?"
	if strings.Contains(h.url, "?") {
		separator = "&"
	}
	h.url += separator + "options=-crole%3D" + role
	h.run("instance", "list").is(codeError).complains("this role lacks a right")
	_, end := h.snapshot() // a session of another role
	defer end()
	var used int
	for _, f := range read[diagnosis](h.run("doctor", "--json").is(codeUnmet)).Findings {
		if f.Check == "connections" {
			_, err := fmt.Sscan(f.Seen, &used)
			require.NoError(t, err)
		}
	}
	require.Greater(t, used, 1, "sessions that this role does not see count, too")
	for name, f := range h.examine(codeUnmet) {
		switch name {
		case "leases", "repeats", "unserved", "steps", "conversions", "paused-queues", "retention", "definitions", "gates", "kept-signals":
			require.Equal(t, gradeFail, f.Grade, "%v", f)
			require.Contains(t, f.Seen, "permission denied for table")
			require.Equal(t, "give this role the right to look, or --skip "+name, f.Do)
		case "horizon":
			require.Contains(t, f.Seen, "GRANT pg_read_all_stats")
		default:
			require.NotEqual(t, gradeFail, f.Grade, "%v", f)
		}
	}
	h.exec(`DROP OWNED BY ` + role)
}

func TestOutOfTime(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	tx, err := h.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // the test is over
	_, err = tx.Exec(t.Context(), `LOCK TABLE gendurable.gen_durable`)
	require.NoError(t, err)
	h.run("instance", "get", "1", "--timeout", "200ms").is(codeTimeout).complains("not done within 200ms, which --timeout changes")
	h.run("queue", "list", "--timeout", "1ns").is(codeTimeout)
	for timeout := 2 * time.Second; ; timeout *= 2 { // a busy machine takes its time to get there
		a := h.run("doctor", "--timeout", timeout.String()).is(codeTimeout)
		if strings.Contains(a.errs, `"leases"`) || timeout > patience/4 {
			a.says("ok    schema", "ok    server").complains("doctor got as far as \"leases\"")
			return
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for want, err := range map[exitCode]error{
		codeDone:        nil,
		codeError:       errors.New("anything"),
		codeUsage:       &engine.VerbError{Verb: engine.VerbRetry, Field: "at", Err: errors.New("bad")},
		codeNotFound:    fmt.Errorf("run: %w", engine.ErrNoSchedule),
		codeConflict:    errors.Join(errors.New("first"), &engine.DuplicateError{Key: "k", Occupant: 1}),
		codeUnmet:       &exitError{code: codeUnmet},
		codeSchema:      &migrations.SchemaError{State: migrations.StateOlder},
		codeTimeout:     fmt.Errorf("wait: %w", context.DeadlineExceeded),
		codeInterrupted: &exitError{codeInterrupted, context.Canceled},
	} {
		require.Equal(t, want, codeOf(err), "%v", err)
	}
	require.Equal(t, codeNotFound, codeOf(errors.Join(&engine.ConflictError{}, engine.ErrNotFound)), "the first of the table's order")
	require.Equal(t, codeNotFound, codeOf(fmt.Errorf("send: %w", engine.ErrNoTarget)))
	require.Equal(t, codeUsage, codeOf(&fsm.MessageError{Field: "name", Err: errors.New("empty")}))
	seen := map[exitCode]bool{}
	for _, one := range exitCodes {
		require.False(t, seen[one.code])
		seen[one.code] = true
		require.Equal(t, one.name, one.code.String())
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	ended := make(chan exitCode)
	go func() {
		ended <- run(ctx, []string{"instance", "wait", fmt.Sprint(id), "--database-url", h.url}, &console{out: &out, errs: &errs})
	}()
	cancel()
	require.Equal(t, codeInterrupted, <-ended, errs.String())
}

func TestHelp(t *testing.T) {
	t.Parallel()
	h := &host{t: t}
	h.in("--help").is(codeDone).says("Usage: gendurable <command>", "migrate", "instance", "doctor")
	h.in("instance", "cancel", "--help").is(codeDone).says("End live instances as failed.", "--descendants", "In bulk", "--yes")
	list := strings.Join(strings.Fields(h.in("instance", "list", "--help").is(codeDone).out), " ")
	for name := range values {
		require.Contains(t, list, ": "+strings.Join(values[name](), ", ")+".", "the values of --%s", name)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	h := &host{t: t}
	for shell := range scripts {
		h.in("completion", shell).is(codeDone).says("gendurable complete --")
	}
	for want, words := range map[string][]string{
		"audit\nbench\ncluster\ncompletion\ndev\ndoctor\nfailures\ngate\ninstance\nmachine\nmcp\nmigrate\nnew\noverview\nqueue\nschedule\ntop\nui\nversion\nvet\nwindow\nworker\n": {""},
		"reschedule\nrestart\nresume\nretry\nrewind\n": {"instance", "re"},
		"awaiting_children\nawaiting_signal\n":         {"--json", "instance", "list", "--status", "aw"},
		"crashes\n":                                    {"instance", "retry", "--failure", "cr"},
		"--once\n":                                     {"top", "--on"},
		"--database-url\n":                             {"top", "--data"},
		"list\npause\nresume\n":                        {"--schema", "instance", "queue", ""},
		"bash\nfish\nzsh\n":                            {"completion", ""},
		"dot\nmermaid\n":                               {"machine", "graph", "--format", ""},
		"":                                             {"instance", "get", "4"},
	} {
		require.Equal(t, want, h.in(append([]string{"complete", "--"}, words...)...).is(codeDone).out, "%q", words)
	}
	h.in("complete", "--").is(codeDone).says("bench\n")
}
