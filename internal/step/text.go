package step

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxErrorBytes bounds last_error: 8 KiB.
const MaxErrorBytes = 8 << 10

// SanitizeError makes the text of an error fit for last_error: no NUL, valid UTF-8, at most
// [MaxErrorBytes], cut between runes. It is "" for nil alone: of an error that has no text it says so,
// else an older error's text would stay beside the newer failure.
//
// What Postgres refuses in this text would make failing the instance fail, forever. So SanitizeError
// never fails itself, not even where the error's own method panics.
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
