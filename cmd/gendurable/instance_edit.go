package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// change is an edit of a state.
type change struct {
	State   string `help:"The new state, as JSON."                                                    placeholder:"JSON"`
	Patch   string `help:"What changes in the state: a JSON merge patch (RFC 7386), like {\"n\": 1}." placeholder:"JSON"`
	AtVisit int64  `default:"-1"                                                                      help:"Only at this visit, as instance get shows it; -1: at any." placeholder:"N"`
}

// check checks the values.
func (c *change) check() error {
	if c.State != "" && c.Patch != "" {
		return errors.New("--state and --patch exclude each other: give one")
	}
	for flag, text := range map[string]string{"--state": c.State, "--patch": c.Patch} {
		if text != "" && !json.Valid([]byte(text)) {
			return fmt.Errorf("%s: not JSON", flag)
		}
	}
	if c.AtVisit < -1 {
		return fmt.Errorf("--at-visit: %d, at least 0", c.AtVisit)
	}
	return nil
}

func (c *change) options() []engine.VerbOption {
	if c.AtVisit < 0 {
		return nil
	}
	return []engine.VerbOption{engine.AtVisit(c.AtVisit)}
}

func (c *change) fsm() fsm.Change {
	switch {
	case c.State != "":
		return fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(c.State), nil })
	case c.Patch != "":
		return fsm.ChangeJSON(func(state json.RawMessage) (json.RawMessage, error) { return merged(state, json.RawMessage(c.Patch)) })
	}
	return fsm.Change{}
}

// merged applies a merge patch of RFC 7386. It keeps the digits of numbers.
func merged(target, patch json.RawMessage) (json.RawMessage, error) {
	var was, with any
	for text, into := range map[*json.RawMessage]*any{&target: &was, &patch: &with} {
		decoder := json.NewDecoder(strings.NewReader(string(*text)))
		decoder.UseNumber()
		if err := decoder.Decode(into); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merge(was, with))
}

func merge(target, patch any) any {
	fields, is := patch.(map[string]any)
	if !is {
		return patch
	}
	out := map[string]any{}
	if was, is := target.(map[string]any); is {
		out = was
	}
	for name, value := range fields {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = merge(out[name], value)
		}
	}
	return out
}

type instanceEdit struct {
	selection
	change

	NewKeys bool `help:"Move the visit, and so the idempotency keys: effects that were begun are done anew."`
}

// Validate checks the values.
func (c *instanceEdit) Validate() error {
	if c.State == "" && c.Patch == "" {
		return errors.New("no new state: give --state or --patch")
	}
	return errors.Join(c.check(), c.selection.Validate())
}

// Run runs the command.
func (c *instanceEdit) Run(ctx context.Context, a *app, db *database) error {
	options := c.options()
	if c.NewKeys {
		options = append(options, engine.NewKeys())
	}
	edit := verb{engine.VerbEdit, "edited",
		func(admin *engine.Admin, ctx context.Context, to fsm.Target, _ ...engine.VerbOption) (engine.Changed, error) {
			return admin.Edit(ctx, to, c.fsm(), options...)
		}}
	return c.apply(ctx, a, db, edit, append(options, engine.Changing(c.fsm()))...)
}

type instanceRewind struct {
	selection
	change

	To string `help:"The step to go on at." placeholder:"STEP" required:""`
}

// Validate checks the values.
func (c *instanceRewind) Validate() error { return errors.Join(c.check(), c.selection.Validate()) }

// Run runs the command.
func (c *instanceRewind) Run(ctx context.Context, a *app, db *database) error {
	options := c.options()
	rewind := verb{engine.VerbRewind, "rewound",
		func(admin *engine.Admin, ctx context.Context, to fsm.Target, _ ...engine.VerbOption) (engine.Changed, error) {
			return admin.Rewind(ctx, to, c.To, c.fsm(), options...)
		}}
	return c.apply(ctx, a, db, rewind, append(options, engine.ToStep(c.To), engine.Changing(c.fsm()))...)
}
