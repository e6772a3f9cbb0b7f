package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

type instanceCommands struct {
	List       instanceList       `cmd:"" help:"List instances, newest first, a page at a time."`
	Insert     instanceInsert     `cmd:"" help:"Insert an instance."`
	Get        instanceGet        `cmd:"" help:"Show all of an instance: state, result, errors, inbox."`
	Tree       instanceTree       `cmd:"" help:"Show the ancestors and the descendants of an instance."`
	Children   instanceChildren   `cmd:"" help:"Count the children of an instance, by round, machine and status."`
	Graph      instanceGraph      `cmd:"" help:"Draw the newest graph that an instance has made, with the status of its nodes."`
	Inbox      instanceInbox      `cmd:"" help:"List the signals in an inbox, a page at a time."`
	Why        instanceWhy        `cmd:"" help:"Say what holds an instance back."`
	History    instanceHistory    `cmd:"" help:"Show what happened to an instance, also to one that is gone."`
	Signal     instanceSignal     `cmd:"" help:"Send a signal to an instance."`
	Cancel     instanceCancel     `cmd:"" help:"End live instances as failed."`
	Retry      instanceRetry      `cmd:"" help:"Make failed instances runnable at the step they failed in. Parts of a graph that only restart can run again are refused: instance why names what to restart."`
	Restart    instanceRestart    `cmd:"" help:"Run again what has failed beneath instances, and what was skipped for it: of a graph, or a failed node of one."`
	Pause      instancePause      `cmd:"" help:"Pause live instances: no process claims them."`
	Resume     instanceResume     `cmd:"" help:"End a pause."`
	RunNow     instanceRunNow     `cmd:"" help:"Make instances eligible now that wait for a time."`
	Reschedule instanceReschedule `cmd:"" help:"Make runnable instances eligible at a time."`
	Edit       instanceEdit       `cmd:"" help:"Change the state of instances that neither execute nor are done."`
	Rewind     instanceRewind     `cmd:"" help:"Make such instances go on at an earlier step."`
	Wait       instanceWait       `cmd:"" help:"Wait until an instance has ended; exit code 5 if it has failed."`
}

// filter selects instances that meet all of the given criteria.
type filter struct {
	Machine     string            `help:"Only those of this machine."                                                                                                                 placeholder:"NAME"`
	Version     int               `help:"Only those of this version of the machine."                                                                                                  placeholder:"N"`
	Step        string            `help:"Only those in this step."                                                                                                                    placeholder:"NAME"`
	Queue       string            `help:"Only those in this queue."                                                                                                                   placeholder:"NAME"`
	Status      []string          `help:"Only those in one of these statuses: runnable, executing, awaiting_signal, awaiting_children, done, failed."                                 placeholder:"STATUS"`
	Failure     []string          `help:"Only those that failed in one of these ways: decided, error, exhausted, crashes, cancelled, deadline, skipped."                              placeholder:"FAILURE"`
	KeyPrefix   string            `help:"Only those whose correlation key begins with this text."                                                                                     placeholder:"TEXT"`
	Label       map[string]string `help:"Only those with this label; repeatable."                                                                                                     mapsep:"none"             placeholder:"NAME=VALUE"`
	Partition   string            `help:"Only those with this partition key."                                                                                                         placeholder:"KEY"`
	Parent      string            `help:"Only children of this instance."                                                                                                             placeholder:"ID"`
	ErrorText   string            `help:"Only those whose last error has this text in it, in upper or lower case. No index helps: give a machine, a parent or a label where you can." name:"error"              placeholder:"TEXT"`
	Fingerprint string            `help:"Only failed ones of this group: all that a row of failures counts, and no others."                                                           placeholder:"FINGERPRINT"`
	Since       string            `help:"Only those inserted at or after this time, or age."                                                                                          placeholder:"TIME"`
	Before      string            `help:"Only those inserted before this time, or age."                                                                                               placeholder:"TIME"`
}

// engine returns the filter in the engine's form. Ages count back from the server's time.
func (f *filter) engine(at time.Time) (out engine.Filter, err error) {
	out = engine.Filter{Machine: f.Machine, Version: f.Version, Step: f.Step, Queue: f.Queue, KeyPrefix: f.KeyPrefix, Labels: f.Label,
		PartitionKey: f.Partition, ErrorText: f.ErrorText, Fingerprint: f.Fingerprint}
	for _, s := range f.Status {
		out.Status = append(out.Status, fsm.Status(s))
	}
	for _, k := range f.Failure {
		out.Failure = append(out.Failure, fsm.Failure(k))
	}
	if f.Parent != "" {
		id, err := strconv.ParseInt(f.Parent, 10, 64)
		if err != nil {
			return out, usagef("--parent: %q is no id", f.Parent)
		}
		out.Parent = fsm.ID(id)
	}
	if out.InsertedAfter, err = moment("--since", f.Since, at, true); err != nil {
		return out, err
	}
	out.InsertedBefore, err = moment("--before", f.Before, at, true)
	return out, err
}

