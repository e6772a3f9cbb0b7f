package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Each verb says who asked, and why; the audit keeps it, also when the instance is gone.
func ExampleAdmin_Audit() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := engine.WithActor(context.Background(), "ada") // once, where a request's user is known

	if _, err := shop.eng.Admin().Cancel(ctx, id, engine.Reason("ticket 4711")); err != nil {
		fmt.Println(err)
	}
	page, err := shop.eng.Admin().Audit(ctx, engine.AuditQuery{Instance: id})
	for _, e := range page.Entries {
		fmt.Println(e.Actor, e.Verb, e.Reason)
	}
	fmt.Println(err)
	// Output:
	// ada cancel ticket 4711
	// <nil>
}

func ExampleActor() {
	shop := openShop()
	defer shop.close()
	id := shop.place(42)
	ctx := engine.WithReason(engine.WithActor(context.Background(), "ada"), "the upstream is down")

	admin := shop.eng.Admin()
	if _, err := admin.Pause(ctx, id, engine.Actor("grace")); err != nil {
		fmt.Println(err)
	}
	if _, err := admin.PauseQueue(ctx, "default"); err != nil {
		fmt.Println(err)
	}
	for e, err := range admin.AllAudit(ctx, engine.AuditQuery{}) {
		fmt.Println(e.Actor, e.Verb, e.Subject, e.Reason, err)
	}
	// Output:
	// ada pause_queue queue default the upstream is down <nil>
	// grace pause  the upstream is down <nil>
}

// trail returns what the audit has, oldest first, in short.
func trail(t *testing.T, e *engine.Engine) (all []string) {
	t.Helper()
	for entry, err := range e.Admin().AllAudit(t.Context(), engine.AuditQuery{Limit: 3}) {
		require.NoError(t, err)
		status := func(of json.RawMessage) string {
			var facts struct{ Status string }
			if of == nil {
				return ""
			}
			require.NoError(t, json.Unmarshal(of, &facts))
			if facts.Status == "" {
				return string(of)
			}
			return facts.Status
		}
		text := fmt.Sprint(entry.Actor, " ", entry.Verb, " ", entry.Instance, " ", entry.Subject, " ", status(entry.Before), "→", status(entry.After))
		all = append([]string{text}, all...)
	}
	return all
}

func TestEveryVerbIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := engine.WithActor(within(t), "ada")
	e, pool := client(t, func(c *engine.Config) {
		c.Machines = []fsm.Definition{echoes.Job(echo)}
		c.Schedules = []engine.Schedule{engine.Every("pulse", time.Hour, echoes.New("x"))}
	})
	require.NoError(t, e.Start(ctx))
	a := e.Admin()
	id, err := e.Insert(ctx, echoes.New("x").After(time.Hour))
	require.NoError(t, err)
	kid, err := e.Insert(ctx, echoes.New("x").After(time.Hour))
	require.NoError(t, err)
	done := func(_ any, err error) {
		t.Helper()
		require.NoError(t, err)
	}
	refused := func(_ any, err error) {
		t.Helper()
		require.Error(t, err)
	}
	done(a.Pause(ctx, id))
	refused(a.Pause(ctx, id))
	done(a.Resume(ctx, id))
	done(a.Reschedule(ctx, id, time.Now().Add(2*time.Hour)))
	done(a.RunNow(ctx, id))
	done(a.Cancel(ctx, id, engine.Reason("no")))
	done(a.Retry(ctx, id))
	refused(a.Retry(ctx, id))
	plan, err := a.Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "echo"})
	require.NoError(t, err)
	done(plan.Apply(ctx, engine.Actor("bulk")))
	done(a.PauseQueue(ctx, "q"))
	done(a.PauseQueue(ctx, "q"))
	done(a.ResumeQueue(ctx, "q"))
	done(a.ResumeQueue(ctx, "q"))
	done(a.SetGate(ctx, engine.Gate{Name: "g", Queue: "q", Places: 1}))
	done(a.SetGate(ctx, engine.Gate{Name: "g", Queue: "q", Places: 1}))
	done(a.SetGate(ctx, engine.Gate{Name: "g", Queue: "q", Places: 2}))
	done(a.DropGate(ctx, "g"))
	done(a.DropGate(ctx, "g"))
	done(a.PauseSchedule(ctx, "pulse"))
	done(a.PauseSchedule(ctx, "pulse"))
	done(a.ResumeSchedule(ctx, "pulse"))
	fired, err := a.RunSchedule(ctx, "pulse", engine.Actor("grace"))
	require.NoError(t, err)
	require.NoError(t, a.DeleteSchedule(ctx, "pulse"))
	require.Error(t, a.DeleteSchedule(ctx, "pulse"))

	one := func(verb, change string) string { return fmt.Sprintf("ada %s %d  %s", verb, id, change) }
	got := trail(t, e)
	require.Equal(t, []string{
		one("pause", "runnable→runnable"), one("resume", "runnable→runnable"), one("reschedule", "runnable→runnable"), one("run_now", "runnable→runnable"),
		one("cancel", "runnable→failed"), one("retry", "failed→runnable"),
		fmt.Sprintf("bulk cancel %d  runnable→failed", id), fmt.Sprintf("bulk cancel %d  runnable→failed", kid),
	}, got[:8])
	for i, want := range []string{
		`ada pause_queue 0 queue q →{"paused_at": `, `ada resume_queue 0 queue q {"paused_at": `,
		`ada set_gate 0 gate g →{`, `ada set_gate 0 gate g {`, `ada drop_gate 0 gate g {`,
		`ada pause_schedule 0 schedule pulse →{"paused_at": `, `ada resume_schedule 0 schedule pulse →{"next_at": `,
		fmt.Sprintf(`grace run_schedule %d schedule pulse →`, fired), `ada delete_schedule 0 schedule pulse {`,
	} {
		require.True(t, strings.HasPrefix(got[8+i], want), "%d: %s", 8+i, got[8+i])
	}
	require.Len(t, got, 17)
	require.Contains(t, got[11], `"places": 1`)
	require.Contains(t, got[11], `"places": 2`)
	require.NotContains(t, got[16], `"state"`)

	page, err := a.Audit(ctx, engine.AuditQuery{Instance: id, Verb: engine.VerbCancel, Actor: "ada"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	require.Equal(t, "no", page.Entries[0].Reason)
	require.Equal(t, "echo", page.Entries[0].Machine)
	page, err = a.Audit(ctx, engine.AuditQuery{Subject: "gate g", Since: page.Entries[0].At})
	require.NoError(t, err)
	require.Len(t, page.Entries, 3)
	page, err = a.Audit(ctx, engine.AuditQuery{Before: page.Entries[2].At.Add(-time.Hour)})
	require.NoError(t, err)
	require.Empty(t, page.Entries)
	requireActor(ctx, t, e, pool)
}

// requireActor requires the defaults of the actor, and that a verb that is rolled back is not
// recorded.
func requireActor(ctx context.Context, t *testing.T, e *engine.Engine, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, `TRUNCATE gendurable.history`)
	require.NoError(t, err)
	_, err = e.Admin().PauseQueue(t.Context(), "q")
	require.NoError(t, err)
	require.Contains(t, trail(t, e)[0], "program:engine.test")

	id, err := e.Insert(ctx, echoes.New("x").After(time.Hour))
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = e.WithPgx(tx).Cancel(ctx, []fsm.ID{id})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	require.Len(t, trail(t, e), 1)
	tx, err = pool.Begin(ctx)
	require.NoError(t, err)
	_, err = e.WithPgx(tx).Cancel(ctx, []fsm.ID{id})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.Len(t, trail(t, e), 2)

	// A step's verbs are its instance's.
	worked := working(t, pool, func(c *engine.Config) {
		c.Machines = []fsm.Definition{ticket.Job(func(ctx context.Context, _ string) (string, error) {
			_, err := engine.FromContext(ctx).Admin().ResumeQueue(ctx, "q")
			return "", err
		})}
		c.Queues = map[string]engine.Queue{"default": {}}
	})
	id, err = worked.Insert(ctx, ticket.New("x"))
	require.NoError(t, err)
	_, err = worked.Wait(ctx, id)
	require.NoError(t, err)
	require.Contains(t, trail(t, e)[2], fmt.Sprintf("instance:%d (ticket/1) resume_queue", id))
}

func TestAuditOfBadInput(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	a, ctx, long := e.Admin(), t.Context(), strings.Repeat("x", 600)
	for text, err := range map[string]error{
		"Actor: 600 bytes, at most 512":                      second(a.Pause(ctx, fsm.ID(1), engine.Actor(long))),
		"Actor: \"\\x00\" is not a text":                     second(a.PauseQueue(engine.WithActor(ctx, "\x00"), "q")),
		"Reason: \"\\xff\" is not a text":                    second(a.DropGate(ctx, "g", engine.Reason("\xff"))),
		"Reason: 5000 bytes, at most 4096":                   second(a.RunSchedule(engine.WithReason(ctx, strings.Repeat("x", 5000)), "s")),
		"PauseQueue: options: this verb takes Actor and":     second(a.PauseQueue(ctx, "q", engine.Descendants())),
		"DeleteSchedule: options: this verb takes Actor and": a.DeleteSchedule(ctx, "s", engine.At(time.Now())),
		"Limit: -1, want 1 to":                               second(a.Audit(ctx, engine.AuditQuery{Limit: -1})),
		"Instance: -1 is negative":                           second(a.Audit(ctx, engine.AuditQuery{Instance: -1})),
		"Actor: 600 bytes":                                   second(a.Audit(ctx, engine.AuditQuery{Actor: long})),
		"Verb: \"\\x00\" is not a text":                      second(a.Audit(ctx, engine.AuditQuery{Verb: "\x00"})),
		"Subject: 600 bytes, at most 521":                    second(a.Audit(ctx, engine.AuditQuery{Subject: long})),
	} {
		require.ErrorContains(t, err, text)
	}
}
