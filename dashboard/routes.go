package dashboard

import (
	"fmt"
	"net/http"
)

// table is where routes are registered: a *http.ServeMux, or a test's list of them.
type table interface {
	HandleFunc(pattern string, answer func(http.ResponseWriter, *http.Request))
}

const exportPath = "/export"

// routes names what answers which path. Everything here is behind guard.
func (s *server) routes(mux table) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
	s.serveAPI(mux)
	mux.HandleFunc("GET /assets/{sum}/{name}", s.asset)
	mux.HandleFunc("GET "+exportPath, s.export)
	mux.HandleFunc("GET /suggest", s.suggest)
	mux.HandleFunc("GET /instances/{id}/{field}", s.download)
	for path, show := range map[string]func(*http.Request) (string, *page, error){
		"GET /{$}":                    s.overview,
		"GET /machines":               s.machines,
		"GET /machine":                s.machine,
		"GET /instances":              s.list,
		"GET /instances/{id}":         s.instance,
		"GET /instances/{id}/graph":   s.graph,
		"GET /queues":                 s.queues,
		"GET /limits":                 s.limits,
		"GET /schedules":              s.schedules,
		"GET /workers":                s.workerList,
		"GET /audit":                  s.audit,
		"GET /find":                   s.find,
		"GET /plans/{token}":          s.planPage,
		"POST /plan":                  s.plan,
		"POST /plans/{token}/apply":   s.apply,
		"POST /instances/{id}/{verb}": because(s.act),
		"POST /verbs/{verb}":          because(s.operate),
		"GET /":                       func(*http.Request) (string, *page, error) { return "", nil, errNoSuchPage },
	} {
		mux.HandleFunc(path, s.view(show))
	}
}
