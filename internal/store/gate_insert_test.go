package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A process that has polled inserts in line what is due and behind a gate, and a claim takes it
// from there in one update. Everything else goes in front, and so does everything where the gates
// are not known.
func TestInsertStraightIntoLine(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	insert := func(change func(*step.Spec)) int64 {
		x := ofAcme()
		change(x)
		out, err := b.Insert(t.Context(), []*step.Spec{x})
		require.NoError(t, err)
		return out[0].ID
	}
	plain := func(*step.Spec) {}
	unknown := insert(plain)
	require.Equal(t, "- - 0", b.placed(unknown), "nobody has polled")
	_, err := b.Poll(t.Context(), nil, nil, nil)
	require.NoError(t, err)
	lined := insert(plain)
	require.Equal(t, "per-customer/acme - 3", b.placed(lined))
	require.Equal(t, "per-customer/acme - 3", b.placed(insert(func(x *step.Spec) { x.Key = "k" })))
	for name, change := range map[string]func(*step.Spec){
		"later": func(x *step.Spec) { x.Delay = time.Hour }, "at a time": func(x *step.Spec) { x.At = time.Now().Add(time.Hour) },
		"with a partition key": func(x *step.Spec) { x.PartitionKey = "p" }, "without the label": func(x *step.Spec) { x.Labels = nil },
	} {
		require.Equal(t, "- - 0", b.placed(insert(change)), name)
	}
	require.Contains(t, ids(b.claim(gated).Claims), lined)

	_, err = b.DropGate(t.Context(), perCustomer.Name, store.By{Actor: "test"})
	require.NoError(t, err)
	late := insert(plain)
	require.Equal(t, "per-customer/acme - 3", b.placed(late), "what it knows is out of date")
	require.Contains(t, ids(b.claim(gated).Claims), late, "a claim mends it, and takes it from the front")
}

func ofAcme() *step.Spec {
	return &step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "default", State: []byte("{}"),
		Labels: []byte(`{"customer": "acme"}`)}
}

// inserts are the ways in which an instance of ofAcme is inserted.
var inserts = []struct {
	name string
	do   func(b bench, x *step.Spec) int64
}{
	{"alone", func(b bench, x *step.Spec) int64 { return b.insertOne(x).ID }},
	{"with a key", func(b bench, x *step.Spec) int64 { x.Key = "k"; return b.insertOne(x).ID }},
	{"in a host's transaction", func(b bench, x *step.Spec) (id int64) {
		tx, err := b.pool.Begin(b.t.Context())
		require.NoError(b.t, err)
		out, _, err := b.Within(store.Pgx(tx)).Insert(b.t.Context(), []*step.Spec{x}, store.By{})
		require.NoError(b.t, err)
		require.NoError(b.t, tx.Commit(b.t.Context()))
		return out[0].ID
	}},
	{"with a signal", func(b bench, x *step.Spec) int64 {
		x.Key = "of a signal"
		got, err := b.DeliverOrInsert(b.t.Context(), x, named("go"), cap10)
		require.NoError(b.t, err)
		require.True(b.t, got.Inserted)
		return got.Target
	}},
	{"throttled", func(b bench, x *step.Spec) int64 {
		x.Window = step.Window{Kind: "throttle", Key: "w", For: time.Hour}
		return b.insertOne(x).ID
	}},
	{"in place of another", func(b bench, x *step.Spec) int64 {
		first := ofAcme()
		x.Key, first.Key, x.Conflict = "c", "c", step.ConflictReplace
		id := b.insertOne(first).ID
		require.True(b.t, b.insertOne(x).Replaced)
		return id
	}},
	{"by a schedule", func(b bench, x *step.Spec) int64 {
		b.exec(`INSERT INTO gendurable.schedules (name, spec, expression, next_at)
			VALUES ('s', '{"machine": "m", "version": 1, "step": "s", "queue": "q", "state": {}}', '@hourly', now() - interval '1 minute')`)
		fired, err := b.Fire(b.t.Context(), "s", time.Time{}, func(due store.Due) (store.Firing, error) {
			x.Key, x.Scope = "fired", step.ScopeAll
			return store.Firing{Specs: []*step.Spec{x}, Next: due.Now.Add(time.Hour), Last: due.Next}, nil
		})
		require.NoError(b.t, err)
		return fired[0].ID
	}},
	{"as a child", func(b bench, x *step.Spec) int64 { return b.spawnOne(x) }},
	{"as a child with a key", func(b bench, x *step.Spec) int64 { x.Key = "child"; return b.spawnOne(x) }},
}

