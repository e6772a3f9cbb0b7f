package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Verb is what a client calls.
type Verb string

// The verbs. A purse is an instance that takes bits until it is closed.
const (
	Insert Verb = "insert"
	Add    Verb = "add"   // a signal with a separate bit
	Close  Verb = "close" // a signal with which the instance is done
	Cancel Verb = "cancel"
	Get    Verb = "get"
	Wait   Verb = "wait"
)

// Verbs returns all verbs.
func Verbs() []Verb { return []Verb{Insert, Add, Close, Cancel, Get, Wait} }

// Call is what a client asks. Calls about different keys have nothing to do with each other.
type Call struct {
	Key  string `json:"key"`
	Verb Verb   `json:"verb"`
	N    int    `json:"n,omitempty"`   // Insert: the number of the instance; Wait: that of the instance
	Bit  uint64 `json:"bit,omitempty"` // of Add
}

// Told is how a call ends.
type Told string

// The ends of a call.
const (
	OK      Told = "ok"
	Refused Told = "refused" // by a duplicate, or since nobody is there
	Unknown Told = "unknown" // it may have happened, or may yet
)

// Answer is what a client is told.
type Answer struct {
	Told  Told   `json:"told"`
	N     int    `json:"told_n,omitempty"` // Get: the number of the instance; Insert, refused: that of the occupant, 0 if the client does not know it
	ID    fsm.ID `json:"id,omitempty"`     // of the instance that the answer is about
	Bits  uint64 `json:"bits,omitempty"`   // Get, Wait: what the instance has taken
	Ended string `json:"ended,omitempty"`  // Get, Wait: "", "done", "cancelled", or how it failed
}

// Operation is a call with its answer. Times are ns since a moment that all clients of a record
// share.
type Operation struct {
	Client int   `json:"client"`
	At     int64 `json:"at"`    // when the call began
	Until  int64 `json:"until"` // when the answer came; math.MaxInt64 if it is unknown, since the call may take effect at any time
	Call
	Answer
}

// Recorder records the calls of the clients of one process.
type Recorder struct {
	began time.Time
	into  io.Writer

	m        sync.Mutex
	history  []Operation
	inserted []purse // as far as a client was told
	next     int
	step     int
	err      error
}

// purse is an instance.
type purse struct {
	id  fsm.ID
	key string
	n   int
}

// NewRecorder returns a recorder with times since began. The recorders of several processes use
// different numbers for instances if each has its own first of a step that all share. Lines go to
// into, one write each, unless it is nil.
func NewRecorder(began time.Time, first, step int, into io.Writer) *Recorder {
	return &Recorder{began: began, into: into, next: first, step: step}
}

// History returns the calls that were recorded, and the first error of writing them.
func (r *Recorder) History() ([]Operation, error) {
	r.m.Lock()
	defer r.m.Unlock()
	return slices.Clone(r.history), r.err
}

// Waits returns a call for each instance whose insertion was acknowledged, which waits for its end.
func (r *Recorder) Waits() (all []Call) {
	r.m.Lock()
	defer r.m.Unlock()
	for _, p := range r.inserted {
		all = append(all, Call{Key: p.key, Verb: Wait, N: p.n})
	}
	return all
}

// number returns a new number for an instance.
func (r *Recorder) number() int {
	r.m.Lock()
	defer r.m.Unlock()
	n := r.next
	r.next += r.step
	return n
}

// record makes a call, and records it. It leaves out calls that have no effect and no answer.
func (r *Recorder) record(client int, in Call, happen func() Answer) Answer {
	at := time.Since(r.began).Nanoseconds()
	out := happen()
	until := time.Since(r.began).Nanoseconds()
	if out.Told == Unknown {
		if in.Verb == Get || in.Verb == Wait {
			return out
		}
		until = math.MaxInt64
	}
	r.m.Lock()
	defer r.m.Unlock()
	o := Operation{Client: client, At: at, Until: until, Call: in, Answer: out}
	r.history = append(r.history, o)
	if r.into != nil {
		line, err := json.Marshal(o)
		if err == nil {
			_, err = r.into.Write(append(line, '\n'))
		}
		r.err = errors.Join(r.err, err)
	}
	return out
}

