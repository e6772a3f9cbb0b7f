package dashboard

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

// Level says what somebody may do. Each level includes those before it.
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

// Access says what the sender of a request may do, and in whose name. The zero value may nothing.
type Access struct {
	Level Level
	// Actor is whom the audit names for what this request changes, in at most engine.MaxActorBytes.
	// Empty: the program.
	Actor string
	// Queues and Machines bound what can be seen and changed to instances of these; none: of all.
	// What cannot be told apart by them, such as the list of workers, is not shown then.
	Queues   []string
	Machines []string
}

// everywhere reports whether the access is bound to no queues or machines.
func (a Access) everywhere() bool { return len(a.Queues) == 0 && len(a.Machines) == 0 }

// sees reports whether what belongs to a queue and a machine may be seen. An empty name is any.
func (a Access) sees(queue, machine string) bool {
	return (len(a.Queues) == 0 || slices.Contains(a.Queues, queue)) &&
		(len(a.Machines) == 0 || slices.Contains(a.Machines, machine))
}

// holds reports whether all that a filter can select may be seen.
func (a Access) holds(f fsm.Filter) bool { return a.sees(f.Queue, f.Machine) }

type accessKey struct{}

// accessOf returns the access of the request to which a context belongs.
func accessOf(ctx context.Context) Access {
	a, _ := ctx.Value(accessKey{}).(Access)
	return a
}

// Loopback returns an [Options.Authorize] that gives an access to what comes from this machine, and
// none to anything else.
//
// The name in the request has to be this machine's, too: else a page of another site could have its
// own name point here, and then ask as if it were ours. A proxy on this machine speaks for others,
// so what it forwards is refused, if a header says that it forwards. Without such a header it
// cannot be told from a browser on this machine: put no proxy before a handler without Authorize.
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
