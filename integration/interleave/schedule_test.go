package interleave

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// schedule is a list of verbs of a world and the order in which their units pass: one letter per
// turn. A session that cannot take its turn, since it waits for a lock, takes it as soon as it can.
type schedule struct {
	world *world
	verbs []verb
	order string
	held  string // what a stranger holds all the while; "": nothing
}

// String returns the text by which the schedule can be rerun.
func (s schedule) String() string {
	text := s.world.name + "/" + strings.Join(s.verbNames(), "|") + "/" + s.order
	if s.held != "" {
		text += "/" + s.held
	}
	return text
}

func (s schedule) verbNames() (names []string) {
	for _, v := range s.verbs {
		names = append(names, v.name)
	}
	return names
}

// parse is the inverse of String.
func parse(text string) (schedule, error) {
	parts := strings.Split(text, "/")
	held := ""
	if len(parts) == 4 {
		parts, held = parts[:3], parts[3]
	}
	if _, known := holdings[held]; len(parts) != 3 || !known && held != "" {
		return schedule{}, fmt.Errorf("%q: %w: want world/verb|verb/order or world/verb|verb/order/held", text, errReplay)
	}
	for _, w := range worlds() {
		if w.name != parts[0] {
			continue
		}
		s := schedule{world: &w, order: parts[2], held: held}
		for name := range strings.SplitSeq(parts[1], "|") {
			v, ok := w.verb(name)
			if !ok {
				return schedule{}, fmt.Errorf("%q: %w: world %q has no verb %q", text, errReplay, w.name, name)
			}
			s.verbs = append(s.verbs, v)
		}
		if len(s.verbs) > len(names) || strings.Trim(s.order, names[:len(s.verbs)]) != "" {
			return schedule{}, fmt.Errorf("%q: %w: the order names sessions that it has not", text, errReplay)
		}
		return s, nil
	}
	return schedule{}, fmt.Errorf("%q: %w: no such world", text, errReplay)
}

func (w *world) verb(name string) (verb, bool) {
	for _, v := range append([]verb{drains()}, w.verbs...) {
		if v.name == name {
			return v, true
		}
	}
	return verb{}, false
}

// pairs returns all pairs of verbs of a world that share something.
func (w *world) pairs() (out [][]verb) {
	for i, a := range w.verbs {
		for _, b := range w.verbs[i:] {
			strangers, rivals := foreign(a) && foreign(b), outcome(a) && outcome(b) && (a.sole || b.sole)
			if a.touches&b.touches != 0 && !strangers && !rivals && !unlike(a, b) && !unlike(b, a) && (w.only == nil || w.only(a) || w.only(b)) {
				out = append(out, []verb{a, b})
			}
		}
	}
	return out
}

// foreign reports whether a verb is a host's. The engine need not care about two such verbs.
func foreign(v verb) bool { return strings.HasPrefix(v.family, "host") }

func outcome(v verb) bool { return strings.HasPrefix(v.family, "commit") && v.touches&subject != 0 }

// orders calls f with every order of the given turns per session.
func orders(turns []int, f func(string)) {
	left := append([]int{}, turns...)
	total := 0
	for _, n := range turns {
		total += n
	}
	order := make([]byte, 0, total)
	var rec func()
	rec = func() {
		if len(order) == total {
			f(string(order))
			return
		}
		for i := range left {
			if left[i] == 0 {
				continue
			}
			left[i]--
			order = append(order, names[i])
			rec()
			order = order[:len(order)-1]
			left[i]++
		}
	}
	rec()
}

// anyOrder returns a random one of these orders, all equally likely.
func anyOrder(random *rand.Rand, turns []int) string {
	var order []byte
	for i, n := range turns {
		order = append(order, strings.Repeat(names[i:i+1], n)...)
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return string(order)
}
