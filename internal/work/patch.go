package work

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
)

// The history compares the states before and after each step. So this works on the texts: it
// decodes nothing but what an equal text may write otherwise.

// mergePatch returns the RFC 7386 merge patch that makes one document the other, or nil if they are
// equal or no JSON. As in every merge patch, null stands for a member that is gone, so one that
// became null looks the same.
func mergePatch(from, to json.RawMessage) json.RawMessage {
	if !json.Valid(from) || !json.Valid(to) { // so what follows meets no error
		return nil
	}
	patch, changed := difference(nil, bytes.TrimSpace(from), bytes.TrimSpace(to))
	if !changed {
		return nil
	}
	return patch
}

// difference appends the patch to out. The texts are valid, without space around them.
func difference(out, from, to []byte) (patch []byte, changed bool) {
	if same(from, to) {
		return out, false
	}
	if from[0] != '{' || to[0] != '{' {
		if alike(from, to) {
			return out, false
		}
		return appendCompact(out, to), true
	}
	var few, many [16]member
	old, now := membersOf(few[:0], from), membersOf(many[:0], to)
	out = append(out, '{')
	empty := len(out)
	add := func(name []byte) {
		if len(out) > empty {
			out = append(out, ',')
		}
		out = append(append(out, name...), ':')
	}
	for i, m := range now.list {
		if now.find(m.key) != i {
			continue // another of that name counts
		}
		before := len(out)
		add(m.name)
		differs := true
		if was := old.find(m.key); was >= 0 {
			out, differs = difference(out, old.list[was].value, m.value)
		} else {
			out = appendCompact(out, m.value)
		}
		if !differs {
			out = out[:before]
		}
	}
	for i, m := range old.list {
		if old.find(m.key) == i && now.find(m.key) < 0 {
			add(m.name)
			out = append(out, "null"...)
		}
	}
	return append(out, '}'), len(out) > empty
}

// member is a member of an object. name is as it is written, in quotes.
type member struct{ name, key, value []byte }

// object has the members of an object in the order in which they are written.
type object struct {
	list  []member
	index map[string]int // of a large one only
}

// indexed is the number of members from which on an object has an index.
const indexed = 32

// find returns which member has a key, -1 for none. Of several the last one counts.
func (o *object) find(key []byte) int {
	if o.index != nil {
		if i, has := o.index[string(key)]; has {
			return i
		}
		return -1
	}
	for i, m := range slices.Backward(o.list) {
		if bytes.Equal(m.key, key) {
			return i
		}
	}
	return -1
}

// membersOf appends the members of an object to an empty list.
func membersOf(list []member, text []byte) object {
	for i := skipSpace(text, 1); text[i] != '}'; {
		name := text[i:end(text, i)]
		i = skipSpace(text, i+len(name))
		i = skipSpace(text, i+1) // the colon
		value := text[i:end(text, i)]
		list = append(list, member{name, unquoted(name), value})
		i = skipSpace(text, i+len(value))
		if text[i] == ',' {
			i = skipSpace(text, i+1)
		}
	}
	o := object{list: list}
	if len(list) >= indexed {
		o.index = make(map[string]int, len(list))
		for i := range list {
			o.index[string(list[i].key)] = i
		}
	}
	return o
}

func unquoted(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name[1 : len(name)-1]
	}
	var s string
	_ = json.Unmarshal(name, &s) // the text is valid
	return []byte(s)
}

// end returns where the value ends that begins at a place.
func end(text []byte, at int) int {
	depth := 0
	for i := at; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = endOfString(text, i) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 { // of a number in an object
				return i
			}
			depth--
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// endOfString returns where the string ends that begins at a place.
func endOfString(text []byte, at int) int {
	for i := at + 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// same reports whether two texts differ in nothing but space between their tokens.
func same(a, b []byte) bool {
	i, j := 0, 0
	for {
		i, j = skipSpace(a, i), skipSpace(b, j)
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if a[i] != b[j] {
			return false
		}
		if a[i] != '"' {
			i, j = i+1, j+1
			continue
		}
		ends, other := endOfString(a, i), endOfString(b, j)
		if !bytes.Equal(a[i:ends], b[j:other]) {
			return false
		}
		i, j = ends, other
	}
}

// alike reports whether two values are equal though their texts are not: strings may be escaped,
// and objects in arrays ordered, in several ways. A number is its text.
func alike(a, b []byte) bool {
	if a[0] != b[0] || a[0] != '"' && a[0] != '[' {
		return false
	}
	x, err := decoded(a)
	if err != nil {
		return false
	}
	y, err := decoded(b)
	return err == nil && reflect.DeepEqual(x, y)
}

// decoded decodes a document. It keeps numbers as they are written.
func decoded(raw json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// appendCompact appends a value without space between its tokens.
func appendCompact(out, value []byte) []byte {
	for i := skipSpace(value, 0); i < len(value); i = skipSpace(value, i) {
		next := i + 1
		if value[i] == '"' {
			next = endOfString(value, i)
		}
		out = append(out, value[i:next]...)
		i = next
	}
	return out
}
