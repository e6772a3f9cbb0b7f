package query_test

import (
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/gate"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/nodeedge"
	"github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/ent/transition"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/store"
)

// These reads stay text: the closest form that ent has costs more than the 1.3 × of BenchmarkReads.
// The figures are in docs/decisions.md (D68).
//
//	bin/withpg go test -run '^$' -bench Typed ./internal/query
func BenchmarkTyped(b *testing.B) {
	pool := pgtest.Pool(b, pgtest.Migrated(b))
	fillRelated(b, pool)
	s := store.New(entpgx.New(pool), "gendurable")
	client := ent.NewClient(ent.Driver(s.Queries(false)), ent.AlternateSchema(query.Tables("gendurable")))
	for _, read := range []struct {
		name        string
		text, typed func(b *testing.B) (found int)
	}{
		{"History", func(b *testing.B) int {
			page, err := s.Timeline(b.Context(), root, store.HistoryPlace{}, 100)
			require.NoError(b, err)
			return len(page)
		}, func(b *testing.B) int {
			page, err := client.Transition.Query().Where(transition.Instance(root)).Order(transition.ByAt()).Limit(100).All(b.Context())
			require.NoError(b, err)
			return len(page)
		}},
		{"Audit", func(b *testing.B) int {
			page, err := s.Verbs(b.Context(), store.AuditFilter{Actor: "ada", Limit: 50})
			require.NoError(b, err)
			return len(page)
		}, func(b *testing.B) int {
			page, err := client.Transition.Query().Where(transition.Actor("ada")).Order(transition.ByAt(sql.OrderDesc())).Limit(50).All(b.Context())
			require.NoError(b, err)
			return len(page)
		}},
		{"Gates", func(b *testing.B) int {
			gates, err := s.Gates(b.Context())
			require.NoError(b, err)
			return len(gates)
		}, func(b *testing.B) int { return typedGates(b, client) }},
		{"Failures", func(b *testing.B) int {
			found, err := s.Failures(b.Context(), &store.FailureFilter{Kinds: 300, Most: 20_000, Each: 10_000, Limit: 50})
			require.NoError(b, err)
			return len(found.Groups)
		}, func(b *testing.B) int { return typedFailures(b, client) }},
		{"Graph", func(b *testing.B) int {
			nodes, edges, err := s.Graph(b.Context(), root)
			require.NoError(b, err)
			return len(nodes) + len(edges)
		}, func(b *testing.B) int {
			nodes, err := client.Instance.Query().Where(instance.ParentID(root), instance.ParentRound(1), instance.NodeNotNil()).Order(instance.ByID()).
				Select(node...).All(b.Context())
			require.NoError(b, err)
			ids := make([]fsm.ID, len(nodes))
			for i := range nodes {
				ids[i] = nodes[i].ID
			}
			edges, err := client.NodeEdge.Query().Where(nodeedge.ToIDIn(ids...)).All(b.Context())
			require.NoError(b, err)
			return len(nodes) + len(edges)
		}},
		{"Relations", func(b *testing.B) int {
			found, err := s.Relations(b.Context(), root, &store.RelationsBounds{Count: 100_000, Rounds: 10, Children: 20, Ancestors: 20, Inbox: 51, Bytes: 1 << 20})
			require.NoError(b, err)
			return len(found.Ancestors) + len(found.Children) + len(found.Inbox)
		}, func(b *testing.B) int { return typedRelations(b, client) }},
		{"Rates", func(b *testing.B) int {
			found, err := s.Rates(b.Context(), &store.RateFilter{Past: time.Hour, Bin: time.Minute, Most: 20_000})
			require.NoError(b, err)
			return len(found.Bins)
		}, func(b *testing.B) int { return typedRates(b, client) }},
		{"doctor", func(b *testing.B) (count int) { // its question for leases
			require.NoError(b, pool.QueryRow(b.Context(), `SELECT count(*) FROM gendurable.gen_durable
				WHERE status = 'executing' AND lease_expires_at < clock_timestamp()`).Scan(&count))
			return count
		}, func(b *testing.B) int {
			count, err := client.Instance.Query().Where(instance.StatusEQ(fsm.StatusExecuting), instance.LeaseExpiresAtLT(time.Now())).Count(b.Context())
			require.NoError(b, err)
			return count
		}},
		{"WaitParked", func(b *testing.B) int {
			ids, past := make([]int64, 100), make([]int64, 100)
			for i := range ids {
				ids[i] = int64(i + 1)
			}
			found, err := s.Resting(b.Context(), ids, past)
			require.NoError(b, err)
			return len(found)
		}, func(b *testing.B) int {
			ids := make([]fsm.ID, 100)
			for i := range ids {
				ids[i] = fsm.ID(i + 1)
			}
			found, err := client.Instance.Query().Where(instance.IDIn(ids...)).Select(instance.FieldID, instance.FieldStatus, instance.FieldVisit).All(b.Context())
			require.NoError(b, err)
			rest := 0
			for _, i := range found {
				if i.Status.Terminal() || i.Visit > 0 && (i.Status == fsm.StatusAwaitingSignal || i.Status == fsm.StatusAwaitingChildren) {
					rest++
				}
			}
			return rest
		}},
	} {
		require.Equal(b, read.text(b), read.typed(b), "%s: both find as much", read.name)
		b.Run(read.name+"/text", func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				read.text(b)
			}
		})
		b.Run(read.name+"/typed", func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				read.typed(b)
			}
		})
	}
}

