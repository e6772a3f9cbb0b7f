package clients

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// verb is what a client calls.
type verb string

const (
	insert verb = "insert"
	add    verb = "add"   // a signal with a bit of its own
	end    verb = "close" // a signal with which the instance is done
	cancel verb = "cancel"
	get    verb = "get"
	wait   verb = "wait"
)

// call is what a client asks. All calls of one history are about one key.
type call struct {
	Key  string
	Verb verb
	N    int    // insert: the number of the instance; wait: that of the instance
	Bit  uint64 // of add
}

// told is how an answer ends.
type told string

const (
	ok      told = "ok"
	refused told = "refused" // by a duplicate, or since nobody is there
	unknown told = "unknown" // it may have happened, or may yet
)

// answer is what a client is told.
type answer struct {
	Told  told
	N     int    // get: the number of the instance; insert, refused: that of the occupant, 0 if the client does not know it
	Bits  uint64 // get, wait: what the instance has taken
	Ended string // get, wait: "", "done" or "cancelled"
}

// past is an instance that has ended.
type past struct {
	N         int
	Ended     string
	Must, May uint64 // of what it has taken when it was done
}

// world is what the model knows of one key. An instance that was closed is done at some time after
// that, which no call sees but by its consequences: until then it occupies the key, and may take
// what is added.
type world struct {
	N        int // the instance that occupies the key; 0: none
	Closing  bool
	Must     uint64 // what it has to have taken when it is done: all that came before the close
	Accepted uint64
	Seen     uint64 // what some call has seen that it has taken
	Past     []past
}

func (w world) with(change func(*world)) world {
	w.Past = slices.Clone(w.Past)
	change(&w)
	return w
}

// over returns the world in which the instance that is closed is done.
func (w world) over() world {
	return w.ended("done")
}

func (w world) ended(how string) world {
	return w.with(func(w *world) {
		w.Past = append(w.Past, past{w.N, how, w.Must | w.Seen, w.Accepted})
		w.N, w.Closing, w.Must, w.Accepted, w.Seen = 0, false, 0, 0, 0
	})
}

// within reports whether bits have all of must, and nothing but may.
func within(bits, must, may uint64) bool { return bits&must == must && bits&^may == 0 }

// step returns the worlds that a call may leave. Where an instance is closed, it may have been done
// just before.
func step(w world, in call, out answer) (next []world) {
	next = at(w, in, out)
	if w.N != 0 && w.Closing {
		next = append(next, at(w.over(), in, out)...)
	}
	return next
}

// at returns the worlds that a call may leave at once.
func at(w world, in call, out answer) []world {
	live := w.N != 0
	happens, fits := w, false // what the call makes of the world if it takes effect
	switch in.Verb {
	case insert:
		fits = !live
		happens = w.with(func(w *world) { w.N = in.N })
	case add:
		fits = live
		happens.Accepted |= in.Bit
	case end:
		if fits = live; live && !w.Closing {
			happens.Closing, happens.Must = true, w.Accepted
		}
	case cancel:
		if fits = live; live {
			happens = w.ended("cancelled")
		}
	case get:
		fits = live && out.Told == ok && out.N == w.N && out.Ended == "" && within(out.Bits, w.Seen, w.Accepted)
		happens.Seen = out.Bits
	case wait:
		return waited(w, in, out)
	}
	switch out.Told {
	case ok:
		if fits {
			return []world{happens}
		}
		return nil
	case unknown:
		if fits {
			return []world{happens, w}
		}
		return []world{w}
	case refused:
	}
	// A call is refused exactly if it could not take effect; an insert, if the key is occupied.
	if in.Verb == get && live || in.Verb != get && fits || in.Verb == insert && out.N != 0 && out.N != w.N {
		return nil
	}
	return []world{w}
}

// waited is at for a call that has waited for the end of an instance.
func waited(w world, in call, out answer) []world {
	for i, p := range w.Past {
		if p.N != in.N || p.Ended != out.Ended || p.Ended == "done" && !within(out.Bits, p.Must, p.May) {
			continue
		}
		return []world{w.with(func(w *world) { // from now on it has this result
			if p.Ended == "done" {
				w.Past[i].Must, w.Past[i].May = out.Bits, out.Bits
			}
		})}
	}
	return nil
}

// sequential is the model of one key.
var sequential = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string]int{}
		for _, o := range history {
			key := o.Input.(call).Key
			if _, ok := of[key]; !ok {
				of[key] = len(parts)
				parts = append(parts, nil)
			}
			parts[of[key]] = append(parts[of[key]], o)
		}
		return parts
	},
	Init: func() []any { return []any{world{}} },
	Step: func(state, in, out any) (next []any) {
		for _, w := range step(state.(world), in.(call), out.(answer)) {
			next = append(next, w)
		}
		return next
	},
	Equal: func(a, b any) bool { return a.(world).equals(b.(world)) },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v: %+v", in, out)
	},
}).ToModel()

func (w world) equals(other world) bool {
	return w.N == other.N && w.Closing == other.Closing && w.Must == other.Must && w.Accepted == other.Accepted && w.Seen == other.Seen &&
		slices.Equal(w.Past, other.Past)
}
