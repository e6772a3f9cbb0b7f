package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

const (
	// MaxPlaces bounds the places of a cluster. With it all ids are below 2^53, so that numbers of
	// JavaScript, and JSON readers that use them, hold each.
	MaxPlaces = 1 << 9
	// idBits are the bits of an id below those of its place.
	idBits = 44
)

// PlaceOf returns the place of a key among a number of places: of a correlation key, a partition
// key, the key of a window, or the name of a schedule. It is the same in every process and every
// release, for ever: the first seven bytes of the SHA-256 of the key's UTF-8, as a big-endian
// number, modulo the number of places.
//
// Of a key that contains a tag only the tag counts. The tag is the first text in the key of at
// least one byte that stands between { and the next }. So "order-17{ada}" and "{ada}" have one
// place.
//
// places below 2 give 0.
func PlaceOf(key string, places int) int {
	if places < 2 { //nolint:mnd // with one place there is nothing to choose
		return 0
	}
	sum := sha256.Sum256([]byte(tagOf(key)))
	return int(binary.BigEndian.Uint64(sum[:8]) >> 8 % uint64(places)) //nolint:gosec // below places
}

// tagOf returns what of a key its place depends on.
func tagOf(key string) string {
	for rest := key; ; {
		_, after, opened := strings.Cut(rest, "{")
		if !opened {
			return key
		}
		tag, _, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return key
		case tag != "":
			return tag
		}
		rest = after
	}
}

// placeSQL is PlaceOf as SQL, of an expression and the number of places.
func placeSQL(key, places string) string {
	return `(('x' || encode(substring(sha256(convert_to(coalesce(substring(` + key + ` from '\{([^}]+)\}'), ` + key +
		`), 'UTF8')) from 1 for 7), 'hex'))::bit(56)::bigint % ` + places + `)`
}

// PlaceOfID returns the place that an id carries: id ÷ 2^44. Of an id that no cluster makes, it is
// not a place of any.
func PlaceOfID(id fsm.ID) int { return int(id >> idBits) }

// firstID returns the least id of a place, of whose ids lastID is the greatest.
func firstID(place int) int64 { return max(1, int64(place)<<idBits) }

func lastID(place int) int64 { return int64(place+1)<<idBits - 1 }
