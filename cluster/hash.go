package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

const (
	// MaxPlaces bounds the number of places. It keeps all ids below 2^53, so that JavaScript, and
	// JSON readers that use its numbers, hold every id exactly.
	MaxPlaces = 1 << 9
	// idBits is the number of an id's bits below its place's.
	idBits = 44
)

// PlaceOf returns the place of a key among a number of places. The key is a correlation key, a
// partition key, the key of a window, or the name of a schedule. PlaceOf is the same in every
// process and every release, for ever: it is the first seven bytes of the SHA-256 of the key's
// UTF-8, as a big-endian number, modulo the number of places.
//
// If the key contains a tag, PlaceOf hashes only the tag: the first non-empty text between { and
// the next }. So "order-17{ada}" and "{ada}" have one place.
//
// PlaceOf returns 0 where places is below 2.
func PlaceOf(key string, places int) int {
	if places < 2 { //nolint:mnd // with one place there is nothing to choose
		return 0
	}
	sum := sha256.Sum256([]byte(tagOf(key)))
	return int(binary.BigEndian.Uint64(sum[:8]) >> 8 % uint64(places)) //nolint:gosec // below places
}

// tagOf returns the part of a key that decides its place.
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

// placeSQL returns PlaceOf as SQL, for an expression and the number of places.
func placeSQL(key, places string) string {
	return `(('x' || encode(substring(sha256(convert_to(coalesce(substring(` + key + ` from '\{([^}]+)\}'), ` + key +
		`), 'UTF8')) from 1 for 7), 'hex'))::bit(56)::bigint % ` + places + `)`
}

// PlaceOfID returns the place that an id carries: id ÷ 2^44. For an id that no cluster has made,
// the result may be no place of any cluster.
func PlaceOfID(id fsm.ID) int { return int(id >> idBits) }

// firstID returns the least id of a place; lastID returns the greatest.
func firstID(place int) int64 { return max(1, int64(place)<<idBits) }

func lastID(place int) int64 { return int64(place+1)<<idBits - 1 }
