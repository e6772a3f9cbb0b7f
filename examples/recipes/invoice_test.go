package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
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
	kit := kitWith(t, "", invoices{mail: server.mail}.machine())
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
	kit := kitWith(t, "", invoices{mail: server.mail}.machine())
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

// A payment that comes while the invoice ends is paid back, under one key.
func TestASecondPaymentIsPaidBack(t *testing.T) {
	t.Parallel()
	var back []int64
	keys := map[string]bool{}
	machine := invoices{
		mail: func(context.Context, Bill, string) error { return nil },
		refund: func(_ context.Context, b Bill, cents []int64, key string) error {
			require.Equal(t, "acme", b.Customer)
			back, keys[key] = append(back, cents...), true
			return nil
		},
	}.machine()
	kit := durabletest.New(t, durabletest.Config{DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{machine}, Options: func(c *engine.Config) {
		c.Middleware = append(c.Middleware, engine.Middleware{Step: func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
			if i.Step == "settle" {
				require.NoError(t, pay(ctx, engine.FromContext(ctx), "2026-8", 100, "event-2"))
			}
			return run(ctx)
		}})
	}})
	id, err := bill(t.Context(), kit.Engine, Bill{Number: "2026-8", Customer: "acme", Cents: 4200})
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.NoError(t, pay(t.Context(), kit.Engine, "2026-8", 4200, "event-1"))
	durabletest.RequireDrain(t, kit)
	require.Equal(t, int64(4200), durabletest.RequireDone(t, kit, Invoice, id))
	require.Equal(t, []int64{100}, back)
	require.Len(t, keys, 1)
}

func TestAProcessWorksOnInvoices(t *testing.T) {
	t.Parallel()
	mailed := make(chan string, 1)
	kit := kitWith(t, "", invoices{mail: func(context.Context, Bill, string) error { return nil }}.machine())
	_, err := bill(t.Context(), kit.Engine, Bill{Number: "2026-9"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- work(ctx, kit.Pool, invoices{mail: func(_ context.Context, b Bill, _ string) error {
			mailed <- b.Number
			return nil
		}})
	}()
	require.Equal(t, "2026-9", <-mailed)
	stop()
	require.NoError(t, <-ended)
}
