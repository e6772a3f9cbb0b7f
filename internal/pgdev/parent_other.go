//go:build unix && !linux

package pgdev

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing, since this kernel has no such signal.
func dieWithParent(*exec.Cmd) {}

// watch starts a shell that watches the owner.
func watch(pid int, as *syscall.SysProcAttr) (release func(), err error) { return watchOwner(pid, as) }
