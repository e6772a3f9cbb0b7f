package clients

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gendurable/gendurable/integration/calls"
)

// Long bounds the search for an order of the calls about one key.
const Long = 20 * time.Second

// Explains reports whether some order explains what clients were told: porcupine.Ok, Illegal, or
// Unknown if the search took too long.
func Explains(history []calls.Operation) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(history))
	for i, o := range history {
		operations[i] = porcupine.Operation{ClientId: o.Client, Input: o.Call, Call: o.At, Output: o.Answer, Return: o.Until}
	}
	return porcupine.CheckOperationsTimeout(sequential, operations, Long)
}

// Print writes a history, a line a call.
func Print(to io.Writer, history []calls.Operation) {
	for _, o := range history {
		_, _ = fmt.Fprintf(to, "%3d: %10d to %10d µs: %s\n", o.Client, o.At/1000, o.Until/1000, sequential.DescribeOperation(o.Call, o.Answer))
	}
}

// ErrEmpty says that a record shows nothing: it lacks some verb, or no key of it could be checked.
var ErrEmpty = errors.New("the record shows nothing")

// Check reads a record, and looks for an order of the calls about each key. It writes to told what
// it found, and returns an error if a key has no order, if the record shows too little, or if the
// search took too long for over a tenth of the keys.
func Check(record io.Reader, told io.Writer) error {
	history, err := calls.Read(record)
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	of := map[string][]calls.Operation{}
	for _, o := range history {
		of[o.Key] = append(of[o.Key], o)
	}
	var m sync.Mutex
	var wrong []string
	late := 0
	var all sync.WaitGroup
	slots := make(chan struct{}, 2)
	for key, about := range of {
		all.Go(func() {
			slots <- struct{}{}
			is := Explains(about)
			<-slots
			m.Lock()
			defer m.Unlock()
			switch is {
			case porcupine.Ok:
			case porcupine.Illegal:
				wrong = append(wrong, key)
			case porcupine.Unknown:
				late++
			}
		})
	}
	all.Wait()
	counts := Count(history)
	_, _ = fmt.Fprintf(told, "%d calls about %d keys: %s; for %d keys the search took too long\n", len(history), len(of), counts, late)
	slices.Sort(wrong)
	for _, key := range wrong[:min(3, len(wrong))] {
		_, _ = fmt.Fprintf(told, "no order explains what the clients of key %s were told:\n", key)
		slices.SortFunc(of[key], func(a, b calls.Operation) int { return cmp.Compare(a.At, b.At) })
		Print(told, of[key])
	}
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("no order explains what the clients of %d keys were told: %s", len(wrong), strings.Join(wrong, ", "))
	case len(of) <= late || late > 1+len(of)/10:
		return fmt.Errorf("%w: the search took too long for %d of %d keys", ErrEmpty, late, len(of))
	}
	for _, verb := range calls.Verbs() {
		if counts[Met{verb, calls.OK}] == 0 {
			return fmt.Errorf("%w: no call of %s has succeeded", ErrEmpty, verb)
		}
	}
	return nil
}

// Met is a way in which a call ends.
type Met struct {
	Verb calls.Verb
	Told calls.Told
}

// Counts has how many calls ended how.
type Counts map[Met]int

// Count counts the calls of a history.
func Count(history []calls.Operation) Counts {
	n := Counts{}
	for _, o := range history {
		n[Met{o.Verb, o.Told}]++
	}
	return n
}

// String lists the counts, by verb.
func (c Counts) String() string {
	var parts []string
	for _, verb := range calls.Verbs() {
		for _, told := range []calls.Told{calls.OK, calls.Refused, calls.Unknown} {
			if n := c[Met{verb, told}]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %s ×%d", verb, told, n))
			}
		}
	}
	return strings.Join(parts, ", ")
}
