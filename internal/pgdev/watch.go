//go:build unix

package pgdev

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watchOwner starts a shell that stops a process, as a crash would, when this process dies. The
// shell reads from a pipe that only this process writes to, so the end of this process ends the
// file. The shell runs as the account of the process that it watches. It runs in a new process
// group, so that an interrupt typed at the terminal does not reach it. release ends the shell.
// Call it before the process is stopped: another process may have its number afterwards.
func watchOwner(pid int, as *syscall.SysProcAttr) (release func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watch the owner: %w", err)
	}
	shell := exec.Command("/bin/sh", "-c", `read -r _; kill -QUIT "$1"`, "sh", strconv.Itoa(pid)) //nolint:noctx // release ends it
	shell.Stdin = read
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as.Credential}
	if err := errors.Join(shell.Start(), read.Close()); err != nil {
		return nil, fmt.Errorf("watch the owner: %w", errors.Join(err, write.Close()))
	}
	return func() {
		_ = shell.Process.Kill()
		_ = shell.Wait() // it was killed
		_ = write.Close()
	}, nil
}
