package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command serves this machine, in the name of whoever started it, until it is interrupted.
func TestUI(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := h.eng.Admin().PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	for _, c := range []struct {
		args []string
		post int
	}{{[]string{"--read-only"}, http.StatusForbidden}, {nil, http.StatusSeeOther}} {
		ctx, interrupt := context.WithCancel(t.Context())
		read, write := io.Pipe()
		code := make(chan exitCode, 1)
		args := append([]string{"ui", "--listen", "127.0.0.1:0", "--database-url", h.url, "--actor", "ada"}, c.args...)
		go func() {
			code <- run(ctx, args, &console{in: strings.NewReader(""), out: io.Discard, errs: write})
			_ = write.Close()
		}()
		line, err := bufio.NewReader(read).ReadString('\n')
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, read) }()
		_, after, ok := strings.Cut(line, " at ")
		require.True(t, ok, line)
		address := strings.Fields(after)[0]

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
		interrupt()
		require.Equal(t, codeDone, <-code)
	}
	require.Contains(t, h.run("audit", "--verb", "resume_queue").out, "ada")
	require.Equal(t, codeUsage, h.run("ui", "--listen", "nowhere:port").code)
}
