package soak

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gendurable/gendurable/engine"
)

// tally counts, as the log grows, the acts of operators and hosts.
type tally struct {
	path string
	read int64 // of the log, in bytes
	done map[string]int64
}

// joined returns what the outcome of a step counts as that waits for children, or adds nodes. It
// may not have been committed.
func joined(e *event) (acts []string) {
	p := e.Policy
	if e.Kind != evEnded || p == nil {
		return nil
	}
	for act, is := range map[string]bool{
		quorums: p.Done > 0, races: p.Ended > 0, failFasts: p.Failed > 0, streams: p.Stream > 0, rests: p.Cancel,
		timed: p.Timeout, signalled: p.Or, rejoins: p.Again, additions: p.Adds > 0,
	} {
		if is {
			acts = append(acts, act)
		}
	}
	return acts
}

// acted returns the act that an event counts as, of an operator or a host.
func acted(e *event) string {
	switch e.Kind {
	case evOperated:
		return map[string]string{
			string(engine.VerbCancel): cancelled, string(engine.VerbRetry): retried, string(engine.VerbReschedule): rescheduled,
			string(engine.VerbRunNow): rescheduled, string(engine.VerbPause): instsPaused, verbPlan: planned,
			string(engine.VerbRestart): reruns,
		}[e.Detail]
	case evFired:
		return firings
	case evTogether:
		return togethers
	case evMeddled:
		return map[string]string{
			string(engine.VerbRunSchedule): schedulesRun, string(engine.VerbPauseSchedule): schedulesPaused,
			string(engine.VerbDeleteSchedule): schedulesDeleted, string(engine.VerbSetGate): gatesChanged,
		}[e.Detail]
	case evPaused:
		return queuesPaused
	case evHosted:
		return map[string]string{hostCommitted: hostCommits, hostRolledBack: hostUndone}[e.Outcome]
	case evDecided:
		if e.Outcome == "next" || e.Outcome == "done" {
			return stepsOwn
		}
	case evAcked:
		if e.Detail == withStart {
			return starts
		}
	}
	return ""
}

// count brings the counts up to date.
func (t *tally) count() error {
	f, err := os.Open(t.path)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(t.read, io.SeekStart); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line that is being written is read next time
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		t.read += int64(len(line))
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if what := acted(&e); what != "" {
			t.done[what]++
		}
		for _, what := range joined(&e) {
			t.done[what]++
		}
	}
}
