package badinput

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/gendurable/gendurable/fsm"
)

// plan says what the steps of one instance must do, and records what they have seen. Its instance
// finds it by its correlation key.
type plan struct {
	bad  input
	open func() // lets the witness end, since the outcome is about to be committed

	mu        sync.Mutex
	sightings []sighting
	failures  []error
}

// sighting is a value as a step got it.
type sighting struct {
	where string
	raw   json.RawMessage
}

// input is everything that a fuzz target may put into an outcome.
type input struct {
	kind     uint8
	to       string
	state    json.RawMessage
	text     string
	delay    int64
	at       int64
	names    []string
	children int
	priority int
	flags    uint16
}

// put stores a plan for the steps of the instance with that key.
func (x *trial) put(bad input) (fsm.Key, *plan) {
	key := fsm.Key(fmt.Sprintf("plan %d", x.rig.number()))
	p := &plan{bad: bad, open: sync.OnceFunc(x.open)}
	x.plans.Store(key, p)
	x.keys = append(x.keys, key)
	return key, p
}

func (r *rig) plan(key fsm.Key) (*plan, error) {
	p, ok := r.plans.Load(key)
	if !ok {
		return nil, fmt.Errorf("no plan for %q", key)
	}
	return p.(*plan), nil //nolint:forcetypeassert // nothing else is stored
}

func (p *plan) see(where string, raw json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sightings = append(p.sightings, sighting{where, raw})
}

func (p *plan) seen() []sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sightings)
}

// fail records the error that a handler was called for.
func (p *plan) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, err)
}

func (p *plan) failed() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.failures)
}
