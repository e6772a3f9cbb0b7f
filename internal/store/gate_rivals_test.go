package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func yielding(p *store.ClaimParams) { p.Lines.Yields = true }

// serve registers a worker that serves a queue, until a time.
func (b bench) serve(queue string, draining bool, until string) {
	b.t.Helper()
	b.exec(`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, draining, expires_at)
		VALUES (gen_random_uuid(), 'here', 1, '', jsonb_build_object($1::text, 1), '{}', $2, now() + $3::interval)`, queue, draining, until)
}

// A claim that yields leaves a place of a gate to a queue that is ahead there, and no more than
// one. It leaves none to a queue that no worker serves, or that is behind.
func TestAClaimYieldsToAQueueThatIsAhead(t *testing.T) {
	older, younger := `now() - interval '2 h'`, `now() - interval '1 s'`
	for _, c := range []struct {
		name    string
		gate    store.Gate
		other   columns
		served  func(b bench)
		claimed int
		yielded bool
	}{
		{"older", store.Gate{Places: 1}, columns{"eligible_at": older}, nil, 0, true},
		{"younger", store.Gate{Places: 1}, columns{"eligible_at": younger}, nil, 1, false},
		{"more urgent", store.Gate{Places: 1}, columns{"eligible_at": younger, "priority": `-1`}, nil, 0, true},
		{"less urgent", store.Gate{Places: 1}, columns{"eligible_at": older, "priority": `1`}, nil, 1, false},
		{"three places", store.Gate{Places: 3}, columns{"eligible_at": older}, nil, 2, true},
		{"places for all", store.Gate{Places: 30}, columns{"eligible_at": older}, nil, 5, false},
		{"a rate", store.Gate{Places: store.NoBound, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 1}}, columns{"eligible_at": older}, nil, 0, true},
		{"whole runs", store.Gate{Places: 1, Run: true}, columns{"eligible_at": older}, nil, 0, true},
		{"at another key", store.Gate{Places: 1}, columns{"eligible_at": older, "gate": `'g/other'`, "labels": `'{"customer": "other"}'`}, nil, 1, false},
		{"a total", store.Gate{Places: store.NoBound, Total: 2}, columns{"gate": `'g/other'`, "labels": `'{"customer": "other"}'`}, nil, 1, true},
		{"a rate of all", store.Gate{Places: store.NoBound, TotalRate: store.Rate{N: 1, Per: time.Hour, Burst: 2}},
			columns{"gate": `'g/other'`, "labels": `'{"customer": "other"}'`}, nil, 1, true},
		{"nobody serves it", store.Gate{Places: 1}, columns{"eligible_at": older}, func(bench) {}, 1, false},
		{"who serves it is gone", store.Gate{Places: 1}, columns{"eligible_at": older}, func(b bench) { b.serve("other", false, "-1 s") }, 1, false},
		{"who serves it stops", store.Gate{Places: 1}, columns{"eligible_at": older}, func(b bench) { b.serve("other", true, "1 h") }, 1, false},
		{"it is paused", store.Gate{Places: 1}, columns{"eligible_at": older}, func(b bench) {
			b.serve("other", false, "1 h")
			b.exec(`INSERT INTO gendurable.paused_queues (queue) VALUES ('other')`)
		}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.gate.Name, c.gate.Label = "g", "customer"
			if c.gate.Total == 0 {
				c.gate.Total = store.NoBound
			}
			b.gate(c.gate)
			row := columns{"pick_lane": `3`, "gate": `'g/acme'`, "eligible_at": `now() - interval '1 h'`}
			for range 5 {
				b.of("acme", row)
			}
			b.of("acme", row.with(columns{"queue": `'other'`}).with(c.other))
			if c.served == nil {
				b.serve("other", false, "1 h")
			} else {
				c.served(b)
			}
			got := b.claim(gated, most(10), window(10), yielding)
			require.Len(t, got.Claims, c.claimed)
			require.Equal(t, c.yielded, got.Yielded)
			rest := b.claim(gated, most(10), window(10))
			require.False(t, rest.Yielded)
			if c.yielded {
				require.Len(t, rest.Claims, 1, "who does not yield takes the place, too")
			}
			got = b.claim(gated, queue("other"), most(10), window(10), yielding)
			require.False(t, got.Yielded, "it is ahead, or finds no place")
		})
	}
}

// Two queues at one gate have its places in the order of one queue while both yield, in
// whichever order and however often their processes claim.
func TestTwoQueuesShareAGateInOneOrder(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "g", Places: 1, Total: store.NoBound})
	queues := []string{"default", "other"}
	var order []int64
	for n := range 20 {
		for _, q := range queues {
			b.serve(q, false, "1 h")
			order = append(order, b.of("acme", columns{"queue": quote(q), "pick_lane": `3`, "gate": `'g'`, "eligible_at": `now() - interval '1 h'`, "priority": []string{`0`, `5`}[n/10]}))
		}
	}
	var begun []int64
	var running []*step.Claim
	for n := 0; len(begun) < len(order); n++ {
		require.Less(t, n, 10*len(order), "it stands still")
		for _, q := range []string{"default", "default", "other"} { // the one who frees the place claims first
			got := b.claim(gated, queue(q), most(10), window(10), yielding)
			begun, running = append(begun, ids(got.Claims)...), append(running, got.Claims...)
		}
		for _, c := range running {
			b.finish(c)
		}
		running = nil
	}
	require.Equal(t, order, begun)
}

// A claim that finds no place at a gate says whether another queue is in line there, too.
func TestAClaimReportsItsRivals(t *testing.T) {
	b := newBench(t)
	b.gate(store.Gate{Name: "g", Places: 1, Total: store.NoBound})
	for _, q := range []string{"default", "default", "other"} {
		b.of("acme", columns{"queue": quote(q), "pick_lane": `3`, "gate": `'g'`, "eligible_at": `now() - interval '1 h'`})
		b.serve(q, false, "1 h")
	}
	require.Len(t, b.claim(gated, yielding).Claims, 1)
	for _, q := range []string{"default", "other"} {
		got := b.claim(gated, queue(q), yielding)
		require.True(t, got.Rivals && got.Crowded && !got.Yielded, q)
		require.False(t, b.claim(gated, queue(q)).Rivals)
	}
	b.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'other'`)
	require.False(t, b.claim(gated, yielding).Rivals)
}
