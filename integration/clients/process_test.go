package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// workerVariable makes the test binary a worker process; its value is the database's URL.
const workerVariable = "GENDURABLE_CLIENTS_WORKER"

func TestMain(m *testing.M) {
	url := os.Getenv(workerVariable)
	if url == "" {
		pgtest.NoLeaks(m) // and exits
	}
	if err := work(url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A worker process writes these on its standard output, a line each.
const saysReady, saysStale = "ready", "stale"

// stepTakes is how long a step takes in a worker process: so long that a process which is killed or
// stopped has some. A lease is much longer, and a stop is longer than that. While a process stands
// still, calls go on: a client pauses before each for at most callPause.
const (
	stepTakes    = 150 * time.Millisecond
	processLease = 500 * time.Millisecond
	callPause    = 150 * time.Millisecond
)

// work is the worker process. It ends with the test, however that ends.
func work(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	eng, err := started(engine.Config{Pool: pool, Machines: []fsm.Definition{define(stepTakes)}, Lease: processLease, Heartbeat: processLease / 4,
		Reap: processLease / 4, Logger: slog.New(slog.DiscardHandler), Queues: workerQueues,
		Hooks: []engine.Hooks{{Stale: func(context.Context, engine.StaleEvent) { fmt.Fprintln(os.Stdout, saysStale) }}}})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, saysReady)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, eng.Stop(context.Background()))
}

// started starts an engine, as often as a cut connection keeps it from that.
func started(c engine.Config) (*engine.Engine, error) {
	const tries = 20
	for n := 1; ; n++ {
		eng, err := engine.New(c)
		if err == nil {
			err = eng.Start(context.Background())
		}
		if err == nil || n == tries {
			return eng, err
		}
		pace.Sleep(context.Background(), 10*time.Millisecond)
	}
}

// process is a worker process as its test sees it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.Closer
	exited chan struct{} // closed when it has ended
}

// spawn starts a worker process and waits until it works.
func spawn(t *testing.T, url string, stale *atomic.Int64) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), exited: make(chan struct{})} //nolint:gosec,noctx // itself; kill ends it
	p.cmd.Env = append(os.Environ(), workerVariable+"="+url)
	p.cmd.Stderr = t.Output()
	var err error
	p.input, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	output, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	ready := make(chan struct{})
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			switch lines.Text() {
			case saysReady:
				close(ready)
			case saysStale:
				stale.Add(1)
			}
		}
		_ = p.cmd.Wait() // a kill is no success
	}()
	select {
	case <-ready:
	case <-p.exited:
		t.Error("a worker process does not start")
	}
	return p
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
}

// kill kills the process, like a power failure.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// crew is the worker processes of a fleet.
type crew struct {
	t       *testing.T
	url     string
	members []*process
	stale   atomic.Int64 // outcomes that came too late
	kills   int
	stops   int
}

// newCrew starts worker processes on a database.
func newCrew(t *testing.T, url string, members int) *crew {
	t.Helper()
	c := &crew{t: t, url: url}
	for range members {
		c.members = append(c.members, spawn(t, url, &c.stale))
	}
	t.Cleanup(func() {
		for _, p := range c.members {
			p.kill()
		}
	})
	return c
}

// disturb kills one process after the other, and starts another one in its place, or stops it for
// longer than its lease, until over is closed. Then all run.
func (c *crew) disturb(over <-chan struct{}, random *rand.Rand) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(random.IntN(200)) * time.Millisecond):
		}
		n := random.IntN(len(c.members))
		if p := c.members[n]; random.IntN(2) == 0 {
			p.kill()
			c.members[n] = spawn(c.t, c.url, &c.stale)
			c.kills++
		} else {
			p.signal(syscall.SIGSTOP)
			pace.Sleep(context.Background(), processLease+time.Duration(random.IntN(300))*time.Millisecond) // then it goes on, whatever has ended
			p.signal(syscall.SIGCONT)
			c.stops++
		}
	}
}
