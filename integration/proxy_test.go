package integration

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

// proxy stands between an engine and Postgres and can cut a connection at a chosen point of the
// conversation.
type proxy struct {
	t        *testing.T
	listener net.Listener
	server   string

	mu    sync.Mutex
	plans []*cut
	open  map[net.Conn]bool
	done  sync.WaitGroup
}

// cut ends the connection on which the engine sends a certain text: the marker of the outcome that
// the test is about.
type cut struct {
	marker string
	after  bool   // only after Postgres has answered the following COMMIT; the engine does not get that answer
	act    func() // called when the cut is made
	let    bool   // then let the text pass, and the connection go on
	made   chan struct{}
}

// committed is Postgres' report of a COMMIT: the tag of a CommandComplete message.
var committed = []byte("COMMIT\x00")

// newProxy returns a proxy to the server of a database, and the database's URL through it.
func newProxy(t *testing.T, database string) (*proxy, string) {
	t.Helper()
	address, err := url.Parse(database)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, listener: listener, server: address.Host, open: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	address.Host = listener.Addr().String()
	return p, address.String()
}

// cut plans to end one connection when it carries the marker: before Postgres gets the end of the
// transaction, or after Postgres has committed it.
func (p *proxy) cut(marker string, after bool) *cut {
	c := &cut{marker: marker, after: after, made: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans = append(p.plans, c)
	return c
}

// at plans to call act when a connection carries the marker, and then to end the connection.
func (p *proxy) at(marker string, after bool, act func()) *cut {
	c := p.cut(marker, after)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.act = act
	return c
}

// make makes the cut, and reports whether the connection goes on.
func (c *cut) make() (goesOn bool) {
	if c.act != nil {
		c.act()
	}
	close(c.made)
	return c.let
}

// happened requires that a cut was made.
func (c *cut) happened(t *testing.T) {
	t.Helper()
	steady.Eventually(t, func() bool { // the answer of another connection may overtake the cut
		select {
		case <-c.made:
			return true
		default:
			return false
		}
	}, "the connection was never cut: %q", c.marker)
}

func (p *proxy) accept() {
	for {
		engine, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = engine.Close()
			continue
		}
		p.mu.Lock()
		p.open[engine], p.open[server] = true, true
		p.mu.Unlock()
		w := &wire{p: p, engine: engine, server: server}
		p.done.Go(w.requests)
		p.done.Go(w.answers)
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// take returns the plan whose marker is in a message, once.
func (p *proxy) take(message []byte) *cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.plans {
		if bytes.Contains(message, []byte(c.marker)) {
			p.plans = append(p.plans[:i:i], p.plans[i+1:]...)
			return c
		}
	}
	return nil
}

// wire is one connection through the proxy.
type wire struct {
	p              *proxy
	engine, server net.Conn

	mu   sync.Mutex
	plan *cut // the plan that waits for the COMMIT
}

func (w *wire) hangUp() {
	_ = w.engine.Close()
	_ = w.server.Close()
}

func (w *wire) requests() {
	defer w.hangUp()
	buffer := make([]byte, 1<<20)
	for {
		n, err := w.engine.Read(buffer)
		if err != nil {
			return
		}
		if c := w.p.take(buffer[:n]); c != nil {
			if !c.after && !c.make() {
				return
			}
			if c.after {
				w.mu.Lock()
				w.plan = c
				w.mu.Unlock()
			}
		}
		if _, err := w.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) answers() {
	defer w.hangUp()
	var tail []byte // of the bytes since the marker, as the tag may come in two parts
	buffer := make([]byte, 1<<20)
	for {
		n, err := w.server.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		plan := w.plan
		w.mu.Unlock()
		if plan != nil {
			if tail = append(tail, buffer[:n]...); bytes.Contains(tail, committed) {
				plan.make()
				return
			}
			tail = tail[max(0, len(tail)-len(committed)):]
		}
		if _, err := w.engine.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// marked returns a text that only one outcome has.
func marked(what string) string { return strings.ReplaceAll("mark of "+what, " ", "-") }