func (b bench) spawnOne(x *step.Spec) (id int64) {
	b.t.Helper()
	b.insert(columns{"fsm": `'m'`, "step": `'s'`, "queue": `'parents'`})
	b.commit(newMark(), x.Key != "", spawnOf(b.claim(queue("parents")).Claims[0], []step.Spec{*x}))
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), byHand(`SELECT id FROM gendurable.gen_durable WHERE uid = $1`), x.UID).Scan(&id))
	return id
}

// A process that does not poll learns of the gates by its inserts. Whether it knows a gate, or does
// not know it yet, or knows one that is gone: claims give no more places than there are, and all
// that was inserted runs.
func TestInsertsLearnOfGates(t *testing.T) {
	b := newBench(t)
	for _, c := range inserts {
		t.Run(c.name, func(t *testing.T) {
			for _, table := range []string{"gen_durable", "gates", "schedules", "windows"} {
				b.exec(`DELETE FROM gendurable.` + table)
			}
			b.gate(perCustomer)
			x := b.beside(func(*pgxpool.Config) {})
			x.t = t
			for _, why := range []string{"it asks whether it may read gates", "it reads them"} {
				require.Equal(t, "- - 0", x.placed(x.insertOne(ofAcme()).ID), why)
			}
			require.Equal(t, "per-customer/acme - 3", x.placed(c.do(x, ofAcme())))

			_, err := b.DropGate(t.Context(), perCustomer.Name, store.By{Actor: "test"})
			require.NoError(t, err)
			gone := x.insertOne(ofAcme()).ID
			require.Equal(t, "per-customer/acme - 3", x.placed(gone), "it does not know that the gate is gone")
			b.gate(store.Gate{Name: "later", Machine: "m", Label: "customer", Places: 1, Total: store.NoBound})
			early := b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND queue = 'default'`)
			for left := early; left > 0; left-- {
				var got []*step.Claim
				for range 4 { // into the right line, from the front and from the wrong one, and out of it
					got = append(got, b.claim(gated).Claims...)
				}
				require.Len(t, got, 1, "as many as there are places")
				require.Equal(t, "later/acme", got[0].Gate)
				b.commit(newMark(), false, store.Entry{Claim: got[0], Commit: ending(step.Done)})
			}
			require.Zero(t, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND queue = 'default'`))
		})
	}
}

// A large insert of a process that knows no gates yet reads them before, so that its rows are in
// line: in front, a claim would have to put each of them in line.
func TestALargeInsertLearnsOfGatesBefore(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	many := make([]*step.Spec, 1000)
	for i := range many {
		many[i] = ofAcme()
	}
	_, err := b.beside(func(*pgxpool.Config) {}).Insert(t.Context(), many)
	require.NoError(t, err)
	require.Equal(t, len(many), b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 3 AND gate = 'per-customer/acme'`))
}

// A role that may only insert does so without the right to read gates, also in a transaction of a
// host, which an error would end.
func TestInsertsWithoutTheRightToReadGates(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	role := pgx.Identifier{"inserter_" + uuid.NewString()[:8]}.Sanitize()
	b.exec(`CREATE ROLE ` + role)
	t.Cleanup(func() {
		_, err := b.pool.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+`; DROP ROLE `+role, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	})
	b.exec(`GRANT USAGE ON SCHEMA gendurable TO ` + role)
	b.exec(`GRANT SELECT, INSERT, UPDATE ON gendurable.gen_durable, gendurable.signals TO ` + role)
	b.exec(`GRANT USAGE ON gendurable.gen_durable_id_seq TO ` + role)
	x := b.beside(func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+role)
			return err
		}
	})
	for _, c := range inserts[:4] {
		for range 3 {
			spec := ofAcme()
			require.Equal(t, "- - 0", b.placed(c.do(x, spec)), c.name)
			b.exec(`DELETE FROM gendurable.gen_durable`)
		}
	}
}
