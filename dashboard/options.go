package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// These are the defaults and bounds of Options.
const (
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 10 * time.Minute
	DefaultRefresh = 5 * time.Second
	MinRefresh     = time.Second
	DefaultHeavy   = 2
	MaxHeavy       = 100
	// MaxBodyBytes bounds the body of a request.
	MaxBodyBytes = 8 << 20
)

// Options configures the handler. The zero value serves only this machine, with all rights.
type Options struct {
	// Authorize returns what the sender of a request may do. An error refuses the request, and its
	// text goes only to the log. Nil gives requests from this machine that came through no proxy
	// all rights, and refuses all others.
	Authorize func(*http.Request) (Access, error)
	// Show redacts a document: it returns the part that may be seen. It gets the document decoded
	// by the codec. Field is "state", "result", "progress", "payload", "diff", "before" or "after".
	// If Show returns nil or invalid JSON, or panics, nothing of the document is shown. A nil Show
	// shows everything.
	Show func(machine, field string, v json.RawMessage) json.RawMessage
	// TraceLink returns the address of a trace. It gets the trace context that the instance
	// carries, such as its "traceparent". If it returns anything but an address of http or https,
	// there is no link. Nil: there are no links.
	TraceLink func(trace map[string]string) string
	// Base is the path below which the handler is mounted, such as "/ops", if nothing strips it
	// from the request. Empty: the handler sees paths from "/" on, as behind http.StripPrefix. All
	// links are relative, so a proxy may rewrite paths without telling the handler.
	Base string
	// Frames lists the origins whose pages may show the dashboard in a frame, such as
	// "https://ops.example.com". Empty: none may.
	Frames []string
	// TrustedOrigins lists origins other than the dashboard's own that may send verbs, such as
	// "https://ops.example.com".
	TrustedOrigins []string
	// Timeout bounds the time of one request: 15 s unless given, at most 10 min.
	Timeout time.Duration
	// Refresh is how often an open page refreshes itself, and for how long all readers share one
	// answer of the database: 5 s unless given, at least 1 s.
	Refresh time.Duration
	// Logger receives errors that pages do not show, and refused requests: slog.Default() unless
	// given.
	Logger *slog.Logger
	// Heavy is how many reads of many rows may run at the same time: counts, lists, plans, and
	// queries on the history. Further ones wait for their turn. 2 unless given, at most 100.
	Heavy int
}

// OptionError says what is wrong with one field of Options.
type OptionError struct {
	Field string // e.g. "Frames[0]"
	Err   error  // what is wrong, with the bound
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("gendurable: dashboard: %s: %v", e.Field, e.Err)
}

// Unwrap returns what is wrong.
func (e *OptionError) Unwrap() error { return e.Err }

// withDefaults returns a copy in which each zero field has its default.
func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Refresh == 0 {
		o.Refresh = DefaultRefresh
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Heavy == 0 {
		o.Heavy = DefaultHeavy
	}
	return o
}

// validate joins all faults, each an *OptionError.
func (o Options) validate() error {
	var faults []error
	wrong := func(field, format string, args ...any) {
		faults = append(faults, &OptionError{field, fmt.Errorf(format, args...)})
	}
	if o.Timeout < 0 || o.Timeout > MaxTimeout {
		wrong("Timeout", "%v, want 0 to %v", o.Timeout, MaxTimeout)
	}
	if o.Refresh != 0 && o.Refresh < MinRefresh {
		wrong("Refresh", "%v, at least %v", o.Refresh, MinRefresh)
	}
	if o.Heavy < 0 || o.Heavy > MaxHeavy {
		wrong("Heavy", "%d, want 0 to %d", o.Heavy, MaxHeavy)
	}
	// Others would never be stripped: a mux cleans the paths of requests.
	if o.Base != "" && (o.Base == "/" || o.Base[0] != '/' || path.Clean(o.Base) != o.Base || strings.ContainsAny(o.Base, "?#%\\")) {
		wrong("Base", "%q, want a clean path like /ops: a slash in front and between names only, without . and .., and nothing encoded", o.Base)
	}
	for field, origins := range map[string][]string{"Frames": o.Frames, "TrustedOrigins": o.TrustedOrigins} {
		for n, origin := range origins {
			if !isOrigin(origin) {
				wrong(fmt.Sprintf("%s[%d]", field, n), "%q, want an origin like https://ops.example.com", origin)
			}
		}
	}
	return errors.Join(faults...)
}

// isOrigin reports whether a text is a scheme and a host, and holds nothing that could end a
// directive of a policy.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" &&
		text == u.Scheme+"://"+u.Host && !strings.ContainsAny(text, " ;,'\"")
}
