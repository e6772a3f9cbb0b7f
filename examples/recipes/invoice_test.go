package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// mailServer counts the mails by their keys, as long as it is up.
type mailServer struct {
	down  bool
	mails map[string]int // by idempotency key
}

func (s *mailServer) mail(_ context.Context, _ Bill, key string) error {
	if s.down {
		return errors.New("the mail server is down")
	}
	s.mails[key]++
	return nil
}

func TestAnInvoiceIsSentUntilItIsPaid(t *testing.T) {
	t.Parallel()
	server := &mailServer{mails: map[string]int{}}
	kit := kitWith(t, "", invoices{server.mail}.machine())
	id, err := bill(t.Context(), kit.Engine, Bill{Number: "2026-7", Customer: "acme", Cents: 4200})
	require.NoError(t, err)
	durabletest.RequireAdvance(t, kit, 29*24*time.Hour)
	require.Len(t, server.mails, 3, "the first, and one each two weeks")
	mails, err := sent(t.Context(), kit.Engine, "2026-7")
	require.NoError(t, err)
	require.Equal(t, 3, mails)

	for range 2 {
		require.NoError(t, pay(t.Context(), kit.Engine, "2026-7", 4200, "evt-1"))
	}
	durabletest.RequireDrain(t, kit)
	require.Equal(t, int64(4200), durabletest.RequireDone(t, kit, Invoice, id))
}

func TestAnInvoiceGoesOnAfterADayWithoutMail(t *testing.T) {
	t.Parallel()
	server := &mailServer{mails: map[string]int{}, down: true}
	kit := kitWith(t, "", invoices{server.mail}.machine())
	id, err := bill(t.Context(), kit.Engine, Bill{Number: "2026-8"})
	require.NoError(t, err)
	durabletest.RequireAdvance(t, kit, 24*time.Hour)
	durabletest.RequireFailed(t, kit, id, fsm.FailureExhausted, "mail server")

	server.down = false
	require.NoError(t, again(t.Context(), kit.Engine, id))
	durabletest.RequireDrain(t, kit)
	durabletest.RequireParked(t, kit, id, "paid")
	require.Len(t, server.mails, 1)
}

func TestAProcessWorksOnInvoices(t *testing.T) {
	t.Parallel()
	mailed := make(chan string, 1)
	kit := kitWith(t, "", invoices{func(context.Context, Bill, string) error { return nil }}.machine())
	_, err := bill(t.Context(), kit.Engine, Bill{Number: "2026-9"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- work(ctx, kit.Pool, invoices{func(_ context.Context, b Bill, _ string) error {
			mailed <- b.Number
			return nil
		}})
	}()
	require.Equal(t, "2026-9", <-mailed)
	stop()
	require.NoError(t, <-ended)
}
