package clients

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/gendurable/gendurable/integration/calls"
)

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
func step(w world, in calls.Call, out calls.Answer) (next []world) {
	next = at(w, in, out)
	if w.N != 0 && w.Closing {
		next = append(next, at(w.over(), in, out)...)
	}
	return next
}

// at returns the worlds that a call may leave at once.
func at(w world, in calls.Call, out calls.Answer) []world {
	live := w.N != 0
	happens, fits := w, false // what the call makes of the world if it takes effect
	switch in.Verb {
	case calls.Insert:
		fits = !live
		happens = w.with(func(w *world) { w.N = in.N })
	case calls.Add:
		fits = live
		happens.Accepted |= in.Bit
	case calls.Close:
		if fits = live; live && !w.Closing {
			happens.Closing, happens.Must = true, w.Accepted
		}
	case calls.Cancel:
		if fits = live; live {
			happens = w.ended("cancelled")
		}
	case calls.Get:
		fits = live && out.Told == calls.OK && out.N == w.N && out.Ended == "" && within(out.Bits, w.Seen, w.Accepted)
		happens.Seen = out.Bits
	case calls.Wait:
		return waited(w, in, out)
	}
	switch out.Told {
	case calls.OK:
		if fits {
			return []world{happens}
		}
		return nil
	case calls.Unknown:
		if fits {
			return []world{happens, w}
		}
		return []world{w}
	case calls.Refused:
	}
	// A call is refused exactly if it could not take effect; an insert, if the key is occupied.
	if in.Verb == calls.Get && live || in.Verb != calls.Get && fits || in.Verb == calls.Insert && out.N != 0 && out.N != w.N {
		return nil
	}
	return []world{w}
}

// waited is at for a call that has waited for the end of an instance.
func waited(w world, in calls.Call, out calls.Answer) []world {
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

// sequential is the model, for each key by itself.
var sequential = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string]int{}
		for _, o := range history {
			key := o.Input.(calls.Call).Key //nolint:forcetypeassert // Explains makes all operations
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
		for _, w := range step(state.(world), in.(calls.Call), out.(calls.Answer)) { //nolint:forcetypeassert // as above
			next = append(next, w)
		}
		return next
	},
	Equal: func(a, b any) bool { return a.(world).equals(b.(world)) }, //nolint:forcetypeassert // as above
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v: %+v", in, out)
	},
}).ToModel()

func (w world) equals(other world) bool {
	return w.N == other.N && w.Closing == other.Closing && w.Must == other.Must && w.Accepted == other.Accepted && w.Seen == other.Seen &&
		slices.Equal(w.Past, other.Past)
}
