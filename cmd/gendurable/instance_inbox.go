package main

import (
	"context"
	"fmt"
	"io"

	entsignal "github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/fsm"
)

type instanceInbox struct {
	Target address `arg:""                                                             help:"An id, or key: and a correlation key."`
	Limit  int     `default:"50"                                                       help:"How many to show at most."`
	After  int64   `help:"Show the next page: the id that the page before ended with." placeholder:"ID"`
	Name   string  `help:"Only signals of this name."                                  placeholder:"NAME"`
}

// inbox is a page of signals that are not consumed, oldest first. Next is 0 on the last one.
type inbox struct {
	Signals []inboxed `json:"signals"`
	Next    int64     `json:"next"`
}

// Validate checks the values.
func (c *instanceInbox) Validate() error {
	if c.Limit < 1 || c.Limit > fsm.MaxLimit {
		return fmt.Errorf("--limit: %d, 1 to %d", c.Limit, fsm.MaxLimit)
	}
	return nil
}

// Run runs the command.
func (c *instanceInbox) Run(ctx context.Context, a *app, db *database) error {
	of, err := db.Get(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	query := db.all.Ent().Signal.Query().Where(entsignal.TargetID(of.ID), entsignal.ConsumedAtIsNil(), entsignal.IDGT(c.After))
	if c.Name != "" {
		query = query.Where(entsignal.Name(c.Name))
	}
	found, err := query.Order(entsignal.ByID()).Limit(c.Limit + 1).All(ctx)
	if err != nil {
		return err
	}
	out := inbox{Signals: []inboxed{}}
	for n, s := range found {
		if n == c.Limit {
			out.Next = out.Signals[n-1].ID
			break
		}
		out.Signals = append(out.Signals, inboxed{s.ID, s.Name, s.Payload, s.InsertedAt.UTC()})
	}
	return a.show(out, func(w io.Writer) {
		t := newTable("id", "name", "inserted", "payload")
		for _, s := range out.Signals {
			t.add(s.ID, s.Name, s.InsertedAt, string(s.Payload))
		}
		t.write(w, a.console.width())
		if out.Next != 0 {
			fmt.Fprintf(w, "there are more: --after %d\n", out.Next)
		}
	})
}
