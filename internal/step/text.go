package step

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxErrorBytes bounds last_error: 8 KiB.
const MaxErrorBytes = 8 << 10

// SanitizeError returns the text of an error in a form that last_error can hold: no NUL, valid
// UTF-8, at most [MaxErrorBytes], cut between runes. It returns "" for nil alone. For an error
// without a text it returns a text that says so, since an older error's text would otherwise stay
// beside the newer failure.
//
// If Postgres refused this text, the instance could never be failed. So SanitizeError never fails
// itself, not even if the error's own method panics.
func SanitizeError(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("error of type %T, whose Error method panicked", err)
		}
	}()
	text = strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), string(utf8.RuneError))
	if text == "" {
		return fmt.Sprintf("error of type %T, without a text", err)
	}
	if len(text) <= MaxErrorBytes {
		return text
	}
	end := MaxErrorBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
