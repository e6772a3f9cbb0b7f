package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// fleet holds the processes of a soak, as a supervisor sees them.
type fleet struct {
	program string
	dir     string // of their output
	log     *journal
	seed    uint64
	pace    float64
	url     string
	calls   string // the file that records the clients' calls about purses

	mu     sync.Mutex
	slots  [workers]*process
	client [clients]*process
	admin  *process
	born   int
}

// process is one process of the fleet.
type process struct {
	name   string
	slot   int
	cmd    *exec.Cmd
	stdin  io.Closer
	ready  chan struct{}
	exited chan struct{}
	busy   bool // a fault uses it; guarded by the fleet's mu
}

// startAll starts all processes and waits until they work.
func (f *fleet) startAll(ctx context.Context) error {
	for i := range f.slots {
		if _, err := f.startWorker(i); err != nil {
			return err
		}
	}
	began := time.Now().UnixNano()
	for i := range f.client {
		r := role{Name: fmt.Sprintf("client%d", i), Client: true, Seed: f.seed + uint64(i) + 1, Pace: f.pace / clients, Number: i, Calls: f.calls, Began: began}
		p, err := f.start(r)
		if err != nil {
			return err
		}
		f.client[i] = p
	}
	var err error
	if f.admin, err = f.start(role{Name: "operator", Admin: true, Seed: f.seed, Pace: adminPace}); err != nil {
		return err
	}
	for _, p := range f.everyone() {
		if err := p.wait(ctx, p.ready, startWithin); err != nil {
			return fmt.Errorf("wait for %s: %w", p.name, err)
		}
	}
	return nil
}

// everyone returns the processes that were started and not replaced. The caller holds the lock, or
// is alone.
func (f *fleet) everyone() (all []*process) {
	for _, p := range append(append(f.slots[:0:0], f.slots[:]...), append(f.client[:], f.admin)...) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// startWorker starts a worker in a slot. Every third one does not know the newest version of a
// machine, as in the middle of a deploy.
func (f *fleet) startWorker(slot int) (*process, error) {
	f.mu.Lock()
	f.born++
	r := role{Name: fmt.Sprintf("worker%d.%d", slot, f.born), Old: slot%3 == 0}
	f.mu.Unlock()
	p, err := f.start(r)
	if err != nil {
		return nil, err
	}
	p.slot = slot
	f.mu.Lock()
	f.slots[slot] = p
	f.mu.Unlock()
	return p, nil
}

func (f *fleet) start(r role) (*process, error) {
	r.URL, r.Log = f.url, f.log.file.Name()
	told, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	output, err := os.Create(filepath.Join(f.dir, r.Name+".txt"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Name, err)
	}
	defer output.Close()
	p := &process{name: r.Name, cmd: exec.Command(f.program), ready: make(chan struct{}), exited: make(chan struct{})} //nolint:gosec,noctx // itself; it ends by a signal
	p.cmd.Env = append(os.Environ(), roleVariable+"="+string(told), "GOMAXPROCS=2")
	p.cmd.Stderr = output
	// Each process has a separate group, so that signals of the terminal reach the soak alone. If the
	// soak dies, the pipe ends, and the kernel wakes processes that are stopped.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Name, err)
	}
	says, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Name, err)
	}
	go func() {
		for lines := bufio.NewScanner(says); lines.Scan(); {
			if lines.Text() == saysReady {
				close(p.ready)
			}
		}
		_ = p.cmd.Wait() // its state says how it ended
		f.log.write(event{Kind: evDied, Label: p.name, Detail: p.cmd.ProcessState.String()})
		close(p.exited)
	}()
	return p, nil
}

// startWithin bounds the start of a process: Postgres may be down, and the machine busy.
const startWithin = 60 * time.Second

var errSlow = late("it takes too long")

// wait waits for a process to be ready or to end.
func (p *process) wait(ctx context.Context, what chan struct{}, most time.Duration) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-what:
		return nil
	case <-p.exited:
		if what == p.ready {
			return fmt.Errorf("it ended: %v", p.cmd.ProcessState)
		}
		return nil
	case <-t.C:
		return errSlow
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// take chooses a worker that no other fault uses; nil if there is none. The caller gives it back,
// or replaces it.
func (f *fleet) take(r *rand.Rand) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range r.Perm(workers) {
		if p := f.slots[i]; p != nil && !p.busy {
			p.busy = true
			return p
		}
	}
	return nil
}

func (f *fleet) giveBack(p *process) {
	f.mu.Lock()
	p.busy = false
	f.mu.Unlock()
}

// kill ends a process without warning and starts another in its place.
func (f *fleet) kill(p *process) error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	_ = p.stdin.Close()
	_, err := f.startWorker(p.slot)
	return err
}

// roll ends a worker as a deploy does, and starts another in its place.
func (f *fleet) roll(ctx context.Context, slot int) error {
	f.mu.Lock()
	p := f.slots[slot]
	f.mu.Unlock()
	if err := p.wait(ctx, p.ready, startWithin); err != nil {
		return fmt.Errorf("roll %s before it works: %w", p.name, err)
	}
	if err := f.terminate(ctx, p); err != nil {
		return err
	}
	next, err := f.startWorker(slot)
	if err != nil {
		return err
	}
	return next.wait(ctx, next.ready, startWithin)
}

// terminate asks a process to end in order.
func (f *fleet) terminate(ctx context.Context, p *process) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.wait(ctx, p.exited, 40*time.Second); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	_ = p.stdin.Close()
	f.log.write(event{Kind: evRolled, Label: p.name, Detail: orderly(p)})
	return nil
}

// orderly returns "" for a process that ended in order.
func orderly(p *process) string {
	if p.cmd.ProcessState.Success() {
		return ""
	}
	return p.cmd.ProcessState.String()
}

// finish ends the operator, which resumes all that it has paused, and the clients, which follow all
// of their undertakings to the end.
func (f *fleet) finish(ctx context.Context) error {
	hosts := append([]*process{f.admin}, f.client[:]...)
	for _, p := range hosts {
		if err := p.signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, p := range hosts {
		// A client ends by itself once it waits in vain; while it gets on, a busy machine has its time.
		if err := p.wait(ctx, p.exited, 5*finishWithin); err != nil {
			return fmt.Errorf("end %s: %w", p.name, err)
		}
		if !p.cmd.ProcessState.Success() {
			return fmt.Errorf("%s ended with %v: see %s.txt", p.name, p.cmd.ProcessState, filepath.Join(f.dir, p.name))
		}
	}
	return nil
}

// stop ends the workers in order.
func (f *fleet) stop(ctx context.Context) error {
	var ending sync.WaitGroup
	errs := make([]error, workers)
	for i, p := range f.slots {
		ending.Go(func() {
			if errs[i] = f.terminate(ctx, p); errs[i] == nil && orderly(p) != "" {
				errs[i] = fmt.Errorf("%s did not stop in order: %s", p.name, orderly(p))
			}
		})
	}
	ending.Wait()
	return errors.Join(errs...)
}

// slay kills the processes that are left.
func (f *fleet) slay() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.everyone() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.exited
		_ = p.stdin.Close()
	}
}
