package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A worker finds out by its heartbeat, its caller by waiting; the step's outcome has no effect, and
// the failure is told from others.
func TestCancelOfARunningStepOfAnotherProcess(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	running, told := make(chan struct{}), make(chan error, 1)
	works := fsm.Declare[string, string]("works")
	working(t, pool, rarely, func(c *engine.Config) {
		c.Lease, c.Heartbeat = time.Minute, 100*time.Millisecond
		c.Queues["default"] = engine.Queue{}
		c.Machines = append(c.Machines, works.Job(func(ctx context.Context, _ string) (string, error) {
			close(running)
			<-ctx.Done()
			told <- context.Cause(ctx)
			return "done all the same", nil
		}))
	})
	c := open(t, pool)
	id, err := c.Insert(t.Context(), works.New("").Key("k"))
	require.NoError(t, err)
	<-running
	done, err := c.Admin().Cancel(within(t), fsm.Key("k"), engine.Reason("wrong customer"))
	require.NoError(t, err)
	require.Equal(t, engine.Changed{ID: id, Was: fsm.StatusExecuting, Is: fsm.StatusFailed}, done)
	require.ErrorIs(t, <-told, fsm.ErrCancelled)
	_, err = works.Wait(within(t), c, id)
	failed, ok := errors.AsType[*fsm.FailedError](err)
	require.True(t, ok, err)
	require.Equal(t, fsm.FailureCancelled, failed.Failure)
	require.Equal(t, "cancelled: wrong customer", failed.Message)
	_, err = c.Signal(t.Context(), id, paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)
}

// In the operator's own process no caller waits for a beat or a poll.
func TestOperatorsVerbsAreNoticedInTheirProcess(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, rarely)
	ctx := within(t)
	id, err := e.Insert(ctx, ticket.New("A1"))
	require.NoError(t, err)
	parked(t, e, id)
	waits := make(chan error, 1)
	go func() {
		_, err := ticket.Wait(ctx, e, id)
		waits <- err
	}()
	_, err = e.Admin().Cancel(ctx, id)
	require.NoError(t, err)
	_, failed := errors.AsType[*fsm.FailedError](<-waits)
	require.True(t, failed)

	done, err := e.Admin().Retry(ctx, id)
	require.NoError(t, err)
	require.Equal(t, engine.Changed{ID: id, Was: fsm.StatusFailed, Is: fsm.StatusRunnable}, done)
	text, err := ticket.Wait(ctx, e, id)
	require.NoError(t, err, "the step that it was parked for runs, with nothing awaited")
	require.Equal(t, "A1 paid", text)

	later, err := e.Insert(ctx, echoes.New("now").After(time.Hour))
	require.NoError(t, err)
	_, err = e.Admin().RunNow(ctx, later)
	require.NoError(t, err)
	text, err = echoes.Wait(ctx, e, later)
	require.NoError(t, err)
	require.Equal(t, "now", text)
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	c := open(t, pool)
	ctx := within(t)
	id, err := c.Insert(ctx, ticket.New("A1"))
	require.NoError(t, err)
	_, err = c.Admin().Pause(ctx, id)
	require.NoError(t, err)
	e := working(t, pool, rarely, func(c *engine.Config) { c.Queues["default"] = engine.Queue{} })
	other, err := e.Insert(ctx, echoes.New("another"))
	require.NoError(t, err)
	_, err = echoes.Wait(ctx, e, other)
	require.NoError(t, err)
	i, err := c.Get(ctx, id)
	require.NoError(t, err)
	require.True(t, i.Paused)
	require.Equal(t, []any{fsm.StatusRunnable, int64(0)}, []any{i.Status, i.Visit}, "the other was behind it")
	_, err = c.Admin().Pause(ctx, id)
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = c.Admin().Resume(ctx, id, engine.IfUnchanged(i))
	require.NoError(t, err)
	parked(t, e, id)
	_, err = c.Admin().Resume(ctx, id)
	require.ErrorIs(t, err, engine.ErrConflict)
}

