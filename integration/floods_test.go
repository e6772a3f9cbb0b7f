package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// floods are sweeps that find many rows at once. A row takes a while, so that a slice takes about a
// second, as on a server that is slow. Package work floods all sweeps, without a database.
var floods = []struct {
	name  string
	shape string // of the rows
	left  string // the condition that a row is still to be swept
	slice int    // rows of a slice
	event string // what a sweep does to a row
	least tier.Tier
}{
	{"awaits", `status = 'awaiting_signal', awaits = '{word}', await_deadline = now()`, `status = 'awaiting_signal'`, 1000, "UPDATE", tier.Short},
	{"deadlines", `status = 'awaiting_signal', awaits = '{word}', deadline = now()`, `status = 'awaiting_signal'`, 200, "UPDATE", tier.Proof},
	{"leases", `status = 'executing', locked_by = 'gone', lease_expires_at = now()`, `status = 'executing'`, 200, "UPDATE", tier.Proof},
	{"skips", `pick_lane = 5, depth = 1, node = 'n' || id, join_failed = 1, parent_round = 1, parent_id = (SELECT min(id) FROM gendurable.gen_durable)`,
		`pick_lane = 5 AND status = 'runnable'`, 200, "UPDATE", tier.Proof},
	{"gc", `status = 'done', finished_at = now() - interval '1 year'`, `status = 'done' AND queue = 'flooded'`, 1000, "DELETE", tier.Proof},
}

// TestAFloodHoldsUpNobody has a sweep find many rows, in a process whose pool has four connections.
// While it is at work, an instance of another process runs, and a gate that is closed is obeyed,
// before the sweep has come a few slices further.
func TestAFloodHoldsUpNobody(t *testing.T) {
	t.Parallel()
	rows := tier.Pick(10_000, 100_000)
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			tier.Needs(t, f.least)
			url := pgtest.Migrated(t)
			config := hasty(configOn(t, url, newCrew().definition()))
			config.Pool = pgtest.Pool(t, url, bounded(4))
			config.Queues = map[string]engine.Queue{"default": quick(3)}
			pool := pgtest.Pool(t, url)
			host := client(t, pool)
			put(t, pool, "fsm, fsm_version, step, state, status, queue, visit, round, children_pending",
				fmt.Sprintf(`'errand', 1, 'end', '{}', 'awaiting_children', 'flooded', 1, 1, %d`, rows))
			execute(t, pool, `INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, queue) SELECT 'errand', 1, 'start', '{}', 'flooded' FROM generate_series(1, $1)`, rows)
			execute(t, pool, `UPDATE gendurable.gen_durable SET `+f.shape+` WHERE status = 'runnable'`)
			execute(t, pool, `VACUUM ANALYZE gendurable.gen_durable`)
			execute(t, pool, fmt.Sprintf(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN PERFORM pg_sleep(%v); IF TG_OP = ''DELETE'' THEN RETURN OLD; END IF; RETURN NEW; END'`, 1/float64(f.slice)))
			execute(t, pool, `CREATE TRIGGER slow BEFORE `+f.event+` ON gendurable.gen_durable FOR EACH ROW WHEN (OLD.queue = 'flooded') EXECUTE FUNCTION slow()`)
			left := func() int {
				return query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE `+f.left)
			}
			began := left()
			require.Greater(t, began, rows-10)
			eng := start(t, config)
			until := func(most int) int { // rows are left
				var now int
				steady.Progressing(t, func() (int, bool) { now = left(); return now, now <= most })
				return now
			}
			swept := until(began - 1)
			id := insert(t, host, errandMachine.New(errand{}))
			allDone(t, host, id)
			ran := left()
			require.GreaterOrEqual(t, ran, swept-5*f.slice, "it waits for the sweep")
			require.Positive(t, ran)

			_, err := host.Admin().SetGate(t.Context(), engine.Gate{Name: "all", Machine: "errand", Closed: true})
			require.NoError(t, err)
			closed := left()
			until(max(f.slice, closed-3*f.slice))
			var late []fsm.ID
			for range 3 {
				late = append(late, insert(t, eng, errandMachine.New(errand{}))) // by the process that is flooded: it begins at once, if ever
			}
			until(max(1, left()-f.slice))
			require.Positive(t, left(), "the flood is over, and shows nothing")
			for _, id := range late {
				require.Equal(t, fsm.StatusRunnable, get(t, host, id).Status, "a closed gate is not obeyed")
			}
			took := time.Now()
			ctx, cancel := steady.Context(t)
			defer cancel()
			require.NoError(t, eng.Stop(ctx))
			t.Logf("%d of %d left when it stopped, which took %v", left(), began, time.Since(took))
			require.Positive(t, left(), "Stop waits for the sweep")
		})
	}
}
