package pgdev

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel stop the server, as a crash would, when its owner dies.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = shutdownImmediate }

// watch does nothing, since the kernel watches the owner.
func watch(int, *syscall.SysProcAttr) (release func(), err error) { return func() {}, nil }
