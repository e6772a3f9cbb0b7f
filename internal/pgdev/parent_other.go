//go:build !linux

package pgdev

import "os/exec"

// dieWithParent has no counterpart here: a server whose owner dies without Stop has to be stopped
// by hand.
func dieWithParent(*exec.Cmd) {}
