//go:build unix && !linux

package pgdev

import (
	"os/exec"
	"syscall"
)

// dieWithParent has no counterpart here.
func dieWithParent(*exec.Cmd) {}

// watch has a shell do it.
func watch(pid int, as *syscall.SysProcAttr) (release func(), err error) { return watchOwner(pid, as) }