func TestCancelADescendant(t *testing.T) {
	t.Parallel()
	c, pool := client(t)
	root := number(t, pool, `INSERT INTO gendurable.gen_durable (fsm, step) VALUES ('m', 's') RETURNING id`)
	kid := number(t, pool, `INSERT INTO gendurable.gen_durable (fsm, step, parent_id, depth) SELECT 'm', 's', id, 1 FROM gendurable.gen_durable RETURNING id`)
	done, err := c.Admin().Cancel(within(t), fsm.ID(root), engine.Descendants())
	require.NoError(t, err)
	require.Equal(t, []fsm.ID{fsm.ID(kid)}, done.Descendants)
	_, err = c.Admin().Cancel(within(t), fsm.ID(root), engine.Descendants())
	require.ErrorIs(t, err, engine.ErrConflict)
}

func TestRetryTellsWhoHasTheKey(t *testing.T) {
	t.Parallel()
	c, _ := client(t)
	ctx := within(t)
	first, err := c.Insert(ctx, ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	_, err = c.Admin().Cancel(ctx, first)
	require.NoError(t, err)
	second, err := c.Insert(ctx, ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	_, err = c.Admin().Retry(ctx, first)
	require.ErrorIs(t, err, engine.ErrDuplicate)
	duplicate, _ := errors.AsType[*engine.DuplicateError](err)
	require.Equal(t, &engine.DuplicateError{Key: "seat", Occupant: second}, duplicate)
}

// A row that another session keeps locked is waited for, as long as the caller's context lets it.
func TestAdminWaitsForALockedRow(t *testing.T) {
	t.Parallel()
	log := &journal{}
	c, pool := client(t, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	id, err := c.Insert(t.Context(), ticket.New("A1"))
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM gendurable.gen_durable WHERE id = $1 FOR UPDATE`, int64(id))
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Admin().Pause(short, id)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	answers := make(chan error, 1)
	go func() {
		_, err := c.Admin().Pause(within(t), id)
		answers <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "trying again") }, testPatience, testGlance)
	require.Contains(t, log.String(), "held_by.pid="+strconv.Itoa(int(tx.Conn().PgConn().PID())))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-answers)
}

func TestAdminRefusesBadInput(t *testing.T) {
	t.Parallel()
	c := open(t, nowhere(t, 4))
	a, ctx := c.Admin(), t.Context()
	seen := engine.IfUnchanged(fsm.RawInstance{ID: 7})
	for field, err := range map[string]error{
		"Reason: 4097 bytes, at most 4096":        second(a.Cancel(ctx, fsm.ID(1), engine.Reason(strings.Repeat("x", 4097)))),
		"Reason: \"\\x00\" is not":                second(a.Cancel(ctx, fsm.ID(1), engine.Reason("\x00"))),
		"Descendants: an option of Cancel only":   second(a.Retry(ctx, fsm.ID(1), engine.Descendants())),
		"IfUnchanged: it saw instance 7, but":     second(a.Resume(ctx, fsm.ID(1), seen)),
		"At: the zero time":                       second(a.Reschedule(ctx, fsm.ID(1), time.Time{})),
		"At: 9999 is over 100 years":              second(a.Reschedule(ctx, fsm.ID(1), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))),
		"At: given twice":                         second(a.Reschedule(ctx, fsm.ID(1), time.Now(), engine.At(time.Now()))),
		"At: an option of Reschedule only":        second(a.RunNow(ctx, fsm.ID(1), engine.At(time.Now()))),
		"verb: \"pause_queue\" is no verb":        second(a.Bulk(ctx, engine.VerbPauseQueue, engine.Filter{All: true})),
		"Filter.Version: -1, at least 1":          second(a.Bulk(ctx, engine.VerbCancel, engine.Filter{Version: -1})),
		"Filter.Machine: 513 bytes, at most 512":  second(a.Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: strings.Repeat("x", 513)})),
		"Filter.KeyPrefix: \"\\x00\" is not":      second(a.Bulk(ctx, engine.VerbCancel, engine.Filter{KeyPrefix: "\x00"})),
		"Filter.Status[1]: \"gone\" is no status": second(a.Bulk(ctx, engine.VerbCancel, engine.Filter{Status: []fsm.Status{"done", "gone"}})),
		"Filter.Failure[0]: \"x\" is no kind":     second(a.Bulk(ctx, engine.VerbCancel, engine.Filter{Failure: []fsm.Failure{"x"}})),
	} {
		wrong, ok := errors.AsType[*engine.VerbError](err)
		require.True(t, ok, "%s: %v", field, err)
		require.Contains(t, wrong.Error(), field)
	}
	_, err := a.Cancel(ctx, fsm.ID(0))
	require.ErrorIs(t, err, engine.ErrNotFound)
}

func second[T any](_ T, err error) error { return err }

func TestAdminOfNobody(t *testing.T) {
	t.Parallel()
	c, _ := client(t)
	_, err := c.Admin().Cancel(t.Context(), fsm.ID(12345))
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = c.Admin().Cancel(t.Context(), fsm.Key("nobody's"))
	require.ErrorIs(t, err, engine.ErrNotFound)
}

// Planned instances are changed, those that no longer match are skipped, newer ones are left alone,
// and one in the way does not stop the rest.
func TestBulk(t *testing.T) {
	t.Parallel()
	c, pool := client(t)
	ctx := within(t)
	const n = 450 // more than two batches
	specs := make([]fsm.Spec, n)
	for i := range specs {
		specs[i] = ticket.New("A1")
	}
	in, err := c.InsertMany(ctx, specs)
	require.NoError(t, err)
	plan, err := c.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "ticket"})
	require.NoError(t, err)
	require.Equal(t, int64(n), plan.Matched)
	require.Len(t, plan.Sample, 20)
	require.Equal(t, in[0].ID, plan.Sample[0].ID)
	require.Equal(t, n, live(t, pool), "a plan changes nothing")

	late, err := c.Insert(ctx, ticket.New("late"))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE id = $1`, int64(in[3].ID))
	require.NoError(t, err)
	var seen []engine.Applied
	applied, err := plan.Apply(ctx, engine.Reason("season is over"), engine.Watching(func(a engine.Applied) { seen = append(seen, a) }))
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: n - 1, Skipped: 1}, applied)
	require.Equal(t, []engine.Applied{{Changed: 199, Skipped: 1}, {Changed: 399, Skipped: 1}, applied}, seen)
	require.Equal(t, 1, live(t, pool))
	i, err := c.Get(ctx, late)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusRunnable, i.Status)
	applied, err = plan.Apply(ctx)
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Skipped: n}, applied)
}

