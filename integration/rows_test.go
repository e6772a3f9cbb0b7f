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
)

// put inserts a row as an operator does with psql, past the engine.
func put(t *testing.T, pool *pgxpool.Pool, columns, values string) fsm.ID {
	t.Helper()
	return query[fsm.ID](t, pool, fmt.Sprintf(`INSERT INTO gendurable.gen_durable (%s) VALUES (%s) RETURNING id`, columns, values))
}

type plain struct{ N int }

var plainMachine = fsm.Declare[plain, int]("plain")

// plainJob returns its N.
func plainJob() *fsm.Defined[plain, int] {
	return plainMachine.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[plain, int]) (fsm.Outcome, error) {
		return v.Done(v.State.N), nil
	}))
}

// picks counts the claims of an engine, through its hooks.
func picks(c engine.Config) (engine.Config, *atomic.Int64) {
	var n atomic.Int64
	c.Hooks = append(c.Hooks, engine.Hooks{Pick: func(context.Context, engine.PickEvent) { n.Add(1) }})
	return c, &n
}

func TestInstancesOfUnknownMachinesAreSetAsideUntouched(t *testing.T) {
	t.Parallel()
	log := newJournal(t)
	c := config(t, plainJob())
	c.Logger = log.logger()
	eng := start(t, c)
	newer := fsm.Declare[plain, int]("plain", fsm.Version(2))
	foreign := fsm.Declare[plain, int]("foreign")
	behind := []fsm.ID{}
	aside := []fsm.ID{insert(t, eng, newer.New(plain{})), insert(t, eng, foreign.New(plain{}).Priority(-5))}
	for n := range 50 {
		behind = append(behind, insert(t, eng, plainMachine.New(plain{n})))
	}
	allDone(t, eng, behind...)
	eventually(t, func() bool {
		return len(log.lines("level=WARN", "plain/2")) > 0 && len(log.lines("level=WARN", "foreign/1")) > 0
	})
	log.isShort(t)
	for _, id := range aside {
		i := get(t, eng, id)
		require.Equal(t, fsm.StatusRunnable, i.Status)
		require.Zero(t, i.Attempt+i.Crashes)
		require.Zero(t, i.Visit)
		require.Empty(t, i.LastError)
	}
	// The process that knows them, after the deploy.
	after := configOn(t, c.Pool.Config().ConnString(),
		newer.Job(func(context.Context, plain) (int, error) { return 2, nil }),
		foreign.Job(func(context.Context, plain) (int, error) { return 3, nil }))
	start(t, after)
	allDone(t, eng, aside...)
}

// The engine promises the order of a key: instances behind a row that no worker here can run wait
// for it. Other keys do not.
func TestAnUnknownMachineHoldsUpItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	foreign := fsm.Declare[plain, int]("foreign")
	c := config(t, plainJob())
	eng := start(t, c)
	first := insert(t, eng, foreign.New(plain{}).PartitionKey("a"))
	second := insert(t, eng, plainMachine.New(plain{}).PartitionKey("a"))
	for range 20 {
		allDone(t, eng, insert(t, eng, plainMachine.New(plain{}).PartitionKey("b")))
	}
	require.Equal(t, fsm.StatusRunnable, get(t, eng, second).Status)
	start(t, configOn(t, c.Pool.Config().ConnString(), foreign.Job(func(context.Context, plain) (int, error) { return 0, nil })))
	allDone(t, eng, first, second)
}

func TestMalformedRowsFailAloneOrWait(t *testing.T) {
	t.Parallel()
	const machine = "fsm, fsm_version, step, state"
	const whole = "'plain', 1, 'start', '{\"N\": 7}'"
	const later = "now() + interval '10 minutes'"
	for _, row := range []struct {
		name            string
		columns, values string
		status          fsm.Status
		says            string
	}{
		{"unknown step", machine, "'plain', 1, 'renamed', '{}'", fsm.StatusRunnable, ""},
		{"state of another type", machine, "'plain', 1, 'start', '[1, 2]'", fsm.StatusFailed, "decode state"},
		{"state over its type", machine, "'plain', 1, 'start', '{\"N\": 1e400}'", fsm.StatusFailed, "decode state"},
		{"deep state", machine, "'plain', 1, 'start', (repeat('[', 6000) || repeat(']', 6000))::jsonb", fsm.StatusFailed, "decode state"},
		{"null state", machine, "'plain', 1, 'start', 'null'", fsm.StatusDone, ""},
		{"expired lease of nobody", machine + ", status, locked_by, lease_expires_at", whole + ", 'executing', '', now() - interval '1 hour'",
			fsm.StatusDone, ""},
		{"lease of a stranger", machine + ", status, locked_by, lease_expires_at", whole + ", 'executing', 'psql', " + later,
			fsm.StatusExecuting, ""},
		{"crashes over the limit", machine + ", crashes", whole + ", 2147483647", fsm.StatusFailed, "crash limit"},
		{"expired over the crash limit", machine + ", crashes, status, locked_by, lease_expires_at",
			whole + ", 2147483647, 'executing', 'psql', now() - interval '1 hour'", fsm.StatusFailed, "crash limit"},
		{"attempt at its end", machine + ", attempt, status, locked_by, lease_expires_at",
			whole + ", 2147483647, 'executing', 'psql', now() - interval '1 hour'", fsm.StatusDone, ""},
		{"awaits of NULL", machine + ", awaits", whole + ", '{NULL}'", fsm.StatusDone, ""},
		{"a join without children", machine + ", round, visit", whole + ", 3, 3", fsm.StatusDone, ""},
		{"dropped that is none", machine + ", round, visit, dropped", whole + ", 3, 3, '\"what?\"'", fsm.StatusDone, ""},
		{"a deadline beside the wait", machine + ", await_deadline", whole + ", now() - interval '1 hour'", fsm.StatusDone, ""},
		{"never", machine + ", eligible_at", whole + ", '9999-12-31'", fsm.StatusRunnable, ""},
		{"at the end of time", machine + ", eligible_at", whole + ", '294276-12-31'", fsm.StatusRunnable, ""},
		{"since ever", machine + ", eligible_at", whole + ", '4713-01-01 BC'", fsm.StatusDone, ""},
		{"paused", machine + ", paused", whole + ", true", fsm.StatusRunnable, ""},
		{"urgent beyond measure", machine + ", priority", whole + ", -32768", fsm.StatusDone, ""},
		{"waits till the end of time", machine + ", status, awaits, await_deadline", whole + ", 'awaiting_signal', '{x}', '294276-12-31'",
			fsm.StatusAwaitingSignal, ""},
		{"aside for no reason", machine + ", pick_lane", whole + ", 2", fsm.StatusDone, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			log := newJournal(t)
			c, claims := picks(hasty(config(t, plainJob())))
			c.Logger = log.logger()
			id := put(t, c.Pool, row.columns, row.values)
			eng := start(t, c)
			for n := range 10 {
				allDone(t, eng, insert(t, eng, plainMachine.New(plain{n})))
			}
			eventuallyStatus(t, eng, id, row.status)
			require.Contains(t, get(t, eng, id).LastError, row.says)
			before := claims.Load()
			allDone(t, eng, insert(t, eng, plainMachine.New(plain{}).After(300*time.Millisecond)))
			require.Less(t, claims.Load()-before, int64(50), "the row keeps the scheduler busy")
			require.Equal(t, row.status, get(t, eng, id).Status)
			log.isShort(t)
		})
	}
}
