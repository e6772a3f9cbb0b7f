package soak

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between the processes and Postgres. It forwards message by message, so that it can
// break a connection at a point of its choice, and knows what that cost.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	links map[*link]struct{}
	codes map[string]int // SQLSTATEs that the server reported

	skip    atomic.Int64 // how many COMMITs pass before the answer of one is cut off; negative: none is cut off
	counts  proxyCounts
	serving sync.WaitGroup
}

// proxyCounts counts the costs of the proxy's faults.
type proxyCounts struct {
	busy       atomic.Int64 // connections cut while they were busy
	swallowed  atomic.Int64 // bytes that were swallowed
	unanswered atomic.Int64 // COMMITs that took effect and whose answer was cut off
}

// link is one connection.
type link struct {
	p              *proxy
	client, server net.Conn

	asked   atomic.Int64 // rounds that the client has sent and the server has not ended
	hole    atomic.Bool  // swallow everything
	mute    atomic.Bool  // swallow the server's messages
	settled chan struct{}
	once    sync.Once
}

func startProxy(ctx context.Context, target string) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, links: map[*link]struct{}{}, codes: map[string]int{}}
	p.skip.Store(-1)
	p.serving.Go(p.serve)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.serving.Go(func() { p.connect(c) })
	}
}

func (p *proxy) connect(c net.Conn) {
	s, err := net.Dial("tcp", p.target) //nolint:noctx // local: it answers at once, or there is no server
	if err != nil {
		_ = c.Close()
		return
	}
	l := &link{p: p, client: c, server: s, settled: make(chan struct{})}
	l.asked.Store(1) // to log in
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	p.serving.Go(l.up)
	l.down()
	l.close(false)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// close ends both sides: abruptly, as a router that forgets the connection does, or in order.
func (l *link) close(abrupt bool) {
	for _, c := range []net.Conn{l.client, l.server} {
		if t, ok := c.(*net.TCPConn); ok && abrupt {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	for _, l := range p.all() {
		l.close(true)
	}
	p.serving.Wait()
}

func (p *proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*link, 0, len(p.links))
	for l := range p.links {
		out = append(out, l)
	}
	return out
}

// pick chooses a connection; a busy one if there is any.
func (p *proxy) pick(r *rand.Rand) *link {
	all := p.all()
	if len(all) == 0 {
		return nil
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, l := range all {
		if l.asked.Load() > 0 && !l.hole.Load() {
			return l
		}
	}
	return all[0]
}

// cut breaks a connection. It reports whether the connection was busy.
func (p *proxy) cut(r *rand.Rand) (busy bool) {
	l := p.pick(r)
	if l == nil {
		return false
	}
	if busy = l.asked.Load() > 0; busy {
		p.counts.busy.Add(1)
	}
	l.close(r.IntN(2) == 0)
	return busy
}

// swallow swallows everything on a connection for this long, and then breaks it.
func (p *proxy) swallow(ctx context.Context, r *rand.Rand, d time.Duration) {
	l := p.pick(r)
	if l == nil {
		return
	}
	l.hole.Store(true)
	pause(ctx, d)
	l.close(true)
}

// up forwards the client's messages.
func (l *link) up() {
	defer l.close(false)
	from := bufio.NewReaderSize(l.client, 1<<16)
	to := bufio.NewWriterSize(l.server, 1<<16)
	startup, err := readSized(from, nil, 4)
	if err != nil || l.send(to, startup) != nil || to.Flush() != nil {
		return
	}
	commits := map[string]bool{} // names of prepared statements that commit
	committing := false
	var buffer []byte
	for {
		m, err := readSized(from, buffer, 5)
		if err != nil {
			return
		}
		buffer = m
		switch body := m[5:]; m[0] {
		case 'P':
			name, rest := text(body)
			query, _ := text(rest)
			commits[name] = query == "COMMIT"
		case 'B':
			_, rest := text(body)
			name, _ := text(rest)
			committing = committing || commits[name]
		case 'Q':
			query, _ := text(body)
			committing = query == "COMMIT" || query == "commit"
		}
		if l.send(to, m) != nil {
			return
		}
		if ends := m[0] == 'S' || m[0] == 'Q'; ends {
			l.asked.Add(1)
			if committing && l.p.due() {
				l.swallowAnswer(to)
				return
			}
			committing = false
		}
		if from.Buffered() == 0 && to.Flush() != nil {
			return
		}
	}
}

// due counts the COMMITs, and reports whether this one's answer is to be cut off.
func (p *proxy) due() bool { return p.skip.Load() >= 0 && p.skip.Add(-1) == -1 }

// swallowAnswer sends messages that end with a COMMIT, waits until the server has processed it, and
// breaks the connection without its answer.
func (l *link) swallowAnswer(to *bufio.Writer) {
	l.mute.Store(true)
	if to.Flush() != nil {
		return
	}
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case <-l.settled:
	case <-t.C:
	}
}

func (l *link) send(to *bufio.Writer, m []byte) error {
	if l.hole.Load() {
		l.p.counts.swallowed.Add(int64(len(m)))
		return nil
	}
	_, err := to.Write(m)
	return err
}

// down forwards the server's messages.
func (l *link) down() {
	from := bufio.NewReaderSize(l.server, 1<<16)
	to := bufio.NewWriterSize(l.client, 1<<16)
	var buffer []byte
	committed := false
	for {
		m, err := readSized(from, buffer, 5)
		if err != nil {
			return
		}
		buffer = m
		switch m[0] {
		case 'Z':
			l.asked.Add(-1)
			if l.mute.Load() && l.asked.Load() <= 0 {
				if committed {
					l.p.counts.unanswered.Add(1)
				}
				l.once.Do(func() { close(l.settled) })
			}
		case 'E':
			l.p.report(m[5:])
		case 'C':
			if tag, _ := text(m[5:]); tag == "COMMIT" && l.mute.Load() {
				committed = true
			}
		}
		switch {
		case l.mute.Load():
		case l.hole.Load():
			l.p.counts.swallowed.Add(int64(len(m)))
		default:
			if _, err := to.Write(m); err != nil {
				return
			}
		}
		if from.Buffered() == 0 && to.Flush() != nil {
			return
		}
	}
}

// report counts an error of the server by its code.
func (p *proxy) report(fields []byte) {
	for len(fields) > 1 {
		kind := fields[0]
		var value string
		value, fields = text(fields[1:])
		if kind == 'C' {
			p.mu.Lock()
			p.codes[value]++
			p.mu.Unlock()
			return
		}
	}
}

func (p *proxy) reported(code string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.codes[code]
}

var errOversized = errors.New("not a message of Postgres")

// readSized reads a message whose header has this size and ends with the message's length. It uses
// the buffer if that is large enough.
func readSized(from *bufio.Reader, into []byte, header int) ([]byte, error) {
	head, err := from.Peek(header)
	if err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[header-4:])) + header - 4
	if size < header || size > 1<<28 {
		return nil, errOversized
	}
	if cap(into) < size {
		into = make([]byte, size)
	}
	into = into[:size]
	_, err = io.ReadFull(from, into)
	return into, err
}

// text splits off a zero-terminated string.
func text(b []byte) (s string, rest []byte) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:]
		}
	}
	return "", nil
}
