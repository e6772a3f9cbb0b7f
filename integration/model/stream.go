package model

import "slices"

// A stream shows a parent the ends of its children in portions, each end once, in the order of the
// commits. Its round is negative.

// beginStream makes the round that was just begun a stream, if its policy says so.
func (i *Instance) beginStream() {
	if i.Join.Stream > 0 {
		i.Round, i.Most = -i.Round, i.Join.Stream
		i.Join.Stream = 0 // not a column: Most says it
	}
}

// number notes in which commit children of streams ended, each once in its life. It does not matter
// whether their parent waits.
func (w *World) number(ended []*Instance) {
	if w.ends == nil {
		w.ends = map[ID]int{}
	}
	w.commits++
	for _, i := range ended {
		if i.ParentRound < 0 && !i.Joined {
			w.ends[i.ID], i.Numbered = w.commits, true
		}
	}
}

// Joins reports whether children join at this visit.
func (i *Instance) Joins() bool {
	return i.Round != 0 && (amount(i.Round) == i.Visit || i.Join.Round == i.Visit)
}

// Streams reports whether a claim is current and its visit is shown a portion of a stream.
func (w *World) Streams(c *Claim) bool { return w.Holds(c) && w.Get(c.ID).Most > 0 }

// Show shows children to the visit of a claim, and reports whether these are what it must be shown:
// what it was shown before; else, of the ends that no visit was shown, the first, in their order.
// Which of one commit come first is open.
func (w *World) Show(c *Claim, shown []ID) bool {
	i := w.Get(c.ID)
	var again, fresh []ID
	for _, k := range w.Children(i) {
		switch {
		case k.Shown == i.Visit:
			again = append(again, k.ID)
		case k.Joined && k.Shown == 0:
			fresh = append(fresh, k.ID)
		}
	}
	from, want := again, again
	if len(again) == 0 {
		from, want = fresh, fresh[:min(len(fresh), i.Most)]
	}
	inOrder := func(a, b ID) int { return w.ends[a] - w.ends[b] }
	if len(shown) != len(want) || !slices.IsSortedFunc(shown, inOrder) {
		return false
	}
	for n, id := range shown {
		if !slices.Contains(from, id) || slices.Contains(shown[:n], id) {
			return false
		}
	}
	for _, id := range from {
		if !slices.Contains(shown, id) && len(shown) > 0 && inOrder(id, shown[len(shown)-1]) < 0 {
			return false
		}
	}
	for _, id := range shown {
		w.Get(id).Shown = i.Visit
	}
	return true
}

// Unshown counts the children of the newest round that no visit was shown, ended or not.
func (w *World) Unshown(id ID) (n int) {
	for _, k := range w.Children(w.Get(id)) {
		if k.Shown == 0 {
			n++
		}
	}
	return n
}

// amount is a round without its sign.
func amount(round int64) int64 { return max(round, -round) }
