package main

import (
	"context"
	"errors"
	"fmt"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// IncompatibleError says that a version would break programs that its version promises to keep.
type IncompatibleError struct {
	Last, Version string
	Changes       []string // what such a program would meet
}

func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("%s promises to compile what compiles with %s: raise the minor version, or take these back:\n\t%s",
		e.Version, e.Last, strings.Join(e.Changes, "\n\t"))
}

// compatible compares the exported names of both modules with the last release before the version,
// and returns the result as a text. A version with another minor number may break programs; the
// text then lists how.
func compatible(ctx context.Context, root, tree, work, version string) (string, error) {
	last, err := lastRelease(ctx, root, version)
	if err != nil || last == "" {
		return "there is no release before " + version + " to compare exported names with", err
	}
	old := filepath.Join(work, "last")
	if err := committed(ctx, root, last, old); err != nil {
		return "", err
	}
	var broken []string
	for _, module := range []string{".", "telemetry"} {
		found, err := incompatible(ctx, filepath.Join(old, module), filepath.Join(tree, module))
		if err != nil {
			return "", err
		}
		broken = append(broken, found...)
	}
	switch {
	case len(broken) == 0:
		return "programs for " + last + " compile with " + version, nil
	case semver.MajorMinor(last) == semver.MajorMinor(version):
		return "", &IncompatibleError{Last: last, Version: version, Changes: broken}
	}
	return fmt.Sprintf("programs for %s may not compile with %s:\n\t%s", last, version, strings.Join(broken, "\n\t")), nil
}

// lastRelease returns the newest tag of a version before the given one; "": there is none.
func lastRelease(ctx context.Context, root, version string) (string, error) {
	list := exec.CommandContext(ctx, "git", "tag", "--list", "v*", "--merged", "HEAD")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("list the tags of %s: %w", root, err)
	}
	tags := slices.DeleteFunc(strings.Fields(string(out)), func(tag string) bool {
		return semver.Canonical(tag) != tag || semver.Prerelease(tag) != "" || semver.Compare(tag, version) >= 0
	})
	return slices.MaxFunc(append(tags, ""), semver.Compare), nil
}

// incompatible lists the changes of a module's exported names that may break programs. Programs
// cannot import a command, or a package below a folder "internal".
func incompatible(ctx context.Context, old, now string) (found []string, err error) {
	before, err := exported(ctx, old)
	if err != nil {
		return nil, err
	}
	after, err := exported(ctx, now)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] == nil {
			found = append(found, path+": the package is gone")
			continue
		}
		for _, change := range apidiff.Changes(before[path], after[path]).Changes {
			if !change.Compatible {
				found = append(found, path+": "+change.Message)
			}
		}
	}
	return found, nil
}

func exported(ctx context.Context, dir string) (map[string]*types.Package, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Dir: dir, Env: append(os.Environ(), "GOWORK=off"),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedModule,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("load the packages of %s: %w", dir, err)
	}
	out := map[string]*types.Package{}
	for _, p := range loaded {
		for _, fault := range p.Errors {
			err = errors.Join(err, fault)
		}
		if p.Name != "main" && !strings.Contains(p.PkgPath+"/", "/internal/") {
			out[p.PkgPath] = p.Types
		}
	}
	return out, err
}
