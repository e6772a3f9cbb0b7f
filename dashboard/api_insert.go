package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// apiInsert is what to insert. Only what a program has stored the definition of can be.
type apiInsert struct {
	Machine      string            `json:"machine"`
	Version      int               `json:"version,omitempty"` // the newest unless given
	Step         string            `json:"step,omitempty"`    // the initial one unless given
	State        json.RawMessage   `json:"state,omitempty"`   // null unless given
	Queue        string            `json:"queue,omitempty"`   // "default" unless given: what the program declares is not stored
	Priority     int               `json:"priority,omitempty"`
	Key          string            `json:"key,omitempty"` // nothing is inserted while a live instance has it; required if the machine declares its keys
	Labels       map[string]string `json:"labels,omitempty"`
	PartitionKey string            `json:"partition_key,omitempty"`
	At           time.Time         `json:"at,omitzero"`           // of the first step; now unless given
	Deadline     time.Duration     `json:"deadline_ns,omitempty"` // none unless given
}

type apiInserted struct {
	ID      fsm.ID `json:"id"`
	Machine string `json:"machine"`
	Version int    `json:"version"`
	Step    string `json:"step"`
}

// apiInsertOne inserts an instance, in a queue and of a machine that the access covers.
func (s *server) apiInsertOne(r *http.Request, in *apiInsert) (out apiInserted, err error) {
	ctx := r.Context()
	if in.Queue == "" {
		in.Queue = "default"
	}
	switch access := accessOf(ctx); {
	case !access.Within.Cover(in.Queue, in.Machine, in.Labels):
		return out, &misuse{http.StatusForbidden, "Your access does not cover this queue, this machine and these labels.", "Nothing was inserted."}
	case !access.everywhere() && (in.Key != "" || in.PartitionKey != ""):
		// Keys are of all: this one would tell whether another instance has it, take signals that are
		// kept for it, or keep others in line.
		return out, &misuse{http.StatusForbidden, "Your access covers only some instances, and all instances share correlation keys and partition keys.", "Nothing was inserted. Insert it without a key and a partition key."}
	}
	stored, err := s.definitions(ctx)
	if err != nil {
		return out, err
	}
	out, err = in.place(stored, !accessOf(ctx).everywhere())
	if err != nil {
		return out, err
	}
	machine := fsm.Declare[json.RawMessage, json.RawMessage](in.Machine, fsm.Version(out.Version), fsm.Initial(out.Step), fsm.Queue(in.Queue))
	if len(in.State) == 0 {
		in.State = json.RawMessage("null")
	}
	spec := machine.New(in.State).Priority(in.Priority).Deadline(in.Deadline)
	for name, value := range in.Labels {
		spec = spec.Label(name, value)
	}
	if in.Key != "" {
		spec = spec.Key(fsm.Key(in.Key))
	}
	if in.PartitionKey != "" {
		spec = spec.PartitionKey(in.PartitionKey)
	}
	if !in.At.IsZero() {
		spec = spec.At(in.At)
	}
	done, err := turned(ctx, s.turns.verbs, func(ctx context.Context) (engine.Inserted, error) { return s.insert(ctx, spec) })
	s.shared.forget()
	if wrong, ok := errors.AsType[*engine.InsertError](err); ok && !errors.Is(err, engine.ErrTooLarge) {
		return out, &fieldError{wrong.Field, wrong.Err}
	}
	if err != nil {
		return out, err
	}
	if done.Duplicate {
		return out, &misuse{http.StatusConflict, fmt.Sprintf("Another instance has the key %q.", cut(in.Key, 100)), "Nothing was inserted."}
	}
	out.ID = done.ID
	return out, nil
}

func (s *server) insert(ctx context.Context, spec fsm.Spec) (out engine.Inserted, err error) {
	if s.cluster != nil {
		done, err := s.cluster.InsertMany(ctx, []fsm.Spec{spec})
		if len(done) > 0 {
			out = done[0].Inserted
		}
		return out, err
	}
	done, err := s.sites[0].engine.InsertMany(ctx, []fsm.Spec{spec})
	if len(done) > 0 {
		out = done[0]
	}
	return out, err
}

// place completes version and step by the definitions that programs have stored. It refuses others,
// and an insert without a key if the machine declares its keys.
func (in *apiInsert) place(stored []engine.StoredDefinition, bound bool) (out apiInserted, err error) {
	var of *engine.StoredDefinition
	for n := range stored {
		d := &stored[n]
		if d.Machine == in.Machine && (in.Version == d.Version || in.Version == 0 && (of == nil || d.Version > of.Version)) {
			of = d
		}
	}
	if of == nil {
		if in.Version == 0 {
			return out, &fieldError{"machine", fmt.Errorf("no worker has registered a machine %q: start one that has it", cut(in.Machine, 100))}
		}
		return out, &fieldError{"version", fmt.Errorf("no worker has registered version %d of machine %q; 0 stands for the newest", in.Version, cut(in.Machine, 100))}
	}
	out = apiInserted{Machine: in.Machine, Version: of.Version, Step: in.Step}
	if out.Step == "" {
		out.Step = of.Graph.Initial
	}
	if of.Graph.Keyed && in.Key == "" {
		if bound {
			return out, &misuse{http.StatusForbidden, "Instances of this machine need a key, and your access covers only some instances, so it may not give one.", "Nothing was inserted."}
		}
		return out, &fieldError{"key", fmt.Errorf("instances of %s/%d have the key that their program declares: give the one that it makes of this state",
			cut(in.Machine, 100), of.Version)}
	}
	if !slices.ContainsFunc(of.Graph.Steps, func(step fsm.DiagramStep) bool { return step.Name == out.Step }) {
		return out, &fieldError{"step", fmt.Errorf("%q is no step of %s/%d", cut(in.Step, 100), in.Machine, of.Version)}
	}
	return out, nil
}
