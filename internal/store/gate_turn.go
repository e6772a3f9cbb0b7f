package store

import (
	"maps"
	"slices"
)

// The order of a claim at gates. The front of the queue and each gate at which rows are in line are
// its parties.
//
//   - Within a party at a gate, keys have their turns, by weight, and within a key the order is the
//     queue's. What a key inserts, and how urgently, gives it no more turns.
//   - Between parties the more urgent goes first. A row that stands before a more urgent one in the
//     turns of its gate, among those at which the claim looks, is as urgent as that one: or else
//     the urgent one would wait for less urgent ones elsewhere.
//   - Equally urgent parties share: half of the starts are for the front, and half for the gates,
//     by their weights. It is start-time fair queueing: a party has a pass, to which a start adds
//     one by the weight, and the least pass goes first. A party that was idle, or was not urgent
//     enough, goes on at the present pass, so it has no credit.
//   - One start of agedEach is for the party whose first has waited longest, however urgent others
//     are.
//   - No row takes a place or a token that all keys of a gate share before the one whose turn it
//     is, however expensive that one is. So it begins once what it costs is there.
//
// All of it is the process' own: each process goes round by itself.

// agedEach is how many starts have one among them for the party that has waited longest.
const agedEach = 16

// partiesKept bounds for how many parties a process remembers their turns.
const partiesKept = 1000

// Turn is where a process goes on through a queue at gates.
type Turn struct {
	Gates map[string]GateTurn // by party: the name of a gate, with a slash if it has a label
	Front float64             // the pass of the front
	Now   float64             // the pass at which idle parties go on
	Begun int                 // starts since the last one for who has waited longest

	// Blind says to look at the lines as if nothing were in front: the claim before has left starts
	// to the front in vain, since rows there were locked, or had to move.
	Blind bool
	// Yields says to leave a place to another queue that is ahead at the same key: see rivalsText.
	Yields bool
}

// GateTurn is where a process goes on through the keys of a gate. In each round a key has as many
// claims as its weight says, so in any time in which keys have rows in line and places, they have
// claims in the ratio of their weights. A turn that a claim has cut off goes on there.
type GateTurn struct {
	After string  // the last key that had its turn, or the one in whose turn the last claim was full; empty: none
	Used  int     // what that one had of its turn; 0: all
	Pass  float64 // see Turn
}

// turned is what a claim has found of the turns.
type turned struct {
	parties  []string
	afters   []*string
	used     []int
	took     []int // starts
	shares   []int // weights of the parties
	may      int   // the weights of those of which some row could begin, together: that of the front
	reserved int   // starts that were left to the front
}

// args returns the arguments of a statement that looks at the lines.
func (t Turn) args() []any {
	parties := slices.Sorted(maps.Keys(t.Gates))
	afters, used, passes := make([]string, len(parties)), make([]int, len(parties)), make([]float64, len(parties))
	for i, name := range parties {
		g := t.Gates[name]
		afters[i], used[i], passes[i] = g.After, g.Used, g.Pass
	}
	return append(make([]any, 0, 5), notNil(parties), afters, used, passes, t.Now)
}

func notNil(texts []string) []string {
	if texts == nil {
		return []string{}
	}
	return texts
}

// aged returns how many starts of a claim of so many rows are for the party that has waited
// longest.
func (t Turn) aged(limit int) int { return (t.Begun + limit) / agedEach }

// next returns the turn after a claim of so many rows, with what it found and the starts from the
// front.
func (t Turn) next(limit int, found *turned, front int) Turn {
	now, begun := t.Now, front
	at := t.Now + 1e9 // the least pass of those that had a start
	for i, name := range found.parties {
		if begun += found.took[i]; found.took[i] > 0 {
			at = min(at, max(t.Gates[name].Pass, now))
		}
	}
	if found.may > 0 && front > 0 {
		at = min(at, max(t.Front, now))
		t.Front = max(t.Front, now) + float64(front)/float64(found.may)
	}
	gates := make(map[string]GateTurn, len(t.Gates)+len(found.parties))
	if len(t.Gates) <= partiesKept {
		maps.Copy(gates, t.Gates)
	}
	for i, name := range found.parties {
		g := GateTurn{After: value(found.afters[i]), Used: found.used[i], Pass: t.Gates[name].Pass}
		if found.took[i] > 0 {
			g.Pass = max(g.Pass, now) + float64(found.took[i])/float64(found.shares[i])
		}
		gates[name] = g
	}
	if begun > 0 && at > now && at < now+1e9 {
		t.Now = at
	}
	t.Begun = max(0, t.Begun+begun-agedEach*min(begun, t.aged(limit)))
	t.Gates, t.Blind = gates, found.reserved > front
	return t
}