func live(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return number(t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE finished_at IS NULL`)
}

func TestBulkRetryPassesOverTakenKeys(t *testing.T) {
	t.Parallel()
	c, _ := client(t)
	ctx := within(t)
	for _, key := range []fsm.Key{"a", "b", "c"} {
		id, err := c.Insert(ctx, ticket.New("").Key(key))
		require.NoError(t, err)
		_, err = c.Admin().Cancel(ctx, id)
		require.NoError(t, err)
	}
	_, err := c.Insert(ctx, ticket.New("").Key("b"))
	require.NoError(t, err)
	plan, err := c.Admin().Bulk(ctx, engine.VerbRetry, engine.Filter{Failure: []fsm.Failure{fsm.FailureCancelled}})
	require.NoError(t, err)
	applied, err := plan.Apply(ctx)
	require.Equal(t, engine.Applied{Changed: 2, Failed: 1}, applied)
	require.ErrorIs(t, err, engine.ErrDuplicate)
	_, err = plan.Apply(ctx, engine.IfUnchanged(fsm.RawInstance{}))
	_, wrong := errors.AsType[*engine.VerbError](err)
	require.True(t, wrong)
}

// The zero Filter matches nothing in any table; All matches all.
func TestBulkOfTheZeroFilter(t *testing.T) {
	t.Parallel()
	c, pool := client(t)
	ctx := within(t)
	root, err := c.Insert(ctx, ticket.New(""))
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, parent_id, depth) VALUES ('kid', 's', $1, 1)`, int64(root))
	require.NoError(t, err)
	plan, err := c.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{})
	require.NoError(t, err)
	require.Zero(t, plan.Matched)
	applied, err := plan.Apply(ctx)
	require.NoError(t, err)
	require.Zero(t, applied)
	require.Equal(t, 2, live(t, pool))
	plan, err = c.Admin().Bulk(ctx, engine.VerbPause, engine.Filter{All: true})
	require.NoError(t, err)
	require.EqualValues(t, 2, plan.Matched)
	plan, err = c.Admin().Bulk(ctx, engine.VerbCancel, engine.Filter{Machine: "ticket"})
	require.NoError(t, err)
	applied, err = plan.Apply(ctx, engine.Descendants())
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: 1, Descendants: 1}, applied)
}

