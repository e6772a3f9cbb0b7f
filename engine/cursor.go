package engine

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/gendurable/gendurable/internal/store"
)

// cursor is a place in a list: the query it is of, the id behind which the next page begins, and
// how that one is read.
type cursor struct {
	query [8]byte
	after int64
	walk  bool
}

const (
	cursorVersion = 1
	cursorBytes   = 1 + 8 + 8 + 1 + 4
)

var errCursor = errors.New("damaged: want the Next of a page, as it was")

// text of a cursor; its checksum is against accidents, there is nothing in it that its bearer may
// not know.
func (c cursor) text() string {
	b := append(make([]byte, 0, cursorBytes), cursorVersion)
	b = append(b, c.query[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.after)) //nolint:gosec // its bits
	if c.walk {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

func parseCursor(text string) (c cursor, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != cursorBytes || base64.RawURLEncoding.EncodeToString(b) != text || b[0] != cursorVersion || b[17] > 1 ||
		binary.BigEndian.Uint32(b[18:]) != crc32.ChecksumIEEE(b[:18]) {
		return c, errCursor
	}
	copy(c.query[:], b[1:9])
	c.after, c.walk = int64(binary.BigEndian.Uint64(b[9:17])), b[17] == 1 //nolint:gosec // its bits
	return c, nil
}

// fingerprint of a query: a cursor of another one would skip and repeat in silence.
func fingerprint(c *store.Filter, oldestFirst bool) (out [8]byte, err error) {
	text, err := json.Marshal(struct { //nolint:musttag // it is hashed, nobody reads it
		Filter      *store.Filter
		OldestFirst bool
	}{c, oldestFirst})
	if err != nil {
		return out, fmt.Errorf("encode a query: %w", err)
	}
	sum := sha256.Sum256(text)
	copy(out[:], sum[:])
	return out, nil
}
