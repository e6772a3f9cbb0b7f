package lab

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Tally is memory that a fleet of worker processes shares with the process that measures them. The
// workers count there what they do, which costs them a few nanoseconds a job and no system call.
// The other side decides there how many jobs may begin. So a measurement starts and ends at exact
// numbers of jobs, in any process.
type Tally struct {
	Path string // of the file behind the memory, by which a worker opens it

	memory []byte
	head   *tallyHead
	seats  []tallySeat
	owner  bool
}

// tallyLine is the size of a cache line: processes that count do not invalidate each other's.
const tallyLine = 64

type tallyHead struct {
	begun atomic.Int64 // jobs that have begun, or wait until they may
	open  atomic.Int64 // jobs that may begin
	_     [tallyLine - 2*8]byte
}

type tallySeat struct {
	ended   atomic.Int64
	started atomic.Int64
	wire    Wire
	_       [tallyLine - 5*8]byte
}

// NewTally makes a tally for so many workers. No job may begin yet.
func NewTally(workers int) (*Tally, error) {
	file, err := os.CreateTemp("", "gendurable-tally-")
	if err != nil {
		return nil, fmt.Errorf("make a tally: %w", err)
	}
	if err := file.Truncate(int64(workers+1) * tallyLine); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	t, err := mapped(file)
	if err != nil {
		return nil, errors.Join(err, os.Remove(file.Name()))
	}
	t.owner = true
	return t, nil
}

// OpenTally opens the tally of another process.
func OpenTally(path string) (*Tally, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open a tally: %w", err)
	}
	return mapped(file)
}

// mapped maps the file into memory and closes it.
func mapped(file *os.File) (*Tally, error) {
	stat, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(stat.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED) //nolint:gosec // a small number
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("map a tally: %w", err)
	}
	lines := len(memory) / tallyLine
	return &Tally{
		Path:   file.Name(),
		memory: memory,
		head:   (*tallyHead)(unsafe.Pointer(&memory[0])),                                        //nolint:gosec // the head is the first line
		seats:  unsafe.Slice((*tallySeat)(unsafe.Pointer(&memory[tallyLine])), max(0, lines-1)), //nolint:gosec // the rest is a line a worker
	}, nil
}

// Close lets all jobs begin and removes the tally. Workers that have it open keep their memory.
func (t *Tally) Close() error {
	t.Open(math.MaxInt64)
	err := syscall.Munmap(t.memory)
	if t.owner {
		err = errors.Join(err, os.Remove(t.Path))
	}
	return err
}

// Open lets the first n jobs begin.
func (t *Tally) Open(n int) { t.head.open.Store(int64(n)) }

// Opened reports whether any job may begin.
func (t *Tally) Opened() bool { return t.head.open.Load() > 0 }

// Ended returns how many jobs have ended, and how many workers have not ended any.
func (t *Tally) Ended() (jobs, without int) {
	for i := range t.seats {
		n := int(t.seats[i].ended.Load())
		jobs += n
		if n == 0 {
			without++
		}
	}
	return jobs, without
}

// Started returns how many workers have started.
func (t *Tally) Started() (n int) {
	for i := range t.seats {
		n += int(t.seats[i].started.Load())
	}
	return n
}

// Traffic counts the bytes on the connections of all workers.
type Traffic struct{ Trips, Commands, Transactions int64 }

// Traffic returns the traffic so far.
func (t *Tally) Traffic() (sum Traffic) {
	for i := range t.seats {
		wire := &t.seats[i].wire
		sum.Trips += wire.Trips()
		sum.Commands += wire.Commands()
		sum.Transactions += wire.Transactions()
	}
	return sum
}

// Minus returns the traffic since an earlier one.
func (t Traffic) Minus(before Traffic) Traffic {
	return Traffic{t.Trips - before.Trips, t.Commands - before.Commands, t.Transactions - before.Transactions}
}

// Seat is one worker's part of a tally.
type Seat struct {
	Wire *Wire // counts what goes over the worker's connections

	head     *tallyHead
	seat     *tallySeat
	waiting  sync.Mutex // one job looks whether it may begin; the others wait for it
	released atomic.Bool
}

// Seat returns the part of the i-th worker.
func (t *Tally) Seat(i int) *Seat {
	return &Seat{Wire: &t.seats[i].wire, head: t.head, seat: &t.seats[i]}
}

// Started says that the worker has started.
func (s *Seat) Started() { s.seat.started.Store(1) }

// Run counts a job, and runs it once it may begin.
func (s *Seat) Run(job func()) {
	if n := s.head.begun.Add(1); n > s.head.open.Load() {
		s.waiting.Lock()
		for n > s.head.open.Load() && !s.released.Load() {
			time.Sleep(2 * time.Millisecond)
		}
		s.waiting.Unlock()
	}
	job()
	s.seat.ended.Add(1)
}

// Release lets all jobs of the worker begin, so that it can stop.
func (s *Seat) Release() { s.released.Store(true) }
