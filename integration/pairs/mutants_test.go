package pairs

import (
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// mutantSeeds bounds the seeds with which a case looks for a mutant: the seed chooses where the
// fault strikes, and which bounded verb it is.
const mutantSeeds = 100

// striking are the faults whose mutants no case finds without them, and blindSeeds is with how many
// seeds one does not.
var striking = []string{"drain", "held parent", "fail", "over", "bound"}

const blindSeeds = 5

// Statements that are broken on purpose, each in a way that its case has to show: by a fleet,
// blocked keys, bounds, a slow server, or the check of a feature.
func TestPairsFindMutants(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.Proof)
	for _, mutant := range []struct {
		name    string
		changes [][2]string
		c, sign string
	}{
		{"a claim that is kept stores no state", [][2]string{{"SET step = u.step, state = u.state::jsonb, awaits", "SET step = u.step, awaits"}},
			"fleet,join/none/kill/1", "done with a wrong result"},
		{"a claim lets a closed key begin", [][2]string{{"r.closed > c.now OR b.closed_until > c.now THEN 0", "r.closed > c.now THEN 0"}},
			"blocked,signal/none/none/1", "an instance begins where none may"},
		{"a bounded verb does not heed its target", [][2]string{{"SELECT i.id, i.covered, ", "SELECT i.id, true, "}},
			"join,graph/bounded/none/1", "a bounded verb tells of an instance outside|a bounded verb changes a row outside"},
		{"a bounded verb does not heed others", [][2]string{{"coalesce(own.outside, false) OR coalesce(above.outside, false)", "false"}},
			"join,graph/bounded/none/1", "a bounded verb changes a row outside"},
		{"claims jump over keys that are free", [][2]string{{"coalesce(b.held >= CASE WHEN r.places = 0", "coalesce(b.held >= 0 * CASE WHEN r.places = 0"}},
			"fleet,blocked/none/none/1", "engines leave work undone|a key is opened, and nothing begins there"},
		{"a claim jumps over the whole gate of a closed key", [][2]string{{"NOT r.mine OR r.closed > c.now OR r.places <= 0", "NOT r.mine OR r.closed > c.now OR b.closed_until > c.now OR r.places <= 0"}},
			"fleet,blocked/none/none/1", "engines leave work undone|it does not end"},
		{"a Rejoin does not count the ends since its claim", [][2]string{{"children_pending = u.size - u.ok - u.bad - u.skipped,", "children_pending = g.children_pending,"}},
			"race,race,signal,fleet/none/slow/1", "a parent counts other children than there are|a parent sleeps|it does not end|engines leave work undone|a race sleeps"},
		{"an upsert gives an entity a second instance", [][2]string{{"AND e.instance_id IS NULL ORDER", "ORDER"}},
			"oncreate,signal/rewind/none/1", "an entity has no instance, and cannot get one|an entity and its instance are not there together"},
		{"many letters wake nobody", [][2]string{{"AND g.awaits && m.names", "AND false"}}, "update/none/none/1", "an update wakes nobody"},
		{"two equal letters of a call are both sent", [][2]string{{"row_number() OVER (PARTITION BY m.id, m.dedup ORDER BY m.n) = 1 AS first", "true AS first"}},
			"update/none/none/1", "one of two equal letters is no duplicate"},
		{"entities are deleted beside live instances", [][2]string{{"SELECT x.id, x.status::text FROM", "SELECT x.id, 'done' FROM"}},
			"entity,timer/none/none/1", "an entity may be deleted while its instance lives"},
		{"a step's own transaction takes effect without its claim", [][2]string{
			{"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = $2 AND g.visit = $3", "$4::text || $2::bigint || $3::bigint IS NOT NULL"},
			{"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit", "$4::text IS NOT NULL"},
		},
			"fleet,intx/none/stop/1", "a step's own transaction took effect twice, or never"},
		{"an outcome whose answer was lost is not found", [][2]string{{"SELECT u.id, coalesce(g.commit_id::text, '')", "SELECT u.id, ''"}},
			"history,join/none/lost/1", "the history has other outcomes than were applied"},
		{"an outcome that met a locked row is given up", [][2]string{{"coalesce(coalesce(g.status = 'executing', false)", "coalesce(u.id < 0 AND coalesce(g.status = 'executing', false)"}},
			"join,join/none/held/1", "a claim is left"},
		{"an outcome is not recorded", [][2]string{{"FROM h WHERE took >= 0", "FROM h WHERE took < 0"}}, "history/none/none/1", "the history has other outcomes than were applied"},
		{"a signal that was kept is left", [][2]string{{"AND k.expires_at > t.inserted_at", "AND k.expires_at < t.inserted_at"}}, "kept/none/none/1", "a kept signal is lost"},
		{"an end does not look for signals", [][2]string{{"WHERE g.id = u.id AND g.commit_id = $2::uuid AND (SELECT true FROM", "WHERE false AND g.id = u.id AND g.commit_id = $2::uuid AND (SELECT true FROM"}}, "unless/none/none/1", "done with a wrong result"},
		{"a window lets all in", [][2]string{{"OR w.until <= CASE", "OR true OR w.until <= CASE"}, {"WHERE r.kind = 'debounce' OR NOT EXISTS", "WHERE true OR NOT EXISTS"}}, "window/none/none/1", "a window lets a second one in"},
		{"a claim goes by the gate's places and not the key's", [][2]string{{"coalesce(b.places, r.places) END AS places", "r.places END AS places"}},
			"gate,signal/none/none/1", "a step runs without the only place of its gate"},
		{"an end keeps its place", [][2]string{{"gate = NULL, place = NULL, seat = NULL,\n  finished_at", "finished_at"}}, "gate/none/none/1", "places are left|an instance holds a place"},
		{"a portion shows what was shown", [][2]string{{"k.joined IS NOT NULL AND k.stream_visit IS NULL", "k.joined IS NOT NULL"}},
			"stream,signal/none/none/1", "a stream shows a child twice, or never|it runs on and on"},
		{"a drain costs an attempt", [][2]string{{"SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,\n  lease_expires_at = NULL",
			"SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,\n  lease_expires_at = NULL, attempt = g.attempt + 1"}},
			"join,signal/none/drain/1", "a drain counts against an instance"},
		{"a drain takes what a step was woken by", [][2]string{{"SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,\n  lease_expires_at = NULL",
			"SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,\n  lease_expires_at = NULL, awaits = NULL"}},
			"unless,unless/none/drain/1", "Unless goes on without its signal"},
		{"an end does not wait for its parent", [][2]string{
			{"WHERE t.parent = ANY(ARRAY(SELECT id FROM p)) OR t.parent IS NULL OR", "WHERE true OR"},
			{"FROM \"gendurable\".gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE) l)", "FROM \"gendurable\".gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE SKIP LOCKED) l)"},
		}, "fleet,crowd/none/held parent/1", "a parent counts other children than there are|a parent sleeps, and all its children have ended"},
		{"a failure counts towards a quorum", [][2]string{{"count(*) FILTER (WHERE k.status = 'done')::int AS ok,\n      count", "count(*)::int AS ok,\n      count"}},
			"rest,signal/none/fail/1", "a quorum is over before it is reached, or cannot be"},
		{"a failed node lets those behind it run", [][2]string{{"e.needs = 1 OR e.needs < 3 AND (e.needs = 0) = (k.status = 'done')", "e.needs < 2 OR e.needs < 3 AND (e.needs = 0) = (k.status = 'done')"}},
			"graph,signal/none/fail/1", "a node runs though another did not end as it needs"},
		{"nodes outlive their root", [][2]string{{"OR x.graphs IS NOT NULL AND x.finished_at IS NOT NULL) AND x.id > $1", "OR false) AND x.id > $1"}},
			"graph,signal/none/over/1", "a node lives, and its root has ended"},
		{"a signal that was taken counts in the inbox", [][2]string{{"WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT $4", "WHERE i.target_id = t.id LIMIT $4"}},
			"unless,unless,unless/none/bound/1", "it cannot be repaired"},
		{"nodes that are added count twice", [][2]string{{"THEN p.join_size + $3::int ELSE p.join_size END", "THEN p.join_size + 2 * $3::int ELSE p.join_size END"}},
			"graph,grow/none/bound/1", "it cannot be repaired"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			t.Parallel()
			done := make([]atomic.Bool, len(mutant.changes))
			b := newBase(t, func(queries []*pgx.QueuedQuery) {
				for n, change := range mutant.changes {
					replace(change[0], change[1], &done[n])(queries)
				}
			})
			c, err := parse(mutant.c)
			require.NoError(t, err)
			sign, found := regexp.MustCompile(mutant.sign), false
			for ; !found && c.Seed <= mutantSeeds; c.Seed++ {
				violations, story, err := play(t, b, c)
				require.NoError(t, err, "CASE=%s\n%s", c, story)
				for _, v := range violations {
					found = found || sign.MatchString(v.kind)
				}
			}
			for n := range done {
				require.True(t, done[n].Load(), "no statement has the text %s", mutant.changes[n][0])
			}
			require.True(t, found, "the mutant is not found")
			t.Logf("found with seed %d", c.Seed-1)
			if c.Fault == "none" || c.Verb != "none" || !slices.Contains(striking, c.Fault) {
				return
			}
			for seed := range uint64(blindSeeds) { // it is the fault that finds it
				violations, _, err := play(t, b, Case{c.Life, c.Verb, "none", seed})
				require.NoError(t, err)
				require.Empty(t, violations, "seed %d", seed)
			}
		})
	}
}
