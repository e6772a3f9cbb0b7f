package main

import (
	"os"
	"syscall"
)

// largest returns the most memory that the process, or one that it waited for, held at a time.
func largest(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10 // it counts in kilobytes
	}
	return 0
}
