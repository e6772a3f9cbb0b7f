package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// roleVariable makes the test binary play a worker process; its value is the role.
const roleVariable = "GENDURABLE_INTEGRATION_WORKER"

// role is the parameters of a worker process.
type role struct {
	URL          string        `json:"url"`
	Queue        string        `json:"queue"`
	Concurrency  int           `json:"concurrency"`
	Lease        time.Duration `json:"lease"`
	DrainTimeout time.Duration `json:"drain_timeout"`
	DrainGrace   time.Duration `json:"drain_grace"`
	Meta         string        `json:"meta"` // of a coordinator: the pool follows the schema's owner; "": it need not
}

// A worker process writes these on its standard output, a line each.
const (
	saysReady   = "ready"
	saysStopped = "stopped: " // followed by the result of Stop
)

func TestMain(m *testing.M) {
	told := os.Getenv(roleVariable)
	if told == "" {
		pgtest.NoLeaks(m) // and exits
	}
	var r role
	err := json.Unmarshal([]byte(told), &r)
	if err == nil {
		err = r.play()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play is the worker process: it works until SIGTERM.
func (r role) play() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() { // the pipe ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	pool, err := r.pool(ctx)
	if err != nil {
		return err
	}
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: append(deeds{pool}.definitions(), orderMachine(func(fsm.Info) func() {
			<-time.After(visitTakes)
			return func() {}
		})),
		Queues: map[string]engine.Queue{r.Queue: quick(r.Concurrency)},
		Lease:  r.Lease, Heartbeat: r.Lease / 3, Reap: min(300*time.Millisecond, r.Lease/2),
		DrainTimeout: r.DrainTimeout, DrainGrace: r.DrainGrace,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := eng.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, saysReady)
	<-ctx.Done()
	fmt.Fprintf(os.Stdout, "%s%v\n", saysStopped, eng.Stop(context.Background()))
	return nil
}

// visitTakes is how long a visit of an order takes in a worker process: so long that a process
// which is killed has some.
const visitTakes = 20 * time.Millisecond

func (r role) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(r.URL)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["application_name"] = "worker"
	if r.Meta != "" {
		meta, err := pgxpool.New(ctx, r.Meta)
		if err != nil {
			return nil, err
		}
		citus.Follow(config, meta, "gendurable")
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// process is a worker process as its test sees it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *journal
	said   chan string   // lines of its standard output
	exited chan struct{} // closed when it has ended
}

// spawn starts a worker process and waits until it works. Zero fields of the role have defaults.
func spawn(t *testing.T, r role) *process {
	t.Helper()
	if r.Queue == "" {
		r.Queue = "default"
	}
	if r.Concurrency == 0 {
		r.Concurrency = 10
	}
	if r.Lease == 0 {
		r.Lease = engine.DefaultLease
	}
	told, err := json.Marshal(r)
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(os.Args[0]), log: newJournal(t), said: make(chan string, 10), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+string(told))
	p.cmd.Stderr = p.log
	_, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	output, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.said <- lines.Text()
		}
		_ = p.cmd.Wait() // its output says how it ended
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	require.Equal(t, saysReady, p.hear())
	return p
}

// hear returns the next line of the process; "" at its end.
func (p *process) hear() string {
	p.t.Helper()
	select {
	case line := <-p.said:
		return line
	case <-p.exited:
		select {
		case line := <-p.said:
			return line
		default:
			return ""
		}
	case <-time.After(patience):
		p.t.Fatalf("process %d said nothing", p.cmd.Process.Pid)
		return ""
	}
}

// kill kills the process, like a power failure.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.exited
}

// freeze stops the process until thaw, like a machine that swaps, or is moved to another host.
func (p *process) freeze() {
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	// The signal takes a while: on a busy machine a thread may go on for a moment.
	require.Eventually(p.t, p.frozen, patience, time.Millisecond, "it does not stop")
}

func (p *process) frozen() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if _, after, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return len(threads) > 0
}
func (p *process) thaw() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT)) }

// terminate ends the process as a deploy does. It returns the result of Stop.
func (p *process) terminate() string {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	stopped, ok := strings.CutPrefix(p.hear(), saysStopped)
	require.True(p.t, ok, "it ended without stopping")
	<-p.exited
	return stopped
}

func (p *process) pid() int { return p.cmd.Process.Pid }
