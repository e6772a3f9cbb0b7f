package lab

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Wire counts the answers of the server to a pool's connections, and to those dialled with its
// configuration.
type Wire struct {
	trips        atomic.Int64
	commands     atomic.Int64
	transactions atomic.Int64
}

// Trips returns the round trips so far: answers after which the server was ready for more.
func (w *Wire) Trips() int64 { return w.trips.Load() }

// Commands returns the commands completed so far, BEGIN and COMMIT among them.
func (w *Wire) Commands() int64 { return w.commands.Load() }

// Transactions returns the transactions ended so far. A statement outside of a transaction block is
// one, too.
func (w *Wire) Transactions() int64 { return w.transactions.Load() }

// Tap makes the wire count for a pool.
func (w *Wire) Tap(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &tapped{Conn: conn, wire: w}, nil
	}
}

// tapped reads the server's messages, each a byte of type and a length, which includes itself. It
// cannot read encrypted ones.
type tapped struct {
	net.Conn
	wire   *Wire
	header []byte // of the present message, as far as it has been read
	skip   int    // bytes of its body that are still to be read
	ready  bool   // the message is ReadyForQuery, whose body is one byte
}

func (t *tapped) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if t.skip > 0 {
			k := min(t.skip, len(rest))
			if t.ready && rest[0] == 'I' { // not within a transaction block
				t.wire.transactions.Add(1)
			}
			t.ready = false
			t.skip, rest = t.skip-k, rest[k:]
			continue
		}
		k := min(5-len(t.header), len(rest))
		t.header, rest = append(t.header, rest[:k]...), rest[k:]
		if len(t.header) < 5 {
			break
		}
		switch t.header[0] {
		case 'Z': // ReadyForQuery
			t.ready = true
			t.wire.trips.Add(1)
		case 'C': // CommandComplete
			t.wire.commands.Add(1)
		}
		t.skip, t.header = int(binary.BigEndian.Uint32(t.header[1:]))-4, t.header[:0]
	}
	return n, err
}
