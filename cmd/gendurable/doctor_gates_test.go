package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each finding about gates, alone.
func TestDoctorOfGates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.patient()
	p.doctorCommand = &doctorCommand{Patience: time.Minute}
	const executing = `INSERT INTO gendurable.gen_durable (fsm, step, queue, status, locked_by, lease_expires_at, gate, place, run_gate, run_place, seat)
		VALUES ('order', 'start', 'default', 'executing', 'w', now() + $1 * interval '1 min', $2, $3, $4, $5, $6)`
	gate := func(args ...string) func() {
		return func() { h.run(append([]string{"gate", "set"}, args...)...).is(codeDone) }
	}
	executes := func(minutes int, columns ...any) func() {
		return func() { h.exec(executing, append([]any{minutes}, columns...)...) }
	}
	// A run holds a place, and waits for a child whose own child is in line at the gate.
	family := func(gate string, place int) func() {
		return func() {
			h.exec(`WITH r AS (INSERT INTO gendurable.gen_durable (fsm, step, status, visit, round, children_pending, run_gate, run_place)
					VALUES ('order', 'start', 'awaiting_children', 1, 1, 1, $1, $2) RETURNING id),
				k AS (INSERT INTO gendurable.gen_durable (fsm, step, status, visit, round, children_pending, parent_id, parent_round, depth)
					SELECT 'order', 'start', 'awaiting_children', 1, 1, 1, id, 1, 1 FROM r RETURNING id)
				INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, pick_lane, eligible_at, parent_id, parent_round, depth)
				SELECT 'order', 'start', 'default', $1, 3, now() - interval '10 min', id, 1, 2 FROM k`, gate, place)
		}
	}
	for _, c := range []struct {
		name  string
		do    []func()
		grade grade
		says  string // "": nothing
	}{
		{"none", nil, gradeOK, ""},
		{"in order", []func(){gate("g", "4", "--queue", "default", "--machine", "order", "--step", "start"), executes(1, "g", 1, nil, nil, nil)}, gradeOK, ""},
		{"no such queue", []func(){gate("g", "1", "--queue", "nobody's")}, gradeWarn, `no instance goes through "g": no live worker serves queue nobody's`},
		{"no such machine", []func(){gate("g", "1", "--machine", "ord_r")}, gradeWarn, `no instance goes through "g": no live worker registers machine ord_r`},
		{"no such step", []func(){gate("g", "1", "--machine", "order", "--step", "gone")}, gradeWarn, `"g": no version of machine order has a step gone`},
		{"more places than slots", []func(){gate("g", "6", "--queue", "default", "--machine", "order")}, gradeWarn,
			`no instance can reach the bound of "g": 6 places, but its workers have 4 slots`},
		{"as many as slots of all queues", []func(){gate("g", "6")}, gradeOK, ""},
		{"whole runs are no slots", []func(){gate("g", "600", "--run")}, gradeOK, ""},
		{"more places than in all", []func(){gate("g", "3", "--label", "customer", "--total", "2")}, gradeWarn, `"g": 3 places, but 2 in all`},
		{"the ceiling of the queue is lower", []func(){gate("g", "3", "--machine", "order", "--queue", "default"), gate("top", "2", "--queue", "default")}, gradeWarn,
			`no instance can reach the bound of "g": 3 places, but gate top has 2 for all of queue default`},
		{"the dead have a place", []func(){gate("g", "2"), executes(-10, "g", 1, nil, nil, nil), executes(-9, "g", 2, nil, nil, nil)}, gradeFail,
			`2 places of "g" are held by dead processes, for 10m`},
		{"the dead have a seat", []func(){gate("top", "2", "--queue", "default"), executes(-10, nil, nil, nil, nil, 1)}, gradeFail,
			`1 places of "top" are held by dead processes, for 10m`},
		{"the dead have the place of a run", []func(){gate("g", "2", "--run"), executes(-10, nil, nil, "g", 1, nil)}, gradeFail,
			`1 places of "g" are held by dead processes, for 10m`},
		{"the patient wait", []func(){gate("g", "2"), executes(0, "g", 1, nil, nil, nil)}, gradeOK, ""},
		{"in line where nobody serves", []func(){gate("g", "2"), func() {
			h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, pick_lane, eligible_at) VALUES ('order', 'start', 'other''s', 'g', 3, now() - interval '10 min')`)
		}}, gradeFail, `in line at "g" for 10m: no live worker serves queue other's`},
		{"a run waits for its own child", []func(){gate("g", "2", "--run"), family("g", 1), family("g", 2)}, gradeFail, `"g" waits for itself for 10m`},
		{"a place is free", []func(){gate("g", "3", "--run"), family("g", 1), family("g", 2)}, gradeOK, ""},
		{"another run will end", []func(){gate("g", "3", "--run"), family("g", 1), family("g", 2), executes(1, nil, nil, "g", 3, nil)}, gradeOK, ""},
		{"a child waits for another gate", []func(){gate("g", "1", "--run"), gate("h", "1", "--run", "--machine", "order"), family("h", 1), func() {
			h.exec(`UPDATE gendurable.gen_durable SET run_gate = 'g' WHERE run_gate IS NOT NULL`)
		}}, gradeOK, ""},
		{"a label that nobody carries", []func(){gate("g", "2", "--label", "customer", "--machine", "order"), func() {
			h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, labels) VALUES ('order', 'start', 'done', now(), '{"custom": "a"}'),
				('order', 'start', 'done', now(), NULL), ('else', 'start', 'done', now(), '{"customer": "a"}')`)
		}}, gradeWarn, `no instance goes through "g": none of the newest 2 instances that it could concern has the label customer`},
		{"a label that somebody carries", []func(){gate("g", "2", "--label", "customer"), func() {
			h.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at, labels) VALUES ('order', 'start', 'done', now(), '{"customer": "a"}'),
				('order', 'start', 'done', now(), NULL)`)
		}}, gradeOK, ""},
		{"a burst for the rate", []func(){gate("g", "--machine", "order", "--rate", "1000/s", "--burst", "20")}, gradeOK, ""},
		{"too small a burst", []func(){gate("g", "--machine", "order", "--rate", "1000/s", "--burst", "19")}, gradeWarn,
			`"g" does not reach its rate: 1000 in 1000ms with a burst of 19`},
		{"closed", []func(){gate("g", "0")}, gradeWarn, `"g" is closed: has no places`},
		{"a key is closed", []func(){gate("g", "2", "--label", "customer"), func() { h.run("gate", "close", "g/acme").is(codeDone) }}, gradeWarn, `"g/acme" is closed: until somebody opens it`},
		{"a key is closed for a while", []func(){gate("g", "2", "--label", "customer"), func() { h.run("gate", "close", "g/acme", "--until", "2m").is(codeDone) }}, gradeOK, ""},
		{"a key of no gate", []func(){gate("g", "2", "--label", "customer"), func() {
			h.run("gate", "weight", "g/acme", "5").is(codeDone)
			h.run("gate", "drop", "g").is(codeDone)
		}}, gradeWarn, `no gate has the key "g/acme": there is no gate g`},
		{"a key of a gate without a label", []func(){gate("g", "2", "--label", "customer"), func() { h.run("gate", "weight", "g/acme", "5").is(codeDone) }, gate("g", "2")}, gradeWarn,
			`no gate has the key "g/acme": gate g has no label`},
	} {
		h.exec(`DELETE FROM gendurable.gen_durable`)
		h.exec(`DELETE FROM gendurable.gates`)
		h.exec(`DELETE FROM gendurable.gate_keys`)
		h.exec(`DELETE FROM gendurable.workers`)
		h.exec(`INSERT INTO gendurable.definitions (definition, machine, version, graph) VALUES
			('order/1', 'order', 1, '{"machine": "order", "version": 1, "steps": [{"name": "start"}]}') ON CONFLICT DO NOTHING`)
		h.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
			VALUES (gen_random_uuid(), 'here', 1, '', '{"default": 4, "slow": 2}', '{order/1}', now() + interval '1 hour')`)
		for _, do := range c.do {
			do()
		}
		found := h.ask(p, (*patient).gates)
		require.Equal(t, c.grade, found.Grade, "%s: %v", c.name, found)
		if c.says == "" {
			require.Equal(t, "none holds back what could run", found.Seen, c.name)
			continue
		}
		require.Contains(t, found.Seen, c.says, c.name)
		require.NotEmpty(t, found.Do, c.name)
	}
}
