package lab

import (
	"os"
	"strconv"
	"strings"
)

// machine is what all processes of the machine together have used since it began, its kernel
// included. Other programs count, too, so a measurement wants the machine to itself.
type machine struct {
	idle, ticks  int64 // of all processors, in ticks; idle includes waiting for a disk
	instructions int64 // retired; 0: the processor does not say, or this process may not ask
}

// readMachine reads proc(5)'s stat: user, nice, system, idle, iowait, irq, softirq and steal. Time
// that a hypervisor has stolen is not idle.
func readMachine(c *counters) (m machine) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	for i, field := range strings.Fields(first) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || i > 8 { // the line's name, and guests, which user has already
			continue
		}
		m.ticks += n
		if i == 4 || i == 5 {
			m.idle += n
		}
	}
	m.instructions = c.read()
	return m
}
