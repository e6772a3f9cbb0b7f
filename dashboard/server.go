package dashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
)

// server has what all handlers share.
type server struct {
	Options

	sites   []*site          // one, or each place of a cluster
	cluster *cluster.Cluster // nil: there is one engine
	log     *slog.Logger
	turns   turns // of what a cluster is asked as a whole; with one engine those of its site
	shared  shared
	plans   plans
}

// New returns the handler of an engine's dashboard. The engine may be a client. Do not stop it
// before the handler.
//
// Errors: an *[OptionError] for each wrong field, joined.
func New(eng *engine.Engine, o Options) (http.Handler, error) {
	s := &server{Options: o, sites: []*site{{engine: eng}}}
	return s.handler()
}

// handler makes the handler of Options and sites.
func (s *server) handler() (http.Handler, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	s.Options = s.withDefaults()
	s.log, s.turns = s.Logger, newTurns(s.Heavy)
	for _, at := range s.sites {
		if at.turns = s.turns; s.cluster != nil {
			at.turns = newTurns(s.Heavy)
		}
	}
	mux := http.NewServeMux()
	s.routes(mux)
	guarded, err := s.guard(mux)
	if err != nil {
		return nil, err
	}
	answer := compressed(guarded)
	rooted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "" { // mounted below a path, and asked for without the slash: relative links need it
			w.Header().Set("Location", path.Base(requested(r))+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		answer.ServeHTTP(w, r)
	})
	if s.Base != "" {
		return http.StripPrefix(s.Base, rooted), nil
	}
	return rooted, nil
}

// requested returns the path of the request before prefixes were stripped.
func requested(r *http.Request) string {
	for n, c := range r.RequestURI {
		if c == '?' {
			return r.RequestURI[:n]
		}
	}
	return r.RequestURI
}

// visible returns the part of a document that the access of ctx and Options.Show permit; nil:
// nothing. A document that is not plain JSON is shown as the engine's codec has stored it.
func (s *server) visible(ctx context.Context, machine, field string, v json.RawMessage) (shown json.RawMessage) {
	if len(v) == 0 || accessOf(ctx).Level < Read {
		return nil
	}
	if s.Show == nil {
		return v
	}
	defer func() {
		if fault := recover(); fault != nil {
			s.log.Error("dashboard: Options.Show panicked", slog.Any("panic", fault), slog.String("field", field))
			shown = nil
		}
	}()
	if shown = s.Show(machine, field, append(json.RawMessage(nil), v...)); !json.Valid(shown) {
		return nil
	}
	return shown
}
