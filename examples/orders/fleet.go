package orders

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// stopWithin is how long a worker may drain before it is killed.
const stopWithin = 20 * time.Second

// fleet is the worker processes, as a supervisor sees them.
type fleet struct {
	db       *pgxpool.Pool
	settings settings // but for name and start

	mu      sync.Mutex
	running map[string]*process // by name
}

// process is one worker.
type process struct {
	name   string
	start  string
	cmd    *exec.Cmd
	log    *tail
	exited chan struct{} // closed when it has ended

	identity string // in locked_by; known once it has said hello
}

// start starts a worker under the name, and returns when it has run its first step.
func (f *fleet) start(ctx context.Context, name string) error {
	s := f.settings
	s.Name, s.Start = name, rand.Text()
	encoded, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the settings of %s: %w", name, err)
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Not bound to ctx: a worker ends in order, when it is asked to.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), executable, WorkerRole, name)
	p := &process{name: name, start: s.Start, cmd: cmd, log: &tail{}, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), settingsVariable+"="+string(encoded))
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// An interrupt typed at the terminal is for the demo, which then stops its workers.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The pipe ends with this process, in whatever way it ends.
	if _, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is told by whoever waits for it
		close(p.exited)
	}()
	f.mu.Lock()
	f.running[name] = p
	f.mu.Unlock()
	return f.waitForHello(ctx, p)
}

func (f *fleet) waitForHello(ctx context.Context, p *process) error {
	for {
		switch err := f.db.QueryRow(ctx, `select identity from worker where start = $1`, p.start).Scan(&p.identity); {
		case err == nil:
			return nil
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("wait for %s: %w", p.name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			return fmt.Errorf("%s ended at its start: %s\n%s", p.name, p.cmd.ProcessState, p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (f *fleet) get(name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[name]
}

// kill is the power failure: no drain, no last word.
func (f *fleet) kill(p *process) error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, p.name)
	return nil
}

// signal stops or continues a process, as an overloaded host or a suspended virtual machine does.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// stop ends all workers in order; a worker that does not end in time is killed.
func (f *fleet) stop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.running {
		_ = p.signal(syscall.SIGCONT) // one that stands still could not end
		_ = p.signal(syscall.SIGTERM)
	}
	var errs []error
	deadline := time.After(stopWithin)
	for name, p := range f.running {
		select {
		case <-p.exited:
		case <-deadline:
			_ = p.cmd.Process.Kill()
			<-p.exited
			errs = append(errs, fmt.Errorf("%s did not stop within %v and was killed", name, stopWithin))
		}
		if !p.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("%s: %s\n%s", name, p.cmd.ProcessState, p.log))
		}
		delete(f.running, name)
	}
	return errors.Join(errs...)
}

// died returns an error when a worker has ended without a stop.
func (f *fleet) died() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, p := range f.running {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended by itself: %s\n%s", name, p.cmd.ProcessState, p.log)
		default:
		}
	}
	return nil
}

// tail keeps the last lines that a process wrote, for the case that something goes wrong.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 20

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for scanner := bufio.NewScanner(strings.NewReader(string(b))); scanner.Scan(); {
		t.lines = append(t.lines, scanner.Text())
	}
	t.lines = t.lines[max(0, len(t.lines)-tailLines):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
