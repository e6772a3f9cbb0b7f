package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// MaxActorBytes bounds the name of an [Actor].
const MaxActorBytes = 512

// Actor is an option of all verbs: the name of the actor, in at most MaxActorBytes. The audit
// keeps it. Without it the audit has the name of [WithActor]; without that, inside of a step, the
// step's instance, and elsewhere the program, such as "program:shop@host".
func Actor(name string) VerbOption { return func(o *order) { o.Actor = name } }

// asking is in the context of WithActor and WithReason.
type asking struct{}

// WithActor returns a context in which verbs have this [Actor], unless their options name another.
// A program that knows its user, such as an admin page, sets it once per request.
func WithActor(ctx context.Context, name string) context.Context {
	by := byOf(ctx)
	by.Actor = name
	return context.WithValue(ctx, asking{}, by)
}

// WithReason returns a context in which verbs have this [Reason], unless their options give
// another.
func WithReason(ctx context.Context, text string) context.Context {
	by := byOf(ctx)
	by.Reason = text
	return context.WithValue(ctx, asking{}, by)
}

func byOf(ctx context.Context) store.By {
	by, _ := ctx.Value(asking{}).(store.By)
	return by
}

// asked completes and checks who asks for a verb, and why.
func (o *order) asked(ctx context.Context, verb Verb) error {
	given := byOf(ctx)
	o.Actor, o.Reason = cmp.Or(o.Actor, given.Actor), cmp.Or(o.Reason, given.Reason)
	if o.Actor == "" {
		o.Actor = whoAmI(ctx)
	}
	if err := checkName(o.Actor, MaxActorBytes); err != nil {
		return &VerbError{verb, "Actor", err}
	}
	if o.Reason == "" {
		return nil
	}
	if err := checkName(o.Reason, MaxReasonBytes); err != nil {
		return &VerbError{verb, "Reason", err}
	}
	return nil
}

// whoAmI names the instance whose step calls, else this program.
func whoAmI(ctx context.Context) string {
	if i, within := fsm.InfoFrom(ctx); within {
		return fmt.Sprintf("instance:%d (%s/%d)", i.ID, i.Machine, i.Version)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := fmt.Sprintf("program:%s@%s", filepath.Base(os.Args[0]), host)
	return name[:min(len(name), MaxActorBytes)]
}

// by returns who asks for a verb that takes no other options.
func (a *Admin) by(ctx context.Context, verb Verb, options []VerbOption) (store.By, error) {
	o := &order{}
	for _, option := range options {
		option(o)
	}
	if o.Descendants || o.Seen != nil || o.times > 0 || o.within != nil || o.visit != nil || o.change != nil || o.to != nil || o.NewKeys {
		return store.By{}, &VerbError{verb, "options", errors.New("this verb takes Actor and Reason only")}
	}
	err := o.asked(ctx, verb)
	return o.By, err
}
