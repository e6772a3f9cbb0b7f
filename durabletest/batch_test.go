package durabletest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// letter is sent with others to the same address.
var letter = fsm.Declare[string, int]("letter")

type post struct {
	diary
	stop func(ctx context.Context) error
}

func (p *post) definition() fsm.Definition {
	return letter.Define(fsm.BatchStep("start", func(ctx context.Context, visits []*fsm.Visit[string, int]) ([]fsm.Outcome, error) {
		var texts []string
		for _, v := range visits {
			texts = append(texts, v.State)
		}
		p.note(strings.Join(texts, "+"))
		if p.stop != nil {
			return nil, p.stop(ctx)
		}
		outcomes := make([]fsm.Outcome, len(visits))
		for i, v := range visits {
			if outcomes[i] = v.Done(len(visits)); v.State == "lost" {
				outcomes[i] = v.Fail(errors.New("no such address"))
			}
		}
		return outcomes, nil
	}, fsm.BatchOf(3), fsm.Within(fsm.MaxBatchWait), fsm.ByLabel("to"))).Retry(fsm.RetryPolicy{})
}

// insertLetters inserts letters that are due one after the other, each text with its address.
func insertLetters(t *testing.T, kit *durabletest.Kit, letters ...string) (ids []fsm.ID) {
	t.Helper()
	for i, of := range letters {
		text, to, _ := strings.Cut(of, "@")
		ids = append(ids, insert(t, kit, letter.New(text).Label("to", to).Priority(i)))
	}
	return ids
}

func TestDrainCallsABatchStepForAllThatMayMeet(t *testing.T) {
	t.Parallel()
	p := &post{}
	kit := newKit(t, p.definition())
	ids := insertLetters(t, kit, "a@home", "b@work", "c@home", "lost@home", "e@home", "f@work", "g@home")
	d, err := kit.Drain(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a+c+lost b+f e+g", p.all(), "in the order of claims, without waiting")
	require.Equal(t, []int{7, 6, 1}, []int{d.Steps, d.Done, d.Failed})
	var ran []fsm.ID
	for _, r := range d.Ran {
		ran = append(ran, r.Info.ID)
	}
	require.Equal(t, []fsm.ID{ids[0], ids[2], ids[3], ids[1], ids[5], ids[4], ids[6]}, ran)
	require.Equal(t, fsm.OutcomeFail, d.Ran[2].Outcome)
	require.Equal(t, 3, durabletest.RequireDone(t, kit, letter, ids[0]))
}

func TestABatchAndTheLimitOfSteps(t *testing.T) {
	t.Parallel()
	p := &post{}
	kit := newKit(t, p.definition())
	ids := insertLetters(t, kit, "a@home", "b@home", "c@home", "d@home", "e@home")
	_, err := kit.Drain(t.Context(), durabletest.Limit(4))
	var over *durabletest.StepLimitError
	require.ErrorAs(t, err, &over)
	require.Equal(t, "a+b+c d", p.all())
	require.Zero(t, durabletest.RequireStatus(t, kit, ids[4], fsm.StatusRunnable).Attempt)
}

func TestOneInstanceOfABatchAtATime(t *testing.T) {
	t.Parallel()
	p := &post{}
	kit := newKit(t, p.definition())
	ids := insertLetters(t, kit, "a@home", "b@home", "c@home")
	ran, ok, err := kit.DrainOne(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, ids[0], ran.Info.ID)
	ran, err = kit.Step(t.Context(), ids[2])
	require.NoError(t, err)
	require.Equal(t, ids[2], ran.Info.ID)
	require.Equal(t, "a c", p.all())
	durabletest.RequireStatus(t, kit, ids[1], fsm.StatusRunnable)
}

func TestTheEndOfTheContextCancelsABatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	p := &post{stop: func(ctx context.Context) error {
		cancel(gone)
		<-ctx.Done()
		return ctx.Err()
	}}
	kit := newKit(t, p.definition())
	ids := insertLetters(t, kit, "a@home", "b@home", "c@home")
	_, err := kit.Drain(ctx)
	require.ErrorIs(t, err, gone)
	for _, id := range ids {
		require.Zero(t, durabletest.RequireStatus(t, kit, id, fsm.StatusRunnable).Attempt)
	}
}

func TestRunBatch(t *testing.T) {
	t.Parallel()
	p := &post{}
	outcomes, errs := durabletest.RunBatch(t.Context(), p.definition(), "start",
		[]durabletest.Visit{{State: "a"}, {State: 7}, {State: "lost"}, {State: "d"}})
	require.Equal(t, "a+lost+d", p.all())
	var result int
	require.NoError(t, errors.Join(errs[0], errs[2], errs[3], outcomes[0].DecodeResult(&result)))
	require.Equal(t, 3, result, "one state does not decode")
	var bad *fsm.DecodeError
	require.ErrorAs(t, errs[1], &bad)
	require.Equal(t, fsm.FailureDecided, outcomes[2].Failure)

	p.stop = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	slow := p.definition().(*fsm.Defined[string, int]) //nolint:forcetypeassert // as definition makes it
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, errs = durabletest.RunBatch(ctx, slow, "start", []durabletest.Visit{{}, {}})
	for _, err := range errs {
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var shared *fsm.BatchError
		require.ErrorAs(t, err, &shared)
	}
	for says, run := range map[string]func() []error{
		`no step "end"`: func() []error {
			_, errs := durabletest.RunBatch(t.Context(), p.definition(), "end", []durabletest.Visit{{}})
			return errs
		},
		"not a batch step": func() []error {
			_, errs := durabletest.RunBatch(t.Context(), parcels, "start", []durabletest.Visit{{}, {}})
			return errs
		},
		"visit 1: encode the state": func() []error {
			_, errs := durabletest.RunBatch(t.Context(), p.definition(), "start", []durabletest.Visit{{}, {State: func() {}}})
			return errs
		},
	} {
		for _, err := range run() {
			require.ErrorContains(t, err, says)
		}
	}
	outcomes, errs = durabletest.RunBatch(t.Context(), p.definition(), "start", nil)
	require.Empty(t, outcomes)
	require.Empty(t, errs)
}
