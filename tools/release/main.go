// Command release checks that a host can get the modules of this repository at a version, before
// the version is tagged: it packs the commit as the module proxy would, serves it from a folder,
// and builds and tests examples/bakery against it, which is a separate module without any replace.
//
//	go run . [-version v0.1.0] [-root ../..]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const (
	library   = "github.com/gendurable/gendurable"
	telemetry = library + "/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root := flag.String("root", "../..", "the repository")
	version := flag.String("version", "", "the version to check; default: the one that telemetry requires")
	flag.Parse()
	top, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	required, err := requiredVersion(filepath.Join(top, "telemetry", "go.mod"))
	if err != nil {
		return err
	}
	switch {
	case *version == "":
		*version = required
	case semver.Canonical(*version) != *version:
		return fmt.Errorf("%q is no version; want one like v0.1.0", *version)
	case *version != required:
		return fmt.Errorf("telemetry requires %s: go -C telemetry mod edit -require=%s@%s, and commit it", required, library, *version)
	}
	work, err := os.MkdirTemp("", "gendurable-release-")
	if err != nil {
		return err
	}
	err = check(ctx, top, work, *version)
	return errors.Join(err, remove(work))
}

// requiredVersion is the version of the library that telemetry asks hosts for.
func requiredVersion(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == library {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, library)
}

func check(ctx context.Context, root, work, version string) error {
	proxy, tree := filepath.Join(work, "proxy"), filepath.Join(work, "tree")
	if err := committed(ctx, root, "HEAD", tree); err != nil {
		return err
	}
	names, err := compatible(ctx, root, tree, work, version)
	if err != nil {
		return err
	}
	fmt.Println(names)
	for path, folder := range map[string]string{library: tree, telemetry: filepath.Join(tree, "telemetry")} {
		if err := pack(proxy, module.Version{Path: path, Version: version}, folder); err != nil {
			return fmt.Errorf("pack %s: %w", path, err)
		}
	}
	at := filepath.Join(work, "bakery")
	if err := os.Rename(filepath.Join(tree, "examples", "bakery"), at); err != nil {
		return err
	}
	env, err := environment(ctx, work, proxy)
	if err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"get", library + "@" + version, telemetry + "@" + version},
		{"mod", "tidy", "-e"}, // its ent client is not generated yet
		{"generate", "./..."},
		{"mod", "tidy"},
		{"vet", "./..."},
		{"test", "./..."},
		{"install", library + "/cmd/gendurable@" + version},
	} {
		if err := command(ctx, at, env, "go", arguments...); err != nil {
			return err
		}
	}
	// A vendored host has the files, too.
	for _, run := range [][]string{
		{filepath.Join(work, "bin", "gendurable"), "version"},
		{filepath.Join(work, "bin", "gendurable"), "migrate", "dir"},
		{"test", "-f", "atlas.hcl"},
		{"go", "mod", "vendor"},
		{"diff", "migrations/gendurable/atlas.sum", "vendor/" + library + "/migrations/atlas.sum"},
	} {
		if err := command(ctx, at, env, run[0], run[1:]...); err != nil {
			return err
		}
	}
	fmt.Printf("examples/bakery gets %s and %s at %s, generates its ent client, and passes its tests\n", library, telemetry, version)
	return nil
}

// committed writes the repository's tree at a commit into a folder.
func committed(ctx context.Context, root, commit, into string) error {
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	packed := into + ".tar"
	if err := command(ctx, root, os.Environ(), "git", "archive", "--output="+packed, commit); err != nil {
		return err
	}
	return command(ctx, into, os.Environ(), "tar", "-xf", packed)
}

// pack writes a module into a folder that is laid out as module proxies are.
func pack(proxy string, m module.Version, from string) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	requirements, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, m.Version+".zip"))
	if err != nil {
		return err
	}
	// It leaves out the modules below this one.
	if err := errors.Join(zip.CreateFromDir(file, m, from), file.Close()); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, m.Version, time.Now().UTC().Format(time.RFC3339))
	for name, text := range map[string]string{
		m.Version + ".mod": string(requirements), m.Version + ".info": info, "list": m.Version + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment has a separate module cache, so that nothing of the check is ever taken for the
// published version. What the machine's own cache has is not downloaded again.
func environment(ctx context.Context, work, proxy string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("ask Go for its settings: %w", err)
	}
	cache, rest, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	downloaded := filepath.Join(cache, "cache", "download")
	return append(os.Environ(),
		"GOMODCACHE="+filepath.Join(work, "modules"), "GOBIN="+filepath.Join(work, "bin"), "GOWORK=off",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -trimpath", // so that no path of the folder keeps a build from the cache
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(downloaded)+","+rest,
		"GONOSUMDB="+library+","+telemetry), nil
}

func command(ctx context.Context, dir string, env []string, program string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(arguments, " "), err, out)
	}
	return nil
}

// remove removes the folder, whose modules Go keeps read-only.
func remove(work string) error {
	err := filepath.WalkDir(work, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	return errors.Join(err, os.RemoveAll(work))
}