// known returns the number of an instance; 0 if no client of this process inserted it.
func (r *Recorder) known(id fsm.ID) int {
	return r.find(func(p purse) bool { return p.id == id }).n
}

// id returns the instance of a number; 0 if no client of this process inserted it.
func (r *Recorder) id(n int) fsm.ID {
	return r.find(func(p purse) bool { return p.n == n }).id
}

func (r *Recorder) find(is func(purse) bool) purse {
	r.m.Lock()
	defer r.m.Unlock()
	if i := slices.IndexFunc(r.inserted, is); i >= 0 {
		return r.inserted[i]
	}
	return purse{}
}

func (r *Recorder) learn(p purse) {
	r.m.Lock()
	defer r.m.Unlock()
	r.inserted = append(r.inserted, p)
}

// recent returns the numbers of the instances that were inserted last under a key, at most so many.
func (r *Recorder) recent(key string, most int) (numbers []int) {
	r.m.Lock()
	defer r.m.Unlock()
	for _, p := range slices.Backward(r.inserted) {
		if len(numbers) == most {
			break
		}
		if p.key == key {
			numbers = append(numbers, p.n)
		}
	}
	return numbers
}

// Read reads a record. It refuses lines that no recorder writes, also one that is cut off, and
// answers that cannot be about one world: an instance under two numbers or two keys.
func Read(from io.Reader) (history []Operation, err error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		o := Operation{}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		err := d.Decode(&o)
		if err == nil {
			err = o.validate()
		}
		if err == nil && !bytes.HasSuffix(line, []byte("\n")) {
			err = errors.New("it is cut off")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(history)+1, err)
		}
		history = append(history, o)
	}
	return history, identify(history)
}

func (o Operation) validate() error {
	switch {
	case o.Key == "":
		return errors.New("a call without a key")
	case !slices.Contains(Verbs(), o.Verb):
		return fmt.Errorf("verb %q", o.Verb)
	case o.Told != OK && o.Told != Refused && o.Told != Unknown:
		return fmt.Errorf("told %q", o.Told)
	case (o.Verb == Insert || o.Verb == Wait) != (o.Call.N != 0):
		return fmt.Errorf("%s of number %d", o.Verb, o.Call.N)
	case (o.Verb == Add) != (o.Bit != 0):
		return fmt.Errorf("%s of bit %d", o.Verb, o.Bit)
	case o.At <= 0 || o.Until < o.At || (o.Told == Unknown) != (o.Until == math.MaxInt64):
		return fmt.Errorf("from %d to %d, told %s", o.At, o.Until, o.Told)
	case o.Told == Unknown && (o.Verb == Get || o.Verb == Wait):
		return fmt.Errorf("%s without an answer", o.Verb)
	}
	return nil
}

// identify fills in the numbers of occupants that their clients did not know, and others did.
func identify(history []Operation) error {
	type whose struct {
		key string
		n   int
	}
	known := map[fsm.ID]whose{}
	for _, o := range history {
		is := whose{o.Key, o.Answer.N}
		if o.Verb == Insert {
			is.n = o.Call.N
		}
		if o.Told != OK || o.ID == 0 || is.n == 0 {
			continue
		}
		if was, ok := known[o.ID]; ok && was != is {
			return fmt.Errorf("instance %d is number %d of key %q, and number %d of key %q", o.ID, was.n, was.key, is.n, is.key)
		}
		known[o.ID] = is
	}
	for i, o := range history {
		is, ok := known[o.ID]
		if o.Verb != Insert || o.Told != Refused || !ok {
			continue
		}
		if is.key != o.Key {
			return fmt.Errorf("key %q was said to be occupied by instance %d, which has key %q", o.Key, o.ID, is.key)
		}
		history[i].Answer.N = is.n
	}
	return nil
}
