package pgdev

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	memoryDirectory = "/dev/shm"
	tmpfsMagic      = 0x01021994

	// memoryFree is how much of the file system of memory must be free, and memoryLeft how much
	// memory: tests take some hundred MB, and up to a GB of WAL.
	memoryFree = 4 << 30
	memoryLeft = 8 << 30
)

// memory returns a directory in memory that has room for a cluster of tests; "" if there is none.
// Each test makes and drops a database of some 300 files, which takes ten times the processor time
// on a disk.
func memory() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDirectory, &fs); err != nil || fs.Type != tmpfsMagic {
		return ""
	}
	if fs.Bavail*uint64(fs.Bsize) < memoryFree || available() < memoryLeft {
		return ""
	}
	return memoryDirectory
}

// available returns how many bytes of memory programs can still get; 0 if the kernel does not say.
func available() uint64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kB, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kB << 10
		}
	}
	return 0
}
