package store

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

// onCitus renders for a schema whose tables are the shards 7.
func onCitus(schema string) *rendering {
	r := &rendering{quoted: schema, shards: map[string]string{}}
	for _, table := range []string{
		"definitions", "edges", "gate_keys", "gates", "gen_durable", "gen_durable_home", "history", "kept_signals", "lost_claims",
		"paused_queues", "recorded_machines", "schedules", "signals", "windows", "workers",
	} {
		r.shards[table] = table + "_7"
	}
	return r
}

// settled are texts that begin transactions, or that the rendering changes by more than names.
var settled = []*statement{
	settingsSQL, claimSettingsSQL, gatedSettingsSQL, countSettingsSQL, claimSQL, gatedSQL, insertForms.keyed, lingeringSQL, forgetSQL, freeRowsSQL,
	deliverInsertSQL, pruneSQL, commitSQL,
}

func TestTextsOnPlainPostgresDifferInTheSchemaOnly(t *testing.T) {
	t.Parallel()
	r := &rendering{quoted: `"e"`}
	for _, text := range settled {
		require.Equal(t, strings.ReplaceAll(text.text, "{s}", `"e"`), r.text(text))
		require.Equal(t, `SELECT "e"."gen_durable"."id" FROM "e"."gen_durable"`, r.query(`SELECT "e"."gen_durable"."id" FROM "e"."gen_durable"`))
	}
	s := New(entpgx.Within(nil), "e")
	require.Empty(t, s.entered(nil))
	require.False(t, s.rendered.Load().hasMoved(nil))
}

func TestTextsOnCitusNameTheShards(t *testing.T) {
	t.Parallel()
	r := onCitus(`"e"`)
	for _, text := range settled[:4] {
		require.Equal(t, 1, strings.Count(r.text(text), `"e".gen_durable_enter()`), text.name)
		require.NotContains(t, strings.ReplaceAll(r.text(text), "THEN "+untimed, ""), untimed, "not before the entrance")
		before, _, _ := strings.Cut(r.text(text), "gen_durable_enter")
		require.Contains(t, before, "'statement_timeout'", "bounds how long the entrance waits")
	}
	shell := regexp.MustCompile(`"e"\.([a-z_]+)`)
	others := []string{"gen_durable_draw", "gen_durable_enter", "gen_durable_id_draw", "durable_status"} // functions, sequences and types
	for _, text := range settled {
		require.NotRegexp(t, `\bnextval\(`, r.text(text))
		for _, name := range shell.FindAllStringSubmatch(r.text(text), -1) {
			table := strings.TrimSuffix(name[1], "_")
			sequence := strings.HasSuffix(table, "_seq") || table == "gen_durable_token"
			require.True(t, sequence || slices.Contains(others, table) || strings.HasSuffix(name[1], "_"), name[0])
		}
	}
	for _, text := range []*statement{lingeringSQL, forgetSQL} {
		require.Contains(t, r.text(text), `FROM "e".gen_durable_home_7 h) AND pg_try_advisory_xact_lock(`)
	}
	require.Contains(t, r.text(freeRowsSQL), `'gen_durable_7'`)
	require.Equal(t, `SELECT "e"."signals_7"."id" FROM "e"."signals_7"`, r.query(`SELECT "e"."signals"."id" FROM "e"."signals"`))
	require.Equal(t, "gen_durable_busy", unsharded("gen_durable_busy_102013"))
	require.Equal(t, "gen_durable_busy", unsharded("gen_durable_busy"))
}

// TestEachTextHasFormsThatTheShardsKnow looks through the sources of the store: what is drawn, and
// who lives, is asked in the forms that onShards changes.
func TestEachTextHasFormsThatTheShardsKnow(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	known := onCitus(`"e"`).shards
	functions := []string{"gen_durable_draw", "gen_durable_enter", "gen_durable_roll_history", "gen_durable_token", "gen_durable_id_seq", "durable_status"}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "shards.go" {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range sharded.FindAllStringSubmatch(string(source), -1) {
			require.True(t, known[name[1]] != "" || slices.Contains(functions, name[1]), "%s: no table %s is known here", file, name[1])
		}
		for _, drawn := range regexp.MustCompile(`nextval\(.{5}`).FindAllString(string(source), -1) {
			require.Equal(t, `nextval('{s}.`, drawn, file)
		}
		for _, text := range regexp.MustCompile("set_config\\('statement_timeout'").FindAllStringIndex(string(source), -1) {
			rest := string(source)[text[0]:]
			statement, _, _ := strings.Cut(rest, "\n\n")
			require.Contains(t, statement, "untimed", file)
		}
	}
}

func TestWhatSaysThatTheSchemaIsElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, message    string
		moved, elsewhere bool
	}{
		{"25006", "gendurable: another node has this schema", true, true},
		{"25006", "cannot execute UPDATE in a read-only transaction", true, false},
		{"42P01", `relation "e.gen_durable_7" does not exist`, true, true},
		{"42P01", `relation "nowhere.missing" does not exist`, false, false},
		{"40P01", `deadlock on gen_durable_7`, false, false},
	} {
		err := error(&pgconn.PgError{Code: c.code, Message: c.message})
		require.Equal(t, c.moved, onCitus(`"e"`).hasMoved(err), c.message)
		require.Equal(t, c.elsewhere, onCitus(`"e"`).elsewhere(err), c.message)
		require.False(t, (&rendering{}).hasMoved(err))
	}
	require.Equal(t, FaultTransient, Classify(elsewhereError{&pgconn.PgError{Code: "42P01"}}))
	require.Equal(t, FaultTransient, Classify(&DistributedError{Err: &pgconn.PgError{Code: "0A000"}}))
}
