package main

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// watchMemory watches the memory that the machine has available, each second. The function that it
// returns ends that, and says by how much it had sunk at the most: 0 where the system does not say.
func watchMemory() func() int64 {
	first, ok := available()
	if !ok {
		return func() int64 { return 0 }
	}
	done, result := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		least := first
		for {
			select {
			case <-tick.C:
				if now, ok := available(); ok {
					least = min(least, now)
				}
			case <-done:
				result <- first - least
				return
			}
		}
	}()
	return func() int64 { close(done); return <-result }
}

func available() (int64, bool) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(content, []byte("MemAvailable:"))
	if !ok {
		return 0, false
	}
	var kilobytes int64
	_, err = fmt.Sscan(string(rest[:min(len(rest), 40)]), &kilobytes)
	return kilobytes << 10, err == nil
}
