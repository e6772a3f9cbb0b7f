// Package byhand makes engines that do nothing by themselves, for package durabletest and for the
// project's own tests. Package engine sets it in step.Hidden while it is initialised.
//
// It imports engine, internal/work and internal/step.
package byhand

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/work"
)

// New makes an engine that claims and fires schedules only when a method of the Hand says so. The
// engine counts as started, whether it has queues or not, and checks neither the schema nor whether
// there is a proxy. It stores Config.Schedules as of the time at.
//
//nolint:forcetypeassert // engine is initialised before: the start of any program shows it
var New = step.Hidden.ByHand.(func(context.Context, engine.Config, time.Time) (*engine.Engine, *work.Hand, error))
