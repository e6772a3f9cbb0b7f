package step

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Postgres' jsonb takes less than JSON allows. A value that it refuses would fail the whole batch
// with which its outcome is committed. So the value is checked here, where the fault is the error
// of one step.
const (
	// maxDepth is the deepest nesting: half as deep as encoding/json decodes (10,000), and half as
	// deep as Postgres 15 takes with its default stack (9,990).
	maxDepth = 5_000
	// maxWhole and maxScale are how many digits a numeric may have before and after the point.
	maxWhole = 131_072
	maxScale = 16_383
	// maxExponent is a little under half of MaxInt32, from which on numeric refuses even a zero.
	maxExponent = 1_000_000_000
)

var (
	// ErrNotJSON is the error for a text that is no JSON.
	ErrNotJSON = errors.New("not valid JSON")
	// ErrTooLarge is fsm.ErrTooLarge.
	ErrTooLarge = errors.New("gendurable: over the limit")
)

// CheckJSON returns an error if raw has more than limit bytes, or if Postgres would refuse it as
// jsonb.
func CheckJSON(raw json.RawMessage, limit int) error {
	if err := CheckJSONB(raw, limit); err != nil {
		return err
	}
	if !json.Valid(raw) {
		return ErrNotJSON
	}
	return nil
}

// CheckJSONB is CheckJSON for JSON that is known to be valid, or is checked for that later.
//
// Postgres stores 1e99999 as its hundred thousand digits, and returns them to every claim. So the
// size of a number is the number of its digits without an exponent; otherwise a row could be stored
// that is too large to be read again.
func CheckJSONB(raw json.RawMessage, limit int) error {
	if len(raw) > limit {
		return fmt.Errorf("%d bytes, at most %d: %w", len(raw), limit, ErrTooLarge)
	}
	if !utf8.Valid(raw) {
		return errors.New("not valid UTF-8")
	}
	depth, size := 0, len(raw)
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			if n := bytes.IndexByte(raw[i+1:], '"'); n >= 0 && bytes.IndexByte(raw[i+1:i+1+n], '\\') < 0 {
				i += n + 2 // most strings have no escape
				continue
			}
			end, err := checkString(raw, i)
			if err != nil {
				return err
			}
			i = end
			continue
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(raw) && inNumber[raw[end]] {
				end++
			}
			digits, err := checkNumber(raw[i:end])
			if err != nil {
				return fmt.Errorf("number at byte %d: %w", i, err)
			}
			size += max(0, digits-(end-i))
			i = end
			continue
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested over %d deep", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
		i++
	}
	if size > limit {
		return fmt.Errorf("%d bytes with all digits of its numbers, at most %d: %w", size, limit, ErrTooLarge)
	}
	return nil
}

// inNumber has the bytes of which a JSON number consists.
var inNumber = [256]bool{'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true,
	'+': true, '-': true, '.': true, 'e': true, 'E': true}

// checkString returns the index after the string that starts at from.
func checkString(raw []byte, from int) (int, error) {
	for i := from + 1; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1, nil
		case '\\':
			i++
			if i == len(raw) || raw[i] != 'u' {
				continue
			}
			switch r := hexRune(raw, i+1); {
			case r == 0:
				return 0, fmt.Errorf(`NUL (\u0000) at byte %d`, i-1)
			case r >= 0xdc00 && r < 0xe000:
				return 0, fmt.Errorf("lone low surrogate at byte %d", i-1)
			case r >= 0xd800 && r < 0xdc00:
				low := rune(-1)
				if bytes.HasPrefix(raw[min(i+5, len(raw)):], []byte(`\u`)) {
					low = hexRune(raw, i+7)
				}
				if low < 0xdc00 || low >= 0xe000 {
					return 0, fmt.Errorf("lone high surrogate at byte %d", i-1)
				}
				i += 6 // past the low surrogate, which would count as a lone one
			}
			i += 4
		}
	}
	return len(raw), nil // unterminated: not valid JSON
}

// hexRune reads four hexadecimal digits; it returns -1 if they are not.
func hexRune(raw []byte, from int) rune {
	if from+4 > len(raw) {
		return -1
	}
	r, err := strconv.ParseUint(string(raw[from:from+4]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(r) //nolint:gosec // four hexadecimal digits
}

// checkNumber returns how many characters Postgres will write for the number.
func checkNumber(text []byte) (int, error) {
	if len(text) < maxScale && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return len(text), nil
	}
	n := ParseNumber(text)
	whole := 1 // digits before the point, from the first that is not 0
	if first := bytes.IndexAny(slices.Concat(n.Whole, n.Frac), "123456789"); first >= 0 {
		whole = len(n.Whole) + n.Exponent - first
	}
	scale := max(0, len(n.Frac)-n.Exponent)
	if n.Exponent >= maxExponent || n.Exponent <= -maxExponent || whole > maxWhole || scale > maxScale {
		return 0, fmt.Errorf("over the range of numeric: %d digits before and %d after the point", maxWhole, maxScale)
	}
	return max(1, whole) + scale, nil
}

// Number is a JSON number in its parts.
type Number struct {
	Negative    bool
	Whole, Frac []byte // digits
	Exponent    int    // between -maxExponent and maxExponent
}

// ParseNumber splits a JSON number into its parts. Its result for any other text means nothing.
func ParseNumber(text []byte) (n Number) {
	text, n.Negative = bytes.CutPrefix(text, []byte("-"))
	mantissa := text
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		mantissa = text[:e]
		exponent, _ := strconv.Atoi(string(text[e+1:])) // if out of range, it is the nearest int
		n.Exponent = max(-maxExponent, min(exponent, maxExponent))
	}
	n.Whole, n.Frac, _ = bytes.Cut(mantissa, []byte("."))
	return n
}
