package rollout

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

// patience bounds how long a test waits. It is generous: it passes only if an awaited event never
// happens.
const patience = steady.Patience

// program is a running program.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *transcript
	said   chan string   // lines of its standard output
	exited chan struct{} // closed when it has ended
}

// run starts a program and waits for its first line; "" is its end.
func run(t *testing.T, path string, arguments ...string) (p *program, said string) {
	t.Helper()
	p = &program{t: t, cmd: exec.Command(path, arguments...), log: &transcript{also: t.Output()},
		said: make(chan string, 10), exited: make(chan struct{})}
	p.cmd.Stderr = p.log
	_, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	output, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.said <- lines.Text()
		}
		close(p.said)
		_ = p.cmd.Wait() // its output says how it ended
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	return p, p.hear()
}

func (p *program) hear() string {
	p.t.Helper()
	select {
	case line := <-p.said:
		return line
	case <-time.After(patience):
		p.t.Fatalf("process %d said nothing", p.cmd.Process.Pid)
		return ""
	}
}

// stop ends the program as a deploy does, and waits until it has stopped in order.
func (p *program) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	watchdog := steady.Watch(p.t)
	said := p.hear()
	if said != "stopped: <nil>" {
		watchdog.SkipIfStood(2 * time.Second) // longer than its steps have to end
	}
	require.Equal(p.t, "stopped: <nil>", said)
	<-p.exited
}

// kill ends the program as a crash does.
func (p *program) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	<-p.exited
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// transcript is the log of a program.
type transcript struct {
	also io.Writer

	mu   sync.Mutex
	text bytes.Buffer
}

// Write also writes to the test's output.
func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	return s.also.Write(b)
}

func (s *transcript) has(words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), words)
}
