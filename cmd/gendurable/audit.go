package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// asking returns a context in which verbs are on behalf of the user.
func (a *app) asking(ctx context.Context) context.Context {
	ctx = engine.WithActor(ctx, cmp.Or(a.Actor, systemUser()))
	if a.Reason != "" {
		ctx = engine.WithReason(ctx, a.Reason)
	}
	return ctx
}

// systemUser names the user of this process, like "ada@laptop".
func systemUser() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

type auditCommand struct {
	Instance string `help:"Only verbs on this instance, by its id, also one that is gone."                                         placeholder:"ID"`
	Verb     string `help:"Only this verb, like cancel or pause_queue."                                                            placeholder:"VERB"`
	By       string `help:"Only verbs of this actor."                                                                              placeholder:"NAME"`
	Subject  string `help:"Only verbs on this queue, gate or schedule, like \"queue mail\"."                                       placeholder:"SUBJECT"`
	Since    string `help:"Only what is not older than this time, or age."                                                         placeholder:"TIME"`
	Before   string `help:"Only what is older than this time, or age; of the next page, the time that the page before ended with." placeholder:"TIME"`
	Limit    int    `default:"50"                                                                                                  help:"How many to show at most."`

	instance fsm.ID
}

// audited is a page. Next is null on the last one.
type audited struct {
	Entries []engine.AuditEntry `json:"entries"`
	Next    *time.Time          `json:"next"`
}

// Validate checks the values.
func (c *auditCommand) Validate() error {
	if c.Limit < 1 || c.Limit > fsm.MaxLimit {
		return fmt.Errorf("--limit: %d, 1 to %d", c.Limit, fsm.MaxLimit)
	}
	if c.Instance != "" {
		if _, err := fmt.Sscan(c.Instance, &c.instance); err != nil || c.instance < 1 {
			return fmt.Errorf("--instance: %q is no id", c.Instance)
		}
	}
	for flag, value := range map[string]string{"--since": c.Since, "--before": c.Before} {
		if _, err := moment(flag, value, time.Time{}, true); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the command.
func (c *auditCommand) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	q := engine.AuditQuery{Instance: c.instance, Verb: engine.Verb(c.Verb), Actor: c.By, Subject: c.Subject, Limit: c.Limit}
	if q.Since, err = moment("--since", c.Since, at, true); err != nil {
		return err
	}
	if q.Before, err = moment("--before", c.Before, at, true); err != nil {
		return err
	}
	page, err := db.Admin().Audit(ctx, q)
	if err != nil {
		return err
	}
	out := audited{page.Entries, absent(page.Next)}
	for i := range out.Entries {
		out.Entries[i].At = out.Entries[i].At.UTC()
	}
	return a.show(out, func(w io.Writer) { out.write(w, a.console.width()) })
}

func (p *audited) write(w io.Writer, width int) {
	t := newTable("at", "actor", "verb", "on", "change", "reason")
	for _, e := range p.Entries {
		on := e.Subject
		if e.Instance != 0 {
			on = strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Instance, e.Machine, e.Subject))
		}
		t.add(e.At, e.Actor, string(e.Verb), on, changes(e.Before, e.After), e.Reason)
	}
	t.write(w, width)
	if p.Next != nil {
		fmt.Fprintf(w, "… and more: --before %s\n", p.Next.Format(time.RFC3339Nano))
	}
}

// changes says which fields of two objects differ, like "status: runnable → failed".
func changes(before, after json.RawMessage) string {
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for text, into := range map[*json.RawMessage]*map[string]json.RawMessage{&before: &was, &after: &is} {
		if len(*text) > 0 && json.Unmarshal(*text, into) != nil {
			return ""
		}
	}
	var out []string
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if string(was[field]) != string(is[field]) {
			out = append(out, fmt.Sprintf("%s: %s → %s", field, cmp.Or(string(was[field]), "none"), cmp.Or(string(is[field]), "none")))
		}
	}
	return strings.Join(out, ", ")
}
