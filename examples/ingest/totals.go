package ingest

import (
	"crypto/sha256"
	"encoding/hex"
)

// Content has the figures of a file that was read.
type Content struct {
	SHA256   string `json:"sha256,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Lines    int64  `json:"lines,omitempty"`
	Longest  int64  `json:"longest,omitempty"` // line, in bytes
	Vanished bool   `json:"vanished,omitempty"`
}

// Totals of a directory and all below it.
type Totals struct {
	Sums
	Problems []string `json:"problems,omitempty"` // the first few of what was unreadable
}

// Sums can be compared: two that are equal have read the same bytes in the same places, since the
// digest covers all.
type Sums struct {
	Directories int64 `json:"directories"`
	Files       int64 `json:"files"`
	Bytes       int64 `json:"bytes"`
	Lines       int64 `json:"lines"`
	Longest     int64 `json:"longest"` // line, in bytes

	Links      int64 `json:"links,omitempty"`      // symbolic links: counted, not followed
	Special    int64 `json:"special,omitempty"`    // sockets, pipes, devices: not read
	Unreadable int64 `json:"unreadable,omitempty"` // files and directories: reported, the rest goes on
	Vanished   int64 `json:"vanished,omitempty"`   // between being listed and being read

	Digest string `json:"digest"`
}

// problemsKept bounds Totals.Problems.
const problemsKept = 10

// begin is a directory whose entries are still to be added.
func begin(l listing) Totals {
	return Totals{Sums: Sums{Directories: 1, Links: l.links, Special: l.special}}
}

func (t *Totals) addFile(c Content, err error) {
	switch {
	case err != nil:
		t.unreadable(err)
	case c.Vanished:
		t.Vanished++
	default:
		t.Files, t.Bytes, t.Lines = t.Files+1, t.Bytes+c.Bytes, t.Lines+c.Lines
		t.Longest = max(t.Longest, c.Longest)
		t.chain(c.SHA256)
	}
}

func (t *Totals) addDirectory(d Totals, err error) {
	if err != nil {
		t.unreadable(err)
		return
	}
	t.Directories, t.Files, t.Bytes, t.Lines = t.Directories+d.Directories, t.Files+d.Files, t.Bytes+d.Bytes, t.Lines+d.Lines
	t.Longest = max(t.Longest, d.Longest)
	t.Links, t.Special = t.Links+d.Links, t.Special+d.Special
	t.Unreadable, t.Vanished = t.Unreadable+d.Unreadable, t.Vanished+d.Vanished
	t.Problems = append(t.Problems, d.Problems...)
	t.Problems = t.Problems[:min(problemsKept, len(t.Problems))]
	t.chain(d.Digest)
}

func (t *Totals) unreadable(err error) {
	t.Unreadable++
	if len(t.Problems) < problemsKept {
		t.Problems = append(t.Problems, err.Error())
	}
}

// chain makes the digest depend on every part and on their order.
func (t *Totals) chain(part string) {
	sum := sha256.Sum256([]byte(t.Digest + "\n" + part))
	t.Digest = hex.EncodeToString(sum[:])
}
