package clients

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between engines and Postgres, and cuts connections.
type proxy struct {
	listener net.Listener
	server   string
	done     sync.WaitGroup

	m    sync.Mutex
	open map[*wire]bool
}

// wire is one connection through the proxy.
type wire struct {
	engine, server net.Conn
	mute           bool // the next answer is not passed on: the wire is cut instead
}

// newProxy returns a proxy to the server of a database, and the database's URL through it.
func newProxy(t *testing.T, database string) (*proxy, string) {
	t.Helper()
	address, err := url.Parse(database)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once
	require.NoError(t, err)
	p := &proxy{listener: listener, server: address.Host, open: map[*wire]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.m.Lock()
		for w := range p.open {
			w.cut()
		}
		p.m.Unlock()
		p.done.Wait()
	})
	address.Host = listener.Addr().String()
	return p, address.String()
}

func (w *wire) cut() {
	_ = w.engine.Close()
	_ = w.server.Close()
}

func (p *proxy) accept() {
	for {
		engine, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server) //nolint:noctx // of a test
		if err != nil {
			_ = engine.Close()
			continue
		}
		w := &wire{engine: engine, server: server}
		p.m.Lock()
		p.open[w] = true
		p.m.Unlock()
		p.done.Go(func() {
			_, _ = io.Copy(w.server, w.engine)
			w.cut()
		})
		p.done.Go(func() { p.answers(w) })
	}
}

// answers passes on what the server says.
func (p *proxy) answers(w *wire) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.server.Read(buffer)
		p.m.Lock()
		mute := w.mute
		p.m.Unlock()
		if err == nil && !mute {
			_, err = w.engine.Write(buffer[:n])
		}
		if err != nil || mute {
			break
		}
	}
	p.m.Lock()
	delete(p.open, w)
	p.m.Unlock()
	w.cut()
}

// cut cuts a connection: at once, or when the server next answers, so that the call has happened
// and its client does not know.
func (p *proxy) cut(answered bool) (done bool) {
	p.m.Lock()
	defer p.m.Unlock()
	for w := range p.open { // in no order
		if w.mute {
			continue
		}
		if w.mute = answered; !answered {
			w.cut()
		}
		return true
	}
	return false
}
