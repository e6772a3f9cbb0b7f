// Package dashboard serves an engine's pages for operators over HTTP: which instances run, which
// are stuck and why, and the verbs that mend them.
//
//	pages, err := dashboard.New(eng, dashboard.Options{Authorize: authorize})
//	mux.Handle("/ops/", http.StripPrefix("/ops", pages))
//
// [New] returns an [http.Handler] of one engine, [NewCluster] one of all places of a cluster. A
// host mounts it behind its own login, below any path, and says by [Options.Authorize] who may do
// what. Without that, only requests from this very machine are answered. The handler needs no
// second service and no file: everything it serves is embedded.
//
// The package reads and changes through the engine's public API and its typed ent client only.
package dashboard
