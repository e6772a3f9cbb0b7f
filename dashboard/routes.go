package dashboard

import (
	"fmt"
	"net/http"
)

// routes names what answers which path. Everything here is behind guard.
func (s *server) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
}
