package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.history (at, instance, visit, kind, fsm, fsm_version, step, to_step, attempt, waited, took, failure, error, diff)
		SELECT now() - interval '1 min' + n * interval '1 s', 7, n, CASE WHEN n < 2 THEN 'next' ELSE 'fail' END, 'order', 1, 's' || n,
		CASE WHEN n < 2 THEN 's' || n + 1 END, 0, 3000000, 1500, CASE WHEN n = 2 THEN 'decided' END, CASE WHEN n = 2 THEN 'no more' END, '{"a": 1}'
		FROM generate_series(0, 2) n`)
	h.run("instance", "history", "7").is(codeDone).says("next", "s0", "s1", "3s", "1ms", `{"a": 1}`, "fail", "s2", "decided; no more")
	got := read[told](h.run("instance", "history", "7", "--limit", "2", "--json").is(codeDone))
	require.Len(t, got.Transitions, 2)
	require.True(t, got.More)
	h.run("instance", "history", "7", "--limit", "2").is(codeDone).says("… and more: --limit")
	h.run("instance", "history", "8").is(codeNotFound)
	h.run("instance", "history", "7", "--limit", "0").is(codeUsage).complains("--limit: 0")
	id := h.insert(1)
	h.run("instance", "history", fmt.Sprint(id)).is(codeDone).says("nothing is recorded")

	h.run("machine", "times", "order").is(codeDone).says("STEP", "s0", "1.5ms", "3s", "s1", "s2")
	h.run("machine", "failures", "order", "--since", "1h").is(codeDone).says("s2", "fail", "decided", "no more")
	h.run("machine", "edges", "order", "--version", "1").is(codeDone).says("s0", "s1", "next", "s1", "s2", "next", "s2", "(end)", "fail")
	h.run("machine", "edges", "order", "--since", "1000h").is(codeUsage).complains("at most 744h")
}

func TestDoctorOfTheHistory(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	examine := func() finding { return h.examine(codeDone)["history"] }
	require.Equal(t, gradeOK, examine().Grade)
	h.exec(`INSERT INTO gendurable.history (kind) VALUES ('next')`)
	require.Contains(t, examine().Seen, "no partition for tomorrow")
	h.exec(`SELECT gendurable.gen_durable_roll_history('90 days')`)
	require.Equal(t, gradeOK, examine().Grade)
	require.Contains(t, examine().Seen, "for 7 days ahead")
	h.exec(`INSERT INTO gendurable.history (at, kind) VALUES (now() + interval '8 days', 'next'), (now() + interval '9 days', 'next')`)
	h.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$`)
	h.exec(`CREATE TRIGGER refuse BEFORE DELETE ON gendurable.history FOR EACH ROW EXECUTE FUNCTION refuse()`)
	h.exec(`SELECT gendurable.gen_durable_roll_history('90 days', 8)`)
	require.Equal(t, gradeWarn, examine().Grade)
	require.Contains(t, examine().Seen, "could not be moved from history_rest to the partition of their day: 1")
	h.exec(`DROP TRIGGER refuse ON gendurable.history`)
	h.exec(`DELETE FROM gendurable.history_rest`)
	require.Equal(t, gradeOK, examine().Grade)
	h.exec(`INSERT INTO gendurable.history (at, kind, error) SELECT now() - interval '40 days', 'next', repeat('x', 1000) FROM generate_series(1, 1200)`)
	require.Equal(t, gradeWarn, examine().Grade)
	require.Contains(t, examine().Seen, "history_rest")
	h.exec(`ALTER TABLE gendurable.history DETACH PARTITION gendurable.history_rest`)
	h.exec(`ALTER TABLE gendurable.history_rest RENAME TO history_rest_20260102030405`)
	require.Equal(t, gradeWarn, examine().Grade)
	require.Contains(t, examine().Seen, "set aside, and are no partitions yet: 1")
}
