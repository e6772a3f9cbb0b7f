// Package survive calls hooks of the host, which may panic or end their goroutine.
//
// It imports fsm and internal/step.
package survive

import (
	"log/slog"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Hook calls a hook on a separate goroutine, since runtime.Goexit ends the goroutine that calls it
// (T73), which would end a scheduler or a lane.
func Hook(log *slog.Logger, hook func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if r := recover(); r != nil {
				log.Error("a hook panicked", slog.String("panic", step.SanitizeError(&fsm.PanicError{Value: r})))
			} else if !returned {
				log.Error("a hook called runtime.Goexit")
			}
		}()
		hook()
		returned = true
	}()
	<-over
}
