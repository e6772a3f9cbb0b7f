package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// event is a line of the log. Unless said otherwise, fields have their meaning in fsm.Info; each
// kind of event sets some of them.
type event struct {
	At      int64  `json:"at"` // µs since 1970
	Process string `json:"process"`
	Kind    string `json:"kind"`

	ID          int64    `json:"id,omitempty"`
	Visit       int64    `json:"visit,omitempty"`
	Token       int64    `json:"token,omitempty"`
	Machine     string   `json:"machine,omitempty"`
	Version     int      `json:"version,omitempty"`
	Step        string   `json:"step,omitempty"`
	Attempt     int      `json:"attempt,omitempty"`
	Crashes     int      `json:"crashes,omitempty"`
	N           int      `json:"n,omitempty"` // of the state
	Label       string   `json:"label,omitempty"`
	Key         string   `json:"key,omitempty"` // partition key; of insertions: correlation key
	Idempotency string   `json:"idempotency,omitempty"`
	Outcome     string   `json:"outcome,omitempty"`
	To          string   `json:"to,omitempty"`      // step, of an outcome
	ToN         int      `json:"to_n,omitempty"`    // of the state, of an outcome
	Signals     []int64  `json:"signals,omitempty"` // ids of the awaited
	Tags        []string `json:"tags,omitempty"`    // of the awaited
	Target      int64    `json:"target,omitempty"`  // of a signal; the occupant of a key
	Tag         string   `json:"tag,omitempty"`     // of a signal: unique for each one sent
	Dedup       string   `json:"dedup,omitempty"`
	Duplicate   bool     `json:"duplicate,omitempty"`
	Children    []int64  `json:"children,omitempty"`
	Count       int64    `json:"count,omitempty"`
	Detail      string   `json:"detail,omitempty"`
	Policy      *policy  `json:"policy,omitempty"` // of a join, and what its step saw
}

// These kinds of events are input of the checks.
const (
	evStarted   = "started"   // a step runs
	evEnded     = "ended"     // and returns
	evHandled   = "handled"   // its handler returns
	evCommitted = "committed" // the engine says that an outcome is durable
	evStale     = "stale"     // or that it came too late
	evTogether  = "together"  // a batch step is called for several
	evJoined    = "joined"    // a step has got its children, in the order in which it has them
	evAccepted  = "accepted"  // an insert is acknowledged
	evDuplicate = "duplicate" // or its key is occupied
	evAcked     = "acked"     // a signal is acknowledged
	evRefused   = "refused"   // or there is no such target
	evResult    = "result"    // Wait has returned
	evUnknown   = "unknown"   // nobody can tell whether an insert or a signal took effect
	evDied      = "died"      // a process has ended
	evFault     = "fault"     // begins
	evHealed    = "healed"    // and is over
	evRolled    = "rolled"    // a process ended in order
	evExhausted = "exhausted" // a process's pool had no connection left
	evWrong     = "wrong"     // a step saw what it must not see
	evOrdered   = "ordered"   // an operator is about to do something
	evOperated  = "operated"  // its act was acknowledged
	evPaused    = "paused"    // an operator is about to act
	evResuming  = "resuming"  // the operator is about to resume it
	evObeyed    = "obeyed"    // a worker has noticed the pause, or its end
	evStruggled = "struggled" // a worker could not do what it does regularly, e.g. for want of a connection
	evHosted    = "hosted"    // a host's transaction has ended
	evDecided   = "decided"   // a step, in its own transaction
	evFired     = "fired"     // the engine says that occurrences of a schedule were inserted
	evMeddled   = "meddled"   // an operator did something to a schedule
)

// journal appends to the log that all processes share. A line is one write to a file in append
// mode: so a killed process leaves whole lines, and the lines are in the order of the writes of all
// processes.
type journal struct {
	file    *os.File
	process string
}

func openJournal(path, process string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &journal{file: f, process: process}, nil
}

// write appends an event. A soak without its log is worth nothing, so an error ends the process.
func (j *journal) write(e event) {
	e.Process = j.process
	e.At = time.Now().UnixMicro()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write the log:", err)
		os.Exit(exitLog)
	}
}

// running returns the steps that a process has begun and not ended, by the end of the log: steps
// are short.
func (j *journal) running(process string) ([]event, error) {
	begun := map[[3]int64]event{}
	err := j.recent(func(e *event) {
		run := [3]int64{e.ID, e.Visit, e.Token}
		switch {
		case e.Process != process:
		case e.Kind == evStarted:
			begun[run] = *e
		case e.Kind == evEnded:
			delete(begun, run)
		}
	})
	return slices.Collect(maps.Values(begun)), err
}

// recent passes the newest events to each, in order.
func (j *journal) recent(each func(e *event)) error {
	const most = 1 << 20
	info, err := j.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the log: %w", err)
	}
	f, err := os.Open(j.file.Name())
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	from := max(0, info.Size()-most)
	text, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n")) // the rest of a line
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // this line is being written
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		each(&e)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// readJournal passes the events to each, in order.
func readJournal(path string, each func(seq int64, e *event) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for seq := int64(1); lines.Scan(); seq++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d of the log: %w", seq, err)
		}
		if err := each(seq, &e); err != nil {
			return err
		}
	}
	return lines.Err()
}
