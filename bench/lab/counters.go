package lab

import (
	"encoding/binary"
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counters are the processors' own counts of instructions, one file each.
type counters struct{ files []int }

// openCounters needs a processor that counts, as not every virtual one does, and the right to ask
// for the whole machine: root's, or CAP_PERFMON.
func openCounters() (*counters, error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_HARDWARE,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_HW_INSTRUCTIONS,
	}
	c := &counters{}
	for cpu := range runtime.NumCPU() {
		file, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.files = append(c.files, file)
	}
	if c.read() == 0 { // a virtual processor that has counters which stand still
		return nil, errors.Join(errors.New("the processors' counters count nothing"), c.close())
	}
	return c, nil
}

// read returns the instructions of all processors since the counters were opened.
func (c *counters) read() (sum int64) {
	if c == nil {
		return 0
	}
	for _, file := range c.files {
		var raw [8]byte
		if n, err := unix.Read(file, raw[:]); err != nil || n != len(raw) {
			return 0
		}
		sum += int64(binary.NativeEndian.Uint64(raw[:])) //nolint:gosec // far below 2^63
	}
	return sum
}

func (c *counters) close() (err error) {
	if c == nil {
		return nil
	}
	for _, file := range c.files {
		err = errors.Join(err, unix.Close(file))
	}
	return err
}
