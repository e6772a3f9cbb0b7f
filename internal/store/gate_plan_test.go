package store_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

var allMeasures = slices.Concat(measures, graphMeasures, skipMeasures, gateMeasures, keptMeasures)

// gateMeasures are the measures of claims at gates. Beside each of them thousands of instances
// stand in line at a gate of which all places are taken, in the same queue.
var gateMeasures = []measured{
	{"gated claim beside a long line", planRows, 40, "gen_durable_ready gen_durable_lines", func(e explained, _ any) int {
		return len(e.claim(gated, most(planRows), window(planRows)).Claims)
	}, lineUp},
	{"gated claim that puts in line", planRows, 60, "gen_durable_ready", func(e explained, _ any) int {
		return e.claim(gated, queue("to gates"), most(planRows), window(planRows)).Moved
	}, func(e explained) any {
		lineUp(e)
		e.gateRows(`gate, place, pick_lane`, `NULL, NULL, 0`)
		return nil
	}},
	{"claim from a hundred lines", planRows, 80, "gen_durable_lines gen_durable_place", func(e explained, _ any) int {
		return len(e.claim(gated, queue("to gates"), most(planRows), window(planRows)).Claims)
	}, eachLine},
	{"claim from a hundred lines that looks for new rows", planRows, 80, "gen_durable_lines gen_durable_place gen_durable_pkey", func(e explained, newest any) int {
		got := e.claim(gated, queue("to gates"), most(planRows), window(planRows), func(p *store.ClaimParams) {
			p.Jumps = store.Jumps{Froms: []string{"each/"}, Tos: []string{"each/1"}, Fresh: []string{"each/00"}, After: newest.(int64) - planRows}
		})
		require.Equal(e.t, newest, got.Arrived.Last)
		return len(got.Claims)
	}, func(e explained) any {
		eachLine(e)
		return int64(e.number(`SELECT max(id) FROM gendurable.gen_durable`))
	}},
	{"look at the keys of a hundred lines", planRows, 30, "gen_durable_lines gen_durable_place", scoutMeasured(false), eachLine},
	{"look at the keys of a hundred long lines", planRows, 30, "gen_durable_lines gen_durable_place", scoutMeasured(true), eachLine},
}

func scoutMeasured(sparse bool) func(e explained, _ any) int {
	return func(e explained, _ any) int {
		at, err := e.Scout(e.t.Context(), "to gates", "", 4000, sparse, time.Minute)
		require.NoError(e.t, err)
		return at.Keys
	}
}

// eachLine makes a line of one row at each of planRows keys.
func eachLine(e explained) any {
	lineUp(e)
	e.gateRows(`gate, place, pick_lane`, `'each/' || n, NULL, 3`)
	return nil
}

// lineUp makes the gates, and the long lines, if they are gone. What another measure has put at the
// gates goes. The long line stays: claims would meet the entries of deleted rows, and what they
// touch would depend on how often a measure has been tried.
func lineUp(e explained) any {
	long := tier.Pick(5_000, 20_000)
	e.exec(`DELETE FROM gendurable.gen_durable WHERE gate LIKE 'each/%' OR queue = 'to gates'`)
	if e.number(`SELECT count(*) FROM gendurable.gen_durable WHERE gate = 'full/x' AND (pick_lane = 3 OR status = 'executing')`) == long+100 {
		return nil
	}
	e.exec(`TRUNCATE gendurable.gates`)
	e.exec(`DELETE FROM gendurable.gen_durable WHERE gate IS NOT NULL`)
	e.gate(store.Gate{Name: "full", Label: "line", Places: 100, Total: store.NoBound})
	e.gate(store.Gate{Name: "each", Label: "gate", Places: 2, Total: store.NoBound})
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, priority, eligible_at, labels, gate, pick_lane)
		SELECT 'm', 's', -1, now() - interval '1 day', '{"line": "x"}', 'full/x', 3 FROM generate_series(1, $1::int)`, long)
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, gate, place, status, locked_by, lease_expires_at)
		SELECT 'm', 's', 'elsewhere', 'full/x', n, 'executing', 'w', now() + interval '1 h' FROM generate_series(1, 100) n`)
	return nil
}

// gateRows inserts planRows instances, each with its own gate.
func (e explained) gateRows(names, values string) {
	e.t.Helper()
	e.exec(fmt.Sprintf(`INSERT INTO gendurable.gen_durable (fsm, step, queue, labels, %s)
		SELECT 'm', 's', 'to gates', jsonb_build_object('gate', n::text), %s FROM generate_series(1, $1::int) n`, names, values), planRows)
}
