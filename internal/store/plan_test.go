package store_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/internal/tier"
)

// measured is one use of a verb on a large table, and the most buffers that it may touch per row.
// The bounds have some room above the measured values, but not enough for a plan that walks more
// than it should.
type measured struct {
	verb    string
	rows    int
	most    int    // buffers per row
	indexes string // the indexes that it must use
	use     func(e explained, prepared any) (rows int)
	prepare func(e explained) any
}

const (
	planRows   = 100 // rows of each use
	mostSorted = 10  // most rows that may be sorted for each of them
)

// The commits claim their rows from a separate queue, "bulk". Nothing is vacuumed here, so each
// claim leaves dead entries at the front of its queue, which a busy server does not let anyone
// skip.
var measures = []measured{
	{"claim", planRows, 45, "gen_durable_ready", claimMeasured("default"), nil},
	{"claim of keyed rows", planRows, 45, "gen_durable_ready gen_durable_key gen_durable_busy", claimMeasured("keyed"), nil},
	{"claim in front of a hot key", planRows, 25, "gen_durable_ready gen_durable_key", claimMeasured("hot"), nil},
	{"claim behind urgent rows of the future", planRows, 25, "gen_durable_ready", claimMeasured("future"), nil},
	{"claim among rows of one time", planRows, 120, "gen_durable_ready", claimMeasured("bulk"), nil},
	{"claim behind the last one", planRows, 45, "gen_durable_ready", func(e explained, last any) int {
		return len(e.claim(queue("worked"), most(planRows), window(planRows), behind(last.(store.Place))).Claims)
	}, func(e explained) any {
		gone := tier.Pick(5_000, 10_000)
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'worked'`)
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, eligible_at) SELECT 'm', 's', 'worked', now() - interval '1 h' + n * interval '1 ms'
			FROM generate_series(1, $1::int) n`, gone+planRows)
		var last store.Place
		require.NoError(e.t, e.pool.QueryRow(e.t.Context(), byHand(`SELECT priority, eligible_at, id FROM gendurable.gen_durable WHERE queue = 'worked'
			ORDER BY eligible_at OFFSET $1 LIMIT 1`), gone-1).Scan(&last.Priority, &last.EligibleAt, &last.ID))
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'worked' AND eligible_at <= $1`, last.EligibleAt)
		return last
	}},
	{"claim of what signals woke", planRows, 60, "gen_durable_ready gen_durable_pkey signals_target", func(e explained, _ any) int {
		n := 0
		for _, c := range e.claim(queue("woken"), most(planRows), window(planRows)).Claims {
			n += len(c.Awaited)
		}
		return n
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'woken'`)
		e.exec(`WITH g AS (INSERT INTO gendurable.gen_durable (fsm, step, queue, awaits)
				SELECT 'm', 's', 'woken', '{go}' FROM generate_series(1, $1::int) n RETURNING id)
			INSERT INTO gendurable.signals (target_id, name) SELECT id, 'go' FROM g`, planRows)
		return nil
	}},
	{"claim beside a thousand lost claims", planRows, 50, "gen_durable_ready lost_claims_key", func(e explained, _ any) int {
		n := claimMeasured("keyed")(e, nil)
		e.exec(`TRUNCATE gendurable.lost_claims`)
		return n
	}, func(e explained) any {
		e.exec(`INSERT INTO gendurable.lost_claims (partition_key, worker, claim_token) SELECT 'lost ' || n, 'gone', n FROM generate_series(1, 1000) n`)
		return nil
	}},
	{"who lingers under a thousand keys", planRows * 10, 20, "lost_claims_key", func(e explained, keys any) int {
		got, err := e.Lingering(e.t.Context(), me, keys.([]string))
		require.NoError(e.t, err)
		require.Empty(e.t, got)
		e.exec(`TRUNCATE gendurable.lost_claims`)
		return len(keys.([]string))
	}, func(e explained) any {
		keys := make([]string, planRows*10)
		for i := range keys {
			keys[i] = fmt.Sprint("lost ", i)
		}
		e.exec(`INSERT INTO gendurable.lost_claims (partition_key, worker, claim_token) SELECT unnest($1::text[]), 'gone', 1`, keys)
		return keys
	}},
	{"claim that narrows down", planRows - 1, 45, "gen_durable_ready gen_durable_pkey", func(e explained, _ any) int {
		got := e.claim(queue("apart"), most(planRows), window(planRows))
		require.Len(e.t, got.Refused, 1)
		e.exec(`DROP TRIGGER refuse ON gendurable.gen_durable`)
		return len(got.Claims)
	}, func(e explained) any {
		e.refuse(`RAISE 'no'`, e.row("queue, priority", "'apart', -10"))
		return nil
	}},
	{"claim beside what is set apart", planRows, 45, "gen_durable_ready", claimMeasured("apart"), nil},
	{"claim of strays", planRows, 60, "gen_durable_stray gen_durable_pkey", func(e explained, _ any) int {
		got, err := e.ClaimStrays(e.t.Context(), store.ClaimParams{Queue: "strays", Worker: me, Machines: []string{"m/1"}, Limit: planRows, Lease: lease},
			[]store.StepKey{{Machine: "m", Version: 1, Step: "s2"}})
		require.NoError(e.t, err)
		return len(got.Claims)
	}, func(e explained) any {
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, aside_step, eligible_at)
			SELECT 'm', 's' || n % 5, 'strays', 4, 's' || n % 5, now() - interval '1 hour' FROM generate_series(1, 5 * $1::int) n`, planRows)
		return nil
	}},
	{"claim of an empty queue", 0, 20, "gen_durable_ready", claimMeasured("none"), nil},
	{"claim without keys", planRows, 45, "gen_durable_ready", claimMeasured("default", keyless), nil},
	{"claim without keys behind urgent rows of the future", planRows, 25, "gen_durable_ready", claimMeasured("future", keyless), nil},
	{"claim without keys of a queue with keys", planRows, 5, "gen_durable_ready", func(e explained, _ any) int {
		if e.claim(queue("keyed"), most(planRows), window(planRows), keyless).Keyed {
			return planRows // it looked at them
		}
		return 0
	}, nil},
	{"claim without keys of an empty queue", 0, 15, "gen_durable_ready", claimMeasured("none", keyless), nil},
	{"commit, claims kept", planRows, 20, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Next, true)},
	{"commit, half of the claims kept", planRows, 25, "gen_durable_pkey", commitMeasured, func(e explained) any {
		entries := outcomesOf("bulk", step.Next, true)(e).([]store.Entry)
		for i := range entries {
			entries[i].Keep = i%2 == 0
		}
		return entries
	}},
	{"commit that is recorded, claims kept", planRows, 30, "gen_durable_pkey", commitMeasured, recordedOutcomes(outcomesOf("bulk", step.Next, true))},
	{"commit that is recorded, of Done", planRows, 40, "gen_durable_pkey", commitMeasured, recordedOutcomes(outcomesOf("bulk", step.Done, false))},
	{"commit that is recorded, of Await", planRows, 50, "gen_durable_pkey", commitMeasured, recordedOutcomes(outcomesOf("bulk", step.Await, false))},
	{"timeline", planRows, 20, "history_rest_instance_idx", func(e explained, _ any) int {
		page, err := e.Timeline(e.t.Context(), 77, store.HistoryPlace{}, 500)
		require.NoError(e.t, err)
		return len(page)
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.history`)
		e.exec(`INSERT INTO gendurable.history (instance, kind) SELECT n % 100, 'next' FROM generate_series(1, 10000) n`)
		return nil
	}},
	{"timeline, newest first", planRows, 20, "history_rest_instance_idx", func(e explained, _ any) int {
		page, err := e.TimelineBack(e.t.Context(), 77, store.HistoryPlace{}, 500, 1<<20)
		require.NoError(e.t, err)
		return len(page)
	}, nil},
	{"audit", planRows, 10, "history_rest_at_idx", verbsMeasured(store.AuditFilter{}), verbsRecorded},
	{"audit by actor", planRows, 10, "history_rest_actor_at_idx", verbsMeasured(store.AuditFilter{Actor: "ada"}), verbsRecorded},
	{"audit by verb", planRows, 10, "history_rest_kind_at_idx", verbsMeasured(store.AuditFilter{Verb: "rewind"}), verbsRecorded},
	{"audit by subject", planRows, 10, "history_rest_subject_at_idx", verbsMeasured(store.AuditFilter{Subject: "gate 1", Actor: "bulk"}), verbsRecorded},
	{"audit of an instance", planRows, 20, "history_rest_instance_idx", verbsMeasured(store.AuditFilter{Instance: 77, Actor: "bulk"}), verbsRecorded},
	{"commit of Next", planRows, 30, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Next, false)},
	{"commit of Retry", planRows, 30, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Retry, false)},
	{"commit of Again", planRows, 30, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Again, false)},
	{"commit of Await", planRows, 40, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Await, false)},
	{"commit of Done by children", planRows, 50, "gen_durable_pkey", commitMeasured, ofParents},
	{"commit of Fail, keyed", planRows, 45, "gen_durable_pkey gen_durable_key", commitMeasured, outcomesOf("keyed", step.Fail, false)},
	{"commit of Rejoin", planRows, 75, "gen_durable_pkey gen_durable_parent", commitMeasured, outcomesOf("bulk", step.Rejoin, false)},
	{"commit of ScheduleChildren", planRows, 75, "gen_durable_pkey", commitMeasured, outcomesOf("bulk", step.Children, false)},
	{"commit of ScheduleChildren with a policy", planRows, 70, "gen_durable_pkey", commitMeasured, func(e explained) any {
		entries := outcomesOf("bulk", step.Children, false)(e).([]store.Entry)
		for i := range entries {
			entries[i].Commit.Join = &step.Join{Done: 1, Cancel: true}
		}
		return entries
	}},
	{"commit that is stale", 0, 1600, "gen_durable_pkey", func(e explained, entries any) int {
		got, err := e.Commit(e.t.Context(), other, newMark(), entries.([]store.Entry), 0)
		require.NoError(e.t, err)
		return len(got.Applied)
	}, outcomesOf("bulk", step.Done, false)},
	{"resolve", planRows, 20, "gen_durable_pkey", func(e explained, entries any) int {
		got, err := e.Resolve(e.t.Context(), me, eachOf(entries.([]store.Entry), newMark()), entries.([]store.Entry), 0)
		require.NoError(e.t, err)
		return len(got)
	}, outcomesOf("bulk", step.Done, false)},
	{"heartbeat", planRows, 40, "gen_durable_pkey", func(e explained, entries any) int {
		got, err := e.line.Beat(e.t.Context(), me, claimsOf(entries), lease)
		require.NoError(e.t, err)
		return len(got.Extended)
	}, outcomesOf("bulk", step.Done, false)},
	{"release", planRows, 40, "gen_durable_pkey", func(e explained, entries any) int {
		done, err := e.Release(e.t.Context(), me, claimsOf(entries))
		require.NoError(e.t, err)
		return done.Claims
	}, outcomesOf("bulk", step.Done, false)},
	{"reap", planRows, 25, "gen_durable_lease", reapMeasured, func(e explained) any {
		entries := outcomesOf("bulk", step.Done, false)(e)
		e.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 s' WHERE id = ANY($1)`, ids(claimsOf(entries)))
		return nil
	}},
	{"reap of nothing", 0, 40, "gen_durable_lease", reapMeasured, nil},
	{"cancel the rest", planRows, 60, "gen_durable_losers gen_durable_parent gen_durable_pkey", func(e explained, _ any) int {
		got, err := e.CancelRest(e.t.Context(), newMark(), 0, planRows)
		require.NoError(e.t, err)
		return len(got.Cancelled)
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'rest' AND parent_id IS NOT NULL`)
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'rest'`)
		e.exec(`WITH p AS (INSERT INTO gendurable.gen_durable (fsm, step, queue, paused, round, losers)
				SELECT 'm', 's', 'rest', true, 1, '{1}' FROM generate_series(1, $1::int / 10) RETURNING id)
			INSERT INTO gendurable.gen_durable (fsm, step, queue, paused, parent_id, parent_round)
			SELECT 'm', 's', 'rest', true, p.id, 1 FROM p, generate_series(1, 10) n`, planRows)
		return nil
	}},
	{"poll of ten queues", 10, 30, "gen_durable_ready gen_durable_deadline gen_durable_expiry gen_durable_losers", pollMeasured, func(e explained) any {
		pollMeasured(e, nil) // the first poll after the earlier sweeps meets the entries that they left, and marks them as dead for the following ones
		return nil
	}},
	{"promote", planRows, 65, "gen_durable_key", func(e explained, _ any) int {
		keys := make([]string, planRows)
		for i := range keys {
			keys[i] = fmt.Sprint("waiting ", i)
		}
		p, err := e.Promote(e.t.Context(), keys)
		require.NoError(e.t, err)
		return len(p.Queues)
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'waiting'`)
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, partition_key)
			SELECT 'm', 's', 'waiting', 1, 'waiting ' || n % 100 FROM generate_series(1, 300) n`)
		return nil
	}},
	{"promote of keys that are executed", 0, planRows * 15, "gen_durable_busy gen_durable_pkey", func(e explained, keys any) int {
		p, err := e.Promote(e.t.Context(), keys.([]string))
		require.NoError(e.t, err)
		require.Empty(e.t, p)
		return 0
	}, func(e explained) any {
		e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'busy'`)
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, partition_key, status, locked_by, lease_expires_at)
			SELECT 'm', 's', 'busy', 'busy ' || n, 'executing', 'w', now() + interval '1 h' FROM generate_series(1, $1::int) n`, planRows)
		var keys []string
		for i := range planRows {
			keys = append(keys, fmt.Sprint("busy ", i+1))
		}
		return keys
	}},
	{"promote of the hot key", 0, 60, "gen_durable_key", func(e explained, _ any) int {
		_, err := e.Promote(e.t.Context(), []string{"hot"})
		require.NoError(e.t, err)
		return 0
	}, nil},
	{"sweep of a thousand keys", 1000, 30, "gen_durable_key gen_durable_busy", func(e explained, _ any) int {
		_, _, err := e.Sweep(e.t.Context(), "key ", 1000, nil)
		require.NoError(e.t, err)
		return 1000
	}, nil},
	{"time out awaits", planRows, 35, "gen_durable_deadline", func(e explained, _ any) int {
		got, err := e.TimeOut(e.t.Context(), planRows)
		require.NoError(e.t, err)
		return len(got.Queues)
	}, func(e explained) any {
		e.exec(`UPDATE gendurable.gen_durable SET await_deadline = now() WHERE id IN (SELECT id FROM gendurable.gen_durable
			WHERE await_deadline > now() + interval '1 min' ORDER BY await_deadline LIMIT $1)`, planRows)
		return nil
	}},
	{"fail those over their deadline", planRows, 40, "gen_durable_expiry gen_durable_pkey", func(e explained, _ any) int {
		got, err := e.Expire(e.t.Context(), newMark(), planRows)
		require.NoError(e.t, err)
		return len(got.Failed)
	}, func(e explained) any {
		e.exec(`UPDATE gendurable.gen_durable SET deadline = now() WHERE id IN (SELECT id FROM gendurable.gen_durable
			WHERE deadline > now() + interval '1 min' AND finished_at IS NULL AND status <> 'executing' ORDER BY deadline LIMIT $1)`, planRows)
		return nil
	}},
	{"fail none", 0, 40, "gen_durable_expiry", func(e explained, _ any) int {
		got, err := e.Expire(e.t.Context(), newMark(), planRows)
		require.NoError(e.t, err)
		return len(got.Failed)
	}, nil},
	{"deliver by id", 1, 80, "gen_durable_pkey", func(e explained, to any) int {
		_, err := e.Deliver(e.t.Context(), byID(to.([]int64)[0]), deduped("go", newMark()), 100)
		return e.found(err)
	}, parkedOnes},
	{"deliver and claim", 1, 150, "gen_durable_pkey", func(e explained, to any) int {
		w := waker()
		_, _, err := e.DeliverClaiming(e.t.Context(), byID(to.([]int64)[2]), deduped("go", newMark()), 100, w)
		return e.found(err)
	}, parkedOnes},
	{"deliver by key", 1, 80, "gen_durable_correlation", func(e explained, to any) int {
		_, err := e.Deliver(e.t.Context(), byKey(fmt.Sprint("address ", to.([]int64)[1])), named("go"), 100)
		return e.found(err)
	}, parkedOnes},
	{"deliver many", planRows, 55, "gen_durable_pkey gen_durable_correlation signals_target signals_target_id_dedup_key_key", func(e explained, to any) int {
		var list []store.Letter
		for i, id := range to.([]int64)[:planRows] {
			list = append(list, letter(byID(id), deduped("go", newMark())))
			if i%2 == 0 {
				list[i].To = byKey(fmt.Sprint("address ", id))
			}
		}
		got, err := e.DeliverMany(e.t.Context(), list, 100)
		require.NoError(e.t, err)
		return len(slices.DeleteFunc(got, func(a store.Answer) bool { return a.Err != nil }))
	}, parkedOnes},
	{"read an inbox", 20, 6, "signals_target signals_pkey", func(e explained, c any) int {
		page, _, err := e.Inbox(e.t.Context(), c.(*step.Claim).ID, 0)
		require.NoError(e.t, err)
		return len(page)
	}, awaiter},
	{"read the rest of a claim", 20, 8, "gen_durable_pkey signals_target signals_pkey", func(e explained, c any) int {
		held, err := e.Complete(e.t.Context(), me, c.(*step.Claim), 1<<20)
		require.NoError(e.t, err)
		require.True(e.t, held)
		return len(c.(*step.Claim).Awaited)
	}, awaiter},
	{"read children", 20, 10, "gen_durable_parent gen_durable_pkey", func(e explained, parent any) int {
		got, err := e.round(parent.(int64), 7)
		require.NoError(e.t, err)
		return len(got)
	}, func(e explained) any {
		parent := e.joiner(10)
		for range 20 {
			e.row("parent_id, parent_round", "$1, 7", parent)
		}
		return parent
	}},
	{"read whole instances", planRows, 6, "gen_durable_pkey", func(e explained, ids any) int {
		got := 0
		require.NoError(e.t, e.Instances(e.t.Context(), ids.([]int64), func(rows pgx.Rows) error {
			for rows.Next() {
				got++
			}
			return rows.Err()
		}))
		return got
	}, func(e explained) any {
		var ids []int64
		for range planRows {
			ids = append(ids, e.row("status, finished_at", "'done', now()"))
		}
		return ids
	}},
	{"commit of a graph", planRows, 110, "gen_durable_pkey", func(e explained, entry any) int {
		e.commit(newMark(), false, entry.(store.Entry))
		return planRows
	}, func(e explained) any { return e.chained(planRows) }},
	{"commit that adds nodes", planRows, 110, "gen_durable_pkey gen_durable_node", func(e explained, entry any) int {
		e.commit(newMark(), true, entry.(store.Entry))
		return planRows
	}, func(e explained) any { return e.growing(planRows) }},
	{"commit of ends of nodes", planRows, 140, "gen_durable_pkey edges_pkey", commitMeasured, func(e explained) any { return e.endsOfNodes(planRows) }},
	{"commit of ends of nodes in the slow lane", planRows, 140, "gen_durable_pkey edges_pkey", func(e explained, entries any) int {
		return len(e.commit(newMark(), true, entries.([]store.Entry)...).Applied)
	}, func(e explained) any { return e.endsOfNodes(planRows) }},
	{"reap of nodes", planRows, 140, "gen_durable_lease edges_pkey", func(e explained, _ any) int {
		got, err := e.Reap(e.t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{1}}, planRows)
		require.NoError(e.t, err)
		return len(got.Failed)
	}, func(e explained) any {
		e.exec(`UPDATE gendurable.gen_durable SET lease_expires_at = now() - interval '1 day', crashes = 9 WHERE id = ANY($1)`,
			ids(claimsOf(e.endsOfNodes(planRows))))
		return nil
	}},
	{"what nodes have waited for", planRows, 30, "gen_durable_pkey edges_to", func(e explained, claims any) int {
		require.NoError(e.t, e.Feed(e.t.Context(), claims.([]*step.Claim), 8<<20))
		return planRows
	}, func(e explained) any { return e.fedBy(planRows) }},
	{"commit of ends in a stream", planRows, 70, "gen_durable_pkey", commitMeasured, func(e explained) any {
		entries := ofParents(e).([]store.Entry)
		for _, one := range entries {
			one.Claim.ParentRound = -1
		}
		return entries
	}},
	{"read a portion", 20, 30, "gen_durable_parent gen_durable_pkey", func(e explained, c any) int {
		got, err := e.Portion(e.t.Context(), c.(*step.Claim), brief)
		require.NoError(e.t, err)
		require.True(e.t, got.Stream)
		return len(got.IDs)
	}, func(e explained) any {
		parent := e.row("status, locked_by, lease_expires_at, visit, round, join_round, stream_most", "'executing', 'w', now() + interval '1 hour', 7, -7, 7, 20")
		for range 40 {
			e.row("parent_id, parent_round, status, finished_at, joined", "$1, -7, 'done', now(), gen_random_uuid()", parent)
		}
		return &step.Claim{ID: parent, Round: -7, Visit: 7}
	}},
	{"look whether an end is free", 1, 100, "gen_durable_pkey edges_pkey", func(e explained, c any) int {
		_, err := e.EndIsFree(e.t.Context(), c.(*step.Claim))
		require.NoError(e.t, err)
		return 1
	}, func(e explained) any { return e.endsOfNodes(1)[0].Claim }},
	{"list", planRows, 10, "gen_durable_pkey", listMeasured(store.Filter{}, false), nil},
	{"list, oldest first", planRows, 10, "gen_durable_pkey", listMeasured(store.Filter{}, true), nil},
	{"list of what nobody is", 0, 2 * listVisits, "gen_durable_pkey", listMeasured(store.Filter{Machine: "nobody"}, false), nil},
	{"list of what nobody is, oldest first", 0, 2 * listVisits, "gen_durable_pkey", listMeasured(store.Filter{Machine: "nobody"}, true), nil},
	{"list by an error that nobody has", 0, 2 * listVisits, "gen_durable_pkey", listMeasured(store.Filter{ErrorText: "nobody"}, false), nil},
	{"list of what has failed", planRows, 10, "gen_durable_failed", listMeasured(store.Filter{Statuses: []string{"failed"}}, false), failedAlike},
	{"list of what has failed so", planRows, 10, "gen_durable_alike", func(e explained, of any) int {
		return listMeasured(store.Filter{Statuses: []string{"failed"}, Fingerprint: of.(string)}, true)(e, nil)
	}, failedAlike},
	{"select what has failed so", planRows, 10, "gen_durable_alike", func(e explained, of any) int {
		ids, err := e.Select(e.t.Context(), store.Retry, &store.Filter{Fingerprint: of.(string)}, 1000)
		require.NoError(e.t, err)
		return len(ids)
	}, failedAlike},
	{"group failures", planRows, 10, "gen_durable_alike", func(e explained, _ any) int {
		got, err := e.Failures(e.t.Context(), &store.FailureFilter{Kinds: 5, Most: 3 * planRows, Each: planRows, Limit: 10})
		require.NoError(e.t, err)
		require.NotEmpty(e.t, got.Groups)
		return planRows
	}, failedAlike},
	{"group failures of more kinds than are looked at", planRows, 10, "gen_durable_alike gen_durable_failed", func(e explained, _ any) int {
		got, err := e.Failures(e.t.Context(), &store.FailureFilter{Kinds: 20, Most: planRows, Each: planRows, Limit: 10})
		require.NoError(e.t, err)
		require.True(e.t, got.More)
		return planRows
	}, func(e explained) any {
		of := failedAlike(e)
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, errors, finished_at)
			SELECT 'm', 's', 'alike', 'failed', 'error', ` + entryOf("'s'", "'kind ' || chr(64 + n) || chr(64 + n % 20)") + `, now() FROM generate_series(1, 25) n`)
		return of
	}},
	{"group failures within bounds", planRows, 10, "gen_durable_alike", func(e explained, _ any) int {
		got, err := e.Failures(e.t.Context(), &store.FailureFilter{Kinds: 5, Most: 3 * planRows, Each: planRows, Limit: 10,
			Within: store.Bounds{Queues: []string{"nobody's"}, Labels: `{"a":"b"}`}})
		require.NoError(e.t, err)
		require.Zero(e.t, got.Looked)
		return planRows
	}, failedAlike},
	{"count the failures of a label", planRows, 10, "gen_durable_alike", func(e explained, of any) int {
		got, err := e.Failures(e.t.Context(), &store.FailureFilter{Kinds: 5, Most: planRows, Each: planRows, Limit: 10, Fingerprint: store.FingerprintOf(of.(string)),
			Within: store.Bounds{Labels: `{"a":"b"}`}})
		require.NoError(e.t, err)
		require.Zero(e.t, got.Looked)
		return planRows
	}, failedAlike},
	{"cancel within bounds", 20, 60, "gen_durable_parent gen_durable_pkey", func(e explained, parent any) int {
		got, err := e.Operate(e.t.Context(), []int64{parent.(int64)}, &store.Order{Verb: store.Cancel, Mark: newMark(), Most: 1000, Descendants: true,
			Filter: store.Filter{Within: store.Bounds{Queues: []string{"nobody's", "default"}}}})
		require.NoError(e.t, err)
		require.Len(e.t, got.Changed, 20)
		return 20
	}, func(e explained) any {
		parent := e.joiner(19)
		for range 19 {
			e.row("parent_id, parent_round", "$1, 7", parent)
		}
		return parent
	}},
	{"cancel siblings within bounds", 200, 60, "gen_durable_parent gen_durable_pkey", func(e explained, ids any) int {
		got, err := e.Operate(e.t.Context(), ids.([]int64), &store.Order{Verb: store.Cancel, Mark: newMark(), Most: 1000,
			Filter: store.Filter{Within: store.Bounds{Queues: []string{"nobody's", "default"}}}})
		require.NoError(e.t, err)
		require.Len(e.t, got.Changed, 200)
		return 200
	}, func(e explained) any {
		parent := e.joiner(201) // which waits for one more
		e.exec(`UPDATE gendurable.gen_durable SET losers = '{3}' WHERE id = $1`, parent)
		var ids []int64
		for range 200 {
			ids = append(ids, e.row("parent_id, parent_round", "$1, 3", parent))
		}
		return ids
	}},
	{"rates", planRows, 10, "gen_durable_pkey gen_durable_finished", func(e explained, _ any) int {
		_, err := e.Rates(e.t.Context(), &store.RateFilter{Past: time.Hour, Bin: time.Minute, Most: planRows})
		require.NoError(e.t, err)
		return planRows
	}, nil},
	{"count children", 10, 10, "gen_durable_parent", func(e explained, parent any) int {
		got, err := e.ChildCounts(e.t.Context(), parent.(int64), 10)
		require.NoError(e.t, err)
		return int(got[0].Count)
	}, func(e explained) any {
		parent := e.joiner(10)
		for range 20 {
			e.row("parent_id, parent_round", "$1, 7", parent)
		}
		return parent
	}},
	{"relations", 20, 20, "gen_durable_parent gen_durable_pkey signals_target", func(e explained, parent any) int {
		got, err := e.Relations(e.t.Context(), parent.(int64), &store.RelationsBounds{Count: 20, Rounds: 2, Children: 5, Ancestors: 5, Inbox: 10, Bytes: 1 << 20})
		require.NoError(e.t, err)
		require.Len(e.t, got.Children, 10)
		require.Len(e.t, got.Ancestors, 1)
		require.Len(e.t, got.Inbox, 2)
		return 20
	}, func(e explained) any {
		parent := e.joiner(10)
		e.exec(`UPDATE gendurable.gen_durable SET parent_id = $2, parent_round = 1, depth = 1 WHERE id = $1`, parent, e.joiner(10))
		for n := range 20 {
			e.row("parent_id, parent_round, depth", "$1, $2, 2", parent, n%4)
		}
		e.exec(`INSERT INTO gendurable.signals (target_id, name) SELECT $1, 'go' FROM generate_series(1, 2)`, parent)
		return parent
	}},
	{"traffic", planRows, 100, "gen_durable_ready gen_durable_aside gen_durable_stray gen_durable_lines gen_durable_key gen_durable_lease", func(e explained, _ any) int {
		got, err := e.Traffic(e.t.Context(), planRows)
		require.NoError(e.t, err)
		require.NotEmpty(e.t, got.Waiting)
		return planRows
	}, nil},
	{"list by a rare label", 10, 40, "gen_durable_labels", listMeasured(store.Filter{Labels: `{"order":"7"}`}, false), nil},
	{"list within the bounds of a label", 10, 40, "gen_durable_labels", listMeasured(store.Filter{Within: store.Bounds{Labels: `{"order":"7"}`}}, false), nil},
	{"list by a label within the bounds of another", 10, 60, "gen_durable_labels",
		listMeasured(store.Filter{Labels: `{"order":"7"}`, Within: store.Bounds{Labels: `{"tenant":"big"}`}}, true), nil},
	{"list by a common label", 0, 2 * listVisits, "gen_durable_labels gen_durable_pkey",
		listMeasured(store.Filter{Labels: `{"tenant":"big"}`}, false), nil},
	{"list by two labels", 10, 60, "gen_durable_labels", listMeasured(store.Filter{Labels: `{"order":"7","tenant":"big"}`}, true), nil},
	{"list by a label and more", 0, 700, "gen_durable_labels",
		listMeasured(store.Filter{Labels: `{"order":"7"}`, Machine: "nobody", Statuses: []string{"done"}}, false), nil},
	{"list by key", 1, 20, "gen_durable_correlation", listMeasured(store.Filter{Key: "list me"}, false), func(e explained) any {
		e.exec(`DELETE FROM gendurable.gen_durable WHERE correlation_key = 'list me'`)
		return e.keyed("list me")
	}},
	{"list of those that have left the scope of a key", 1, 20, "gen_durable_keyed", listMeasured(store.Filter{EndedKey: "prefixed:41", Statuses: []string{"done", "failed"}}, true), prefixed},
	{"list by a prefix of keys", 12, 20, "gen_durable_correlation gen_durable_keyed", listMeasured(store.Filter{KeyPrefix: "prefixed:4"}, false), prefixed},
	{"list by a prefix that too many keys have", 0, 3 * listVisits, "gen_durable_keyed gen_durable_pkey", listMeasured(store.Filter{KeyPrefix: "many:", Machine: "nobody"}, true), func(e explained) any {
		e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, finished_at, correlation_key) SELECT 'm', 's', 'many', 'done', now(), 'many:' || n
			FROM generate_series(1, $1::int) n WHERE NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.queue = 'many')`, 2*listVisits)
		return nil
	}},
	{"select by a prefix of keys", 12, 20, "gen_durable_correlation gen_durable_keyed", func(e explained, _ any) int {
		ids, err := e.Select(e.t.Context(), store.Retry, &store.Filter{KeyPrefix: "prefixed:4"}, 1000)
		require.NoError(e.t, err)
		require.Empty(e.t, ids)
		return 12
	}, prefixed},
	{"list of children", 10, 20, "gen_durable_parent", func(e explained, parent any) int {
		return listMeasured(store.Filter{Parent: parent.(int64)}, false)(e, nil)
	}, func(e explained) any {
		parent := e.joiner(10)
		for range 10 {
			e.row("parent_id", "$1", parent)
		}
		return parent
	}},
	{"list of what executes", 0, 3, "gen_durable_lease", func(e explained, _ any) int {
		p := query.ListParams{Filter: store.Filter{Statuses: []string{"executing"}}, Limit: planRows, Visit: 4 * listVisits}
		_, err := e.List(e.t.Context(), p)
		require.NoError(e.t, err)
		return 4000 // a lower bound of the rows that it visits
	}, nil},
	{"select by a rare label", 10, 40, "gen_durable_labels", func(e explained, _ any) int {
		ids, err := e.Select(e.t.Context(), store.Pause, &store.Filter{Labels: `{"order":"8"}`}, 1000)
		require.NoError(e.t, err)
		return len(ids)
	}, nil},
	{"insert with keys, half of them taken", planRows, 15, "gen_durable_correlation", func(e explained, specs any) int {
		return len(e.insertSpecs(specs.([]*step.Spec)))
	}, func(e explained) any {
		list := newSpecs(planRows, true)
		for i, n := range parkedOnes(e).([]int64)[:planRows/2] {
			list[i].Key = fmt.Sprint("address ", n)
		}
		return list
	}},
	{"insert as claimed, half of the keys taken", planRows, 15, "gen_durable_correlation", func(e explained, specs any) int {
		got, _ := e.enter(specs.([]*step.Spec)...)
		return len(got)
	}, func(e explained) any {
		list := newSpecs(planRows, true)
		for i, n := range parkedOnes(e).([]int64)[:planRows/2] {
			list[i].Key = fmt.Sprint("address ", n)
		}
		return list
	}},
}

