package work

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/gendurable/gendurable/internal/store"
)

// presentFor is the number of heartbeats for which a worker's report counts, or of what each of
// their statements may take, if that is longer.
const presentFor = 3

// register registers this worker. No promise depends on it, so an error is only logged. It is the
// write by which a worker without claims knows that its heartbeats would extend a lease.
func (h *heartbeat) register(ctx context.Context) {
	p := h.presence
	p.Draining = h.isDraining()
	if err := h.patiently(ctx, h.config.Heartbeat, func(ctx context.Context) error { return h.line.Present(ctx, &p) }); err != nil {
		h.trouble("register", err)
		if h.wrote {
			h.deeds.heartbeat.succeeded(h.process)
		} else {
			h.deeds.heartbeat.failed(h.process, err)
		}
		return
	}
	h.deeds.heartbeat.succeeded(h.process)
	h.heard()
}

// self returns the worker's report about itself.
func (p *process) self() store.Presence {
	me := store.Presence{Worker: p.id, PID: os.Getpid(), Queues: map[string]int{}, Machines: p.machineIDs, Live: presentFor * p.config.patience(p.config.Heartbeat)}
	me.Host, _ = os.Hostname() // an unknown name does no harm
	if build, ok := debug.ReadBuildInfo(); ok {
		me.Version = build.Main.Path + " " + build.Main.Version
	}
	for name, q := range p.config.Queues {
		me.Queues[name] = q.Concurrency
	}
	return me
}
