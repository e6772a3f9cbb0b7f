package dashboard

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
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
	// Within bounds what the sender sees and changes to some queues, machines or labels. The zero
	// Bounds do not bound, and an empty list of queues or machines that is not nil covers nothing.
	// They are a predicate of every read, and a condition of every verb:
	// instances outside do not exist for the sender. A verb that would also change instances outside,
	// such as the nodes of a graph whose root it cancels, is refused whole. Pages leave out what
	// cannot be told apart so, such as the list of workers.
	Within engine.Bounds
}

// everywhere reports whether the access has no bounds.
func (a Access) everywhere() bool { return a.Within.IsZero() }

// sees reports whether the access covers what is known by its queue and machine alone, such as a
// count or a limit. An empty name stands for any. Access that is bound to labels covers nothing of
// this: it is of instances with all labels.
func (a Access) sees(queue, machine string) bool { return a.Within.Cover(queue, machine, nil) }

// defines reports whether the access covers the definition of a machine, which is of no queue and
// has no labels. Access to no queue covers none.
func (a Access) defines(machine string) bool {
	none := a.Within.Queues != nil && len(a.Within.Queues) == 0
	return !none && (a.Within.Machines == nil || slices.Contains(a.Within.Machines, machine))
}

// byQueue reports whether the access covers all of some queues, or of all: no bounds are of
// machines or labels.
func (a Access) byQueue() bool { return a.Within.Machines == nil && len(a.Within.Labels) == 0 }

// within returns the predicates that select what the access of ctx covers.
func within(ctx context.Context) ([]predicate.Instance, error) {
	return engine.Where(engine.Filter{Within: accessOf(ctx).Within})
}

// covered returns which of the instances, at one place, the access of ctx covers; nil, if the
// access has no bounds, stands for all.
func (s *server) covered(ctx context.Context, at *site, ids []fsm.ID) (covered, error) {
	if accessOf(ctx).everywhere() {
		return nil, nil
	}
	found := covered{}
	if len(ids) == 0 {
		return found, nil
	}
	which, err := within(ctx)
	if err != nil {
		return nil, err
	}
	ids, err = turned(ctx, at.turns.light, at.engine.Ent().Instance.Query().Where(append(which, instance.IDIn(ids...))...).IDs)
	for _, id := range ids {
		found[id] = true
	}
	return found, err
}

// covered are instances that an access covers; nil: all.
type covered map[fsm.ID]bool

func (c covered) has(id fsm.ID) bool { return c == nil || c[id] }

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
