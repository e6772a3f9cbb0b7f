package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// An export holds one instance at a time, however many are exported at once. The memory is measured
// each time some more has arrived, and not by a clock. No other test runs meanwhile.
func TestExportsNeedTheRoomOfAnInstance(t *testing.T) { //nolint:paralleltest // it measures the heap
	const rows, size, clients = 60, 500 << 10, 5
	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(t, pgtest.Migrated(t))})
	require.NoError(t, err)
	for range rows {
		_, err := eng.Insert(t.Context(), shop.New(order{Card: strings.Repeat("x", size)}).After(time.Hour))
		require.NoError(t, err)
	}
	h, err := dashboard.New(eng, dashboard.Options{Timeout: 10 * patience, Authorize: func(*http.Request) (dashboard.Access, error) {
		return dashboard.Access{Level: dashboard.Read}, nil
	}})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	var mu sync.Mutex
	live := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := live(), uint64(0)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/export?rows=100&format=json", nil)
			assert.NoError(t, err)
			answer, err := server.Client().Do(r)
			if !assert.NoError(t, err) {
				return
			}
			defer func() { assert.NoError(t, answer.Body.Close()) }()
			read, buffer := 0, make([]byte, 64<<10)
			for next := 0; ; {
				n, err := answer.Body.Read(buffer)
				if read += n; read > next {
					next += 4 << 20
					now := live()
					mu.Lock()
					most = max(most, now)
					mu.Unlock()
				}
				if err == io.EOF {
					break
				}
				if !assert.NoError(t, err) {
					return
				}
			}
			assert.Greater(t, read, rows*size)
		})
	}
	all.Wait()
	require.Less(t, most, before+24<<20, "before: %d MB, %d MB of documents, %d exports", before>>20, rows*size>>20, clients)
}

// An export is one list, of all that is left of the page, also if it is empty.
func TestAnExportIsAList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{})
	var none, all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.get("/export?format=json&queue=none", http.StatusOK)), &none))
	require.NotNil(t, none)
	require.Empty(t, none)
	for n := range 3 {
		w.insert(order{Card: fmt.Sprint("card-", n)}, nil)
	}
	require.NoError(t, json.Unmarshal([]byte(w.get("/export?format=json&rows=2&order=oldest", http.StatusOK)), &all))
	require.Len(t, all, 2)
	require.Equal(t, "card-0", all[0]["state"].(map[string]any)["card"])
	require.Equal(t, "card-1", all[1]["state"].(map[string]any)["card"])
}

// A body that trickles in is given up after Options.Timeout, also if the host's server has no
// limit, and one that is too large is refused.
func TestABodyIsBoundedInTimeAndSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dashboard.Options{Timeout: 300 * time.Millisecond})
	id := w.insert(order{}, nil)
	for path, kind := range map[string]string{
		fmt.Sprintf("/instances/%d/pause", id): "application/x-www-form-urlencoded", fmt.Sprintf("/api/instances/%d/pause", id): "application/json",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.Listener.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n{", path, w.Listener.Addr(), kind)
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) // and nothing more is ever sent
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, answer.StatusCode, path)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Contains(t, string(body), "did not arrive in time")
	}
	i, err := w.eng.Get(context.WithoutCancel(t.Context()), id)
	require.NoError(t, err)
	require.False(t, i.Paused)
	w = newWorld(t, dashboard.Options{}) // which has time for so much
	status, _ := w.ask(http.MethodPost, fmt.Sprintf("/api/instances/%d/pause", w.insert(order{}, nil)), "{"+strings.Repeat(" ", dashboard.MaxBodyBytes))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
}

// A request that takes too long does not end those that follow on its connection, with a body or
// without.
func TestAConnectionOutlivesARequestThatTakesTooLong(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	id, err := eng.Insert(t.Context(), shop.New(order{}).After(time.Hour))
	require.NoError(t, err)
	h, err := dashboard.New(eng, dashboard.Options{Timeout: 2 * time.Second})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	ask := func(method, path, body string) (status int, reused bool) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		r, err := http.NewRequestWithContext(ctx, method, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, reused
	}
	for _, slow := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/instances", ""}, {http.MethodPost, fmt.Sprintf("/api/instances/%d/pause", id), "{}"},
	} {
		lock, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = lock.Exec(t.Context(), `LOCK TABLE gendurable.gen_durable`)
		require.NoError(t, err)
		status, _ := ask(slow.method, slow.path, slow.body)
		require.GreaterOrEqual(t, status, http.StatusInternalServerError)
		require.NoError(t, lock.Rollback(t.Context()))
		require.Eventually(t, func() bool { // a busy machine may take too long for another request, too
			status, reused := ask(http.MethodGet, fmt.Sprintf("/api/instances?order=oldest&key=%s", slow.method), "")
			return assert.True(t, reused) && status == http.StatusOK
		}, patience, 10*time.Millisecond, "behind a %s", slow.method)
	}
}

