package dashboard

import (
	"context"
	"encoding/json"
)

// maxPageShown bounds the bytes of all documents of one answer together: a page has hundreds of
// differences, payloads and facts, each of which may be as large as a state.
const maxPageShown = 1 << 20

type roomKey struct{}

// withRoom gives a request its room for documents.
func withRoom(ctx context.Context) context.Context {
	left := maxPageShown
	return context.WithValue(ctx, roomKey{}, &left)
}

// fits takes room for a document, and reports whether there was enough. One goroutine makes an
// answer, so the room needs no lock.
func fits(ctx context.Context, size int) bool {
	left, limited := ctx.Value(roomKey{}).(*int)
	if !limited {
		return true
	}
	if size > *left {
		return false
	}
	*left -= size
	return true
}

// document is JSON as it may be seen.
type document struct {
	Tree   *node
	Text   string // indented, for forms
	Hidden bool   // there is something that may not be seen
	Large  int    // bytes, if there is too much to show
}

func (s *server) document(ctx context.Context, machine, field string, v json.RawMessage) document {
	if len(v) == 0 || string(v) == "null" {
		return document{}
	}
	shown := s.visible(ctx, machine, field, v)
	switch {
	case len(shown) == 0:
		return document{Hidden: true}
	case len(shown) > maxShown || !fits(ctx, len(shown)):
		return document{Large: len(shown)}
	}
	return document{Tree: tree(shown), Text: indented(shown)}
}

// facts is what a verb found or left. Verbs that edit keep the whole state in it, as it is stored:
// that is shown as any state is, or left out.
func (s *server) facts(ctx context.Context, machine, field string, v json.RawMessage) document {
	var members map[string]json.RawMessage
	if json.Unmarshal(v, &members) == nil && len(members["state"]) > 0 {
		if shown := s.visible(ctx, machine, "state", s.decoded(members["state"])); len(shown) > 0 {
			members["state"] = shown
		} else {
			delete(members, "state")
		}
		if text, err := json.Marshal(members); err == nil {
			v = text
		}
	}
	return s.document(ctx, machine, field, v)
}
