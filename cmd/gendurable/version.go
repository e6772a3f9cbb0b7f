package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/gendurable/gendurable/migrations"
)

type versionCommand struct{}

// versions has the version of each part of the program.
type versions struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Schema   string `json:"schema"` // the newest version that this program knows; it works with this one alone
}

// Run runs the command.
func (*versionCommand) Run(_ context.Context, a *app) error {
	out := versions{Version: programVersion(), Go: runtime.Version(), Schema: migrations.Latest()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				out.Revision = s.Value
			}
		}
	}
	return a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "gendurable %s\n%s\nschema %s\n", out.Version, out.Go, out.Schema)
	})
}

// programVersion returns the version of this program; "(devel)" of one that was built from a
// working tree.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
