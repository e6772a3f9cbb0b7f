package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// textShown and documentShown bound a text and a document in an answer, in bytes.
	textShown     = 2 << 10
	documentShown = 8 << 10
	// documentBegin is how much is shown of a document that is larger.
	documentBegin = 1 << 10
)

// documents are the fields that hold what users have stored.
var documents = []string{"state", "result", "payload", "progress", "diff", "before", "after"}

// answer renders a value within the bounds. It is JSON; characters that could reorder or hide
// text are escaped.
func (b *toolbox) answer(value any) string {
	value = b.trim("", value)
	text := rendered(value)
	if object, ok := value.(map[string]any); ok {
		for len(text) > b.MaxBytes {
			if !shorten(object) {
				break
			}
			text = rendered(object)
		}
	}
	if len(text) > b.MaxBytes {
		return rendered(map[string]any{
			"error": fmt.Sprintf("the answer has %d bytes, at most %d are shown: ask for less", len(text), b.MaxBytes),
			"kind":  codeError.String(), "code": int(codeError),
		})
	}
	return text
}

// trim cuts off long texts, and hides documents or replaces those that are too large.
func (b *toolbox) trim(field string, value any) any {
	if slices.Contains(documents, field) && value != nil {
		text := rendered(value)
		switch {
		case b.Hide:
			return map[string]any{"hidden": true, "bytes": len(text)}
		case len(text) > min(documentShown, b.MaxBytes/4):
			return map[string]any{"cut": true, "bytes": len(text), "begin": beginning(text, documentBegin)}
		}
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = b.trim(name, one)
		}
	case []any:
		for n, one := range v {
			v[n] = b.trim("", one)
		}
	case string:
		if len(v) > textShown && field != "graph" {
			return fmt.Sprintf("%s… (%d bytes)", beginning(v, textShown), len(v))
		}
	}
	return value
}

// beginning returns the first bytes of a text, and no half of a character.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// shorten cuts the largest list of an answer to half, and says so. A page that is cut loses its
// cursor, which would pass over what was cut off.
func shorten(object map[string]any) bool {
	largest, size := "", 0
	var in map[string]any
	var look func(o map[string]any)
	look = func(o map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			switch v := o[name].(type) {
			case []any:
				if n := len(rendered(v)); len(v) > 1 && n > size {
					largest, size, in = name, n, o
				}
			case map[string]any:
				look(v)
			}
		}
	}
	look(object)
	if in == nil {
		return false
	}
	list, _ := in[largest].([]any)
	in[largest] = list[:len(list)/2]
	if _, paged := in["next"]; paged {
		in["next"] = nil
	}
	note := "the answer was too large: " + largest + " is not complete; ask for fewer, by limit or a narrower filter"
	object["cut"] = note
	return true
}

// rendered returns the JSON of a value, with escapes in place of characters that have no visible
// shape.
func rendered(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprintf(`{"error": %q}`, err.Error())
	}
	text := strings.TrimSuffix(out.String(), "\n")
	if strings.IndexFunc(text, shapeless) < 0 {
		return text
	}
	var escaped strings.Builder
	for _, r := range text {
		switch {
		case !shapeless(r):
			escaped.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&escaped, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.String()
}

func shapeless(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp)
}
