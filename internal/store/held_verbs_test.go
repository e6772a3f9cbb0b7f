package store_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// meetings has the texts of all statements that were sent beside held rows.
type meetings struct {
	m     sync.Mutex
	texts map[string]bool
}

func (m *meetings) around(ctx context.Context, stmts []entpgx.Stmt, send func(context.Context) error) error {
	m.m.Lock()
	if m.texts == nil {
		m.texts = map[string]bool{}
	}
	for _, s := range stmts {
		m.texts[s.SQL] = true
	}
	m.m.Unlock()
	return send(ctx)
}

// meeting returns the bench beside another session that holds rows, and notes what it sends.
func (b bench) meeting(m *meetings) bench {
	on := store.New(entpgx.New(b.pool).Around(m.around), schema)
	b.Store, b.Reader = on, query.New(on)
	b.holdRows()
	return b
}

// heldAgain has the meetings of tests that run once more beside held rows, by the name of the test
// that runs them.
var heldAgain sync.Map

// besideHeld is meeting for a test that runs once more beside held rows.
func (b bench) besideHeld(name string) bench {
	above, _, below := strings.Cut(name, "/")
	if m, ok := heldAgain.Load(above); ok && below {
		return b.meeting(m.(*meetings)) //nolint:forcetypeassert // it has nothing else
	}
	return b
}

// others lets what no transition of the matrix is happen beside held rows, and requires that each
// statement that locks or writes has met them by now.
func (m *meetings) others(t *testing.T, beside func(t *testing.T) bench) {
	t.Helper()
	t.Run("verbs", func(t *testing.T) {
		b := beside(t)
		for name, does := range verbsBeside {
			t.Run(name, func(t *testing.T) {
				b.t = t
				does(b)
			})
		}
	})
	heldAgain.Store(t.Name(), m)
	defer heldAgain.Delete(t.Name())
	t.Run("again", func(t *testing.T) {
		for name, test := range testsBeside {
			t.Run(name, test)
		}
	})
	if t.Failed() {
		return
	}
	met := map[string]bool{} // by name: forms of one statement lock the same rows
	for _, s := range store.Statements() {
		met[s.Name] = met[s.Name] || m.texts[s.Text]
	}
	for _, s := range store.Statements() {
		why, excused := unmet[s.Name]
		switch {
		case !locking.MatchString(s.Text):
		case !met[s.Name] && !excused:
			t.Errorf("%s meets no held row: it needs a transition in the matrix, an entry of verbsBeside, or its reason in unmet", s.File)
		case met[s.Name] && excused:
			t.Errorf("%s meets held rows, though it is in unmet: %s", s.File, why)
		}
	}
}

// locking finds statements that lock or write.
var locking = regexp.MustCompile(`\bFOR (NO KEY )?UPDATE\b|\bFOR (KEY )?SHARE\b|\bINSERT INTO\b|\bUPDATE \S+( \w+)? SET\b|\bDELETE FROM\b|\bLOCK TABLE\b`)

// unmet has statements that lock or write and meet no held rows here, by name, each with why not.
var unmet = map[string]string{
	"claim others":       refusedBeside,
	"claim others gated": refusedBeside,
	"claim some gated":   refusedBeside,
	"claim some lined":   refusedBeside,
}

// refusedBeside is why claims that pass over rows are not here.
const refusedBeside = "claims once a trigger of the host has refused a row, which nobody can make while a stranger has rows of the table; " +
	"it is the claim that meets them, with ids to pass over or to take"

