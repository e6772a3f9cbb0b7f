package store

import (
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

func TestTextsOnPlainPostgresKnowNoShards(t *testing.T) {
	t.Parallel()
	r := &rendering{quoted: `"e"`}
	for _, s := range statements {
		require.NotRegexp(t, slot, r.text(s))
		if s != enterSQL {
			require.NotRegexp(t, `gen_durable_(enter|draw|id_draw|home)`, r.text(s))
		}
	}
	require.Equal(t, `SELECT "e"."gen_durable"."id" FROM "e"."gen_durable"`, r.query(`SELECT "e"."gen_durable"."id" FROM "e"."gen_durable"`))
	s := New(entpgx.Within(nil), "e")
	require.Empty(t, s.entered(nil))
	require.False(t, s.rendered.Load().hasMoved(nil))
}

// On shards, each transaction begins with the entrance, behind the limit that bounds how long it
// waits; each name is the name of a shard, or of a thing without shards; drawn ids have the epoch;
// and no worker asks which others live before all workers have come here.
func TestTextsOnCitusNameTheShards(t *testing.T) {
	t.Parallel()
	r := onCitus(`"e"`)
	name := regexp.MustCompile(`"e"\.([a-z_]+)(_7)?`)
	others := []string{ // functions, sequences and types
		"gen_durable_draw", "gen_durable_enter", "gen_durable_roll_history", "gen_durable_token", "gen_durable_id_draw", "durable_status",
	}
	entered, living := 0, 0
	for _, s := range statements {
		text := r.text(s)
		require.NotRegexp(t, slot, text)
		require.NotRegexp(t, `\bnextval\(|gen_durable_id_seq|'gen_durable'`, text, s.name)
		for _, found := range name.FindAllStringSubmatch(text, -1) {
			require.True(t, r.shards[strings.TrimSuffix(found[1], "_")] != "" && strings.HasSuffix(found[1], "_") || slices.Contains(others, found[1]),
				"%s: no table %s is known here", s.name, found[1])
		}
		if before, behind, limits := strings.Cut(text, "set_config('statement_timeout'"); limits {
			require.NotContains(t, before, "gen_durable_enter", s.name)
			require.Equal(t, 1, strings.Count(behind, `CASE WHEN "e".gen_durable_enter() THEN `+untimed+` END`), s.name)
			entered++
		}
		if strings.Contains(text, "pg_try_advisory_xact_lock(hashtextextended('gendurable ' ||") {
			require.Contains(t, text, `FROM "e".gen_durable_home_7 h) AND pg_try_advisory_xact_lock(`, s.name)
			living++
		}
	}
	require.Equal(t, []int{5, 2}, []int{entered, living})
	require.Equal(t, `SELECT "e"."signals_7"."id" FROM "e"."signals_7"`, r.query(`SELECT "e"."signals"."id" FROM "e"."signals"`))
	require.Equal(t, "gen_durable_busy", unsharded("gen_durable_busy_102013"))
	require.Equal(t, "gen_durable_busy", unsharded("gen_durable_busy"))
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
