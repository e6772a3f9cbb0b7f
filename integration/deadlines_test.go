package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// A deadline fails its instance whatever that waits for. Its parent joins, its keys are free, and
// its children go on.
func TestADeadlineEndsWhatWaits(t *testing.T) {
	t.Parallel()
	child, parent := fsm.Declare[int, int]("child"), fsm.Declare[int, int]("parent")
	never := fsm.DeclareSignal[int]("never")
	waits := child.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		return v.Await("end", v.State, never), nil
	}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(7), nil }))
	var failure fsm.Failure
	joins := parent.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		return v.ScheduleChildren("end", v.State, child.New(0).Deadline(500*time.Millisecond)), nil
	}), fsm.Step("end", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
		failure = child.Children(v)[0].Failure
		return v.Done(1), nil
	}))
	eng := start(t, config(t, waits, joins))
	family := insert(t, eng, parent.New(0))
	paused := insert(t, eng, child.New(0).After(time.Hour).Deadline(time.Second).Key("k"))
	_, err := eng.Admin().Pause(t.Context(), paused)
	require.NoError(t, err)
	orphaned := insert(t, eng, parent.New(0).Deadline(200*time.Millisecond))

	require.Equal(t, fsm.StatusDone, ended(t, eng, family).Status)
	require.Equal(t, fsm.FailureDeadline, failure)
	_, err = child.Wait(t.Context(), eng, paused)
	failed, ok := errors.AsType[*fsm.FailedError](err)
	require.True(t, ok, err)
	require.Equal(t, fsm.FailureDeadline, failed.Failure)
	require.Regexp(t, `^over its deadline of 2\d{3}-.*Z at step start, runnable, paused$`, failed.Message)
	list, err := eng.Errors(t.Context(), paused)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []any{fsm.AttemptOverdue, failed.Message, "start"}, []any{list[0].Kind, list[0].Message, list[0].Step})
	insert(t, eng, child.New(0).Key("k")) // it is free
	require.Equal(t, fsm.FailureDeadline, ended(t, eng, orphaned).Failure)

	// If a Retry kept the deadline, the instance would fail again at once.
	_, err = eng.Admin().Retry(t.Context(), orphaned)
	require.NoError(t, err)
	i := ended(t, eng, orphaned)
	require.Equal(t, fsm.StatusDone, i.Status)
	require.Zero(t, i.Deadline)
}

// The context of a step that runs at the deadline ends, and its own transaction is rolled back.
func TestADeadlineEndsWhatRuns(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[string, int]("m")
	causes := make(chan error, 3)
	listen := func(ctx context.Context) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
	c := config(t, m.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[string, int]) (fsm.Outcome, error) {
		switch v.State {
		case "own":
			return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
				if _, err := tx.Exec(context.WithoutCancel(ctx), `CREATE TABLE public.booked ()`); err != nil {
					return nil, err
				}
				return nil, listen(ctx)
			}), nil
		case "done":
			_ = listen(ctx)
			return v.Done(1), nil
		}
		return nil, listen(ctx)
	})).Retry(soon(1000)))
	eng := start(t, c)
	var own, finished, plain fsm.ID
	// On a busy machine a deadline may end before the step begins: then a longer one is tried.
	for life := 700 * time.Millisecond; ; life *= 4 {
		run := func(what string) fsm.ID { return insert(t, eng, m.New(what).Deadline(life)) }
		own, finished, plain = run("own"), run("done"), run("plain")
		for _, id := range []fsm.ID{own, finished, plain} {
			ended(t, eng, id)
		}
		if len(causes) == 3 || life > patience {
			break
		}
		for len(causes) > 0 {
			<-causes
		}
	}
	require.Equal(t, fsm.FailureDeadline, ended(t, eng, own).Failure)
	require.Equal(t, fsm.StatusDone, ended(t, eng, finished).Status)
	i := ended(t, eng, plain)
	require.Equal(t, fsm.FailureDeadline, i.Failure)
	require.Regexp(t, `^over its deadline of .*Z at step start, executing: context deadline exceeded$`, i.LastError)
	require.Zero(t, i.Attempt, "no further attempt")
	for range 3 {
		require.Equal(t, fsm.ErrDeadline, <-causes)
	}
	var booked *string
	require.NoError(t, c.Pool.QueryRow(t.Context(), `SELECT to_regclass('public.booked')::text`).Scan(&booked))
	require.Nil(t, booked)
}

func TestErrorsOfAttempts(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("hopeless")
	eng := start(t, config(t, m.Job(func(ctx context.Context, _ int) (int, error) {
		i, _ := fsm.InfoFrom(ctx)
		if i.Attempt == 1 {
			panic("alarm\x00\xff")
		}
		return 0, errors.New("not yet")
	}).Retry(soon(3))))
	id := insert(t, eng, m.New(0).Key("k").Scope(fsm.ScopeAll))
	ended(t, eng, id)
	list, err := eng.Errors(t.Context(), fsm.Key("k"))
	require.NoError(t, err)
	var kinds []fsm.AttemptKind
	for n, e := range list {
		kinds = append(kinds, e.Kind)
		require.Equal(t, n, e.Attempt)
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
	}
	require.Equal(t, []fsm.AttemptKind{fsm.AttemptRetried, fsm.AttemptRetried, fsm.AttemptFailed}, kinds)
	require.Equal(t, "not yet", list[0].Message)
	require.Contains(t, list[1].Message, "alarm\ufffd")
	_, err = eng.Errors(t.Context(), fsm.ID(4711))
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = eng.Errors(t.Context(), nil)
	require.ErrorIs(t, err, engine.ErrNotFound)
}
