//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// These signals ask Postgres for its shutdown modes.
const (
	shutdownFast      = syscall.SIGINT
	shutdownImmediate = syscall.SIGQUIT
)

// server is one run of a server's process.
type server struct {
	process *os.Process
	exited  chan struct{} // closed when the process has ended and is reaped
	logPath string
	logFrom int64  // where the log of this run begins
	release func() // ends the shell that watches the owner
}

// launch starts the postgres process with the cluster's settings.
func (c *Cluster) launch() (*server, error) {
	arguments := []string{
		"-D", c.data(),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "port=" + strconv.Itoa(c.port),
		"-c", "unix_socket_directories=",
	}
	for _, setting := range c.settings {
		arguments = append(arguments, "-c", setting[0]+"="+setting[1])
	}
	cmd := c.account.command(context.Background(), filepath.Join(c.binaries, "postgres"), arguments...)
	cmd.Dir = c.dir
	if c.peers {
		cmd.Env = append(cmd.Env, "PGPASSFILE="+c.passwords())
	}
	cmd.ExtraFiles = []*os.File{c.lock}
	started, err := launch(cmd, filepath.Join(c.dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return started, nil
}

// launch starts a server's process, which appends to a log.
func launch(cmd *exec.Cmd, logPath string) (*server, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("find the end of the log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	s := &server{exited: make(chan struct{}), logPath: logPath, logFrom: from}
	if err := s.run(cmd); err != nil {
		return nil, err
	}
	if s.release, err = watch(s.process.Pid, cmd.SysProcAttr); err != nil {
		s.release = func() {}
		return nil, errors.Join(err, s.stop(shutdownImmediate))
	}
	return s, nil
}

// run starts cmd and reaps it from a separate thread: the parent-death signal is sent when the
// thread that forked ends, not when the process does.
func (s *server) run(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log says why it ended
			close(s.exited)
		}
	}()
	return <-started
}

// waitReady polls ping until it succeeds, the process ends or ctx does.
func (s *server) waitReady(ctx context.Context, ping func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	// After the process has ended, another program may have its port and answer, or take for ever.
	attempts, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-s.exited:
			end()
		case <-attempts.Done():
		}
	}()
	for {
		err := ping(attempts)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return &earlyExitError{log: s.log()}
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w (last: %w)\n%s", ctx.Err(), err, s.log())
		case <-tick.C:
		}
	}
}

// stop sends the signal and waits for the end of the process. If that takes too long, it kills the
// process.
func (s *server) stop(how os.Signal) error {
	s.release()
	if err := s.process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the server: %w", err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-s.exited:
		return nil
	case <-timeout.C:
	}
	if err := s.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-s.exited
	return fmt.Errorf("the server did not stop within %s and was killed\n%s", stopTimeout, s.log())
}

// log returns the output of this run.
func (s *server) log() string {
	content, err := os.ReadFile(s.logPath)
	if err != nil || int64(len(content)) < s.logFrom {
		return ""
	}
	return string(content[s.logFrom:])
}

// earlyExitError says that the server ended before it accepted connections.
type earlyExitError struct{ log string }

func (e *earlyExitError) Error() string { return "postgres ended at start:\n" + e.log }

func (e *earlyExitError) portTaken() bool { return e.contains("could not bind") }

// passing reports whether the cause goes away by itself.
func (e *earlyExitError) passing() bool {
	return e.portTaken() || e.contains("pre-existing shared memory block") || e.contains("lock file \"postmaster.pid\"")
}

func (e *earlyExitError) contains(text string) bool {
	return strings.Contains(e.log, text)
}

// freePort returns a port below the ranges that systems use for outgoing connections. In those, a
// client that keeps redialling a stopped server may connect to itself and so take the port away
// from the restart.
func freePort(ctx context.Context) (int, error) {
	const lowest, highest, attempts = 15000, 32000, 100
	var last error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest)
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			last = err
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("release the probed port: %w", err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
