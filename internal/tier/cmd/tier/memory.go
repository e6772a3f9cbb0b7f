package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// memory is what a command held at the most, as far as the system says so (Linux does).
type memory struct {
	Used    int64  `json:"used"`    // bytes: by how much the machine's available memory sank
	Largest int64  `json:"largest"` // bytes: of the process that held the most
	Process string `json:"process"` // its name
}

// watchMemory looks at the machine and at all processes below this one, each second. The function
// that it returns ends that. A process of less than a second may be missed.
func watchMemory() func() memory {
	first, ok := available()
	if !ok {
		return func() memory { return memory{} }
	}
	done, result := make(chan struct{}), make(chan memory)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var most memory
		for {
			select {
			case <-tick.C:
				if now, ok := available(); ok {
					most.Used = max(most.Used, first-now)
				}
				if size, name := largestBelow(os.Getpid()); size > most.Largest {
					most.Largest, most.Process = size, name
				}
			case <-done:
				result <- most
				return
			}
		}
	}()
	return func() memory { close(done); return <-result }
}

func available() (int64, bool) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return kilobytes(content, "MemAvailable:")
}

// largestBelow returns the most that a descendant of a process held so far, and its name.
func largestBelow(root int) (int64, string) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, ""
	}
	type process struct {
		parent int
		size   int64
		name   string
	}
	all := make(map[int]process, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		var p process
		p.size, _ = kilobytes(content, "VmHWM:") // a thread of the kernel has none
		_, _ = fmt.Sscan(field(content, "PPid:"), &p.parent)
		p.name = field(content, "Name:")
		all[pid] = p
	}
	var size int64
	var name string
	for pid, p := range all {
		below := false
		for parent := pid; parent > 1 && !below; {
			parent = all[parent].parent
			below = parent == root
		}
		if below && p.size > size {
			size, name = p.size, p.name
		}
	}
	return size, name
}

// field returns the rest of the line of a file below /proc that begins with a name.
func field(content []byte, name string) string {
	_, rest, ok := bytes.Cut(append([]byte("\n"), content...), []byte("\n"+name))
	if !ok {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(bytes.TrimSpace(line))
}

func kilobytes(content []byte, name string) (bytes int64, ok bool) {
	_, err := fmt.Sscan(field(content, name), &bytes)
	return bytes << 10, err == nil
}
