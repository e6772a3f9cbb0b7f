package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type instanceWhy struct {
	Target address `arg:"" help:"An id, or key: and a correlation key."`
}

// cause is an engine.Cause. Do says what to do about it; "" if that is to wait.
type cause struct {
	Kind   engine.CauseKind `json:"kind"`
	Text   string           `json:"text"`
	Do     string           `json:"do,omitempty"`
	Since  *time.Time       `json:"since"`
	Until  *time.Time       `json:"until"`
	Names  []string         `json:"names,omitempty"`
	IDs    []fsm.ID         `json:"ids,omitempty"`
	Count  int              `json:"count,omitempty"`
	Worker string           `json:"worker,omitempty"`
}

// Run runs the command.
func (c *instanceWhy) Run(ctx context.Context, a *app, db *database) error {
	causes, err := db.Admin().Why(ctx, c.Target.to)
	if key, is := c.Target.to.(fsm.Key); is && !db.bound() && errors.Is(err, engine.ErrNotFound) {
		if kept := db.kept(ctx, string(key)); kept != "" {
			err = fmt.Errorf("%w\n  %s", err, kept)
		}
	}
	if err != nil {
		return c.Target.advise(err)
	}
	row, err := db.row(ctx, c.Target.to)
	if err != nil {
		return c.Target.advise(err)
	}
	of := summarizeRow(row)
	out := make([]cause, len(causes))
	for n, one := range causes {
		out[n] = cause{one.Kind, one.String(), of.remedy(one), absent(one.Since), absent(one.Until), one.Names, one.IDs, one.Count, one.WorkerID}
	}
	return a.show(map[string]any{"id": of.ID, "causes": out}, func(w io.Writer) {
		for _, one := range out {
			fmt.Fprintf(w, "%s: %s\n", one.Kind, printable(one.Text, false))
			if one.Do != "" {
				fmt.Fprintf(w, "  → %s\n", printable(one.Do, false))
			}
		}
	})
}

// remedy returns what to do about a cause; "" for a cause that passes with time.
func (s *summary) remedy(c engine.Cause) string {
	switch c.Kind {
	case engine.CauseEnded:
		switch {
		case s.Status != fsm.StatusFailed:
		case c.UseRestart && len(c.IDs) > 0:
			return fmt.Sprintf("gendurable instance get %d has its errors; gendurable instance restart %d runs it again", s.ID, c.IDs[0])
		case c.UseRestart:
			return fmt.Sprintf("gendurable instance get %d has its errors", s.ID)
		default:
			return fmt.Sprintf("gendurable instance get %d has its errors; gendurable instance retry %d runs it again", s.ID, s.ID)
		}
	case engine.CauseSignals:
		return fmt.Sprintf("if it should not wait: gendurable instance signal %d %s PAYLOAD, or cancel it", s.ID, word(c.Names[0]))
	case engine.CauseChildren:
		return fmt.Sprintf("gendurable instance tree %d shows them, gendurable instance why each", s.ID)
	case engine.CauseNodes:
		if len(c.IDs) > 0 {
			return fmt.Sprintf("gendurable instance why %d, and the others", c.IDs[0])
		}
	case engine.CausePaused:
		return fmt.Sprintf("gendurable instance resume %d", s.ID)
	case engine.CauseUnconverted:
		return fmt.Sprintf("repair the conversion, start the program, then gendurable instance resume %d, or of all: gendurable instance resume --machine %s --version %d",
			s.ID, word(s.Machine), s.Version)
	case engine.CauseQueuePaused:
		return "gendurable queue resume " + word(s.Queue)
	case engine.CauseDelayed:
		return fmt.Sprintf("if it should not wait: gendurable instance run-now %d", s.ID)
	case engine.CauseNoWorker:
		return fmt.Sprintf("start a process that serves queue %q; gendurable worker list shows those that are there", s.Queue)
	case engine.CauseNoMachine:
		return fmt.Sprintf("start a process that registers %s/%d and serves queue %q; gendurable worker list shows those that are there",
			s.Machine, s.Version, s.Queue)
	case engine.CauseNoStep:
		return fmt.Sprintf("start a process whose definition of %s/%d has step %s: was a deploy rolled back, or a step added without a new version?",
			s.Machine, s.Version, word(c.Names[0]))
	case engine.CauseGate:
		if strings.Contains(c.Names[0], "/") {
			return "gendurable gate set gives all keys of the gate more places, gendurable gate places this one"
		}
		return "gendurable gate list shows the gate; gendurable gate set gives it more places"
	case engine.CauseGateRun:
		return fmt.Sprintf("gendurable instance why %d", c.IDs[0])
	case engine.CauseGateClosed:
		if c.Until.IsZero() {
			return "gendurable gate set gives it places"
		}
		return "gendurable gate open " + word(c.Names[0]) + ", if it should not wait"
	case engine.CauseGateRate:
		return "gendurable gate list shows the rate; gendurable gate set changes it"
	case engine.CauseKeyBusy, engine.CauseKeyBehind:
		return fmt.Sprintf("gendurable instance why %d", c.IDs[0])
	case engine.CauseSlots, engine.CauseBehind:
		return "more slots or processes, or a lower priority for the others; gendurable queue list shows how much waits"
	case engine.CauseRepeats:
		return fmt.Sprintf("gendurable instance get %d has the errors of its attempts: what ended each run", s.ID)
	case engine.CauseRunning, engine.CauseLost, engine.CauseSoon, engine.CauseSkip:
	}
	return ""
}