// These are the columns of what the engine tells of a node, and of a relative.
var (
	node = []string{instance.FieldID, instance.FieldNode, instance.FieldMachine, instance.FieldVersion, instance.FieldStatus, instance.FieldFailure,
		instance.FieldVisit, instance.FieldChildrenPending, instance.FieldWakeDone, instance.FieldJoinDone, instance.FieldRound}
	relative = []string{instance.FieldID, instance.FieldMachine, instance.FieldVersion, instance.FieldStep, instance.FieldStatus, instance.FieldPaused,
		instance.FieldQueue, instance.FieldCorrelationKey, instance.FieldLastError, instance.FieldParentRound, instance.FieldParentID}
)

// root is the instance with a graph, a history and an inbox.
const root = 4

// fillRelated makes 100,000 instances that failed in 50 ways, an instance below three ancestors
// with a graph of 100 nodes, 100 transitions and 50 signals, 20,000 verbs, and 20 gates with 2,000
// instances in line.
func fillRelated(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	for _, text := range []string{
		`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, status, round, visit) OVERRIDING SYSTEM VALUE
			SELECT 'orders', 'pay', nullif(n - 1, 0), 'awaiting_children', 1, 1 FROM generate_series(1, 4) n`,
		`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round, node) SELECT 'orders', 'pay', 4, 1, 'n' || n FROM generate_series(1, 100) n`,
		`INSERT INTO gendurable.edges (from_id, to_id, needs) SELECT 4 + n, 5 + n, 0 FROM generate_series(1, 99) n`,
		`INSERT INTO gendurable.signals (target_id, name, payload) SELECT 4, 'go', jsonb_build_object('n', n) FROM generate_series(1, 50) n`,
		`INSERT INTO gendurable.history (at, instance, visit, took, kind, fsm, step, to_step, diff)
			SELECT now() - n * interval '1 ms', 4, n, 1000, 'next', 'orders', 'pay', 'ship', jsonb_build_object('n', n) FROM generate_series(1, 100) n`,
		`INSERT INTO gendurable.history (at, kind, actor, reason, subject, before, after)
			SELECT now() - n * interval '1 ms', 'admin.pause_queue', CASE n % 100 WHEN 0 THEN 'ada' ELSE 'bob' END, 'why', 'queue ' || n, '{}', '{}' FROM generate_series(1, 20000) n`,
		`INSERT INTO gendurable.gen_durable (fsm, step, status, failure, finished_at, last_error, errors)
			SELECT 'orders', 'pay', 'failed', 'decided', now() - n * interval '20 ms', 'boom', jsonb_build_array(jsonb_build_object('step', 'pay',
				'error', 'boom ' || translate((n % 50)::text, '0123456789', 'ghijklmnop'))) FROM generate_series(1, 100000) n`,
		`INSERT INTO gendurable.gates (name, places) SELECT 'gate' || n, 1 FROM generate_series(10, 29) n`,
		`INSERT INTO gendurable.gen_durable (fsm, step, pick_lane, gate) SELECT 'orders', 'pay', 3, 'gate' || 10 + n % 20 FROM generate_series(1, 2000) n`,
		`VACUUM ANALYZE gendurable.gen_durable`, `ANALYZE gendurable.history`, `ANALYZE gendurable.edges`, `ANALYZE gendurable.signals`,
	} {
		_, err := pool.Exec(b.Context(), text)
		require.NoError(b, err, text)
	}
}

