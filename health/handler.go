// Package health serves the health of an engine to an orchestrator.
//
// It is a separate package so that programs without HTTP do not link net/http.
//
// It imports engine.
package health

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// Handler answers the probes of an orchestrator, as JSON:
//
//   - GET /live is 200 as long as the process answers at all, in any state of the database: a
//     restart would not bring that back.
//   - GET /ready is 200 where [engine.Health.Ready], else 503, with the [engine.Health] as the
//     body. It asks the database at most once a second, however often it is called, and answers
//     within [engine.HealthTimeout] or little more.
//
// Anything else is 404, or 405. Mount it below a path with http.StripPrefix.
func Handler(e *engine.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, http.StatusOK, struct {
			Live  bool         `json:"live"`
			State engine.State `json:"state"`
		}{true, e.State()})
	})
	p := &probe{engine: e}
	mux.HandleFunc("GET /ready", func(rw http.ResponseWriter, r *http.Request) {
		h := p.health(r.Context())
		status := http.StatusOK
		if !h.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(rw, status, h)
	})
	return mux
}

// probeEvery is how long an answer of the database stays valid.
const probeEvery = time.Second

// probe keeps the newest answer.
type probe struct {
	engine *engine.Engine

	mu     sync.Mutex
	newest engine.Health
	at     time.Time
}

// health asks anew unless that was just done. It asks for all callers, with its own context: a
// caller who goes away cancels nothing.
func (p *probe) health(ctx context.Context) engine.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A stop shows at once, so that the process gets no more work.
	if p.at.IsZero() || time.Since(p.at) >= probeEvery || p.newest.State != p.engine.State() {
		p.newest, _ = p.engine.Health(context.WithoutCancel(ctx)) // without a cause to end early there is no error
		p.at = time.Now()
	}
	return p.newest
}

func answer(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	rw.WriteHeader(status)
	if err := json.NewEncoder(rw).Encode(body); err != nil {
		return // who asked has gone
	}
}
