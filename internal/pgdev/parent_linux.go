package pgdev

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel stop the server, as a crash would, when its owner dies.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = shutdownImmediate }

// watch is the kernel's work here.
func watch(int, *syscall.SysProcAttr) (release func(), err error) { return func() {}, nil }
