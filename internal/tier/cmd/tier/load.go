package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// spin is the argument with which the program is one busy loop.
const spin = "spin"

// beside runs a command while n processes keep a processor busy each.
func beside(n int, command []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var loops []*exec.Cmd
	defer func() {
		for _, loop := range loops {
			_ = loop.Process.Kill()
			_ = loop.Wait() // it was killed
		}
	}()
	for range n {
		loop := exec.Command(self, spin) //nolint:noctx // it is killed
		// The loop ends when its input does, so with this process, however that ends.
		if _, err := loop.StdinPipe(); err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		if err := loop.Start(); err != nil {
			return fmt.Errorf("start a busy loop: %w", err)
		}
		loops = append(loops, loop)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends by itself
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// loop is busy until its input ends.
func loop() error {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		ended.Store(true)
	}()
	for !ended.Load() { //nolint:revive // to be busy is all that it is for
	}
	return nil
}
