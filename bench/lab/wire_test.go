package lab

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// script is a connection from which the server's bytes come in pieces of one size.
type script struct {
	net.Conn
	rest *bytes.Reader
	size int
}

func (s *script) Read(p []byte) (int, error) { return s.rest.Read(p[:min(len(p), s.size)]) }

func TestTheWireCountsHoweverTheBytesCome(t *testing.T) {
	message := func(kind byte, body string) string { return string([]byte{kind, 0, 0, 0, byte(4 + len(body))}) + body }
	stream := message('C', "BEGIN\x00") + message('D', "ZCZC") + message('C', "SELECT 1\x00") + message('Z', "T") + message('2', "") + message('D', "I") + message('Z', "I")
	for size := 1; size <= len(stream); size++ {
		var w Wire
		conn := &tapped{Conn: &script{rest: bytes.NewReader([]byte(stream)), size: size}, wire: &w}
		read, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, stream, string(read))
		require.Equal(t, int64(2), w.Trips(), "in pieces of %d", size)
		require.Equal(t, int64(2), w.Commands(), "in pieces of %d", size)
		require.Equal(t, int64(1), w.Transactions(), "in pieces of %d", size)
	}
}