// check refuses names that there are not.
func (f *filter) check() error {
	for _, one := range []struct {
		flag  string
		given []string
	}{{"status", f.Status}, {"failure", f.Failure}} {
		known := values[one.flag]()
		for _, name := range one.given {
			if !slices.Contains(known, name) {
				return fmt.Errorf("--%s: there is no %q; there are %s", one.flag, name, strings.Join(known, ", "))
			}
		}
	}
	return nil
}

// given reports whether there is a criterion.
func (f *filter) given() bool {
	return f.Machine+f.Step+f.Queue+f.KeyPrefix+f.Partition+f.Parent+f.ErrorText+f.Fingerprint+f.Since+f.Before != "" || f.Version != 0 ||
		len(f.Status)+len(f.Failure)+len(f.Label) > 0
}

// moment reads a time as people write it: RFC 3339, or a duration that counts from now, back or
// forward.
func moment(name, text string, now time.Time, back bool) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if back {
			d = -d
		}
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usagef("%s: %q is neither a time like 2026-11-21T18:00:00Z nor a duration like 90m", name, text)
	}
	return t, nil
}

const keyMark = "key:"

// address is an instance as the command line names it.
type address struct {
	text string
	to   fsm.Target
}

// UnmarshalText reads a word of the command line.
func (a *address) UnmarshalText(word []byte) error {
	a.text = string(word)
	if key, ok := strings.CutPrefix(a.text, keyMark); ok && key != "" {
		a.to = fsm.Key(key)
		return nil
	}
	id, err := strconv.ParseInt(a.text, 10, 64)
	if err != nil || id < 1 {
		return fmt.Errorf("%q is no address: want an id like 42, or %s and a correlation key", a.text, keyMark)
	}
	a.to = fsm.ID(id)
	return nil
}

// advise adds to a not-found error how to find instances that have had the key.
func (a *address) advise(err error) error {
	key, ok := a.to.(fsm.Key)
	if !ok || !anyOf(engine.ErrNotFound, engine.ErrNoTarget)(err) {
		return err
	}
	return fmt.Errorf("%w\n  no instance occupies the key; gendurable instance list --key-prefix %s finds those that did, by their ids", err,
		word(string(key)))
}

// summary is an instance without its state and result.
type summary struct {
	shown.Instance

	FinishedAt *time.Time        `json:"finished_at"`
	Deadline   *time.Time        `json:"deadline"`
	Labels     map[string]string `json:"labels,omitempty"`
	Progress   json.RawMessage   `json:"progress,omitempty"` // what its steps have published last
}

func summarize(i *fsm.RawInstance) summary {
	return summary{shown.InstanceOf(i), absent(i.FinishedAt), absent(i.Deadline), i.Labels, i.Progress}
}

func summarizeRow(r *ent.Instance) summary { return summarize(new(shown.Snapshot(r))) }

// standing returns the status, and whether an operator has paused the instance.
func (s *summary) standing() string {
	out := string(s.Status)
	if s.Failure != "" {
		out += " (" + string(s.Failure) + ")"
	}
	if s.Paused {
		out += " (paused)"
	}
	return out
}

func instances(of []summary, at time.Time) *table {
	t := newTable("id", "machine", "step", "status", "queue", "key", "labels", "age", "error")
	for _, s := range of {
		t.add(s.ID, fmt.Sprintf("%s/%d", s.Machine, s.Version), s.Step, s.standing(), s.Queue, string(s.Key), labelled(s.Labels),
			max(0, at.Sub(s.InsertedAt)), s.LastError)
	}
	return t
}

func labelled(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, " ")
}

type instanceList struct {
	Filter      filter `embed:""`
	Limit       int    `default:"50"                                                           help:"How many to show at most."`
	After       string `help:"Show the next page: the cursor that the page before ended with." placeholder:"CURSOR"`
	OldestFirst bool   `help:"List the oldest first."`
}

// listed is a page. Next is "" on the last one.
type listed struct {
	Instances []summary `json:"instances"`
	Next      string    `json:"next"`
	// SearchedTo is set if the time was up: the list has been searched up to instances that were
	// inserted at this time.
	SearchedTo time.Time `json:"searched_to,omitzero"`
}

// Validate checks the values.
func (c *instanceList) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit: %d, at least 1", c.Limit)
	}
	return c.Filter.check()
}

// Run runs the command.
func (c *instanceList) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	f, err := c.Filter.engine(at)
	if err != nil {
		return err
	}
	out, cut, err := c.pages(ctx, f, db.List)
	if err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) {
		instances(out.Instances, at).write(w, a.console.width())
		switch {
		case cut:
			searched := "not all was searched"
			if !out.SearchedTo.IsZero() {
				searched = "searched to what was inserted " + age(at, &out.SearchedTo) + " ago"
			}
			fmt.Fprintf(w, "cut off after %v, %s: --after %s goes on\n", a.Timeout, searched, out.Next)
		case out.Next != "":
			fmt.Fprintf(w, "there may be more: --after %s\n", out.Next)
		}
	})
}

