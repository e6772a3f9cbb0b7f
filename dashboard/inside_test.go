package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.NoLeaks(m) }

func TestAccessIsBoundToQueuesAndMachines(t *testing.T) {
	t.Parallel()
	bound := Access{Level: Read, Queues: []string{"emails"}, Machines: []string{"welcome", "invoice"}}
	require.True(t, bound.sees("emails", "welcome"))
	require.False(t, bound.sees("emails", "payout"))
	require.False(t, bound.sees("payments", "welcome"))
	require.False(t, bound.sees("", ""), "what belongs to all queues is more than one of them")
	require.False(t, bound.holds(fsm.Filter{Machine: "welcome"}), "it selects instances of other queues, too")
	require.True(t, bound.holds(fsm.Filter{Machine: "welcome", Queue: "emails"}))
	require.False(t, bound.everywhere())
	require.True(t, Access{}.everywhere())
	require.True(t, Access{}.sees("any", "any"))
}

func TestShowDecidesWhatIsSeen(t *testing.T) {
	t.Parallel()
	secret := json.RawMessage(`{"card":"4111"}`)
	reader := context.WithValue(t.Context(), accessKey{}, Access{Level: Read})
	outline := context.WithValue(t.Context(), accessKey{}, Access{Level: Outline})
	s := &server{log: slog.New(slog.DiscardHandler)}
	require.Equal(t, secret, s.visible(reader, "shop", "state", secret))
	require.Nil(t, s.visible(outline, "shop", "state", secret))
	require.Nil(t, s.visible(t.Context(), "shop", "state", secret), "without an access there is nothing to see")

	s.Show = func(machine, field string, v json.RawMessage) json.RawMessage {
		switch machine + "." + field {
		case "shop.state":
			return json.RawMessage(`{"card":"…"}`)
		case "shop.result":
			return json.RawMessage(`{`)
		case "shop.payload":
			panic("a fault of the host")
		}
		v[0] = '['
		return nil
	}
	require.JSONEq(t, `{"card":"…"}`, string(s.visible(reader, "shop", "state", secret)))
	require.Nil(t, s.visible(reader, "shop", "result", secret), "no JSON")
	require.Nil(t, s.visible(reader, "shop", "payload", secret), "a panic shows nothing")
	require.Nil(t, s.visible(reader, "bank", "state", secret))
	require.JSONEq(t, `{"card":"4111"}`, string(secret), "what Show changes is its own copy")
}

// Everyone who asks while one read is under way gets its answer, and so does who comes soon after;
// an asker who goes away takes nothing from the others.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	var s shared
	var asked atomic.Int32
	begun, release := make(chan struct{}), make(chan struct{})
	read := func(ctx context.Context) (int32, error) {
		n := asked.Add(1)
		if n == 1 {
			close(begun)
			<-release
		}
		return n, ctx.Err()
	}
	first, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := once(first, &s, "counts", time.Hour, time.Hour, read)
		gone <- err
	}()
	<-begun
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	answers := make(chan int32)
	for range 20 {
		go func() {
			n, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, read)
			if err != nil {
				n = -1
			}
			answers <- n
		}()
	}
	close(release)
	for range 20 {
		require.Equal(t, int32(1), <-answers)
	}
	n, at, err := once(t.Context(), &s, "counts", 0, time.Hour, read)
	require.NoError(t, err)
	require.Equal(t, int32(2), n, "an answer that is too old is asked anew")
	require.False(t, at.IsZero())
}

func TestErrorsAreNotShared(t *testing.T) {
	t.Parallel()
	var s shared
	_, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, func(context.Context) (int, error) { return 0, errors.New("down") })
	require.EqualError(t, err, "down")
	n, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)
	for k := range maxShared + 10 {
		_, _, err := once(t.Context(), &s, string(rune(k+1000)), time.Hour, time.Hour, func(context.Context) (int, error) { return k, nil })
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(s.answers), maxShared)
}

func TestHeavyReadsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	s := &server{heavy: make(chan struct{}, 1)}
	done, err := s.weigh(t.Context())
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.weigh(ended)
	require.ErrorIs(t, err, context.Canceled)
	done()
	done, err = s.weigh(t.Context())
	require.NoError(t, err)
	done()
}
