package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/gendurable/gendurable/internal/step"
)

// stateKey hashes the machine's name and the state's canonical JSON. It uses plain JSON, whatever
// the codec: a codec that encrypts returns another text of the same state each time, so every key
// would be new.
func stateKey(machine string, state any) (Key, error) {
	raw, err := JSON{}.Encode(state)
	if err != nil {
		return "", fmt.Errorf("from state %T: %w", state, err)
	}
	if err := step.CheckJSON(raw, math.MaxInt); err != nil {
		return "", fmt.Errorf("from state %T: %w", state, err)
	}
	var plain any
	if err := (JSON{}).Decode(raw, &plain); err != nil {
		return "", fmt.Errorf("from state %T: %w", state, err)
	}
	sum := sha256.Sum256(canonical(canonical(nil, machine), plain))
	return Key("sha256:" + hex.EncodeToString(sum[:])), nil
}

// canonical appends the canonical text of a JSON value: keys sorted, no spaces, one spelling for
// every number. This text is durable: a change to it gives every state a new key.
func canonical(to []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		to = append(to, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			to = append(canonical(append(canonical(to, key), ':'), v[key]), ',')
		}
		return append(to, '}')
	case []any:
		to = append(to, '[')
		for _, element := range v {
			to = append(canonical(to, element), ',')
		}
		return append(to, ']')
	case json.Number:
		return canonicalNumber(to, []byte(v))
	case string:
		// The length delimits the text. Quotes would need escapes, and which characters strconv.Quote
		// escapes depends on the version of Unicode.
		to = append(strconv.AppendInt(append(to, '"'), int64(len(v)), 10), ':')
		return append(to, v...)
	default: // null, true, false
		return fmt.Append(to, v)
	}
}

// canonicalNumber appends the significant digits and the power of ten of the last one: 1, 1.0 and
// 10e-1 are all 1e0.
func canonicalNumber(to, text []byte) []byte {
	n := step.ParseNumber(text)
	digits := bytes.TrimLeft(slices.Concat(n.Whole, n.Frac), "0")
	if len(digits) == 0 {
		return append(to, '0')
	}
	exponent := n.Exponent - len(n.Frac)
	short := bytes.TrimRight(digits, "0")
	exponent += len(digits) - len(short)
	if n.Negative {
		to = append(to, '-')
	}
	return strconv.AppendInt(append(append(to, short...), 'e'), int64(exponent), 10)
}
