package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/internal/store"
)

// These bound a key of a gate, and a list of keys.
const (
	// MaxGateKeyRunes is how many characters of a label's value count: longer values that begin alike
	// share a key.
	MaxGateKeyRunes = 256
	// MaxGateKeys is how many keys [Admin.GateKeys] lists.
	MaxGateKeys = 1000
)

// GateForGood is the ClosedUntil of a [GateKey] that only OpenGate opens.
var GateForGood = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// GateKey has the settings of one key of a gate.
type GateKey struct {
	Key string `json:"key"` // such as per-customer/acme; of all values together the gate's name
	// Weight is how many turns the key gets where others get one: 1 unless SetGateWeight has set it.
	Weight int `json:"weight"`
	// Places is how many instances of the key execute at a time, in place of the gate's Places: 0
	// unless SetGatePlaces has set it.
	Places int `json:"places,omitempty"`
	// Pace is the part of the gate's Rate that counts: 1 unless a provider has slowed the key down.
	Pace float64 `json:"pace"`
	// ClosedUntil is when the key opens; GateForGood if only OpenGate opens it, zero if it is open.
	ClosedUntil time.Time `json:"closed_until,omitzero"`
}

// CloseGate lets none begin behind a key of a gate before a time, or before OpenGate if that is
// zero, and reports whether that changed anything. Executing instances go on. The key of one value
// of the gate's label is the name of the gate, a slash and the value, such as per-customer/acme;
// the name alone closes the gate for all. A second CloseGate replaces the time of the first.
//
// Each process obeys with its next claim. Errors: ErrNotFound if there is no such gate; else as for
// SetGate.
func (a *Admin) CloseGate(ctx context.Context, key string, until time.Time, options ...VerbOption) (changed bool, err error) {
	switch {
	case until.IsZero():
		until = GateForGood
	case until.After(GateForGood):
		return false, &VerbError{VerbCloseGate, "until", fmt.Errorf("%v, at most GateForGood, %v", until, GateForGood)}
	}
	return a.changeKey(ctx, VerbCloseGate, key, options, func(key string, by store.By) (bool, error) {
		return a.engine.store.CloseGateKey(ctx, key, until, by)
	})
}

// OpenGate ends a CloseGate of the same key, or what fsm.Throttled has closed or slowed down, and
// forgets what the key owes of its rate: a burst of it may begin. It reports whether that changed
// anything. Another process that remembers that the key cannot begin, among thousands, may look
// again as late as 30 seconds after that. Errors: as of CloseGate.
func (a *Admin) OpenGate(ctx context.Context, key string, options ...VerbOption) (changed bool, err error) {
	return a.changeKey(ctx, VerbOpenGate, key, options, func(key string, by store.By) (bool, error) {
		changed, err := a.engine.store.CloseGateKey(ctx, key, time.Time{}, by)
		if w := a.engine.worker; w != nil && err == nil { // also if an earlier try has opened it, without an answer
			w.Freed(key)
		}
		return changed, err
	})
}

// SetGateWeight sets how many turns a key of a gate with a label gets where others get one, from 1,
// which all keys have at first, to MaxGateWeight, and reports whether that changed anything. With
// the name of a gate, it sets how many starts that gate gets in a queue where other gates get one.
// Errors: as of CloseGate.
func (a *Admin) SetGateWeight(ctx context.Context, key string, weight int, options ...VerbOption) (changed bool, err error) {
	if weight < 1 || weight > MaxGateWeight {
		return false, &VerbError{VerbSetGateWeight, "weight", fmt.Errorf("%d, want 1 to %d", weight, MaxGateWeight)}
	}
	return a.changeKey(ctx, VerbSetGateWeight, key, options, func(key string, by store.By) (bool, error) {
		return a.engine.store.WeighGateKey(ctx, key, weight, by)
	})
}

// SetGatePlaces sets how many instances of one key of a gate with a label execute at a time, from 1
// to MaxGatePlaces, in place of the gate's Places, which may bound nothing; at a gate with Run, how
// many are under way. 0: as many as the gate says. It reports whether that changed anything. The
// gate's Total and rates hold as before, and a closed gate lets none begin. Executing instances go
// on, and none begins before fewer than places execute; at a gate without Places, instances that
// execute already do not count.
//
// Each process obeys with its next claim, and remembers up to 1,000 such keys for batches. A batch
// of another key goes by the gate's Places: it may wait its whole time in vain, or go too early.
// Errors: as of CloseGate.
func (a *Admin) SetGatePlaces(ctx context.Context, key string, places int, options ...VerbOption) (changed bool, err error) {
	if places < 0 || places > MaxGatePlaces {
		return false, &VerbError{VerbSetGatePlaces, "places", fmt.Errorf("%d, want 1 to %d, or 0 for the places of the gate", places, MaxGatePlaces)}
	}
	if !strings.Contains(key, "/") {
		return false, &VerbError{VerbSetGatePlaces, "key", fmt.Errorf("%.80q has no value: name one key, such as %.80s/acme; SetGate sets the places of all", key, key)}
	}
	return a.changeKey(ctx, VerbSetGatePlaces, key, options, func(key string, by store.By) (bool, error) {
		changed, err := a.engine.store.PlaceGateKey(ctx, key, places, by)
		if w := a.engine.worker; w != nil && err == nil {
			w.Freed(key)
		}
		return changed, err
	})
}