// prefixed are instances with keys, of which twelve begin with "prefixed:4": one occupies its key,
// the others have ended.
func prefixed(e explained) any {
	e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'prefixed'`)
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, finished_at, correlation_key) SELECT 'm', 's', 'prefixed', 'done', now(), 'prefixed:' || n
		FROM generate_series(1, $1::int) n`, planRows)
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, correlation_key, correlation_scope) VALUES ('m', 's', 'prefixed', 'prefixed:4', $1::text::gendurable.durable_status[])`,
		"{runnable,executing,awaiting_signal,awaiting_children}")
	return nil
}

// failedAlike are planRows instances that have failed alike. It returns their fingerprint.
func failedAlike(e explained) any {
	e.exec(`DELETE FROM gendurable.gen_durable WHERE queue = 'alike'`)
	e.exec(`INSERT INTO gendurable.gen_durable (fsm, step, queue, status, failure, errors, finished_at)
		SELECT 'm', 's', 'alike', 'failed', 'error', `+entryOf("'s'", "'no order ' || n")+`, now() FROM generate_series(1, $1::int) n`, planRows)
	var of int64
	require.NoError(e.t, e.pool.QueryRow(e.t.Context(), byHand(`SELECT fingerprint FROM gendurable.gen_durable WHERE queue = 'alike' LIMIT 1`)).Scan(&of))
	return store.FingerprintText(of)
}

// awaiter is a claim of an instance with signals in its inbox.
func awaiter(e explained) any {
	id := e.row("status, locked_by, lease_expires_at, claim_token, awaits", "'executing', $1, now() + interval '1 h', 7, '{go}'", me)
	for range 20 {
		e.exec(`INSERT INTO gendurable.signals (target_id, name) VALUES ($1, 'go')`, id)
	}
	return &step.Claim{ID: id, Token: 7, Partial: true}
}

// found accepts that the target does not exist, if the table is empty.
func (e explained) found(err error) int {
	e.t.Helper()
	if errors.Is(err, store.ErrNoTarget) {
		return 0
	}
	require.NoError(e.t, err)
	return 1
}

// listVisits is the number of rows that a page may visit. A page that finds nothing touches at most
// twice as many buffers, since nothing here is vacuumed and it also meets index entries of dead
// versions. A list by label reads in addition the pending entries of the GIN index: 512 buffers at
// most (gin_pending_list_limit).
const listVisits = 5000

func listMeasured(f store.Filter, oldestFirst bool) func(explained, any) int {
	return func(e explained, _ any) int {
		got, err := e.List(e.t.Context(), query.ListParams{Filter: f, OldestFirst: oldestFirst, Limit: planRows, Visit: listVisits})
		require.NoError(e.t, err)
		return len(got.Instances)
	}
}

func pollMeasured(e explained, _ any) int {
	queues := []string{"default", "keyed", "hot", "future", "aside", "none", "none2", "none3", "none4", "none5"}
	_, err := e.Poll(e.t.Context(), queues, []string{"m/1"}, nil)
	require.NoError(e.t, err)
	return len(queues)
}

func claimMeasured(name string, how ...func(*store.ClaimParams)) func(explained, any) int {
	return func(e explained, _ any) int {
		got := e.claim(append(how, queue(name), most(planRows), window(planRows))...)
		return len(got.Claims) + got.Moved
	}
}

func commitMeasured(e explained, entries any) int {
	got, err := e.Commit(e.t.Context(), me, newMark(), entries.([]store.Entry), 0)
	require.NoError(e.t, err)
	return len(got.Applied)
}

func reapMeasured(e explained, _ any) int {
	got, err := e.Reap(e.t.Context(), newMark(), store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{5}}, planRows)
	require.NoError(e.t, err)
	return got.Released
}

func claimsOf(entries any) (out []*step.Claim) {
	for _, e := range entries.([]store.Entry) {
		out = append(out, e.Claim)
	}
	return out
}

// outcomesOf claims rows of a queue and gives each an outcome. On an empty table it makes the
// claims up, so that the statements are planned all the same.
func outcomesOf(name string, kind step.Kind, keep bool) func(e explained) any {
	return func(e explained) any {
		claims := e.bench.claim(queue(name), most(planRows), window(planRows)).Claims
		for len(claims) < planRows {
			claims = append(claims, &step.Claim{ID: int64(1_000_000 + len(claims)), PartitionKey: "none"})
		}
		var out []store.Entry
		for _, c := range claims {
			o := &step.Commit{Kind: kind, Step: "two", State: []byte(`{}`)}
			switch kind {
			case step.Await:
				o.Names = []string{"go", "never"}
			case step.Children:
				o.Spawn = kids(2)
			case step.Rejoin:
				o.Join = &step.Join{Ended: 1}
			case step.Done, step.Fail:
				o = ending(kind)
			case step.Next, step.Retry, step.Again:
			}
			out = append(out, store.Entry{Claim: c, Commit: o, Keep: keep})
		}
		return out
	}
}

// ofParents turns claims into children of ten parents, and ends them.
func ofParents(e explained) any {
	entries := outcomesOf("bulk", step.Done, false)(e).([]store.Entry)
	parents := make([]int64, len(entries))
	for i := range entries {
		if i%10 == 0 {
			parents[i] = e.joiner(10)
		} else {
			parents[i] = parents[i-1]
		}
		entries[i].Claim.Parent = parents[i]
	}
	e.exec(`UPDATE gendurable.gen_durable g SET parent_id = u.parent, parent_round = 3 FROM unnest($1::bigint[], $2::bigint[]) AS u(id, parent)
		WHERE g.id = u.id`, ids(claimsOf(entries)), parents)
	return entries
}

// parkedOnes returns instances that await a signal. The key of each is "address " and its id.
func parkedOnes(e explained) any {
	rows, err := e.pool.Query(e.t.Context(), byHand(`SELECT id FROM gendurable.gen_durable 
		WHERE status = 'awaiting_signal' AND correlation_guard LIKE 'address %' ORDER BY random() LIMIT $1`), planRows)
	require.NoError(e.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(e.t, err)
	for len(list) < planRows {
		list = append(list, 1)
	}
	return list
}
