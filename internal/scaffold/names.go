package scaffold

import (
	"fmt"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// initialisms are the words that ent's generator writes in capitals.
var initialisms = []string{
	"ACL", "API", "ASCII", "AWS", "CPU", "CSS", "DNS", "EOF", "GB", "GUID", "HCL", "HTML", "HTTP", "HTTPS", "ID", "IP", "JSON", "KB", "LHS", "MAC",
	"MB", "QPS", "RAM", "RHS", "RPC", "SLA", "SMTP", "SQL", "SSH", "SSO", "TCP", "TLS", "TTL", "UDP", "UI", "UID", "URI", "URL", "UTF8", "UUID",
	"VM", "XML", "XMPP", "XSRF", "XSS",
}

// pascal is the name that ent's generator gives to a field.
func pascal(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || unicode.IsSpace(r) })
	for i, w := range words {
		if upper := strings.ToUpper(w); slices.Contains(initialisms, upper) {
			words[i] = upper
		} else {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// setter is the method by which ent's builders set a field. Two names belong to ent's mutations.
func setter(field string) string {
	name := "Set" + pascal(field)
	if name == "SetField" || name == "SetOp" {
		name += "Field"
	}
	return name
}

// goNames returns a Go name for each value, exported whatever the value. Equal ones are told apart
// by a number.
func goNames(values []string) []string {
	names, taken := make([]string, len(values)), map[string]bool{}
	for i, v := range values {
		part := goName(v)
		if part == "" {
			part = strconv.Itoa(i + 1)
		}
		if !token.IsExported(part) {
			part = "V" + part // of a digit, or a letter without capitals
		}
		name := part
		for n := 2; taken[name]; n++ {
			name = fmt.Sprint(part, n)
		}
		names[i], taken[name] = name, true
	}
	return names
}

// goName returns the words of a value, each with a capital; "" of a value without letters and
// digits.
func goName(value string) string {
	words := strings.FieldsFunc(value, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words {
		if w == strings.ToUpper(w) {
			w = strings.ToLower(w)
		}
		runes := []rune(w)
		runes[0] = unicode.ToUpper(runes[0])
		words[i] = string(runes)
	}
	return strings.Join(words, "")
}

// words splits the name of a schema at its capitals: PurchaseOrder is purchase, order.
func words(name string) (all []string) {
	runes := []rune(name)
	begin := 0
	for i := 1; i < len(runes); i++ {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || next) {
			all, begin = append(all, strings.ToLower(string(runes[begin:i]))), i
		}
	}
	return append(all, strings.ToLower(string(runes[begin:])))
}

// used are the names that the written files declare or import. A package of the host that has one
// of them is imported under another name.
var used = []string{
	"context", "durabletest", "engine", "ent", "fmt", "fsm", "sql", "testing",
	"machine", "visit", "exit", "open", "page", "adopt", "writing", "stub", "tested", "isOurs",
	"ctx", "client", "eng", "err", "adopted", "rest", "next", "ids", "n", "tx", "rows", "row", "specs", "done", "i", "s",
	"v", "m", "to", "id", "got", "e", "exits", "signals", "key", "work", "t", "kit", "one", "at", "has",
}

// imported is a package that the written files import.
type imported struct{ Name, Path string }

// String is the line of the import.
func (i imported) String() string {
	if i.Name == path.Base(i.Path) {
		return fmt.Sprintf("%q", i.Path)
	}
	return fmt.Sprintf("%s %q", i.Name, i.Path)
}

// importing gives a package of the host a name that nothing else in the files has.
func importing(name, path string, others ...imported) imported {
	taken := func(name string) bool {
		return slices.Contains(used, name) || slices.ContainsFunc(others, func(o imported) bool { return o.Name == name && o.Path != path })
	}
	for taken(name) {
		name += "pkg"
	}
	return imported{Name: name, Path: path}
}

// listed is a list for people.
func listed(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(quoted, ", ")
}