// pages reads as many pages as it takes. Each visits a bounded number of rows, so a search for
// rare instances goes through many. If the time is up before the search is over, cut is true, and
// the result is what it has found, and where to go on.
func (c *instanceList) pages(ctx context.Context, f engine.Filter, list func(context.Context, engine.Query) (engine.Page, error)) (out listed, cut bool, err error) {
	out = listed{Instances: []summary{}, Next: c.After}
	for first := true; len(out.Instances) < c.Limit && (first || out.Next != ""); first = false {
		page, err := list(ctx, engine.Query{Filter: f, OldestFirst: c.OldestFirst, After: out.Next, Limit: min(c.Limit-len(out.Instances), fsm.MaxLimit)})
		if err != nil {
			if !first && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return out, true, nil
			}
			return out, false, err
		}
		for n := range page.Instances {
			out.Instances = append(out.Instances, summarize(&page.Instances[n]))
		}
		out.Next, out.SearchedTo = page.Next, page.SearchedTo
	}
	return out, false, nil
}

type instanceWait struct {
	Target address       `arg:""                                                             help:"An id, or key: and a correlation key."`
	For    time.Duration `help:"How long to wait at most; 0: no limit."`
	Parked bool          `help:"Also end when the instance awaits a signal or its children."`
}

func (*instanceWait) lasts() bool { return true }

// ended is an instance with its end.
type ended struct {
	summary

	Result json.RawMessage `json:"result"`
}

// Run runs the command.
func (c *instanceWait) Run(ctx context.Context, a *app, db *database) error {
	if c.For > 0 {
		limited, cancel := context.WithTimeout(ctx, c.For)
		defer cancel()
		ctx = limited
	}
	wait := db.Wait
	if c.Parked {
		wait = func(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) { return db.WaitParked(ctx, of, -1) }
	}
	found, err := wait(ctx, c.Target.to)
	if errors.Is(err, context.DeadlineExceeded) {
		return &exitError{codeTimeout, fmt.Errorf("instance %s has not ended within %v: gendurable instance why %s says what holds it back",
			c.Target.text, c.For, word(c.Target.text))}
	}
	if err != nil {
		return c.Target.advise(err)
	}
	out := ended{summarize(&found), found.Result}
	err = a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "%d %s\n", out.ID, out.standing())
		switch out.Status {
		case fsm.StatusDone:
			fmt.Fprintln(w, indented(out.Result, ""))
		case fsm.StatusFailed:
			fmt.Fprintln(w, printable(out.LastError, true))
		default: // it is parked, and has no end to show
		}
	})
	if err == nil && out.Status == fsm.StatusFailed {
		return &exitError{code: codeUnmet}
	}
	return err
}

type instanceSignal struct {
	Target  address `arg:""                                                                  help:"An id, or key: and a correlation key."`
	Name    string  `arg:""                                                                  help:"The signal's name."`
	Payload string  `arg:""                                                                  default:"null"                               help:"The signal's payload, as JSON; - reads it from standard input." optional:""`
	Dedup   string  `help:"Deliver the signal once, however often it is sent with this key." placeholder:"KEY"`
}

// fromInput as a payload stands for standard input.
const fromInput = "-"

var errNotJSON = errors.New("the payload is not JSON; a text needs its quotes: '\"text\"'")

// Validate checks a payload that the command line holds.
func (c *instanceSignal) Validate() error {
	if c.Payload != fromInput && !json.Valid([]byte(c.Payload)) {
		return errNotJSON
	}
	return nil
}

// delivered is the result of a delivery.
type delivered struct {
	To        fsm.ID `json:"to"`
	Duplicate bool   `json:"duplicate"`
}

// Run runs the command.
func (c *instanceSignal) Run(ctx context.Context, a *app, db *database) error {
	payload := []byte(c.Payload)
	if c.Payload == fromInput {
		read, err := io.ReadAll(a.console.in)
		if err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
		if !json.Valid(read) {
			return usagef("%w", errNotJSON)
		}
		payload = read
	}
	message := fsm.DeclareSignal[json.RawMessage](c.Name).With(payload)
	if c.Dedup != "" {
		message = message.DedupKey(c.Dedup)
	}
	d, err := db.Signal(ctx, c.Target.to, message)
	if err != nil {
		return c.Target.advise(err)
	}
	return a.show(delivered{d.To, d.Duplicate}, func(w io.Writer) {
		if d.Duplicate {
			fmt.Fprintf(w, "instance %d has it already\n", d.To)
		} else {
			fmt.Fprintf(w, "delivered to instance %d\n", d.To)
		}
	})
}
