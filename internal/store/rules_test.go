package store_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"time"
)

// These names stand for things around a row that are asserted like its columns.
const (
	itsInbox    = "its inbox"
	itsChildren = "its children"
	itsBarrier  = "its parent's barrier"
	itsNext     = "the next of its partition key"
)

// rule describes how a transition changes one column.
type rule struct {
	text  string // as in docs/outcomes.txt
	holds func(s *scene, was, is *string) bool
}

// rules are the rules of a transition, by column. A column without a rule stays unchanged.
type rules map[string]rule

// all merges rules. If two concern the same column, the later one holds. Postgres generates the
// fingerprint from the failure, so the rule of that column follows from the failure's.
func all(parts ...rules) rules {
	out := rules{}
	for _, p := range parts {
		maps.Copy(out, p)
	}
	if failure, changes := out["failure"]; changes {
		out["fingerprint"] = rule{"of the failure", func(_ *scene, _, is *string) bool { return is != nil }}
		if failure.text == null.text {
			out["fingerprint"] = null
		}
	}
	return out
}

var unchanged = rule{"·", func(_ *scene, was, is *string) bool { return reflect.DeepEqual(was, is) }}

var null = rule{"NULL", func(_ *scene, _, is *string) bool { return is == nil }}

// is requires a constant.
func is(want string) rule { return shown(want, want) }

// given requires the value that the outcome or the spec gives, which is want in the test.
func given(want string) rule { return shown("given", want) }

func shown(text, want string) rule {
	return rule{text, func(_ *scene, _, is *string) bool { return is != nil && *is == want }}
}

// of requires a value that depends on the scene.
func of(text string, want func(s *scene) string) rule {
	return rule{text, func(s *scene, _, is *string) bool { return is != nil && *is == want(s) }}
}

// as shows the rule under another text.
func (r rule) as(text string) rule { return rule{text, r.holds} }

// plusOne requires one more than before.
var plusOne = rule{"+1", func(_ *scene, was, is *string) bool {
	before, err1 := strconv.ParseInt(*was, 10, 64)
	after, err2 := strconv.ParseInt(*is, 10, 64)
	return err1 == nil && err2 == nil && after == before+1
}}

// now requires the server's time of the transition.
var now = in("now", 0)

// in requires a time so long after now.
func in(text string, d time.Duration) rule {
	return rule{text, func(s *scene, _, is *string) bool {
		if is == nil {
			return false
		}
		at, err := time.Parse(time.RFC3339Nano, *is)
		return err == nil && !at.Before(s.from.Add(d)) && !at.After(s.until.Add(d))
	}}
}

// remembers requires one more error, the newest, for the attempt as it was before.
func remembers(kind, message string) rule {
	return rule{"+1: " + kind, func(s *scene, was, is *string) bool {
		var before, after []map[string]any
		if is == nil || json.Unmarshal([]byte(*was), &before) != nil || json.Unmarshal([]byte(*is), &after) != nil ||
			len(after) != len(before)+1 {
			return false
		}
		newest := after[len(before)]
		time, _ := newest["at"].(string)
		delete(newest, "at")
		want := map[string]any{"step": *s.was["step"], "visit": s.was.number("visit"), "attempt": s.was.number("attempt"), "kind": kind,
			"error": message}
		if kind == "crash" || kind == "release" {
			want["worker"] = me
		}
		if kind == "release" {
			want["times"] = 1.0
		}
		return reflect.DeepEqual(before, after[:len(before)]) && reflect.DeepEqual(want, newest) && now.holds(s, nil, &time)
	}}
}

// number returns a column's value as JSON represents it.
func (i image) number(column string) float64 {
	n, err := strconv.ParseFloat(*i[column], 64)
	if err != nil {
		panic(err)
	}
	return n
}

// at requires a given time.
func at(text string, want time.Time) rule {
	return rule{text, func(_ *scene, _, is *string) bool {
		if is == nil {
			return false
		}
		at, err := time.Parse(time.RFC3339Nano, *is)
		return err == nil && at.Equal(want)
	}}
}

var (
	mark      = of("the commit", func(s *scene) string { return s.mark })
	worker    = of("the worker", func(*scene) string { return me })
	nextToken = rule{"next token", func(s *scene, _, is *string) bool {
		after, err := strconv.ParseInt(*is, 10, 64)
		return err == nil && after&drawn > s.number&drawn // both were drawn from the same sequence
	}}
	something = func(text string) rule {
		return rule{text, func(_ *scene, was, is *string) bool { return is != nil && !reflect.DeepEqual(was, is) }}
	}
)

// These rules concern the things around the row.
var (
	consumed = shown("the awaited ones consumed", `2†{} 3{"p": 1} 4{"p": 1}`)
	emptied  = shown("deleted", "")
	received = rule{"+1 signal", func(_ *scene, was, is *string) bool { return *is == *was+` new{"n": 1}` }}
	spawned  = func(n int) rule { return shown("inserted", number(n)) }
	promoted = shown("visible", "runnable, lane 0")
	joined   = rule{"−1", func(_ *scene, was, is *string) bool {
		var before, after map[string]any
		if json.Unmarshal([]byte(*was), &before) != nil || json.Unmarshal([]byte(*is), &after) != nil {
			return false
		}
		n, ok := before["children_pending"].(float64)
		before["children_pending"] = n - 1
		return ok && reflect.DeepEqual(before, after)
	}}
)
