package pgdev

import "os/exec"

// dieWithParent has the kernel stop the server, as a crash would, when its owner dies.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = shutdownImmediate }
