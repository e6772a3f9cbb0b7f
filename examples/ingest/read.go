package ingest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Path of a file, or one element of one. File systems take any bytes in a name, JSON and Postgres
// do not: a path that is not text is stored as a quoted string.
type Path string

func (p Path) join(name Path) Path { return Path(filepath.Join(string(p), string(name))) }

// MarshalText quotes what is not text, and what could be taken for quoted.
func (p Path) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(p)) && !strings.HasPrefix(string(p), `"`) {
		return []byte(p), nil
	}
	return []byte(strconv.QuoteToASCII(string(p))), nil
}

// UnmarshalText is the reverse of MarshalText.
func (p *Path) UnmarshalText(text []byte) error {
	if !bytes.HasPrefix(text, []byte(`"`)) {
		*p = Path(text)
		return nil
	}
	unquoted, err := strconv.Unquote(string(text))
	if err != nil {
		return fmt.Errorf("unquote path %s: %w", text, err)
	}
	*p = Path(unquoted)
	return nil
}

// entry of a directory that is to be read.
type entry struct {
	Directory bool `json:"directory,omitempty"`
	Name      Path `json:"name,omitempty"`
}

// compare orders files before directories, each by name.
func (e entry) compare(other entry) int {
	if e.Directory != other.Directory {
		if other.Directory {
			return -1
		}
		return 1
	}
	return cmp.Compare(e.Name, other.Name)
}

// listing of a directory.
type listing struct {
	entries        []entry // in order
	links, special int64
}

// after returns the entries that follow e, which need not be there any more.
func (l listing) after(e entry) []entry {
	if e == (entry{}) {
		return l.entries
	}
	i, found := slices.BinarySearchFunc(l.entries, e, entry.compare)
	if found {
		i++
	}
	return l.entries[i:]
}

// reader is the file system.
type reader struct {
	open    func(name string) (io.ReadCloser, error)
	readDir func(name string) ([]fs.DirEntry, error)
}

func diskReader() reader {
	return reader{
		open:    func(name string) (io.ReadCloser, error) { return os.Open(name) },
		readDir: os.ReadDir,
	}
}

func (r reader) list(directory Path) (l listing, err error) {
	found, err := r.readDir(string(directory))
	if err != nil {
		return listing{}, err
	}
	for _, e := range found {
		switch {
		case e.IsDir():
			l.entries = append(l.entries, entry{Directory: true, Name: Path(e.Name())})
		case e.Type().IsRegular():
			l.entries = append(l.entries, entry{Name: Path(e.Name())})
		case e.Type()&fs.ModeSymlink != 0:
			l.links++
		default:
			l.special++
		}
	}
	slices.SortFunc(l.entries, entry.compare)
	return l, nil
}

// read hashes and counts a file of any size in a fixed amount of memory.
func (r reader) read(ctx context.Context, path Path) (c Content, err error) {
	file, err := r.open(string(path))
	if err != nil {
		return Content{}, err
	}
	defer file.Close()
	hash, line := sha256.New(), int64(0)
	buffer := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return Content{}, err
		}
		n, err := file.Read(buffer)
		_, _ = hash.Write(buffer[:n]) // a hash takes all
		c.Bytes += int64(n)
		for rest := buffer[:n]; len(rest) > 0; {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				line += int64(len(rest))
				break
			}
			c.Lines++
			c.Longest = max(c.Longest, line+int64(end))
			line, rest = 0, rest[end+1:]
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Content{}, err
		}
	}
	if line > 0 { // a last line without an end
		c.Lines++
		c.Longest = max(c.Longest, line)
	}
	c.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return c, nil
}
