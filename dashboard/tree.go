package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// maxNodes is how many values of a document are shown; all of it can be downloaded.
const maxNodes = 1500

// maxFields is how many fields of the root, and of an object in it, are shown all the same: those
// behind a large array may be the important ones.
const maxFields = 50

// maxText is how many bytes of one text are shown.
const maxText = 4096

// node is a value of a JSON document. Numbers keep their digits.
type node struct {
	Key   string // within its object, or its place in an array
	Kind  string // "object", "array", "text", "number", "bool", "null" or "rest"
	Text  string
	Nodes []*node
	Open  bool
	Size  int // of an object or array
}

// tree makes nodes of a document, nil of none. Anything but JSON becomes one text.
func tree(v json.RawMessage) *node {
	if len(v) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(v))
	decoder.UseNumber()
	left := maxNodes
	root, err := grow(decoder, "", 0, &left)
	if err != nil {
		return &node{Kind: "text", Text: cut(string(v), maxText)}
	}
	return root
}

var errDeep = errors.New("nested too deeply")

// grow reads one value. After maxNodes values it goes on reading, and counts only.
func grow(decoder *json.Decoder, key string, depth int, left *int) (*node, error) {
	if depth > 200 {
		return nil, errDeep
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	*left--
	n := &node{Key: key, Open: depth < 2}
	switch value := token.(type) {
	case json.Delim:
		n.Kind = map[json.Delim]string{'{': "object", '[': "array"}[value]
		for decoder.More() {
			name := strconv.Itoa(n.Size)
			if n.Kind == "object" {
				token, err := decoder.Token()
				if err != nil {
					return nil, err
				}
				name, _ = token.(string)
			}
			child, err := grow(decoder, name, depth+1, left)
			if err != nil {
				return nil, err
			}
			n.Size++
			if *left >= 0 || n.Kind == "object" && depth <= 1 && n.Size <= maxFields {
				n.Nodes = append(n.Nodes, child)
			}
		}
		if _, err := decoder.Token(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if hidden := n.Size - len(n.Nodes); hidden > 0 {
			n.Nodes = append(n.Nodes, &node{Kind: "rest", Text: grouped(hidden) + " more"})
		}
		if n.Size > 30 && depth > 0 {
			n.Open = false
		}
	case string:
		n.Kind, n.Text = "text", cut(value, maxText)
	case json.Number:
		n.Kind, n.Text = "number", value.String()
	case bool:
		n.Kind, n.Text = "bool", strconv.FormatBool(value)
	default:
		n.Kind, n.Text = "null", "null"
	}
	return n, nil
}

// indented is a document with a line for each value. Numbers keep their digits.
func indented(v json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, v, "", "  ") != nil {
		return string(v)
	}
	return out.String()
}
