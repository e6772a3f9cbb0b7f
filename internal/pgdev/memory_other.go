//go:build unix && !linux

package pgdev

// memory returns "": no directory is known to be in memory.
func memory() string { return "" }
