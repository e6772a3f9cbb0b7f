package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

var (
	tenancy     = fsm.Declare[string, string]("tenancy")
	tenancyPaid = fsm.DeclareSignal[int]("paid")
)

// firstOf finds the run of a tenant that is parked.
const firstOf = `SELECT id FROM gendurable.gen_durable WHERE labels ->> 'tenant' = $1 AND state = '"first"'`

// tenancyJob ends at once, unless its state is "waits".
func tenancyJob() *fsm.Defined[string, string] {
	end := func(v *fsm.Visit[string, string]) (fsm.Outcome, error) { return v.Done(v.State), nil }
	return tenancy.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			if v.State == "waits" {
				return v.Await("end", v.State, tenancyPaid), nil
			}
			return end(v)
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) { return end(v) }))
}

// A hundred thousand tenants cannot begin, each for a reason that is not its gate's: its place has
// a run that is parked, it is closed, or it owes. Others begin beside them as soon as an instance
// behind no gate: the first of a new tenant, whichever process inserts it; the next of a tenant
// whose run ends. The next of one that an operator sets free in another process begins, too.
func TestBlockedTenantsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	tenants := tier.Pick(10_000, 100_000)
	for name, w := range map[string]struct {
		gate engine.Gate
		bar  string
		free func(t *testing.T, pool *pgxpool.Pool, host *engine.Engine, tenant string) // by another process
	}{
		"behind a run that is parked": {engine.Gate{Name: "g", Label: "tenant", Places: 1, Run: true},
			`INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, status, awaits, labels, run_gate, run_place, visit, claim_token)
				SELECT 'tenancy', 1, 'end', '"first"', 'awaiting_signal', '{paid}', jsonb_build_object('tenant', 't' || n), 'g/t' || n, 1, 1, 1 FROM generate_series(1, $1::int) n`,
			func(t *testing.T, pool *pgxpool.Pool, host *engine.Engine, tenant string) {
				_, err := host.Admin().Cancel(t.Context(), query[fsm.ID](t, pool, firstOf, tenant))
				require.NoError(t, err)
			}},
		"closed": {engine.Gate{Name: "g", Label: "tenant", Places: 1}, `INSERT INTO gendurable.gate_keys (key, closed_until) SELECT 'g/t' || n, now() + interval '1 h' FROM generate_series(1, $1::int) n`,
			func(t *testing.T, pool *pgxpool.Pool, host *engine.Engine, tenant string) {
				_, err := host.Admin().OpenGate(t.Context(), "g/"+tenant)
				require.NoError(t, err)
			}},
		"in debt": {engine.Gate{Name: "g", Label: "tenant", Rate: engine.Rate{N: 1, Per: time.Hour, Burst: 1}}, `INSERT INTO gendurable.gate_keys (key, debt) SELECT 'g/t' || n, 1 FROM generate_series(1, $1::int) n`,
			func(t *testing.T, pool *pgxpool.Pool, host *engine.Engine, tenant string) {
				_, err := host.Admin().OpenGate(t.Context(), "g/"+tenant)
				require.NoError(t, err)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, tenancyJob(), plainJob())
			c.Queues["other"] = quick(3)
			pool := pgtest.Pool(t, c.Pool.Config().ConnString())
			host := client(t, pool)
			_, err := host.Admin().SetGate(t.Context(), w.gate)
			require.NoError(t, err)
			execute(t, pool, w.bar, tenants)
			execute(t, pool, `INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, pick_lane, gate, labels)
				SELECT 'tenancy', 1, 'start', '"next"', 3, 'g/t' || n, jsonb_build_object('tenant', 't' || n) FROM generate_series(1, $1::int) n`, tenants)
			execute(t, pool, `VACUUM ANALYZE gendurable.gen_durable`)
			var claims atomic.Int64
			c.Hooks = append(c.Hooks, engine.Hooks{Pick: func(context.Context, engine.PickEvent) { claims.Add(1) }})
			eng := start(t, c)
			next := func(tenant string) fsm.ID {
				return query[fsm.ID](t, pool, `SELECT id FROM gendurable.gen_durable WHERE labels ->> 'tenant' = $1 AND state = '"next"'`, tenant)
			}
			fresh := 0
			one := func(by *engine.Engine, spec func() fsm.Spec) func(context.Context) error {
				return func(ctx context.Context) error {
					for range 5 {
						id, err := by.Insert(ctx, spec())
						if err == nil {
							_, err = eng.Wait(ctx, id)
						}
						if err != nil {
							return err
						}
					}
					return nil
				}
			}
			ungated := one(host, func() fsm.Spec { return plainMachine.New(plain{}).Queue("other") })
			tenant := func() fsm.Spec {
				fresh++
				return tenancy.New("new").Label("tenant", fmt.Sprintf("t%d-new", fresh*7))
			}
			require.NoError(t, one(host, tenant)(t.Context()), "the process has been through all lines")
			steady.Within(t, 5*time.Second, ungated, one(host, tenant))
			steady.Within(t, 5*time.Second, ungated, one(eng, tenant))
			freed := next("t77")
			w.free(t, pool, host, "t77")
			ended(t, eng, freed)
			if w.gate.Run {
				steady.Within(t, 5*time.Second, ungated, func(ctx context.Context) error {
					for _, name := range []string{"t1", "t500", "t999"} {
						id := next(name)
						_, err := host.Signal(ctx, query[fsm.ID](t, pool, firstOf, name), tenancyPaid.With(1))
						if err == nil {
							_, err = eng.Wait(ctx, id)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.Equal(t, tenants-1, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE pick_lane = 3`)+either(w.gate.Run, 3, 0))
			t.Logf("%d claims", claims.Load())
		})
	}
}

func either[T any](is bool, a, b T) T {
	if is {
		return a
	}
	return b
}
