package send_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// script answers deliveries with these errors, then with success.
type script struct {
	errs []error
	many []store.Answer // of DeliverMany, in turn
	to   []store.Address
	at   func(attempt int) // unless nil: called before each answer
}

func (s *script) Deliver(_ context.Context, to store.Address, _ *step.Signal, inbox int) (store.Delivery, error) {
	s.to = append(s.to, to)
	if s.at != nil {
		s.at(len(s.to))
	}
	if n := len(s.to) - 1; n < len(s.errs) {
		return store.Delivery{}, s.errs[n]
	}
	return store.Delivery{Target: 7, Queue: fmt.Sprint("inbox ", inbox), Woken: true, Runnable: true}, nil
}

func (s *script) DeliverMany(ctx context.Context, list []store.Letter, inbox int) (out []store.Answer, err error) {
	for range list {
		if len(s.many) == 0 {
			out = append(out, store.Answer{})
			continue
		}
		out, s.many = append(out, s.many[0]), s.many[1:]
	}
	_, err = s.Deliver(ctx, list[0].To, list[0].Signal, inbox)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *script) Keep(ctx context.Context, to store.Address, m *step.Signal, inbox int) (store.Delivery, error) {
	_, err := s.Deliver(ctx, to, m, inbox)
	return store.Delivery{Kept: true}, err
}

func (s *script) DeliverOrInsert(ctx context.Context, x *step.Spec, m *step.Signal, inbox int) (store.Delivery, error) {
	d, err := s.Deliver(ctx, store.Address{Key: x.Key}, m, inbox)
	d.Inserted = true
	return d, err
}

func (s *script) Holder(context.Context, store.Address) (store.Holder, bool, error) {
	return store.Holder{PID: 4711, State: "idle in transaction", Application: "psql"}, true, nil
}

func refused(code string) error { return &pgconn.PgError{Severity: "ERROR", Code: code} }

