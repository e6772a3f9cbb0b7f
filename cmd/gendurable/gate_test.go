package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestGates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("gate", "set", "each", "3", "--machine", "charge", "--label", "customer").is(codeDone).
		says(`3 places for "each", of machine charge, each customer`)
	h.run("gate", "set", "each", "3", "--machine", "charge", "--label", "customer").is(codeDone).says("was that already")
	h.run("gate", "set", "all", "0").is(codeDone).says("closed", "of all")
	h.run("gate", "list").is(codeDone).says("machine charge, each customer", "3 places")
	h.run("gate", "list", "--json").is(codeDone).says(`"places": 3`)
	h.run("gate", "set", "a/b", "1").complains("slash")
	h.run("gate", "set", "each", "many").is(codeUsage)
	h.run("gate", "set", "nothing").complains("has no other limit")
	h.run("gate", "drop", "each").is(codeDone).says("dropped")
	h.run("gate", "drop", "each").is(codeDone).says("there is no gate")
}

// What a gate bounds is shown as it was set.
func TestGatesOfAllKinds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for bounds, flags := range map[string][]string{
		"10/s, burst 5":                        {"--rate", "10/s", "--burst", "5"},
		"500/m":                                {"--rate", "500/1m"},
		"7/12h0m0s, cost tokens, adapts":       {"--rate", "7/12h", "--cost-label", "tokens", "--adapt"},
		"3 places, 10/s, 9 in all, 1/h in all": {"3", "--rate", "10/s", "--label", "x", "--total", "9", "--total-rate", "1/h"},
		"1 whole runs":                         {"1", "--run", "--label", "customer"},
		"turns only":                           {"--fair", "--label", "tenant"},
		"closed":                               {"0"},
	} {
		h.run(append([]string{"gate", "set", "g"}, flags...)...).is(codeDone).says(bounds + " for")
		h.run("gate", "list").is(codeDone).says(bounds)
		h.run(append([]string{"gate", "set", "g"}, flags...)...).is(codeDone).says("was that already")
	}
	for _, wrong := range []string{"10", "x/s", "10/x", "10/", "/s"} {
		h.run("gate", "set", "g", "--rate", wrong).is(codeUsage)
	}
}

func TestKeysOfGates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("gate", "set", "each", "3", "--label", "customer").is(codeDone)
	h.run("gate", "close", "each/acme", "--until", "10m").is(codeDone).says(`closed "each/acme" until`)
	h.run("gate", "list").is(codeDone).says(", keys closed: 1")
	h.run("gate", "close", "each").is(codeDone).says("gendurable gate open each")
	h.run("gate", "list").is(codeDone).says("closed, 3 places")
	h.run("overview").is(codeDone).says("closed, 3 places")
	h.run("gate", "close", "each").is(codeDone).says("for as long already")
	h.run("gate", "weight", "each/zoo", "5").is(codeDone).says("5 turns")
	h.run("gate", "weight", "each/zoo", "5").is(codeDone).says("already")
	h.run("gate", "weight", "each/kiosk", "1").is(codeDone).says("already")
	h.run("gate", "keys", "each").is(codeDone).says("opened by hand", "each/acme", "each/zoo")
	keys := read[struct{ Keys []engine.GateKey }](h.run("gate", "keys", "each", "--json").is(codeDone)).Keys
	require.Len(t, keys, 3)
	require.Equal(t, engine.GateKey{Key: "each", Weight: 1, Pace: 1, ClosedUntil: engine.GateForGood}, keys[0])
	require.Equal(t, 5, keys[2].Weight)
	h.run("gate", "open", "each/acme").is(codeDone).says("opened")
	h.run("gate", "open", "each/acme").is(codeDone).says("was open already")
	h.run("gate", "close", "other/acme").complains("no such gate")
	h.run("gate", "weight", "each", "5").is(codeDone).says("5 turns")
	h.run("gate", "weight", "each/zoo", "101").complains("want 1 to 100")
	h.run("gate", "set", "all", "1").is(codeDone)
	h.run("gate", "close", "all/acme").complains("no label")
}

// An instance behind a gate says who has the places, when the rate lets the next begin, and which
// command helps.
func TestWhyBehindAGate(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'here', 1, '', '{"default": 4}', '{order/1}', now() + interval '1 hour')`)
	h.run("gate", "set", "one", "1", "--label", "customer", "--run").is(codeDone)
	h.run("gate", "set", "calls", "--rate", "1/h", "--queue", "default").is(codeDone)
	first, second := h.insert(1), h.insert(2, func(s fsm.Spec) fsm.Spec { return s.Label("customer", "acme") })
	h.exec(`UPDATE gendurable.gen_durable SET status = 'awaiting_signal', awaits = '{paid}', run_gate = 'one/acme', run_place = 1 WHERE id = $1`, first)
	h.exec(`INSERT INTO gendurable.gate_keys (key, debt) VALUES ('calls', 1)`)
	id := fmt.Sprint(second)
	h.run("instance", "why", id).is(codeDone).says(fmt.Sprintf("gate run: it is behind run %d at gate one/acme, which is awaiting_signal at step start", first),
		fmt.Sprintf("→ gendurable instance why %d", first), "gate rate: the rate of gate calls lets the next begin at ", "→ gendurable gate list")
	found := read[struct {
		ID     fsm.ID  `json:"id"`
		Causes []cause `json:"causes"`
	}](h.run("instance", "why", id, "--json").is(codeDone))
	require.Equal(t, []fsm.ID{first}, found.Causes[0].IDs)
	require.NotNil(t, found.Causes[1].Until)
	h.run("gate", "set", "calls", "0", "--queue", "default").is(codeDone)
	h.run("instance", "why", id).is(codeDone).says("gate closed: gate calls is set to let none begin", "→ gendurable gate set")
	h.run("gate", "list", "--json").is(codeDone).says(`"name": "one"`, `"taken": 1`)
}

// Windows are listed by kind and key, those that are open unless asked for more.
func TestWindows(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.exec(`INSERT INTO gendurable.windows (name, uid, instance, opened_at, until) VALUES
		('throttle:mail:a', gen_random_uuid(), 7, now() - interval '1 min', now() + interval '1 hour'),
		('throttle:pay', gen_random_uuid(), 8, now() - interval '1 min', now() + interval '1 hour'),
		('debounce:index', gen_random_uuid(), 9, now() - interval '2 min', now() + interval '30 s'),
		('once:report', gen_random_uuid(), 10, now() - interval '2 days', now() - interval '1 day')`)
	keys := func(flags ...string) (keys []string) {
		for _, w := range read[struct{ Windows []opened }](h.run(append([]string{"window", "list", "--json"}, flags...)...).is(codeDone)).Windows {
			keys = append(keys, fmt.Sprint(w.Kind, " ", w.Key, " ", w.Instance, " ", w.Open))
		}
		return keys
	}
	require.Equal(t, []string{"debounce index 9 true", "throttle mail:a 7 true", "throttle pay 8 true"}, keys())
	require.Equal(t, []string{"throttle mail:a 7 true"}, keys("--kind", "throttle", "--prefix", "mail"))
	require.Equal(t, []string{"once report 10 false"}, keys("--kind", "once", "--all"))
	require.Len(t, keys("--limit", "1"), 1)
	h.run("window", "list", "--all").is(codeDone).says("closed for 24h", "for another 59m")
	h.run("window", "list", "--prefix", "x").is(codeUsage).complains("--prefix needs --kind")
	h.run("window", "list", "--limit", "0").is(codeUsage).complains("1 to 10,000")
	h.run("window", "list", "--kind", "other").is(codeUsage)
}
