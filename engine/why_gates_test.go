package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Why says of each gate that an instance has to pass what holds it back there: which instances have
// the places, when the rate lets the next begin, until when it is closed.
func TestWhyAtGates(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx, admin := t.Context(), e.Admin()
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(ctx, sql, args...)
		require.NoError(t, err)
	}
	exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
		VALUES (gen_random_uuid(), 'h', 1, '', '{"default": 10}', '{echo/1}', now() + interval '1 hour')`)
	const (
		executing = `INSERT INTO gendurable.gen_durable (id, fsm, step, status, locked_by, lease_expires_at, gate, place, seat, run_gate, run_place)
			OVERRIDING SYSTEM VALUE VALUES ($1, 'echo', 'pay', 'executing', 'w', now() + interval '1 hour', $2, $3, $4, $5, $6)`
		parked = `INSERT INTO gendurable.gen_durable (id, fsm, step, status, awaits, run_gate, run_place) OVERRIDING SYSTEM VALUE VALUES ($1, 'echo', 'pay', 'awaiting_signal', '{paid}', $2, $3)`
		lined  = `INSERT INTO gendurable.gen_durable (id, fsm, step, gate, pick_lane, eligible_at, labels)
			OVERRIDING SYSTEM VALUE VALUES ($1::bigint, 'echo', 'start', $2, 3, now() - interval '1 min' + $1::bigint * interval '1 ms', '{"customer": "acme", "tokens": "3"}')`
		owes = `INSERT INTO gendurable.gate_keys (key, debt, at) VALUES ($1, $2, now())`
	)
	set := func(g engine.Gate) {
		t.Helper()
		_, err := admin.SetGate(ctx, g)
		require.NoError(t, err)
	}
	hourly := engine.Rate{N: 60, Per: time.Hour, Burst: 4}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Millisecond)
	for name, c := range map[string]struct {
		do   func()
		want []engine.Cause // Until is how long from now: see below
		says string
	}{
		"a key is full": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 2, Total: 9})
			exec(executing, 1, "g/acme", 1, nil, nil, nil)
			exec(executing, 2, "g/acme", 2, nil, nil, nil)
			exec(executing, 3, "g/zoo", 1, nil, nil, nil)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGate, Names: []string{"g/acme"}, IDs: []fsm.ID{1, 2}, Count: 2}}, "all 2 places of gate g/acme are taken: [1 2]"},
		"a key is full that has its own places": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 1})
			_, err := admin.SetGatePlaces(ctx, "g/acme", 2)
			require.NoError(t, err)
			exec(executing, 1, "g/acme", 1, nil, nil, nil)
			exec(executing, 2, "g/acme", 2, nil, nil, nil)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGate, Names: []string{"g/acme"}, IDs: []fsm.ID{1, 2}, Count: 2}}, "all 2 places of gate g/acme are taken: [1 2]"},
		"a key of a fair gate is full": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Fair: true})
			_, err := admin.SetGatePlaces(ctx, "g/acme", 1)
			require.NoError(t, err)
			exec(executing, 1, "g/acme", 1, nil, nil, nil)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGate, Names: []string{"g/acme"}, IDs: []fsm.ID{1}, Count: 1}}, "all 1 places of gate g/acme are taken: [1]"},
		"the total is reached": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 2, Total: 2})
			exec(executing, 1, "g/zoo", 1, nil, nil, nil)
			exec(executing, 2, "g/kiosk", 1, nil, nil, nil)
			exec(executing, 3, "go", 1, nil, nil, nil)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGate, Names: []string{"g"}, IDs: []fsm.ID{1, 2}, Count: 2}}, "all 2 places of gate g are taken: [1 2]"},
		"the ceiling of the queue": {func() {
			set(engine.Gate{Name: "top", Queue: "default", Places: 1, Rate: hourly})
			exec(executing, 1, nil, nil, 1, nil, nil)
			exec(owes, "top", 5)
			exec(`INSERT INTO gendurable.gen_durable (id, fsm, step) OVERRIDING SYSTEM VALUE VALUES (9, 'echo', 'start')`)
		}, []engine.Cause{
			{Kind: engine.CauseGate, Names: []string{"top"}, IDs: []fsm.ID{1}, Count: 1},
			{Kind: engine.CauseGateRate, Names: []string{"top"}, Until: time.Time{}.Add(2 * time.Minute)},
		}, "all 1 places of gate top are taken: [1]"},
		"behind a whole run": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 1, Run: true})
			set(engine.Gate{Name: "steps", Machine: "echo", Places: 1}) // counts only after the gate for runs
			exec(executing, 1, "steps", 1, nil, nil, nil)
			exec(parked, 7, "g/acme", 1)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGateRun, Names: []string{"g/acme", "awaiting_signal", "pay"}, IDs: []fsm.ID{7}, Count: 1}},
			"it is behind run 7 at gate g/acme, which is awaiting_signal at step pay"},
		"behind whole runs": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 2, Run: true})
			exec(parked, 7, "g/acme", 2)
			exec(executing, 6, nil, nil, nil, "g/acme", 1)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGateRun, Names: []string{"g/acme", "executing", "pay"}, IDs: []fsm.ID{6, 7}, Count: 2}},
			"all 2 places of gate g/acme are taken by whole runs: [6 7]; run 6 is executing at step pay"},
		"a rate": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Rate: hourly, TotalRate: engine.Rate{N: 1, Per: time.Hour}})
			exec(owes, "g/acme", 13)
			exec(owes, "g", 2)
			exec(lined, 7, "g/acme")
			exec(lined, 8, "g/acme")
			exec(lined, 9, "g/acme")
		}, []engine.Cause{
			{Kind: engine.CauseGateRate, Names: []string{"g/acme"}, Until: time.Time{}.Add(10 * time.Minute), Count: 2},
			{Kind: engine.CauseGateRate, Names: []string{"g"}, Until: time.Time{}.Add(2 * time.Hour), Count: 2},
		}, "2 are in line before it"},
		"a rate by cost": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Rate: hourly, CostLabel: "tokens"})
			exec(owes, "g/acme", 3)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGateRate, Names: []string{"g/acme"}, Until: time.Time{}.Add(2 * time.Minute)}}, "the rate of gate g/acme lets the next begin at "},
		"a rate that is slowed down": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Rate: hourly, Adapt: true})
			exec(`INSERT INTO gendurable.gate_keys (key, debt, pace) VALUES ('g/acme', 4, 0.25)`)
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseGateRate, Names: []string{"g/acme"}, Until: time.Time{}.Add(4 * time.Minute)}}, "; 0 are in line before it"},
		"closed": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Closed: true})
			for key, until := range map[string]time.Time{"g": {}, "g/acme": tomorrow, "g/zoo": tomorrow} {
				_, err := admin.CloseGate(ctx, key, until)
				require.NoError(t, err)
			}
			exec(lined, 9, "g/acme")
		}, []engine.Cause{
			{Kind: engine.CauseGateClosed, Names: []string{"g"}},
			{Kind: engine.CauseGateClosed, Names: []string{"g/acme"}, Until: tomorrow},
			{Kind: engine.CauseGateClosed, Names: []string{"g"}, Until: engine.GateForGood},
		}, "gate g is set to let none begin"},
		"nothing but others in line": {func() {
			set(engine.Gate{Name: "g", Label: "customer", Places: 2, Total: 2, Rate: hourly})
			exec(executing, 1, "g/acme", 1, nil, nil, nil)
			exec(owes, "g/acme", 2)
			exec(lined, 8, "g/acme")
			exec(lined, 9, "g/acme")
		}, []engine.Cause{{Kind: engine.CauseBehind, Count: 1}}, "1 others of its queue are before it"},
	} {
		exec(`DELETE FROM gendurable.gen_durable`)
		exec(`DELETE FROM gendurable.gates`)
		exec(`DELETE FROM gendurable.gate_keys`)
		c.do()
		began := time.Now()
		causes, err := admin.Why(ctx, fsm.ID(9))
		require.NoError(t, err, name)
		require.Contains(t, causes[0].String(), c.says, name)
		require.Len(t, causes, len(c.want), name)
		for i, want := range c.want {
			if want.Kind == engine.CauseGateRate { // a debt is paid off while the test runs
				require.WithinDuration(t, began.Add(want.Until.Sub(time.Time{})), causes[i].Until, 30*time.Second, name)
				want.Until = causes[i].Until
			}
			require.Equal(t, want, causes[i], name)
		}
	}
}
