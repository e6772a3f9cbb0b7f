package main

import (
	"bufio"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// sessions lets in browsers that have opened a printed address. Other users of this machine can
// reach the port, too, and the audit would name the user who started the command.
//
// An address has a token, which is good for one browser and for tokenLife: the first request with
// it gets a cookie. The command prints the next address only if its user asks for it. So an address
// in a history opens nothing, and neither does one in a log, except within tokenLife if no browser
// has opened it.
type sessions struct {
	next    http.Handler
	address string
	now     func() time.Time

	mu    sync.Mutex
	token string    // "": it was used
	until time.Time // the token is good before this time
	keys  []string  // the cookies of the browsers that are let in
}

// maxSessions is how many browsers are let in; of more, the oldest is put out.
const maxSessions = 20

// tokenLife is how long an address is good.
const tokenLife = 10 * time.Minute

func newSessions(next http.Handler, address net.Addr) *sessions {
	return &sessions{next: next, address: address.String(), now: time.Now}
}

// open returns a new address, which lets one browser in. Those before it are good no more.
func (s *sessions) open() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.until = rand.Text(), s.now().Add(tokenLife)
	return "http://" + s.address + "/?token=" + s.token
}

// more prints a new address for each line that the user enters.
func (s *sessions) more(in io.Reader, say func(format string, args ...any)) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		say("Another browser gets in at %s\n", s.open())
	}
}

// cookie is the name of the cookie. Cookies do not tell ports apart: another command's has another
// name.
func (s *sessions) cookie() string {
	_, port, _ := net.SplitHostPort(s.address)
	return "gendurable-ui-" + port
}

// ServeHTTP implements [http.Handler].
func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if token := query.Get("token"); token != "" && r.Method == http.MethodGet {
		if !s.knows(r) { // the address of a browser that is in may be opened again, from its history
			key := s.exchange(token)
			if key == "" {
				s.refuse(w)
				return
			}
			http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // not Secure: the page is on localhost, by HTTP
		}
		query.Del("token")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Location", "./"+map[bool]string{true: "?" + query.Encode()}[len(query) > 0])
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if !s.knows(r) {
		s.refuse(w)
		return
	}
	s.next.ServeHTTP(w, r)
}

// exchange returns a key for a token; "" if it is not the one that is good.
func (s *sessions) exchange(token string) (key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || !s.now().Before(s.until) || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return ""
	}
	key, s.token = rand.Text(), ""
	s.keys = append(s.keys, key)
	s.keys = s.keys[max(0, len(s.keys)-maxSessions):]
	return key
}

// knows reports whether a request has the cookie of a browser that was let in.
func (s *sessions) knows(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := 0
	for _, cookie := range r.CookiesNamed(s.cookie()) {
		for _, key := range s.keys {
			known |= subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(key))
		}
	}
	return known == 1
}

// refuse says what to do.
func (*sessions) refuse(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprint(w, `<!doctype html><html lang="en"><meta charset="utf-8"><title>Not open to this browser</title>
<h1>Not open to this browser</h1>
<p>Open the address that the terminal shows in which <code>gendurable</code> runs. It has a token that lets one browser in,
within ten minutes. Press Enter in that terminal for a new address.</p></html>
`)
}