// A plan has no time: it is given when the plan is applied, and is the same for all.
func TestBulkReschedule(t *testing.T) {
	t.Parallel()
	c, pool := client(t)
	ctx := within(t)
	var ids []fsm.ID
	for range 3 {
		id, err := c.Insert(ctx, ticket.New("A1").After(time.Hour))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	_, err := c.Admin().Cancel(ctx, ids[0])
	require.NoError(t, err)
	plan, err := c.Admin().Bulk(ctx, engine.VerbReschedule, engine.Filter{Machine: "ticket"})
	require.NoError(t, err)
	require.EqualValues(t, 2, plan.Matched, "what is not runnable has no time")
	for _, options := range [][]engine.VerbOption{nil, {engine.At(time.Time{})}, {engine.At(time.Now()), engine.At(time.Now())}} {
		_, err = plan.Apply(ctx, options...)
		wrong, ok := errors.AsType[*engine.VerbError](err)
		require.True(t, ok, err)
		require.Equal(t, "At", wrong.Field)
	}
	at := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
	applied, err := plan.Apply(ctx, engine.At(at))
	require.NoError(t, err)
	require.Equal(t, engine.Applied{Changed: 2}, applied)
	require.Equal(t, 2, number(t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE eligible_at = '`+at.Format(time.RFC3339Nano)+`'`))
	_, err = plan.Apply(ctx, engine.At(time.Time{}.AddDate(1, 0, 0)))
	require.NoError(t, err)
	require.Equal(t, 2, number(t, pool, `SELECT count(*) FROM gendurable.gen_durable
		WHERE status = 'runnable' AND eligible_at BETWEEN now() - interval '1 min' AND now()`), "what is past is now")
}

// Every process obeys, those too that start later, until the queue is resumed by anyone.
func TestPauseQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	c, ctx := open(t, pool), within(t)
	soon := func(c *engine.Config) {
		c.Queues = map[string]engine.Queue{"default": {PollMin: 10 * time.Millisecond, PollMax: 20 * time.Millisecond}, "other": {}}
	}
	changed, err := c.Admin().PauseQueue(ctx, "default")
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = c.Admin().PauseQueue(ctx, "default")
	require.NoError(t, err)
	require.False(t, changed)
	e := working(t, pool, rarely, soon)
	held, err := e.Insert(ctx, echoes.New("held"))
	require.NoError(t, err)
	free, err := e.Insert(ctx, echoes.New("free").Queue("other"))
	require.NoError(t, err)
	_, err = echoes.Wait(ctx, e, free)
	require.NoError(t, err)
	i, err := e.Get(ctx, held)
	require.NoError(t, err)
	require.Equal(t, fsm.StatusRunnable, i.Status)
	paused, err := e.Admin().PausedQueues(ctx)
	require.NoError(t, err)
	require.Len(t, paused, 1)
	require.Equal(t, "default", paused[0].Queue)
	require.WithinDuration(t, time.Now(), paused[0].Since, time.Hour)
	rows, err := e.Ent().PausedQueue.Query().IDs(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, rows)
	changed, err = c.Admin().ResumeQueue(ctx, "default")
	require.NoError(t, err)
	require.True(t, changed)
	text, err := echoes.Wait(ctx, e, held)
	require.NoError(t, err)
	require.Equal(t, "held", text)
	changed, err = c.Admin().ResumeQueue(ctx, "default")
	require.NoError(t, err)
	require.False(t, changed)
	for _, name := range []string{"", strings.Repeat("x", 513)} {
		_, err = c.Admin().PauseQueue(ctx, name)
		wrong, ok := errors.AsType[*engine.VerbError](err)
		require.True(t, ok)
		require.Equal(t, "queue", wrong.Field)
	}
}

func TestTheHookCancelCountsWhatWasCancelled(t *testing.T) {
	t.Parallel()
	var counted []int
	e, _ := client(t, func(c *engine.Config) {
		c.Hooks = []engine.Hooks{{Cancel: func(_ context.Context, e engine.CancelEvent) { counted = append(counted, e.Cancelled) }},
			{Cancel: func(context.Context, engine.CancelEvent) { panic("a hook") }}}
	})
	id, err := e.Insert(t.Context(), ticket.New("A1"))
	require.NoError(t, err)
	_, err = e.Admin().Cancel(t.Context(), id)
	require.NoError(t, err)
	_, err = e.Admin().Cancel(t.Context(), id)
	require.ErrorIs(t, err, engine.ErrConflict)
	require.Equal(t, []int{1}, counted)
}
