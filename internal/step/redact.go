package step

import (
	"bytes"
	"encoding/json"
)

// KeptMost bounds what the history and the audit keep of a state or of a difference, in bytes.
const KeptMost = 8 << 10

// Redacted returns what the history and the audit may keep of a state or of the difference of two:
// what redact leaves of it, or all of it if redact is nil. It returns nil if that is too long, or
// if Postgres would refuse it as jsonb and fail what it goes with. redact is the host's code, and
// may panic.
func Redacted(redact func(machine string, text json.RawMessage) json.RawMessage, machine string, text json.RawMessage) json.RawMessage {
	kept := text
	if redact != nil {
		kept = redact(machine, bytes.Clone(text))
	}
	if len(kept) > KeptMost || !bytes.Equal(kept, text) && CheckJSON(kept, KeptMost) != nil {
		return nil
	}
	return kept
}
