package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/fsm"
)

type clusterRun struct {
	placed

	Only    []int    `help:"Run it at these places only, by their numbers." placeholder:"N"`
	Command []string `arg:""                                                help:"The command and its flags, as without cluster run." passthrough:""`
}

// lasts is true, since --timeout is for each place.
func (*clusterRun) lasts() bool { return true }

// runnable are the first words of the commands that run at places. The others are for one server,
// or have a form for clusters.
var runnable = []string{"instance", "queue", "gate", "schedule", "window", "worker", "machine", "overview", "failures", "audit"}

// standpoint is the place at which a command works.
type standpoint struct {
	*places

	n int
}

// reach returns the pool of the place once that has answered, and is the place it is taken for.
func (p *standpoint) reach(ctx context.Context) (*pgxpool.Pool, error) {
	err := p.Reach(ctx, p.n)
	if ctx.Err() == nil && (is[*pgconn.ConnectError](err) || errors.Is(err, context.DeadlineExceeded)) {
		err = &exitError{codeNoConnection, err} // within --wait
	}
	return p.list[p.n].Pool, err
}

// Run runs the command.
func (c *clusterRun) Run(ctx context.Context, a *app) error {
	if !slices.Contains(runnable, c.Command[0]) {
		return usagef("%q does not run at places; these do: %s", c.Command[0], strings.Join(runnable, ", "))
	}
	at, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	for _, n := range c.Only {
		if n < 0 || n >= at.Places() {
			return usagef("--only: no place %d: there are 0 to %d", n, at.Places()-1)
		}
	}
	first, err := c.parse(a)
	if err != nil || first == nil {
		return err
	}
	where, alone, err := c.where(first, at)
	if err != nil {
		return err
	}
	var tried []error
	var out []ranAt
	for i, n := range where {
		one := ranAt{Place: n, Schema: at.list[n].Schema}
		heard := new(bytes.Buffer)
		said := *a.console
		switch {
		case alone:
		case first.app.JSON:
			said.out = heard
		default:
			if i > 0 {
				fmt.Fprintln(said.out)
			}
			fmt.Fprintf(said.out, "place %d, schema %q\n", n, one.Schema)
		}
		err := c.at(ctx, a, &standpoint{at, n}, &said)
		if err != nil && !alone && !first.app.JSON {
			said.report(err, false)
			err = &exitError{code: codeOf(err)} // it has been written
		}
		one.hear(heard.Bytes(), err)
		tried, out = append(tried, err), append(out, one)
		if ctx.Err() != nil {
			break
		}
	}
	if alone {
		return tried[0]
	}
	if first.app.JSON {
		if err := writeJSON(a.console.out, map[string]any{"places": out}); err != nil {
			return err
		}
	}
	return worst(tried)
}

// worst returns the first error, without a text. That nothing was found at some places is none if
// something was at others.
func worst(tried []error) error {
	code := codeDone
	for _, err := range tried {
		here := codeOf(err)
		if here == codeUnmet && slices.Contains(tried, nil) {
			continue
		}
		code = cmp.Or(code, here)
	}
	if code == codeDone {
		return nil
	}
	return &exitError{code: code}
}

// ranAt is what a command wrote at a place as JSON, or its error.
type ranAt struct {
	Place  int             `json:"place"`
	Schema string          `json:"schema"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *failure        `json:"error,omitempty"`
}

func (r *ranAt) hear(output []byte, err error) {
	if output = bytes.TrimSpace(output); json.Valid(output) {
		r.Output = output
	}
	if e, ok := errors.AsType[*exitError](err); err != nil && (!ok || e.err != nil) {
		r.Error = &failure{Error: said(err), Kind: codeOf(err).String(), Code: int(codeOf(err))}
	}
}

// inner is the command that runs at a place.
type inner struct {
	app    *app
	parsed *kong.Context
}

// parse reads the command as the program reads its own command line, and takes over what was given
// to cluster run. It returns nil if the command's help was printed.
func (c *clusterRun) parse(a *app) (*inner, error) {
	var all commands
	helped := false
	parser, err := newParser(&all, a.console, &helped)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(c.Command)
	if helped {
		return nil, nil
	}
	if err != nil {
		return nil, usagef("%w; see %s --help", err, misused(err))
	}
	o := all.Options
	switch {
	case len(o.Within) == 0:
		o.Within = a.Within
	case len(a.Within) > 0 && !slices.Equal(o.Within, a.Within):
		return nil, usagef("--within is given twice: give it to cluster run, or to the command")
	}
	o.JSON, o.Actor, o.Reason = o.JSON || a.JSON, cmp.Or(o.Actor, a.Actor), cmp.Or(o.Reason, a.Reason)
	return &inner{&app{options: o, console: a.console, model: parser.Model}, parsed}, nil
}

// at runs the command at one place.
func (c *clusterRun) at(ctx context.Context, a *app, place *standpoint, out *console) error {
	in, err := c.parse(a)
	if err != nil {
		return err
	}
	in.app.console, in.app.place, in.app.Schema = out, place, place.list[place.n].Schema
	for _, p := range in.parsed.Selected().Positional {
		if targets, several := reflect.TypeAssert[*[]address](p.Target.Addr()); several {
			*targets = slices.DeleteFunc(*targets, func(t address) bool { return place.of(t) != place.n })
		}
	}
	return in.app.execute(ctx, in.parsed)
}

// where returns the places at which the command runs, in their order. alone says that there is one,
// whose output is all there is.
func (c *clusterRun) where(in *inner, at *places) (where []int, alone bool, err error) {
	among := slices.Sorted(slices.Values(c.Only))
	if among = slices.Compact(among); len(among) == 0 {
		for n := range at.Places() {
			among = append(among, n)
		}
	}
	named := in.names(at)
	if insert, ok := reflect.TypeAssert[*instanceInsert](in.parsed.Selected().Target.Addr()); ok {
		switch key := cmp.Or(insert.Key, insert.Partition); key {
		case "":
			named = []int{among[rand.IntN(len(among))]} //nolint:gosec // any will do
		default:
			named = []int{at.PlaceOf(key)}
		}
	}
	if len(named) == 0 {
		return among, len(c.Only) > 0 && len(among) == 1, nil
	}
	for _, n := range named {
		switch {
		case n < 0 || n >= at.Places():
			return nil, false, usagef("an id of place %d: there are 0 to %d", n, at.Places()-1)
		case !slices.Contains(among, n):
			return nil, false, usagef("--only leaves out place %d, where the command's key or instance is", n)
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	return named, len(named) == 1, nil
}

// names returns the places of the instances, or of the schedule, that the command names.
func (in *inner) names(at *places) (places []int) {
	node := in.parsed.Selected()
	for _, p := range node.Positional {
		switch to := p.Target.Addr().Interface().(type) {
		case *address:
			places = append(places, at.of(*to))
		case *[]address:
			for _, t := range *to {
				places = append(places, at.of(t))
			}
		case *string:
			if p.Name == "schedule" {
				places = append(places, at.PlaceOf(*to))
			}
		}
	}
	return places
}

// of returns the place of an instance.
func (p *places) of(t address) int {
	switch to := t.to.(type) {
	case fsm.ID:
		return cluster.PlaceOfID(to)
	case fsm.Key:
		return p.PlaceOf(string(to))
	}
	return 0
}