func (a *Admin) changeKey(ctx context.Context, verb Verb, key string, options []VerbOption,
	change func(key string, by store.By) (bool, error),
) (changed bool, err error) {
	defer a.engine.explain(ctx, toSetGates, &err)
	if err := a.whole(verb.method()); err != nil {
		return false, err
	}
	key, err = gateKey(key)
	if err != nil {
		return false, &VerbError{verb, "key", err}
	}
	by, err := a.by(ctx, verb, options)
	if err != nil {
		return false, err
	}
	t := task{doing: "change a key of a gate", attrs: []slog.Attr{slog.String("gate", key)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = change(key, by)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNoKey):
		return false, &VerbError{verb, "key", store.ErrNoKey}
	case errors.Is(err, store.ErrNoGate):
		name, _, _ := strings.Cut(key, "/")
		return false, &noGateError{verb, name}
	}
	return changed, err
}

// noGateError is an ErrNotFound whose text names a gate.
type noGateError struct {
	verb Verb
	name string
}

func (e *noGateError) Error() string {
	return fmt.Sprintf("gendurable: %s: no such gate: %.80q", e.verb.method(), e.name)
}

func (*noGateError) Is(target error) bool { return target == ErrNotFound }

// gateKey checks a key, and shortens its value like the label of an instance.
func gateKey(key string) (string, error) {
	name, value, some := strings.Cut(key, "/")
	if err := checkGateName(name); err != nil {
		return "", err
	}
	if !some {
		return name, nil
	}
	if value != "" {
		if err := checkName(value, 4*MaxGateKeyRunes); err != nil {
			return "", err
		}
	}
	runes := []rune(value)
	return name + "/" + string(runes[:min(len(runes), MaxGateKeyRunes)]), nil
}

// GateKeys lists the keys of a gate that are closed, slowed down, or have a weight or their
// own places, by key: at most MaxGateKeys of them. Within bounds it lists only keys of gates that
// Gates lists. Errors: as of SetGate.
func (a *Admin) GateKeys(ctx context.Context, gate string) (keys []GateKey, err error) {
	defer a.engine.explain(ctx, toRead("gate_keys"), &err)
	if err := checkGateName(gate); err != nil {
		return nil, badQuery("gate", "%w", err)
	}
	if a.bound() {
		all, err := a.Gates(ctx)
		if err != nil || !slices.ContainsFunc(all, func(g GateStatus) bool { return g.Name == gate }) {
			return []GateKey{}, err
		}
	}
	var rows []*ent.GateKey
	var now time.Time
	err = a.engine.patiently(ctx, task{doing: "list keys of a gate"}, func() error {
		if now, err = a.engine.store.Now(ctx); err != nil {
			return err
		}
		rows, err = a.engine.reads.GateKeys(ctx, gate, now, MaxGateKeys)
		return err
	})
	if err != nil {
		return nil, err
	}
	keys = make([]GateKey, len(rows))
	for i, r := range rows {
		keys[i] = GateKey{Key: r.ID, Weight: int(r.Weight), Pace: r.Pace}
		if r.Places != nil {
			keys[i].Places = int(*r.Places)
		}
		if r.ClosedUntil != nil && r.ClosedUntil.After(now) {
			keys[i].ClosedUntil = r.ClosedUntil.UTC()
		}
	}
	return keys, nil
}

// GateLag returns, per gate, how long the oldest instance that waits in line there has been due; 0
// where none waits. At the gate of a queue, it is the oldest in front while the gate lets none
// begin. [Engine.Lag] does not count these. Without names it returns all gates. It reads
// as much as [Admin.Gates].
func (e *Engine) GateLag(ctx context.Context, names ...string) (lag map[string]time.Duration, err error) {
	return e.Admin().lag(ctx, names)
}

func (a *Admin) lag(ctx context.Context, names []string) (lag map[string]time.Duration, err error) {
	gates, err := a.Gates(ctx)
	if err != nil {
		return nil, err
	}
	lag = map[string]time.Duration{}
	for _, name := range names {
		lag[name] = 0
	}
	for _, g := range gates {
		if _, wanted := lag[g.Name]; wanted || len(names) == 0 {
			lag[g.Name] = g.Lag
		}
	}
	return lag, nil
}