// testsBeside are tests that run once more beside held rows.
var testsBeside = map[string]func(*testing.T){
	"a plain claim":           TestAPlainClaimLeavesAQueueWithKeysAsItIs,
	"a portion":               TestAPortionIsShortened,
	"additions":               TestAdditionsAreAllOrNothing,
	"an end that is free":     TestEndIsFree,
	"claimed by a signal":     TestASignalThatClaimsWaitsBriefly,
	"concurrent additions":    TestConcurrentAdditions,
	"history":                 TestHistoryIsTheOutcomes,
	"inserted as claimed":     TestInsertAsClaimedTakesKeptSignals,
	"inserts in line":         TestInsertStraightIntoLine,
	"keys of another insert":  TestAStrangerInsertsRowsOfKeys,
	"nodes and retry":         TestANodeIsNotRunByItself,
	"one heartbeat":           TestHeartbeatOfABusyRow,
	"progress":                TestPublish,
	"refile":                  TestRefile,
	"resolve":                 TestResolveDecidesRowByRow,
	"signal with start":       TestSignalWithStartBehindItsKeptTwin,
	"tombstones and the rest": TestPruneTombstonesOldestFirst,
}

// verbsBeside are verbs that no transition of the matrix is, on separate rows.
var verbsBeside = map[string]func(b bench){
	"schedules": func(b bench) {
		ctx := b.t.Context()
		spec := newSpecs(1, false)[0]
		_, err := b.StoreSchedules(ctx, []store.Schedule{{Name: "own", Spec: spec, Expression: "@hourly", TimeZone: "UTC", CatchUp: "latest", Overlap: "allow"}},
			func(_ int, now time.Time) time.Time { return now.Add(-time.Minute) })
		require.NoError(b.t, err)
		firing := func(mark string) func(store.Due) (store.Firing, error) {
			return func(due store.Due) (store.Firing, error) {
				x := newSpecs(1, false)[0]
				x.Key, x.Scope = "own "+mark, step.ScopeAll
				return store.Firing{Specs: []*step.Spec{x}, Next: due.Now.Add(time.Hour), Last: due.Next}, nil
			}
		}
		fired, err := b.Fire(ctx, "own", time.Time{}, firing("due"))
		require.NoError(b.t, err)
		require.Len(b.t, fired, 1)
		fired, err = b.RunSchedule(ctx, "own", store.By{Actor: "ada"}, firing("by hand"))
		require.NoError(b.t, err)
		require.Len(b.t, fired, 1)
		for _, on := range []bool{true, false} {
			changed, err := b.PauseSchedule(ctx, "own", on, store.By{Actor: "ada"})
			require.NoError(b.t, err)
			require.True(b.t, changed)
		}
		require.NoError(b.t, b.DeleteSchedule(ctx, "own", store.By{Actor: "ada"}))
		require.Equal(b.t, 0, b.number(`SELECT count(*) FROM gendurable.schedules WHERE name = 'own'`))
	},
	"definitions": func(b bench) {
		for _, graph := range []string{`{"a": 1}`, `{"a": 2}`} {
			_, err := b.StoreDefinitions(b.t.Context(), []store.Definition{{Machine: "own", Version: 1, Graph: graph}})
			require.NoError(b.t, err)
		}
		require.Equal(b.t, 2, b.number(`SELECT (graph ->> 'a')::int FROM gendurable.definitions WHERE machine = 'own'`))
	},
	"recorded machines": func(b bench) {
		require.NoError(b.t, b.SetRecorded(b.t.Context(), []string{"own"}, nil))
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.recorded_machines WHERE machine = 'own'`))
		require.NoError(b.t, b.SetRecorded(b.t.Context(), nil, []string{"own"}))
		require.Equal(b.t, 0, b.number(`SELECT count(*) FROM gendurable.recorded_machines WHERE machine = 'own'`))
	},
	"presence": func(b bench) {
		line := b.Line()
		defer func() { require.NoError(b.t, line.Close(context.Background())) }()
		require.NoError(b.t, line.Present(b.t.Context(), &store.Presence{Worker: me, Host: "here", PID: 1, Machines: []string{}}))
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.workers WHERE id = $1::uuid`, me))
		require.NoError(b.t, line.Absent(b.t.Context(), me))
		require.Equal(b.t, 0, b.number(`SELECT count(*) FROM gendurable.workers WHERE id = $1::uuid`, me))
	},
	"paused queues": func(b bench) {
		for _, on := range []bool{true, false} {
			changed, err := b.PauseQueue(b.t.Context(), "own", on, store.By{Actor: "ada"})
			require.NoError(b.t, err)
			require.True(b.t, changed)
		}
	},
	"gates": func(b bench) {
		ctx, by := b.t.Context(), store.By{Actor: "ada"}
		_, err := b.SetGate(ctx, store.Gate{Name: "own", Label: "customer", Places: 1, Rate: store.Rate{N: 1, Per: time.Second, Burst: 1}}, by)
		require.NoError(b.t, err)
		for _, until := range []time.Time{time.Now().Add(time.Hour), {}} {
			changed, err := b.CloseGateKey(ctx, "own/acme", until, by)
			require.NoError(b.t, err)
			require.True(b.t, changed)
		}
		changed, err := b.WeighGateKey(ctx, "own/acme", 3, by)
		require.NoError(b.t, err)
		require.True(b.t, changed)
		changed, err = b.PlaceGateKey(ctx, "own/acme", 3, by)
		require.NoError(b.t, err)
		require.True(b.t, changed)
		require.NoError(b.t, b.Throttle(ctx, "own/acme", time.Hour))
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.gate_keys WHERE key = 'own/acme' AND closed_until > now() + interval '50 minutes'`))
		b.exec(`INSERT INTO gendurable.gate_keys (key, debt, at) VALUES ('own/past', 0, now() - interval '1 day')`)
		require.NotZero(b.t, b.prune(store.PruneParams{Done: time.Hour, Failed: time.Hour, Tombstones: 10, Limit: 10, Gates: true}).GateKeys)
		_, err = b.DropGate(ctx, "own", by)
		require.NoError(b.t, err)
	},
	"windows": func(b bench) {
		throttled := func(n int, key string) *step.Spec {
			return specWith(n, func(x *step.Spec) {
				windowed(step.WindowThrottle, "own", time.Hour, 0)(x)
				x.Key = key
			})
		}
		b.insertOne(specWith(1, func(x *step.Spec) { x.Key = "own taken" }))
		require.True(b.t, b.insertOne(throttled(1, "own taken")).Duplicate)
		require.Equal(b.t, 0, b.number(`SELECT count(*) FROM gendurable.windows WHERE name LIKE '%own'`), "it was opened in vain")
		id := b.insertOne(throttled(2, "own free")).ID
		require.Equal(b.t, int(id), b.number(`SELECT instance FROM gendurable.windows WHERE name LIKE '%own'`))
	},
	"lost claims": func(b bench) {
		b.lose("own", "gone", 1, "1 h")
		b.lose("own", me, 2, "0")
		_, err := b.Lingering(b.t.Context(), other, []string{"own"})
		require.NoError(b.t, err)
		require.NoError(b.t, b.Landed(b.t.Context(), me, []int64{2}))
		_, _, err = b.Sweep(b.t.Context(), "", 100, &store.InFlight{Worker: me, Lease: time.Minute})
		require.NoError(b.t, err)
		require.Equal(b.t, 0, b.number(`SELECT count(*) FROM gendurable.lost_claims WHERE partition_key = 'own'`))
	},
	"a host's look for what lives": func(b bench) {
		id := b.row("", "")
		tx := b.begin()
		defer func() { require.NoError(b.t, tx.Rollback(context.Background())) }()
		live, err := b.Within(store.Pgx(tx)).Live(b.t.Context(), []int64{id})
		require.NoError(b.t, err)
		require.Len(b.t, live, 1)
	},
	"letters": func(b bench) {
		id, keyed := b.parked("go"), b.keyed("own letters")
		for _, a := range b.deliverMany(letter(byKey("own letters"), named("go")), letter(byID(id), named("go"))) {
			require.NoError(b.t, a.Err)
			require.True(b.t, a.Woken)
		}
		require.Equal(b.t, []int{1, 1}, []int{b.signals(id), b.signals(keyed)})
	},
	"a migration": func(b bench) {
		id := b.row("queue, state", `'own', '{"old": 1}'`)
		found, err := b.Unmoved(b.t.Context(), []int64{id}, "m", 1)
		require.NoError(b.t, err)
		n, refused, err := b.Move(b.t.Context(), "m", 1, 2, []store.Moved{{Unmoved: found[0], Step: "s2", State: json.RawMessage(`{}`)}}, store.By{Actor: "ada"})
		require.NoError(b.t, err)
		require.Empty(b.t, refused)
		require.Equal(b.t, 1, n)
	},
	"a graph": func(b bench) {
		b.commit(newMark(), false, graphOf(b.executing(columns{"queue": `'own'`}), "a b<a"))
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable g ON g.id = e.to_id WHERE g.node = 'b'`))
	},
	"inserts at a gate": func(b bench) {
		b.gate(perCustomer)
		_, err := b.Poll(b.t.Context(), nil, nil, nil)
		require.NoError(b.t, err)
		for _, one := range inserts {
			require.Equal(b.t, "per-customer/acme - 3", b.placed(one.do(b, ofAcme())), one.name)
		}
		_, err = b.DropGate(b.t.Context(), perCustomer.Name, store.By{Actor: "ada"})
		require.NoError(b.t, err)
		b.exec(`DELETE FROM gendurable.schedules WHERE name = 's'`)
		b.exec(`DELETE FROM gendurable.gen_durable WHERE labels ->> 'customer' = 'acme'`)
	},
	"a clock that was set back": func(b bench) {
		b.gate(store.Gate{Name: "paced", Label: "paced", Rate: store.Rate{N: 1, Per: time.Second, Burst: 1}, Total: store.NoBound})
		b.exec(`INSERT INTO gendurable.gate_keys (key, debt, at) VALUES ('paced/a', 5000000, now() + interval '1 hour')`)
		for range 2 { // into line, and from there
			b.row("queue, labels", `'paced', '{"paced": "a"}'`)
			b.claim(queue("paced"), gated)
		}
		_, err := b.Poll(b.t.Context(), nil, nil, nil)
		require.NoError(b.t, err)
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.gate_keys WHERE key = 'paced/a' AND at <= clock_timestamp()`))
		_, err = b.DropGate(b.t.Context(), "paced", store.By{Actor: "ada"})
		require.NoError(b.t, err)
	},
	"a recorded end that a signal takes back": func(b bench) {
		id := b.row("queue", `'taken back'`)
		c := b.claim(queue("taken back")).Claims[0]
		b.deliver(id, named("go"))
		got := b.commit(newMark(), false, store.Entry{Claim: c, Commit: &endings()[0], Record: &store.Record{}})
		require.True(b.t, got.Turned[id])
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.history WHERE instance = $1 AND kind = 'next'`, id))
	},
	"recorded losers": func(b bench) {
		require.NoError(b.t, b.SetRecorded(b.t.Context(), []string{"kid"}, nil))
		_, children := b.policedParent(2, &step.Join{Ended: 1, Cancel: true})
		b.commit(newMark(), false, endOf(children[0], true))
		var cancelled []int64 // of transitions as well
		for full, after := true, int64(0); full || after > 0; {
			got, err := b.CancelRest(b.t.Context(), newMark(), after, 200)
			require.NoError(b.t, err)
			cancelled = append(cancelled, got.Cancelled...)
			full, after = got.Full, got.Last
		}
		require.Contains(b.t, cancelled, children[1].ID)
		require.Equal(b.t, 1, b.number(`SELECT count(*) FROM gendurable.history WHERE instance = $1 AND kind = 'join.cancel'`, children[1].ID))
		require.NoError(b.t, b.SetRecorded(b.t.Context(), nil, []string{"kid"}))
	},
}
