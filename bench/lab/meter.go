package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Meter measures a run from its start to its stop.
type Meter struct {
	lab      *Lab
	began    time.Time
	clients  []int // processes; none: this one
	client   time.Duration
	server   time.Duration
	wal      int64
	machine  machine
	counters *counters // nil: instructions cannot be counted here
}

// Cost is the cost of a run.
type Cost struct {
	Took   time.Duration
	Client time.Duration // CPU of the client processes
	Server time.Duration // CPU of all processes of the server; 0: they cannot be seen from here
	WAL    int64         // bytes

	Instructions int64   // of the whole machine; 0: they cannot be counted here
	Idle         float64 // share of the processors' time in which nothing ran; 0 also where it is not known
}

// Start begins to measure. The clients are processes of this machine; without any, this process is
// the client.
func (l *Lab) Start(ctx context.Context, clients ...int) (*Meter, error) {
	wal, err := l.wal(ctx)
	if err != nil {
		return nil, err
	}
	counters, err := openCounters()
	if err != nil { // then instructions are not among the figures
		counters = nil
	}
	return &Meter{lab: l, wal: wal, counters: counters, machine: readMachine(counters),
		clients: clients, client: used(clients), server: l.server(), began: time.Now()}, nil
}

// Stop ends the measurement.
func (m *Meter) Stop(ctx context.Context) (Cost, error) {
	c := Cost{Took: time.Since(m.began), Client: used(m.clients) - m.client, Server: m.lab.server() - m.server}
	now := readMachine(m.counters)
	if ticks := now.ticks - m.machine.ticks; ticks > 0 {
		c.Idle = float64(now.idle-m.machine.idle) / float64(ticks)
	}
	if now.instructions > m.machine.instructions {
		c.Instructions = now.instructions - m.machine.instructions
	}
	wal, err := m.lab.wal(ctx)
	c.WAL = wal - m.wal
	return c, errors.Join(err, m.counters.close())
}

func (l *Lab) wal(ctx context.Context) (n int64, err error) {
	err = l.admin.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&n)
	return n, err
}

// used returns the CPU time of processes; without any, of this one.
func used(processes []int) (sum time.Duration) {
	if len(processes) == 0 {
		return self()
	}
	for _, pid := range processes {
		if s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			sum += s.used()
		}
	}
	return sum
}

// self returns the CPU time of this process.
func self() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// server returns the CPU time of the postmaster, of its children, and of those that it has reaped.
func (l *Lab) server() time.Duration {
	if l.postmaster == 0 {
		return 0
	}
	var sum time.Duration
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		s, err := readStat(path)
		switch {
		case err != nil: // it has just ended
		case s.pid == l.postmaster:
			sum += time.Duration(s.own+s.reaped) * tick
		case s.parent == l.postmaster:
			sum += s.used()
		}
	}
	return sum
}

// tick is the unit of proc(5)'s stat: USER_HZ is 100 on every Linux that Go runs on.
const tick = time.Second / 100

// used returns the CPU time of a process, by its clock: hundreds of processes that each work a
// little would not show in ticks.
func (s stat) used() time.Duration {
	const scheduled = 2 // CPUCLOCK_SCHED of clock_getcpuclockid(3), which counts nanoseconds
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^s.pid<<3|scheduled), &now); err != nil { //nolint:gosec // the kernel's ids fit
		return time.Duration(s.own) * tick
	}
	return time.Duration(now.Nano())
}

func parentOf(pid int) int {
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return s.parent
}

type stat struct {
	pid, parent int
	own, reaped int64 // ticks
}

// readStat reads proc(5): after the parenthesised name come state, ppid and, from the 12th field
// on, utime, stime, cutime and cstime.
func readStat(path string) (s stat, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return s, fmt.Errorf("%s: no name", path)
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	number := func(text string) int64 {
		n, wrong := strconv.ParseInt(text, 10, 64)
		if wrong != nil {
			err = wrong
		}
		return n
	}
	s.pid = int(number(strings.Fields(string(raw))[0]))
	s.parent = int(number(fields[1]))
	s.own = number(fields[11]) + number(fields[12])
	s.reaped = number(fields[13]) + number(fields[14])
	return s, err
}

// Memory returns how much of a process is resident, in bytes.
func Memory(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no resident size", pid)
}
