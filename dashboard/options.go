package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
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

// Options configure the handler. The zero value serves loopback only, with all rights.
type Options struct {
	// Authorize says what the sender of a request may do. An error refuses the request; its text goes
	// to the log only. Nil admits what comes from this machine, without a proxy, with all rights, and
	// nothing else.
	Authorize func(*http.Request) (Access, error)
	// Show returns what of a document may be seen, after the codec has decoded it: a redaction. Field
	// is "state", "result", "progress", "payload", "diff", "before" or "after". Nil, an error of JSON
	// and a panic show nothing of it. A Show that is nil shows all.
	Show func(machine, field string, v json.RawMessage) json.RawMessage
	// TraceLink returns the address of a trace, of what an instance carries of it, like its
	// "traceparent". Empty, or no address of http or https: there is no link. Nil: none.
	TraceLink func(trace map[string]string) string
	// Base is the path below which the handler is mounted, like "/ops", if nobody strips it before.
	// Empty: the handler sees paths from "/" on, as behind http.StripPrefix. All links are relative,
	// so a proxy may rewrite paths without saying so.
	Base string
	// Frames are the origins whose pages may show the dashboard in a frame, like
	// "https://ops.example.com". None: nobody.
	Frames []string
	// TrustedOrigins are origins other than the dashboard's own that may send verbs, like
	// "https://ops.example.com".
	TrustedOrigins []string
	// Timeout bounds what one request may take: 15 s, at most 10 min.
	Timeout time.Duration
	// Refresh is how often an open page is refreshed, and for how long answers of the database are
	// shared by all who look: 5 s, at least 1 s.
	Refresh time.Duration
	// Logger receives what cannot be shown, and who was refused: slog.Default().
	Logger *slog.Logger
	// Heavy is how many reads of many rows may run at a time: counts, lists, plans, queries on the
	// history. Others wait for their turn. 2, at most 100.
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
		wrong("Timeout", "%v, 0 to %v", o.Timeout, MaxTimeout)
	}
	if o.Refresh != 0 && o.Refresh < MinRefresh {
		wrong("Refresh", "%v, at least %v", o.Refresh, MinRefresh)
	}
	if o.Heavy < 0 || o.Heavy > MaxHeavy {
		wrong("Heavy", "%d, 0 to %d", o.Heavy, MaxHeavy)
	}
	if o.Base != "" && (!strings.HasPrefix(o.Base, "/") || strings.HasSuffix(o.Base, "/")) {
		wrong("Base", "%q, must begin with a slash and not end with one", o.Base)
	}
	for field, origins := range map[string][]string{"Frames": o.Frames, "TrustedOrigins": o.TrustedOrigins} {
		for n, origin := range origins {
			if !isOrigin(origin) {
				wrong(fmt.Sprintf("%s[%d]", field, n), "%q, must be an origin like https://ops.example.com", origin)
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
