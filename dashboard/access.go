package dashboard

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

// Level is how much a user may do. Each level includes the ones before it.
type Level int

// These are the levels; the zero value is None.
const (
	None    Level = iota // nothing
	Outline              // read all but states, results, progress, payloads and what verbs changed of them
	Read                 // read everything that Options.Show shows
	Operate              // and use the verbs
)

// String returns the level's name, like "operate".
func (l Level) String() string {
	names := []string{"none", "outline", "read", "operate"}
	if l < None || int(l) >= len(names) {
		return "unknown"
	}
	return names[l]
}

// Access says what the sender of a request may do, and under which name. The zero value permits
// nothing.
type Access struct {
	Level Level
	// Actor is the name under which the audit records the changes of this request, of at most
	// engine.MaxActorBytes. Empty: the audit names the program.
	Actor string
	// Queues and Machines restrict what the sender sees and changes to instances of these; empty:
	// no restriction. Pages leave out what cannot be told apart by queue or machine, such as the
	// list of workers, if there is a restriction.
	Queues   []string
	Machines []string
}

// everywhere reports whether the access has no restriction.
func (a Access) everywhere() bool { return len(a.Queues) == 0 && len(a.Machines) == 0 }

// sees reports whether the access covers a queue and a machine. An empty name stands for any.
func (a Access) sees(queue, machine string) bool {
	return (len(a.Queues) == 0 || slices.Contains(a.Queues, queue)) &&
		(len(a.Machines) == 0 || slices.Contains(a.Machines, machine))
}

// holds reports whether the access covers everything that a filter can select.
func (a Access) holds(f fsm.Filter) bool { return a.sees(f.Queue, f.Machine) }

type accessKey struct{}

// accessOf returns the access of the request to which a context belongs.
func accessOf(ctx context.Context) Access {
	a, _ := ctx.Value(accessKey{}).(Access)
	return a
}

// Loopback returns an [Options.Authorize] that gives requests from this machine the access a, and
// all others none.
//
// The host name in the request has to be this machine's, too. Otherwise a page of another site
// could point its own name here, and send requests as if it were this site. A proxy on this
// machine sends requests for others, so Loopback refuses requests with a header that says they
// were forwarded. A proxy that sends no such header looks like a browser on this machine: put none
// before a handler without Authorize.
func Loopback(a Access) func(*http.Request) (Access, error) {
	return func(r *http.Request) (Access, error) {
		if local(r) {
			return a, nil
		}
		return Access{}, nil
	}
}

// local reports whether a request comes from this machine, is addressed to it, and took no detour.
func local(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !net.ParseIP(host).IsLoopback() || !namesLoopback(r.Host) || !r.ProtoAtLeast(1, 1) { // nginx speaks 1.0 to servers, browsers do not
		return false
	}
	for _, header := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Real-Ip", "X-Client-Ip",
		"True-Client-Ip", "Cf-Connecting-Ip", "Via",
	} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	return true
}

func namesLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
