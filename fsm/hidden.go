package fsm

import "github.com/gendurable/gendurable/internal/step"

// Package internal/hidden has these for the engine's packages.
func init() { //nolint:gochecknoinits // so they are no part of what the package exports
	h := &step.Hidden
	h.InfoOf, h.WithClaim, h.WithExecution, h.Restore, h.Snoozed, h.ThrottledFor = infoOf, withClaim, withExecution, restore, snoozed, throttledFor
}
