package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// The command serves this machine, in the name of the user who started it, until it is
// interrupted.
func TestUI(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.eng.Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	for _, c := range []struct {
		args []string
		post int
	}{{[]string{"--read-only"}, http.StatusForbidden}, {nil, http.StatusSeeOther}} {
		address, end := serve(t, append([]string{"ui", "--listen", "127.0.0.1:0", "--database-url", h.url, "--actor", "ada"}, c.args...)...)
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		answer, err := client.Get(address + "queues")
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Contains(t, string(body), "mail")
		answer, err = client.PostForm(address+"verbs/resume_queue", url.Values{"name": {"mail"}, "reason": {"a test"}})
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.post, answer.StatusCode)
		client.CloseIdleConnections()
		require.Equal(t, codeDone, end())
	}
	require.Contains(t, h.run("audit", "--verb", "resume_queue").out, "ada")
	require.Equal(t, codeUsage, h.run("ui", "--listen", "nowhere:port").code)
}

// serve runs a command that serves a dashboard, and returns its address and how to end it.
func serve(t *testing.T, args ...string) (address string, end func() exitCode) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	read, write := io.Pipe()
	code := make(chan exitCode, 1)
	go func() {
		code <- run(ctx, args, &console{in: strings.NewReader(""), out: io.Discard, errs: write})
		_ = write.Close()
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, read) }()
	_, after, ok := strings.Cut(line, " at ")
	require.True(t, ok, line)
	return strings.Fields(after)[0], func() exitCode {
		interrupt()
		return <-code
	}
}

// A cluster's dashboard shows what is at any place, and leaves out one that is down.
func TestClusterUI(t *testing.T) {
	t.Parallel()
	h := newClusterHost(t, 2)
	require.Equal(t, codeDone, h.cluster("init", h.places).code)
	for place, url := range h.urls {
		pool := pgtest.Pool(t, url)
		eng, err := engine.New(engine.Config{Pool: pool})
		require.NoError(t, err)
		_, err = eng.Admin().PauseQueue(t.Context(), fmt.Sprint("mail-", place))
		require.NoError(t, err)
	}
	args := []string{"cluster", "ui", "--listen", "127.0.0.1:0", "--wait", "1s"}
	address, end := serve(t, append(args, "--place", h.places[0], "--place", h.places[1])...)
	answer, err := http.Get(address + "queues") //nolint:noctx // the test's own server
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(body), "mail-0")
	require.Contains(t, string(body), "mail-1")
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, codeDone, end())
	require.Equal(t, codeUsage, h.run("cluster", "ui").code)
}
