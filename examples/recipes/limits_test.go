package recipes

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// crm answers as the API would, and notes how many ask at once.
type crm struct {
	answer func(call int) int // a status
	hold   chan struct{}      // nil, or what an answer waits for

	mu        sync.Mutex
	now, most int
	keys      []string
}

// RoundTrip makes it an HTTP client's transport.
func (c *crm) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
	call := len(c.keys)
	c.mu.Unlock()
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	status := c.answer(call)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Retry-After": {"30"}},
		Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func (c *crm) calls() (now, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, len(c.keys)
}

func TestACallIsRepeatedAsTheAPIAsksFor(t *testing.T) {
	t.Parallel()
	statuses := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusOK, http.StatusOK}
	c := &crm{answer: func(call int) int { return statuses[call-1] }}
	kit := kitWith(t, "", job(&http.Client{Transport: c}))
	require.NoError(t, limit(t.Context(), kit.Engine))
	id := insert(t, kit, Push.New(Sync{42}))
	durabletest.RequireDrain(t, kit)
	other := insert(t, kit, Push.New(Sync{43}))
	durabletest.RequireAdvance(t, kit, 20*time.Second)
	require.Len(t, c.keys, 1, "both wait for as long as the API says")
	durabletest.RequireAdvance(t, kit, time.Minute)
	durabletest.RequireDone(t, kit, Push, id)
	durabletest.RequireDone(t, kit, Push, other)
	require.Len(t, c.keys, 4)
	require.Len(t, map[string]bool{c.keys[0]: true, c.keys[1]: true, c.keys[2]: true, c.keys[3]: true}, 2, "two calls, repeated as the same")
	require.NotEmpty(t, c.keys[0])
}

func TestNoMoreCallsAtOnceThanTheAPITakes(t *testing.T) {
	t.Parallel()
	const customers = 40
	c := &crm{answer: func(int) int { return http.StatusOK }, hold: make(chan struct{})}
	url := pgtest.Migrated(t)
	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(t, url)})
	require.NoError(t, err)
	require.NoError(t, limit(t.Context(), eng))
	for range 2 {
		one, err := engine.New(engine.Config{Pool: pgtest.Pool(t, url), Machines: []fsm.Definition{job(&http.Client{Transport: c})},
			Queues: map[string]engine.Queue{"crm": {Concurrency: 10}}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, one.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, one.Stop(context.Background())) })
		eng = one
	}
	var ids []fsm.ID
	for customer := range int64(customers) {
		id, err := eng.Insert(t.Context(), Push.New(Sync{customer}))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	require.Eventually(t, func() bool { now, _ := c.calls(); return now == crmLimits.Places }, time.Minute, time.Millisecond, "all places are used")
	close(c.hold)
	for _, id := range ids {
		_, err := Push.Wait(t.Context(), eng, id)
		require.NoError(t, err)
	}
	_, all := c.calls()
	require.Equal(t, customers, all)
	require.Equal(t, crmLimits.Places, c.most)
}
