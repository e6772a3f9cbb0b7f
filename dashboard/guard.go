package dashboard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// policy is the Content-Security-Policy of all answers: nothing inline, nothing from elsewhere.
func policy(frames []string) string {
	who := "'none'"
	if len(frames) > 0 {
		who = strings.Join(frames, " ")
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + who
}

// guard wraps everything that is served. It sets the headers that protect browsers, refuses
// requests of other sites' pages, asks Authorize, bounds the body and the time, and puts access and
// actor into the context.
func (s *server) guard(next http.Handler) (http.Handler, error) {
	cross := http.NewCrossOriginProtection()
	for n, origin := range s.TrustedOrigins {
		if err := cross.AddTrustedOrigin(origin); err != nil {
			return nil, &OptionError{fmt.Sprintf("TrustedOrigins[%d]", n), err}
		}
	}
	authorize := s.Authorize
	if authorize == nil {
		authorize = Loopback(Access{Level: Operate})
	}
	csp := policy(s.Frames)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := s.Timeout
		if r.URL.Path == exportPath {
			limit = max(limit, exportTime)
		}
		hasten(w, r, limit)
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if len(s.Frames) == 0 {
			h.Set("X-Frame-Options", "DENY")
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
			h.Set("Allow", "GET, HEAD, POST")
			s.refuse(w, r, http.StatusMethodNotAllowed, "The dashboard answers GET, HEAD and POST.")
			return
		}
		if err := cross.Check(r); err != nil {
			s.refuse(w, r, http.StatusForbidden, "This request comes from a page of another site.")
			return
		}
		access, err := authorize(r)
		if err != nil {
			s.log.Warn("dashboard: not authorized", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		if err != nil || access.Level <= None {
			s.refuse(w, r, http.StatusForbidden, s.closed())
			return
		}
		if r.Method == http.MethodPost && access.Level < Operate {
			s.refuse(w, r, http.StatusForbidden, "You may read here, not change anything.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBodyBytes)
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		ctx = context.WithValue(ctx, accessKey{}, access)
		ctx = withRoom(ctx)
		if s.cluster != nil {
			ctx = withLacks(ctx)
		}
		if access.Actor != "" {
			ctx = engine.WithActor(ctx, access.Actor)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	}), nil
}

// hasten bounds how long the body of a request may take to arrive: one that trickles in holds a
// goroutine and a connection, and the host's server may have no such limit.
//
// Without a body, and behind the end of one, net/http reads ahead to learn whether the client has
// gone. A deadline that this meets cancels all further requests of the connection, so none is set
// then. A limit of the host's server that is shorter stays.
func hasten(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.ReadTimeout > 0 && server.ReadTimeout <= limit {
		return
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(limit)) == nil { // a test's recorder has no deadlines
		r.Body = &hastened{r.Body, control}
	}
}

// hastened is a body that has a deadline until its end.
type hastened struct {
	io.ReadCloser

	control *http.ResponseController
}

func (h *hastened) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err == io.EOF {
		_ = h.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// closed says why a user without access is refused.
func (s *server) closed() string {
	if s.Authorize != nil {
		return "You have no access here."
	}
	return "Only requests from this machine are served, addressed to localhost and not through a proxy. " +
		"Options.Authorize opens the dashboard to others."
}

// refuse answers without a page, since a user without access may learn nothing else.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	if strings.HasPrefix(r.URL.Path, apiRoot) {
		s.sendAPI(w, status, apiError{Error: text, Kind: apiKinds[status]})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text) //nolint:gosec // plain text, which no browser sniffs
}
