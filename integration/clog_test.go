package integration

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clog stands between an engine and Postgres and acts like the network of a process that stands
// still. From the moment in which a mark occurs in an answer, nothing is read any more, on any
// connection, and no connection ends. The server cannot send more than the buffers on the way hold.
type clog struct {
	url   string
	stuck chan struct{} // closed when it happens

	listener net.Listener
	server   string
	mark     []byte
	once     sync.Once
	relays   sync.WaitGroup

	mu    sync.Mutex
	open  []net.Conn // of engines and of the server, in turn
	ended chan struct{}
}

func newClog(t *testing.T, database, mark string) *clog {
	t.Helper()
	address, err := url.Parse(database)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &clog{stuck: make(chan struct{}), listener: listener, server: address.Host, mark: []byte(mark), ended: make(chan struct{})}
	address.Host = listener.Addr().String()
	c.url = address.String()
	c.relays.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

func (c *clog) accept() {
	for {
		engine, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			_ = engine.Close()
			continue
		}
		c.mu.Lock()
		c.open = append(c.open, engine, server)
		c.mu.Unlock()
		_ = server.(*net.TCPConn).SetReadBuffer(4096) //nolint:forcetypeassert // it was dialled so
		c.relays.Go(func() { c.relay(engine, server, nil) })
		c.relays.Go(func() { c.relay(server, engine, c.mark) })
	}
}

// relay passes bytes on until the mark has occurred on any connection.
func (c *clog) relay(from, to net.Conn, mark []byte) {
	defer to.Close()
	defer from.Close()
	var tail []byte
	buffer := make([]byte, 1024)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			select {
			case <-c.stuck: // the other side does not learn of it
				<-c.ended
			default:
			}
			return
		}
		if mark != nil {
			if tail = append(tail, buffer[:n]...); bytes.Contains(tail, mark) {
				c.once.Do(func() { close(c.stuck) })
			}
			tail = tail[max(0, len(tail)-len(mark)):]
		}
		select {
		case <-c.stuck:
			<-c.ended
			return
		default:
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// forget ends the server's connections without a word to the engine, like a router that loses its
// state.
func (c *clog) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, conn := range c.open {
		if i%2 == 1 {
			_ = conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // it was dialled so
			_ = conn.Close()
		}
	}
}

// close ends all connections.
func (c *clog) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.relays.Wait()
}

// pause waits, or not if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