// stuck is a response whose reader takes nothing before it is freed.
type stuck struct {
	*httptest.ResponseRecorder

	deadlines    bool
	begun, freed chan struct{}
	once         sync.Once
}

func (s *stuck) Write(text []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.freed
	return s.ResponseRecorder.Write(text)
}

// errNoDeadlines is the error of a response that middleware wraps and that has no Unwrap.
var errNoDeadlines = errors.New("no deadlines")

func (s *stuck) SetWriteDeadline(time.Time) error {
	if s.deadlines {
		return nil
	}
	return errNoDeadlines
}

// Readers that read nothing keep the others from their exports only as long as the deadline of a
// part allows, and if the dashboard can set no deadline, not at all.
func TestReadersThatReadNothingHoldNoExportUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	for range 30 {
		_, err := eng.Insert(t.Context(), shop.New(order{Card: strings.Repeat("x", 500<<10)}).After(time.Hour))
		require.NoError(t, err)
	}
	h, err := dashboard.New(eng, dashboard.Options{Timeout: time.Second, Authorize: func(*http.Request) (dashboard.Access, error) {
		return dashboard.Access{Level: dashboard.Read}, nil
	}})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	status := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/export?rows=1&format=json", nil)
		require.NoError(t, err)
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		if _, err = io.Copy(io.Discard, answer.Body); err != nil {
			return 0 // broken off, as a busy machine may do to any export within a second
		}
		return answer.StatusCode
	}
	serve := func(format string, deadlines bool) (w *stuck, ended chan any) {
		w, ended = &stuck{ResponseRecorder: httptest.NewRecorder(), deadlines: deadlines, begun: make(chan struct{}), freed: make(chan struct{})}, make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/export?rows=2&format="+format, nil))
		}()
		return w, ended
	}
	begin := func(format string, deadlines bool) (*stuck, chan any) {
		for t.Context().Err() == nil {
			w, ended := serve(format, deadlines)
			select {
			case <-ended: // it took a busy machine too long to read the first instance
				continue
			case <-w.begun:
			}
			if w.Code == http.StatusOK {
				return w, ended
			}
			close(w.freed) // it took too long to list, so this is the refusal
			<-ended
		}
		return nil, nil
	}
	// A busy machine may need more than a second for the next instance: that breaks an export off.
	end := func(w *stuck, ended chan any) {
		close(w.freed)
		select {
		case broken := <-ended:
			require.Contains(t, []any{nil, http.ErrAbortHandler}, broken)
		case <-time.After(patience):
			t.Fatal("the export still writes")
		}
	}
	for _, format := range []string{"csv", "json"} {
		for _, deadlines := range []bool{false, true} {
			first, firstEnded := begin(format, deadlines)
			second, secondEnded := begin(format, deadlines)
			want := http.StatusOK
			if deadlines && format == "json" {
				want = http.StatusServiceUnavailable // after Options.Timeout
			}
			require.Eventually(t, func() bool { return status() == want }, patience, 10*time.Millisecond, "%s, deadlines: %v", format, deadlines)
			end(first, firstEnded)
			end(second, secondEnded)
		}
	}
	// A reader that does not take its refusal holds up no other export. This list is in no cache.
	lock, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), `LOCK TABLE gendurable.gen_durable`)
	require.NoError(t, err)
	first, firstEnded := serve("json&order=oldest", false)
	second, secondEnded := serve("json&order=oldest", false)
	<-first.begun
	<-second.begun
	require.NotEqual(t, http.StatusOK, first.Code)
	require.NotEqual(t, http.StatusOK, second.Code)
	require.NoError(t, lock.Rollback(t.Context()))
	require.Eventually(t, func() bool { return status() == http.StatusOK }, patience, 10*time.Millisecond)
	end(first, firstEnded)
	end(second, secondEnded)

	// A read of an instance takes no longer than a page may.
	w, ended := begin("json", true)
	lock, err = pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), `LOCK TABLE gendurable.gen_durable`)
	require.NoError(t, err)
	close(w.freed)
	select {
	case broken := <-ended:
		require.Equal(t, http.ErrAbortHandler, broken)
	case <-time.After(patience):
		t.Fatal("the export still reads")
	}
	require.NoError(t, lock.Rollback(t.Context()))

	for range 2 { // real connections
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "GET /export?rows=30&format=json HTTP/1.1\r\nHost: %s\r\n\r\n", server.Listener.Addr())
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1)) // it has begun
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return status() == http.StatusOK }, patience, 10*time.Millisecond)
}