func attempt(ctx context.Context, s *script) (d store.Delivery, log string, err error) {
	var out strings.Builder
	sender := send.Sender{Inboxes: s, Inbox: 10, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	d, err = sender.Send(ctx, fsm.Key("k"), &step.Signal{Name: "go"})
	return d, out.String(), err
}

func TestSendRepeatsTransientFaults(t *testing.T) {
	t.Parallel()
	s := &script{errs: []error{refused("40P01"), refused("55P03"), refused("57P01"), errors.New("connection reset")}}
	d, log, err := attempt(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, store.Delivery{Target: 7, Queue: "inbox 10", Woken: true, Runnable: true}, d)
	require.Len(t, s.to, 5)
	require.Equal(t, store.Address{Key: "k"}, s.to[4])
	require.Equal(t, 3, strings.Count(log, "level=WARN"), "attempts 1, 2 and 4")
	require.Equal(t, 1, strings.Count(log, "held_by.pid=4711"), "of the lock timeout alone")
}

func TestSendReturnsWhatNoRepetitionCures(t *testing.T) {
	t.Parallel()
	for _, final := range []error{
		store.ErrNoTarget, store.ErrInboxFull,
		fmt.Errorf("%w: %w", store.ErrUnknown, refused("57P01")),
		refused("22P05"), refused("42P01"), context.Canceled,
	} {
		s := &script{errs: []error{final}}
		_, log, err := attempt(t.Context(), s)
		require.ErrorIs(t, err, final)
		require.Len(t, s.to, 1, final)
		require.Empty(t, log)
	}
}

// lost is an error after which it is unknown whether the signal was delivered.
type lost struct{}

func (lost) Error() string { return "connection reset" }
func (lost) Unknown() bool { return true }

// A message is kept only if no attempt before may have delivered it.
func TestSendKeepsWhatHasNoTarget(t *testing.T) {
	t.Parallel()
	for _, try := range []struct {
		errs []error
		to   fsm.Target
		keep time.Duration
		kept bool
		err  error
	}{
		{errs: []error{store.ErrNoTarget}, to: fsm.Key("k"), keep: time.Hour, kept: true},
		{errs: []error{store.ErrNoTarget, refused("40P01"), store.ErrNoTarget}, to: fsm.Key("k"), keep: time.Hour, kept: true},
		{errs: []error{store.ErrNoTarget}, to: fsm.Key("k"), err: store.ErrNoTarget},
		{errs: []error{store.ErrNoTarget}, to: fsm.ID(7), keep: time.Hour, err: store.ErrNoTarget},
		{errs: []error{lost{}, store.ErrNoTarget}, to: fsm.Key("k"), keep: time.Hour, err: store.ErrUnknown},
	} {
		s := &script{errs: try.errs}
		sender := send.Sender{Inboxes: s, Inbox: 10, Logger: slog.New(slog.DiscardHandler)}
		d, err := sender.Send(t.Context(), try.to, &step.Signal{Name: "go", DedupKey: "d", Keep: try.keep})
		require.ErrorIs(t, err, try.err)
		require.Equal(t, try.kept, d.Kept)
	}
}

// Before the attempt that finds no target, the target may have consumed the signal and ended.
func TestSendDoubtsThatThereWasNoTarget(t *testing.T) {
	t.Parallel()
	s := &script{errs: []error{lost{}, refused("40P01"), store.ErrNoTarget}}
	_, _, err := attempt(t.Context(), s)
	require.ErrorIs(t, err, store.ErrUnknown)
	require.NotErrorIs(t, err, store.ErrNoTarget)
	require.Len(t, s.to, 3)
}

func TestSendOrInsertRepeatsAsSendDoes(t *testing.T) {
	t.Parallel()
	s := &script{errs: []error{refused("40P01"), errors.New("connection reset")}}
	sender := send.Sender{Inboxes: s, Inbox: 10, Logger: slog.New(slog.DiscardHandler)}
	d, err := sender.SendOrInsert(t.Context(), &step.Spec{Key: "k"}, &step.Signal{Name: "go"})
	require.NoError(t, err)
	require.True(t, d.Inserted)
	require.Equal(t, []store.Address{{Key: "k"}, {Key: "k"}, {Key: "k"}}, s.to)

	ended := &store.EndedError{Occupant: 7}
	s = &script{errs: []error{ended}}
	sender.Inboxes = s
	_, err = sender.SendOrInsert(t.Context(), &step.Spec{Key: "k"}, &step.Signal{Name: "go"})
	require.ErrorIs(t, err, store.ErrNoTarget)
	require.Len(t, s.to, 1)
}

// SendMany repeats all, answers each, and doubts an ErrNoTarget after an attempt without an answer.
func TestSendManyRepeatsAsSendDoes(t *testing.T) {
	t.Parallel()
	list := []send.Letter{
		{To: fsm.ID(1), Signal: &step.Signal{Name: "go"}}, {To: fsm.ID(-1), Signal: &step.Signal{Name: "go"}},
		{To: fsm.Key("k"), Signal: &step.Signal{Name: "go"}},
	}
	for _, lose := range []bool{false, true} {
		s := &script{errs: []error{refused("40P01")}}
		if lose {
			s.errs = append(s.errs, lost{})
		}
		for range s.errs {
			s.many = append(s.many, store.Answer{}, store.Answer{}) // of attempts that fail
		}
		s.many = append(s.many, store.Answer{Err: store.ErrInboxFull}, store.Answer{Err: store.ErrNoTarget})
		sender := send.Sender{Inboxes: s, Inbox: 10, Logger: slog.New(slog.DiscardHandler)}
		got, err := sender.SendMany(t.Context(), list)
		require.NoError(t, err)
		require.ErrorIs(t, got[0].Err, store.ErrInboxFull)
		require.ErrorIs(t, got[1].Err, store.ErrNoTarget, "no instance can have that address")
		require.Equal(t, lose, errors.Is(got[2].Err, store.ErrUnknown))
		require.Equal(t, !lose, errors.Is(got[2].Err, store.ErrNoTarget))
		require.Len(t, s.to, len(s.errs)+1)
	}
	s := &script{errs: []error{fmt.Errorf("%w: lost", store.ErrUnknown)}}
	sender := send.Sender{Inboxes: s, Logger: slog.New(slog.DiscardHandler)}
	_, err := sender.SendMany(t.Context(), list)
	require.ErrorIs(t, err, store.ErrUnknown)
	none, err := sender.SendMany(t.Context(), list[1:2])
	require.NoError(t, err)
	require.ErrorIs(t, none[0].Err, store.ErrNoTarget)
	require.Len(t, s.to, 1, "of these nothing is sent")
}

// After a statement that failed, a host's transaction is aborted.
func TestSendOnceRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, passing := range []error{refused("40P01"), refused("55P03"), errors.New("connection reset")} {
		s := &script{errs: []error{passing, passing}}
		sender := send.Sender{Inboxes: s, Once: true, Logger: slog.New(slog.DiscardHandler)}
		_, err := sender.Send(t.Context(), fsm.Key("k"), &step.Signal{Name: "go"})
		require.ErrorIs(t, err, passing)
		_, err = sender.SendOrInsert(t.Context(), &step.Spec{Key: "k"}, &step.Signal{Name: "go"})
		require.ErrorIs(t, err, passing)
		require.Len(t, s.to, 2)
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		s := &script{}
		for range 100 {
			s.errs = append(s.errs, refused("53300"))
		}
		_, _, err := attempt(ctx, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "53300")
		require.Less(t, len(s.to), 10)
	})
}

// A context that ends in the middle of an attempt names what the attempts before have met.
func TestSendThatIsCutOffNamesTheFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &script{errs: []error{refused("53300"), context.Canceled}, at: func(attempt int) {
		if attempt > 1 {
			cancel()
		}
	}}
	_, _, err := attempt(ctx, s)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "53300")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, good := range []struct {
		target fsm.Target
		want   store.Address
	}{
		{fsm.ID(1), store.Address{ID: 1}},
		{fsm.Key("k"), store.Address{Key: "k"}},
		{fsm.Key(strings.Repeat("k", 512)), store.Address{Key: strings.Repeat("k", 512)}},
	} {
		got, err := send.Resolve(good.target)
		require.NoError(t, err)
		require.Equal(t, good.want, got)
	}
	id := fsm.ID(1)
	for _, bad := range []fsm.Target{
		nil, fsm.ID(0), fsm.ID(-1), fsm.Key(""), fsm.Key(strings.Repeat("k", 513)), fsm.Key("\x00"), fsm.Key("\xff"), &id,
	} {
		_, err := send.Resolve(bad)
		require.Error(t, err, "%v", bad)
		s := &script{}
		_, err = (&send.Sender{Inboxes: s}).Send(t.Context(), bad, &step.Signal{Name: "go"})
		require.ErrorIs(t, err, store.ErrNoTarget)
		require.Empty(t, s.to)
	}
}
