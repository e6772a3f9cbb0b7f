package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// breaches are histories that each check must reject: each is a recorded history, and one
// statement that makes it impossible. A check with several parts has a breach for each.
var breaches = map[string][]string{
	"accepted_ended": {
		`INSERT INTO soak.event (seq, at, process, kind, id, label) VALUES (1000000, now(), 'client', 'accepted', -1, 'lost')`,
		`UPDATE gendurable.gen_durable SET status = 'runnable', failure = NULL, finished_at = NULL
			WHERE id = (SELECT min(id) FROM soak.event WHERE kind = 'accepted')`,
	},
	"stuck": {`UPDATE gendurable.gen_durable SET status = 'runnable', finished_at = NULL
		WHERE id = (SELECT min(id) FROM gendurable.gen_durable WHERE status = 'done')`},
	"fate": {`UPDATE gendurable.gen_durable SET state = state || '{"Fate": "decided"}'
		WHERE id = (SELECT min(id) FROM gendurable.gen_durable WHERE status = 'done')`},
	"result": {`UPDATE soak.event SET outcome = 'failed' WHERE seq = (SELECT min(seq) FROM soak.event WHERE kind = 'result' AND outcome = 'done')`},
	"wrong":  {`UPDATE soak.event SET kind = 'wrong', detail = 'seen' WHERE seq = 1`},

	"one_outcome": {`INSERT INTO soak.change SELECT * FROM soak.change WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'await')`},
	"decided": {
		`DELETE FROM soak.event WHERE seq = (SELECT min(e.seq) FROM soak.event e WHERE e.kind = 'ended' AND e.outcome = 'next')`,
		`UPDATE soak.change SET n = n + 1 WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next')`,
		`UPDATE soak.change SET step = 'elsewhere' WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'await')`,
		`UPDATE soak.change SET status = 'done' WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'retry')`,
	},
	"acknowledged": {`DELETE FROM soak.change WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next')`},
	"recorded": {
		`DELETE FROM gendurable.history WHERE kind = 'next'`,
		`INSERT INTO gendurable.history (instance, visit, kind, step) SELECT instance, visit, 'done', step FROM gendurable.history WHERE kind = 'next' LIMIT 1`,
	},
	"chain": {
		`DELETE FROM soak.change WHERE seq = (SELECT min(seq) FROM soak.change WHERE op = 'I')`,
		`UPDATE soak.change SET old_n = old_n + 1 WHERE seq = (SELECT min(seq) FROM soak.change WHERE op = 'U')`,
		`UPDATE soak.change SET old_visit = visit - 2 WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next')`,
		`UPDATE soak.change SET token = 0 WHERE seq = (SELECT max(seq) FROM soak.change WHERE op = 'U' AND status = 'executing')`,
		`UPDATE soak.change SET token = token + 1 WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'await')`,
		`UPDATE soak.change SET worker = 'another' WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next' AND worker IS NOT NULL)`,
		`UPDATE soak.change SET old_status = 'runnable' WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next')`,
		`UPDATE soak.change SET old_status = 'done' WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'next')`,
		`INSERT INTO soak.change (seq, xid, at, op, id) SELECT max(seq) + 1, 1, now(), 'D', min(id) FROM soak.change`,
	},
	"read_back": {
		`UPDATE soak.event SET n = n + 1 WHERE seq = (SELECT min(seq) FROM soak.event WHERE kind = 'started')`,
		`UPDATE soak.event SET token = token + 1000000 WHERE kind IN ('started', 'ended') AND id = (SELECT min(id) FROM soak.event WHERE kind = 'started')`,
	},
	"idempotency": {
		`UPDATE soak.event SET idempotency = 'another' WHERE seq = (SELECT min(seq) FROM soak.event WHERE kind = 'started' AND attempt > 0)`,
		`UPDATE soak.event SET idempotency = 'the same' WHERE kind = 'started' AND attempt = 0`,
	},

	"reaped_early": {`UPDATE soak.change SET status = 'runnable', crashes = old_crashes + 1, visit = old_visit, at = old_lease - interval '1 ms'
		WHERE seq = (SELECT min(seq) FROM soak.outcome WHERE kind = 'retry')`},
	"instance_overlap": {`UPDATE soak.event SET seq = 1000000 WHERE seq = (SELECT min(a.ended) FROM soak.run a JOIN soak.run b ON b.id = a.id
		AND b.token <> a.token AND b.began > a.began)`},
	"key_overlap": {`UPDATE soak.event SET seq = 1000000 WHERE seq = (SELECT min(a.ended) FROM soak.run a JOIN soak.run b ON b.key = a.key
		AND b.id <> a.id AND b.began > a.began)`},
	"key_noted": {`UPDATE soak.change SET status = 'failed', failure = 'cancelled' WHERE seq = (SELECT min(seq) FROM soak.outcome
		WHERE kind = 'done' AND key IS NOT NULL)`},
	"key_forgotten": {`INSERT INTO soak.lost SELECT 1000000, 1, 'D', 'k', worker, 1, 'another', true FROM soak.identity`},
	"key_executing": {`DELETE FROM soak.change WHERE seq = (SELECT min(a.seq) FROM soak.outcome a JOIN soak.outcome b ON b.key = a.key AND b.id <> a.id
		AND b.seq > a.seq WHERE a.status <> 'executing')`},
	"key_fences": {`UPDATE soak.event SET fence = 0 WHERE kind = 'started' AND seq IN (SELECT b.began FROM soak.run a JOIN soak.run b ON b.key = a.key
		AND b.began > a.began)`},
	"key_order": {
		`UPDATE soak.change SET place = 1000 - place WHERE place > 0`,
		`DELETE FROM soak.change c WHERE c.status = 'executing' AND c.id IN (SELECT a.id FROM soak.change a JOIN soak.change b
			ON b.key = a.key AND b.place > a.place AND b.queue = a.queue WHERE a.place > 0)`,
	},

	"signal_lost": {
		`DELETE FROM soak.signal s USING soak.event e WHERE e.kind = 'acked' AND NOT e.duplicate AND s.tag = e.tag`,
		`UPDATE soak.event SET signals = NULL WHERE kind = 'started' AND step = 'take'`,
	},
	"signal_twice": {
		`UPDATE soak.event SET signals = (SELECT array_agg(signal) FROM soak.consumption) WHERE kind = 'started' AND step = 'take'`,
		`INSERT INTO soak.signal SELECT * FROM soak.signal WHERE op = 'C'`,
	},
	"dedup_twice":     {`INSERT INTO soak.signal SELECT * FROM soak.signal WHERE op = 'I' AND dedup IS NOT NULL LIMIT 1`},
	"consumed_unseen": {`UPDATE soak.signal SET xid = 1 WHERE seq = (SELECT min(seq) FROM soak.signal WHERE op = 'C')`},
	"signal_to_dead": {
		`UPDATE soak.signal SET seq = (SELECT max(seq) + 1 FROM soak.change) WHERE seq = (SELECT min(seq) FROM soak.signal WHERE op = 'I')`,
		`INSERT INTO soak.event (seq, at, process, kind, tag) SELECT 1000000, now(), 'client', 'refused', min(tag) FROM soak.signal WHERE op = 'I'`,
	},
	"inbox_left": {`INSERT INTO gendurable.signals (name, target_id) SELECT 'ping', min(id) FROM gendurable.gen_durable WHERE status = 'done'`},

	"spin": {`UPDATE gendurable.gen_durable SET visit = 1000 WHERE fsm = 'collector'`},
	"timeout_early": {
		`UPDATE soak.change SET at = old_deadline - interval '1 ms' WHERE timed_out AND NOT old_timed_out`,
		`UPDATE soak.change SET old_deadline = NULL WHERE timed_out AND NOT old_timed_out`,
	},

	"deadline": {
		`UPDATE gendurable.gen_durable SET finished_at = deadline - interval '1 ms' WHERE failure = 'deadline'`,
		`UPDATE gendurable.gen_durable SET errors = NULL WHERE failure = 'deadline'`,
		`UPDATE gendurable.gen_durable SET errors = errors - -1 WHERE failure = 'decided'`,
	},

	"parent_wakes": {
		`INSERT INTO soak.change SELECT * FROM soak.change WHERE op = 'U' AND old_status = 'awaiting_children' AND status = 'runnable' LIMIT 1`,
		`UPDATE soak.change SET status = 'awaiting_children' WHERE old_status = 'awaiting_children' AND status = 'runnable' AND round <> 0`,
		`DELETE FROM soak.change WHERE parent IS NOT NULL AND joined IS NOT NULL AND old_joined IS NULL AND id % 2 = 0`,
		`INSERT INTO soak.signal (seq, xid, op, id, target) SELECT began + 1, 1, 'I', 1, id FROM soak.park
			WHERE policy->>'or' = 'true' AND ended > began + 1 LIMIT 1`,
	},
	"stream": {
		`UPDATE soak.event e SET children = (SELECT array_agg(k.id) FROM soak.change k WHERE k.op = 'I' AND k.parent = e.id)
			WHERE kind = 'joined' AND policy->>'stream' IS NOT NULL`,
		`UPDATE soak.event e SET children = (SELECT array_agg(c ORDER BY n DESC) FROM unnest(e.children) WITH ORDINALITY u(c, n))
			WHERE kind = 'joined' AND policy->>'stream' IS NOT NULL AND cardinality(children) > 1`,
		`UPDATE soak.event SET children = children[2:] WHERE kind = 'joined' AND policy->>'stream' IS NOT NULL`,
		`INSERT INTO soak.event (seq, at, process, kind, id, visit, token, children, policy) SELECT 1000000, at, process, kind, id, visit, token, '{-1}', policy
			FROM soak.event WHERE kind = 'joined' AND policy->>'stream' IS NOT NULL AND cardinality(children) > 0 LIMIT 1`,
	},
	"losers": {
		`DELETE FROM soak.change WHERE lost`,
		`UPDATE soak.change SET parent_round = parent_round + 1000 WHERE lost`,
	},
	"restarted": {
		`UPDATE soak.change c SET old_status = 'runnable' FROM soak.rerun r WHERE r.xid = c.xid AND r.id = c.id AND r.runs AND r.whole`,
		`WITH r AS (SELECT r.id, o.id AS origin FROM soak.rerun r JOIN soak.rerun o ON o.xid = r.xid AND o.parent = r.parent AND o.status = 'done'
				WHERE r.runs LIMIT 1),
			e AS (INSERT INTO gendurable.edges (from_id, to_id, needs) SELECT origin, id, 2 FROM r ON CONFLICT (from_id, to_id) DO UPDATE SET needs = 2)
		UPDATE soak.change SET failure = 'skipped' WHERE status = 'failed' AND id IN (SELECT id FROM r)`,
		`WITH r AS (SELECT xid, id FROM soak.rerun r WHERE whole AND runs AND NOT EXISTS (SELECT FROM gendurable.edges e WHERE e.to_id = r.id) LIMIT 1)
		UPDATE soak.change c SET failure = 'skipped', old_status = CASE WHEN c.xid = r.xid THEN 'runnable' ELSE old_status END
			FROM r WHERE c.id = r.id AND (c.status = 'failed' OR c.xid = r.xid)`,
		`DELETE FROM gendurable.history WHERE kind = 'admin.restart'
			AND instance IN (SELECT parent FROM soak.rerun WHERE whole AND runs GROUP BY xid, parent HAVING count(*) > 1)`,
		`UPDATE soak.change c SET visit = visit + 1 FROM soak.restart r WHERE r.xid = c.xid AND c.old_status = 'failed'`,
	},
	"edges": {
		`DELETE FROM soak.change c USING gendurable.edges e WHERE c.id = e.from_id AND c.status IN ('done', 'failed')`,
		`UPDATE gendurable.gen_durable SET status = 'failed', failure = 'skipped'
			WHERE id = (SELECT min(id) FROM gendurable.gen_durable WHERE parent_id IS NULL AND status = 'done' AND correlation_key IS NULL)`,
	},
	"join": {`UPDATE soak.event SET children = children[2:] WHERE seq = (SELECT min(seq) FROM soak.event
		WHERE kind = 'joined' AND policy->>'stream' IS NULL AND cardinality(children) > 0)`},
	"orphan": {
		`UPDATE soak.change SET xid = 1 WHERE seq = (SELECT min(seq) FROM soak.change WHERE op = 'I' AND parent IS NOT NULL)`,
		`UPDATE soak.change SET parent_round = parent_round + 1 WHERE seq = (SELECT min(seq) FROM soak.change WHERE op = 'I' AND parent IS NOT NULL)`,
		`DELETE FROM soak.change WHERE op = 'I' AND node LIKE '%+%'`,
		`UPDATE soak.change r SET status = 'failed' WHERE seq IN (SELECT (SELECT max(x.seq) FROM soak.change x WHERE x.id = o.parent AND x.seq < o.seq)
			FROM soak.outcome o WHERE o.fsm = 'delegate' AND o.kind = 'done')`,
		`WITH late AS (INSERT INTO soak.event (seq, at, process, kind, outcome, id, token, visit)
			SELECT 1000000 + seq, at, 'worker0', 'handled', 'done', id, old_token, old_visit FROM soak.outcome WHERE fsm = 'delegate' AND kind = 'done')
		DELETE FROM soak.change WHERE node LIKE '%+%' OR node = 'last' AND old_status = 'awaiting_children'`,
		`INSERT INTO soak.change SELECT * FROM soak.change WHERE op = 'I' AND node IS NOT NULL LIMIT 1`,
		`UPDATE gendurable.gen_durable SET joined = NULL WHERE parent_id IS NOT NULL`,
		`UPDATE gendurable.gen_durable SET children_pending = 1 WHERE fsm = 'family'`,
	},

	"guard": {
		`INSERT INTO soak.change (seq, xid, at, op, id, guard) SELECT seq, xid, at, op, -1, guard FROM soak.change WHERE op = 'I' AND guard IS NOT NULL LIMIT 1`,
		`INSERT INTO gendurable.gen_durable (fsm, step, correlation_key) VALUES ('job', 'start', 'once:more'), ('job', 'start', 'once:more')`,
		`INSERT INTO soak.event (seq, at, process, kind, key, target) SELECT 1000000, now(), 'client', 'duplicate', 'free', min(id) FROM gendurable.gen_durable`,
	},
	"rolling": {
		`INSERT INTO soak.event (seq, at, process, kind, label, detail) VALUES (1000000, now(), 'soak', 'rolled', 'worker0', 'exit status 1')`,
		`WITH reaped AS (UPDATE soak.change SET crashes = old_crashes + 1
			WHERE seq = (SELECT min(o.seq) FROM soak.outcome o JOIN soak.run r ON r.id = o.id AND r.token = o.old_token WHERE r.process = 'worker0' AND o.kind = 'retry') RETURNING at)
		INSERT INTO soak.event (seq, at, process, kind, label, detail) SELECT e.seq, e.at, 'soak', e.kind, e.label, e.detail FROM reaped CROSS JOIN LATERAL (VALUES
			(0, '-infinity', 'fault', NULL, 'SIGTERM'), (1000000, reaped.at - interval '1 us', 'rolled', 'worker0', NULL),
			(1000001, 'infinity', 'healed', NULL, 'SIGTERM')) e(seq, at, kind, label, detail)`,
	},
	"barrier": {
		`UPDATE soak.change SET old_joined = '00000000-0000-0000-0000-000000000001' WHERE parent IS NOT NULL AND op = 'U'`,
		`UPDATE soak.change SET pending = pending + 1 WHERE seq = (SELECT min(p.ended) FROM soak.park p
			WHERE p.status = 'runnable' AND NOT EXISTS (SELECT FROM soak.operation o WHERE o.id = p.id))`,
	},
	"ordered": {
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'cancel'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'retry'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'restart'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'pause'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'resume'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail IN ('reschedule', 'run_now')`,
		`UPDATE soak.change SET failure = 'decided' WHERE failure = 'cancelled'`,
		`UPDATE soak.event SET children = '{-1}' WHERE seq = (SELECT min(seq) FROM soak.event WHERE kind = 'operated' AND detail = 'cancel')`,
	},
	"after_cancel": {
		`UPDATE soak.event SET at = at + interval '1 h' WHERE kind = 'started' AND id IN (SELECT id FROM soak.operation WHERE verb = 'cancel')`,
		`UPDATE soak.change SET visit = visit - 1, old_visit = old_visit - 1 WHERE failure = 'cancelled' AND old_status NOT IN ('done', 'failed')`,
		`UPDATE soak.change SET seq = 0 WHERE failure = 'cancelled' AND old_status NOT IN ('done', 'failed')`,
	},
	"paused": {`UPDATE soak.change SET old_paused = true WHERE seq = (SELECT min(seq) FROM soak.change WHERE op = 'U' AND status = 'executing')`},
	"paused_queue": {
		`UPDATE soak.event SET detail = 'paused', at = at - interval '1 min' WHERE kind = 'obeyed'`,
		`UPDATE soak.event SET seq = -1, at = at - interval '1 h' WHERE seq = (SELECT min(seq) FROM soak.event WHERE kind = 'paused')`,
	},
	"retried": {
		`UPDATE soak.change SET visit = visit + 1 WHERE op = 'U' AND old_status = 'failed' AND status = 'runnable'`,
		`UPDATE soak.change SET attempt = 1 WHERE op = 'U' AND old_status = 'failed' AND status = 'runnable'`,
		`UPDATE soak.event e SET signals = '{-1}' WHERE kind = 'started' AND attempt = 0
			AND EXISTS (SELECT FROM soak.event b WHERE b.kind = 'started' AND b.id = e.id AND b.visit = e.visit AND b.attempt > 0)`,
	},
	"hosted": {
		`DELETE FROM soak.hosted WHERE name = (SELECT min(label) FROM soak.event WHERE kind = 'hosted' AND outcome = 'committed')`,
		`UPDATE soak.hosted SET xid = 1`,
		`UPDATE soak.event SET outcome = 'rolled back' WHERE kind = 'hosted'`,
		`DELETE FROM soak.change c USING soak.event e WHERE c.op = 'I' AND e.kind = 'hosted' AND c.label = ANY (e.tags)`,
		`WITH undone AS (UPDATE soak.event SET outcome = 'unknown' WHERE kind = 'hosted')
		UPDATE soak.signal s SET xid = 1 FROM soak.event e WHERE s.op = 'I' AND e.kind = 'hosted' AND s.tag = ANY (e.tags)`,
		`INSERT INTO soak.hosted SELECT * FROM soak.hosted LIMIT 1`,
	},
	"booking": {
		`DELETE FROM soak.booking WHERE xid = (SELECT min(xid) FROM soak.booking)`,
		`INSERT INTO soak.booking SELECT id, visit, token, NULL, xid FROM soak.booking LIMIT 1`,
		`INSERT INTO soak.booking (id, visit, token) VALUES (-1, 1, 1)`,
		`UPDATE soak.signal SET xid = 1 WHERE op = 'I' AND tag LIKE '%/box/%#v%'`,
		`UPDATE soak.account SET n = n + 1 WHERE id = 0`,
	},
	"occurrence_once": {
		`INSERT INTO soak.change SELECT * FROM soak.change WHERE seq = (SELECT min(seq) FROM soak.occurrence)`,
		`UPDATE soak.change SET xid = 1 WHERE seq = (SELECT min(seq) FROM soak.occurrence)`,
		`UPDATE soak.change SET at = at - interval '1 h' WHERE seq = (SELECT max(seq) FROM soak.occurrence)`,
	},
	"occurrence_order": {
		`UPDATE soak.change SET seq = 0 WHERE seq = (SELECT max(seq) FROM soak.occurrence WHERE name = 'all')`,
		`UPDATE soak.schedule SET last = old_last WHERE last > old_last`,
	},
	"occurrence_lost": {
		`DELETE FROM soak.schedule WHERE seq = (SELECT min(seq) FROM soak.due WHERE name = 'all')`,
		`DELETE FROM soak.change WHERE seq = (SELECT min(seq) FROM soak.occurrence WHERE name = 'all')`,
		`DELETE FROM soak.change WHERE seq = (SELECT max(seq) FROM soak.occurrence WHERE name = 'latest')`,
		`WITH all_of AS (DELETE FROM soak.change c USING soak.occurrence o WHERE c.seq = o.seq AND o.name = 'latest')
		UPDATE soak.schedule SET at = at + interval '1 h' WHERE name = 'latest'`,
	},
	"occurrence_missed": {
		`UPDATE soak.schedule SET since = since + interval '1 h' WHERE name = 'none'`,
		`UPDATE soak.schedule SET since = since + interval '1 h' WHERE name = 'latest'`,
	},
	"occurrence_overlap": {
		`UPDATE soak.schedule SET overlap = 'skip' WHERE name = 'all'`,
		`DELETE FROM soak.change c USING soak.schedule s WHERE c.id = s.old_instance AND s.name IN ('none', 'alone') AND c.status = 'done'`,
		`UPDATE soak.schedule SET old_instance = NULL WHERE name = 'none'`,
		`UPDATE soak.event e SET at = e.at - interval '1 h' FROM soak.schedule s
			WHERE e.kind = 'committed' AND e.id = s.old_instance AND s.name IN ('none', 'alone')`,
	},
	"schedule_operated": {
		`UPDATE soak.schedule SET old_paused = true WHERE seq = (SELECT max(seq) FROM soak.due)`,
		`UPDATE soak.event SET id = -1 WHERE kind = 'meddled' AND detail = 'run_schedule'`,
		`DELETE FROM soak.event WHERE kind = 'ordered' AND detail = 'run_schedule'`,
	},
	"places": {
		`UPDATE soak.rule SET rule.places = 0`,
		`UPDATE soak.rule SET rule.total = 0`,
		`WITH old AS (DELETE FROM soak.own) INSERT INTO soak.own SELECT DISTINCT 0, '2020-01-01'::timestamptz, key, 0 FROM soak.holding WHERE kind = 'place'`,
	},
	"unplaced": {
		`WITH old AS (UPDATE soak.rule SET at = at - interval '1 h') DELETE FROM soak.holding WHERE kind = 'run'`,
		`WITH old AS (UPDATE soak.rule SET at = at - interval '1 h') DELETE FROM soak.holding WHERE kind = 'seat'`,
		`WITH old AS (UPDATE soak.rule SET at = at - interval '1 h') DELETE FROM soak.holding WHERE kind = 'place'`,
	},
	"rates": {
		`UPDATE soak.payment SET at = '2026-01-01'`,
		`UPDATE soak.rule SET rule.total_rate_per = 3600000000`,
		`DELETE FROM soak.payment WHERE key LIKE 'callers/%'`,
	},
	"places_left": {
		`DELETE FROM soak.holding WHERE seq = (SELECT max(seq) FROM soak.holding WHERE delta = -1)`,
		`UPDATE gendurable.gen_durable SET seat = 1 WHERE id = (SELECT min(id) FROM gendurable.gen_durable)`,
	},
	"cancelled": {`INSERT INTO soak.event (seq, at, process, kind, id, detail) VALUES (1000000, now(), 'worker0', 'handled', 1, 'gendurable: lease lost')`},
}

// innocent are histories that a check once rejected, though the engine had done nothing wrong.
// Each rewrites a recorded one.
var innocent = map[string][]string{
	// The root of a graph had failed before, and an operator's retry let it go on.
	"orphan": {`INSERT INTO soak.change (seq, xid, at, op, id, status) SELECT 0, 1, at, 'U', parent, 'failed' FROM soak.outcome
		WHERE fsm = 'delegate' AND kind = 'done' AND EXISTS (SELECT FROM soak.change k WHERE k.op = 'I' AND k.xid = outcome.xid AND k.node LIKE '%+%')`},
	// A process is stopped after it has begun a step and before it has logged that. The lease runs
	// out, the step runs elsewhere, and meanwhile the process goes on, and logs.
	"instance_overlap": {
		`CREATE TEMP TABLE late ON COMMIT DROP AS SELECT a.id, a.token, a.began, a.ended, b.began AS other FROM soak.run a JOIN soak.run b ON b.id = a.id
			AND b.visit = a.visit AND b.token > a.token JOIN soak.outcome o ON o.id = a.id AND o.old_token = a.token AND o.kind = 'retry'
			ORDER BY a.began LIMIT 1`,
		`UPDATE soak.change c SET crashes = old_crashes + 1 FROM late l WHERE c.id = l.id AND c.old_token = l.token AND c.old_status = 'executing'`,
		`UPDATE soak.event SET seq = 10 * seq`,
		`UPDATE soak.event e SET seq = 10 * l.other + CASE e.kind WHEN 'started' THEN 1 ELSE 2 END FROM late l WHERE e.seq IN (10 * l.began, 10 * l.ended)`,
	},
	// A process is stopped in a step under a key and loses its sessions. Another takes it for gone,
	// and deletes the note of its lost claim.
	"key_overlap": {
		`CREATE TEMP TABLE late ON COMMIT DROP AS SELECT a.key, a.id, a.token, a.began, a.ended, b.began AS other FROM soak.run a JOIN soak.run b ON b.key = a.key
			AND b.id <> a.id AND b.token > a.token AND b.began > a.began JOIN soak.outcome o ON o.id = a.id AND o.old_token = a.token AND o.kind = 'done'
			ORDER BY a.began LIMIT 1`,
		`UPDATE soak.change c SET status = 'runnable', crashes = old_crashes + 1 FROM late l
			WHERE c.id = l.id AND c.old_token = l.token AND c.old_status = 'executing'`,
		`UPDATE soak.event SET seq = 10 * seq`,
		`UPDATE soak.event e SET seq = 10 * l.other + CASE e.kind WHEN 'started' THEN 1 ELSE 2 END FROM late l WHERE e.seq IN (10 * l.began, 10 * l.ended)`,
		`INSERT INTO soak.lost SELECT 1000000, 1, 'D', key, 'a worker', token, 'another', false FROM late`,
	},
}

// TestEveryCheckFires records a short history without faults, which every check accepts, and breaks
// it in every way that a check is for. Rare events may not happen in it: then the ways that are
// left break another one.
func TestEveryCheckFires(t *testing.T) {
	tier.Needs(t, tier.Proof)
	var toFind, toAccept []tamper
	for check, each := range breaches {
		for _, statement := range each {
			toFind = append(toFind, tamper{check, []string{statement}})
		}
	}
	for check, statements := range innocent {
		toAccept = append(toAccept, tamper{check, statements})
	}
	for seed := range uint64(3) {
		db := recorded(t, 7+seed)
		names, err := checks(t.Context(), db)
		require.NoError(t, err)
		for _, name := range names {
			found, err := violations(t.Context(), db, name, shown)
			require.NoError(t, err)
			require.Empty(t, found, "%s complains of a history without faults", name)
			require.NotEmpty(t, breaches[name], "nothing proves that %s finds anything", name)
		}
		require.Len(t, breaches, len(names), "breaches of checks that do not exist")
		toFind = slices.DeleteFunc(toFind, func(w tamper) bool {
			found, _ := w.try(t, db)
			return len(found) > 0
		})
		toAccept = slices.DeleteFunc(toAccept, func(w tamper) bool {
			found, whole := w.try(t, db)
			require.Empty(t, found, "%s complains of the engine, which did nothing wrong", w.check)
			return whole
		})
		if len(toFind)+len(toAccept) == 0 {
			return
		}
		t.Logf("the history of seed %d leaves open: %v, %v", 7+seed, toFind, toAccept)
	}
	require.Empty(t, toFind, "no check finds these in any history")
	require.Empty(t, toAccept, "no history has what these change")
}

// tamper is a change of a recorded history that is for one check.
type tamper struct {
	check      string
	statements []string
}

// try makes the change, and takes it back. It returns what the check finds then, and whether the
// history had something to change for each statement.
func (w tamper) try(t *testing.T, db *pgxpool.Pool) (found []string, whole bool) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	for _, sql := range w.statements {
		done, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
		if done.RowsAffected() == 0 {
			return nil, false
		}
	}
	_, err = tx.Exec(t.Context(), "SET LOCAL jit = off") // see setUp
	require.NoError(t, err)
	for _, view := range []string{"run", "restart", "outcome", "claim", "operation", "consumption", "identity", "census", "park", "waiting", "rerun", "occurrence", "due", "ruled", "beginning"} {
		_, err := tx.Exec(t.Context(), "REFRESH MATERIALIZED VIEW soak."+view)
		require.NoError(t, err)
	}
	found, err = violations(t.Context(), tx, w.check, shown)
	require.NoError(t, err)
	return found, true
}

// recorded returns a database with the history of two workers, a client and an operator without
// faults, in this process.
func recorded(t *testing.T, seed uint64) *pgxpool.Pool {
	t.Helper()
	address := pgtest.Migrated(t)
	db := pgtest.Pool(t, address)
	_, err := db.Exec(t.Context(), recordSQL)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "log.jsonl")
	slog.SetDefault(slog.New(slog.DiscardHandler))
	require.NoError(t, neglect(t.Context(), db))
	require.NoError(t, bound(t.Context(), db))

	play := func(ctx context.Context, r role) error {
		log, err := openJournal(path, r.Name)
		if err != nil {
			return err
		}
		defer log.close()
		r.URL = address
		pool, err := r.pool()
		if err != nil {
			return err
		}
		defer pool.Close()
		return r.work(ctx, pool, log, func() {})
	}
	working, home := context.WithCancel(t.Context())
	defer home()
	errs := make(chan error, workers)
	var running sync.WaitGroup
	for i := range 2 {
		running.Go(func() { errs <- play(working, role{Name: fmt.Sprintf("worker%d", i), Old: i == 0}) })
	}
	begun, enough := context.WithTimeout(t.Context(), 3*time.Minute)
	defer enough()
	running.Go(func() { untilRich(begun, t, path, enough) })
	running.Go(func() { errs <- play(begun, role{Name: "operator", Admin: true, Seed: seed, Pace: 20}) })
	require.NoError(t, play(begun, role{Name: "client0", Client: true, Seed: seed, Pace: 40,
		Calls: filepath.Join(t.TempDir(), "calls.jsonl"), Began: time.Now().UnixNano()}))
	require.NoError(t, hush(t.Context(), db))
	require.Eventually(t, func() bool {
		var left int
		err := db.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed')`).Scan(&left)
		return err == nil && left == 0
	}, 5*time.Minute, 50*time.Millisecond)
	home()
	running.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, load(t.Context(), db, path))
	return db
}

// untilRich calls enough after eight seconds, or later where the machine is busy: once the log has
// as many insertions as that should bring, and the rarest events, portions of a stream with several
// children.
func untilRich(ctx context.Context, t *testing.T, path string, enough func()) {
	began, tick := time.Now(), time.NewTicker(250*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if accepted, portions := wealth(path); time.Since(began) > 8*time.Second && accepted > 200 && portions > 2 {
			t.Logf("%d insertions, %d portions after %s", accepted, portions, time.Since(began))
			enough()
			return
		}
	}
}

// wealth counts, in a log, the insertions, and the portions of streams that have several children.
func wealth(path string) (accepted, portions int) {
	log, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(log) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // being written
		}
		switch {
		case e.Kind == evAccepted:
			accepted++
		case e.Kind == evJoined && e.Policy != nil && e.Policy.Stream > 0 && len(e.Children) > 1:
			portions++
		}
	}
	return accepted, portions
}
