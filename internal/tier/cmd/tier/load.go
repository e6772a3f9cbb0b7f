package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	ended := make(chan error)
	go func() {
		_, err := os.Stdin.Read(make([]byte, 1))
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("wait for the end: %w", err)
			}
			return nil
		default:
		}
	}
}