// typedGates counts the rows in line at each gate, with a query for each.
func typedGates(b *testing.B, client *ent.Client) int {
	b.Helper()
	gates, err := client.Gate.Query().Order(gate.ByID()).All(b.Context())
	require.NoError(b, err)
	for _, g := range gates {
		_, err := client.Instance.Query().Where(instance.PlaceNotNil(), instance.Gate(g.ID)).Count(b.Context())
		require.NoError(b, err)
		_, err = client.Instance.Query().Where(instance.Queue("default"), instance.StatusEQ(fsm.StatusRunnable), instance.Paused(false), instance.PickLane(3), instance.Gate(g.ID)).
			Count(b.Context())
		require.NoError(b, err)
	}
	return len(gates)
}

// typedFailures groups all failures, and reads the newest of each group.
func typedFailures(b *testing.B, client *ent.Client) int {
	b.Helper()
	var groups []struct {
		Fingerprint   int64
		Count, Newest int64
		First, Last   time.Time
	}
	require.NoError(b, client.Instance.Query().Where(instance.FingerprintNotNil()).GroupBy(instance.FieldFingerprint).
		Aggregate(ent.Count(), ent.As(ent.Max(instance.FieldID), "newest"), ent.As(ent.Min(instance.FieldFinishedAt), "first"),
			ent.As(ent.Max(instance.FieldFinishedAt), "last")).Scan(b.Context(), &groups))
	ids := make([]fsm.ID, len(groups))
	for i := range groups {
		ids[i] = fsm.ID(groups[i].Newest)
	}
	newest, err := client.Instance.Query().Where(instance.IDIn(ids...)).All(b.Context())
	require.NoError(b, err)
	return len(newest)
}

// typedRelations asks for each ancestor in turn, and then for the children and the inbox.
func typedRelations(b *testing.B, client *ent.Client) (found int) {
	b.Helper()
	i, err := client.Instance.Query().Where(instance.ID(root)).Select(relative...).Only(b.Context())
	require.NoError(b, err)
	for i.ParentID != nil {
		i, err = client.Instance.Query().Where(instance.ID(*i.ParentID)).Select(relative...).Only(b.Context())
		require.NoError(b, err)
		found++
	}
	var counts []struct {
		Round   int64  `json:"parent_round"`
		Machine string `json:"fsm"`
		Status  fsm.Status
		Count   int64
	}
	require.NoError(b, client.Instance.Query().Where(instance.ParentID(root)).
		GroupBy(instance.FieldParentRound, instance.FieldMachine, instance.FieldStatus).Aggregate(ent.Count()).Scan(b.Context(), &counts))
	for _, c := range counts {
		children, err := client.Instance.Query().Where(instance.ParentID(root), instance.ParentRound(c.Round)).Order(instance.ByID()).Limit(20).
			Select(relative...).All(b.Context())
		require.NoError(b, err)
		found += len(children)
	}
	inbox, err := client.Signal.Query().Where(signal.TargetID(root), signal.ConsumedAtIsNil()).Order(signal.ByID()).Limit(51).All(b.Context())
	require.NoError(b, err)
	return found + len(inbox)
}

// typedRates reads the rows, and counts them here.
func typedRates(b *testing.B, client *ent.Client) int {
	b.Helper()
	bins := map[time.Time]int{}
	since := time.Now().Add(-time.Hour)
	inserted, err := client.Instance.Query().Where(instance.InsertedAtGTE(since)).Order(instance.ByID(sql.OrderDesc())).Limit(20_000).
		Select(instance.FieldQueue, instance.FieldInsertedAt).All(b.Context())
	require.NoError(b, err)
	for _, i := range inserted {
		bins[i.InsertedAt.Truncate(time.Minute)]++
	}
	ended, err := client.Instance.Query().Where(instance.FinishedAtGTE(since)).Order(instance.ByFinishedAt(sql.OrderDesc())).Limit(20_000).
		Select(instance.FieldQueue, instance.FieldFinishedAt, instance.FieldStatus).All(b.Context())
	require.NoError(b, err)
	for _, i := range ended {
		bins[i.FinishedAt.Truncate(time.Minute)]++
	}
	return len(bins)
}
