package durabletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	entsignal "github.com/gendurable/gendurable/ent/signal"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

// RequireDrain calls [Kit.Drain], and ends the test on an error.
func RequireDrain(t testing.TB, k *Kit, opts ...Option) Drained {
	t.Helper()
	d, err := k.Drain(t.Context(), opts...)
	if err != nil {
		t.Fatalf("drain: %v", err)
	}
	return d
}

// RequireAdvance calls [Kit.Advance], and ends the test on an error.
func RequireAdvance(t testing.TB, k *Kit, d time.Duration, opts ...Option) Drained {
	t.Helper()
	drained, err := k.Advance(t.Context(), d, opts...)
	if err != nil {
		t.Fatalf("advance by %v: %v", d, err)
	}
	return drained
}

// RequireStatus ends the test unless the instance has this status, and returns the instance. If a
// Require function fails, it prints the instance's whole story ([Kit.Story]). A key finds only the
// instance that occupies it, so address an ended instance by id.
func RequireStatus(t testing.TB, k *Kit, of fsm.Target, want fsm.Status) fsm.RawInstance {
	t.Helper()
	at := get(t, k, of)
	if at.Status != want {
		k.fatal(t, at.ID, "status is %s, want %s", at.Status, want)
	}
	return at
}

// RequireDone ends the test unless the instance is done, and returns its result.
func RequireDone[S, R any](t testing.TB, k *Kit, m *fsm.Machine[S, R], of fsm.Target) R {
	t.Helper()
	at := RequireStatus(t, k, of, fsm.StatusDone)
	typed, err := m.Get(t.Context(), k.Engine, at.ID)
	if err != nil {
		k.fatal(t, at.ID, "the result: %v", err)
	}
	return typed.Result
}

// RequireFailed ends the test unless the instance has failed for this reason, with a last error
// that contains text. The reason "" accepts any reason, and the text "" any text.
func RequireFailed(t testing.TB, k *Kit, of fsm.Target, why fsm.Failure, text string) fsm.RawInstance {
	t.Helper()
	at := RequireStatus(t, k, of, fsm.StatusFailed)
	if why != "" && at.Failure != why {
		k.fatal(t, at.ID, "failure is %q, want %q", at.Failure, why)
	}
	if !strings.Contains(at.LastError, text) {
		k.fatal(t, at.ID, "last error does not contain %q", text)
	}
	return at
}

// RequireParked ends the test unless the instance awaits signals of exactly these names, in any
// order. Without names, it may await any signals, or its children.
func RequireParked(t testing.TB, k *Kit, of fsm.Target, names ...string) fsm.RawInstance {
	t.Helper()
	at := get(t, k, of)
	if len(names) == 0 {
		if at.Status != fsm.StatusAwaitingSignal && at.Status != fsm.StatusAwaitingChildren {
			k.fatal(t, at.ID, "status is %s, want it parked", at.Status)
		}
		return at
	}
	if at.Status != fsm.StatusAwaitingSignal {
		k.fatal(t, at.ID, "status is %s, want it to await %q", at.Status, names)
	}
	row, err := k.Engine.Ent().Instance.Get(t.Context(), at.ID)
	if err != nil {
		k.fatal(t, at.ID, "read what it awaits: %v", err)
	}
	have, want := slices.Sorted(slices.Values(row.Awaits)), slices.Sorted(slices.Values(names))
	if !slices.Equal(have, want) {
		k.fatal(t, at.ID, "awaits %q, want %q", have, want)
	}
	return at
}

// RequireInserted ends the test unless there is an instance of the machine that match accepts, and
// returns the first one. So a test checks what the code under test has enqueued. match gets the
// instance as it is now, so call RequireInserted before the instance runs; a nil match accepts any.
// From a [Tx], it also finds an instance before its commit.
func RequireInserted[S, R any](t testing.TB, from Source, m *fsm.Machine[S, R], match func(fsm.Instance[S, R]) bool) fsm.Instance[S, R] {
	t.Helper()
	all := read(t, from, m)
	at := slices.IndexFunc(all, func(i fsm.Instance[S, R]) bool { return match == nil || match(i) })
	if at < 0 {
		t.Fatalf("no such instance of machine %q was inserted; there are %d:%s", m.Name(), len(all), list(all))
	}
	return all[at]
}

// RequireNotInserted ends the test if there is an instance of the machine that match accepts; a nil
// match accepts any.
func RequireNotInserted[S, R any](t testing.TB, from Source, m *fsm.Machine[S, R], match func(fsm.Instance[S, R]) bool) {
	t.Helper()
	all := slices.DeleteFunc(read(t, from, m), func(i fsm.Instance[S, R]) bool { return match != nil && !match(i) })
	if len(all) > 0 {
		t.Fatalf("instances of machine %q were inserted:%s", m.Name(), list(all))
	}
}

func read[S, R any](t testing.TB, from Source, m *fsm.Machine[S, R]) []fsm.Instance[S, R] {
	t.Helper()
	all, err := inserted(t.Context(), from, m)
	if err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	return all
}

func list[S, R any](all []fsm.Instance[S, R]) string {
	var text strings.Builder
	rows := [][]string{{"ID", "VERSION", "STATUS", "STEP", "QUEUE", "KEY", "ELIGIBLE", "STATE"}}
	for _, i := range all {
		rows = append(rows, []string{decimal(i.ID), decimal(i.Version), string(i.Status), i.Step, i.Queue, string(i.Key),
			i.EligibleAt.Format(time.RFC3339), fmt.Sprintf("%+v", i.State)})
	}
	if len(all) > 0 {
		text.WriteByte('\n')
		table(&text, rows)
	}
	return text.String()
}

// Signals returns the unconsumed signals in the inbox of an instance, oldest first. The inbox of an
// ended instance is empty.
func (k *Kit) Signals(ctx context.Context, of fsm.Target) ([]fsm.Received, error) {
	at, err := k.Engine.Get(ctx, of)
	if err != nil || at.Status.Terminal() {
		return nil, err
	}
	return k.inbox(ctx, at.ID)
}

func (k *Kit) inbox(ctx context.Context, id fsm.ID) ([]fsm.Received, error) {
	rows, err := k.Engine.Ent().Signal.Query().Where(entsignal.TargetID(id), entsignal.ConsumedAtIsNil()).Order(entsignal.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the inbox of instance %d: %w", id, err)
	}
	out := make([]fsm.Received, len(rows))
	for i, s := range rows {
		out[i] = fsm.Received{ID: s.ID, Name: s.Name, Payload: s.Payload, DedupKey: shown.At(s.DedupKey), At: s.InsertedAt}
	}
	return out, nil
}

func get(t testing.TB, k *Kit, of fsm.Target) fsm.RawInstance {
	t.Helper()
	at, err := k.Engine.Get(t.Context(), of)
	if err != nil {
		t.Fatalf("durabletest: %v", err)
	}
	return at
}

// fatal ends the test with a message and the story of the instance.
func (k *Kit) fatal(t testing.TB, id fsm.ID, format string, args ...any) {
	t.Helper()
	story, err := k.Story(t.Context(), id)
	if err != nil {
		story = fmt.Sprintf("(its story: %v)", err)
	}
	t.Fatalf("instance %d: %s\n%s", id, fmt.Sprintf(format, args...), story)
}

// Story returns everything that is known about an instance, as a table to print: its status and
// why, its state, its inbox, its children.
func (k *Kit) Story(ctx context.Context, of fsm.Target) (string, error) {
	at, err := k.Engine.Get(ctx, of)
	if err != nil {
		return "", err
	}
	row, err := k.Engine.Ent().Instance.Query().Where(instance.ID(at.ID)).Only(ctx)
	if err != nil {
		return "", err
	}
	signals, err1 := k.inbox(ctx, at.ID)
	children, err2 := k.Engine.Ent().Instance.Query().Where(instance.ParentID(at.ID)).Order(instance.ByID()).All(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	return story(row, signals, children), nil
}

// most is how many rows of the inbox, and of the children, a story shows.
const most = 50

func story(i *ent.Instance, signals []fsm.Received, children []*ent.Instance) string {
	var text strings.Builder
	rows := [][]string{
		{"machine", fmt.Sprintf("%s/%d", i.Machine, i.Version)},
		{"status", strings.TrimSpace(fmt.Sprintf("%s %s", i.Status, i.Failure))},
		{"step", fmt.Sprintf("%s, visit %d, attempt %d, crashes %d", i.Step, i.Visit, i.Attempt, i.Crashes)},
		{"queue", fmt.Sprintf("%s, priority %d", i.Queue, i.Priority)},
		{"eligible", i.EligibleAt.Format(time.RFC3339Nano)},
	}
	add := func(name string, there bool, format string, args ...any) {
		if there {
			rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
		}
	}
	add("paused", i.Paused, "yes")
	add("key", i.CorrelationKey != nil, "%s", shown.At(i.CorrelationKey))
	add("partition", i.PartitionKey != nil, "%s", shown.At(i.PartitionKey))
	add("parent", i.ParentID != nil, "%d", shown.At(i.ParentID))
	add("awaits", len(i.Awaits) > 0, "%s", strings.Join(i.Awaits, ", "))
	add("timeout", i.AwaitDeadline != nil, "%s", shown.At(i.AwaitDeadline).Format(time.RFC3339Nano))
	add("timed out", i.TimedOut, "yes")
	add("awaited children", i.ChildrenPending > 0, "%d", i.ChildrenPending)
	add("state", true, "%s", short(string(i.State)))
	add("result", i.Status == fsm.StatusDone, "%s", short(string(i.Result)))
	add("last error", i.LastError != nil, "%s", short(shown.At(i.LastError)))
	table(&text, rows)
	if len(signals) > 0 {
		fmt.Fprintf(&text, "inbox: %d\n", len(signals))
		rows = [][]string{{"ID", "SIGNAL", "AT", "DEDUP KEY", "PAYLOAD"}}
		for _, s := range signals[:min(most, len(signals))] {
			rows = append(rows, []string{decimal(s.ID), s.Name, s.At.Format(time.RFC3339Nano), s.DedupKey, short(string(s.Payload))})
		}
		table(&text, rows)
	}
	if len(children) > 0 {
		fmt.Fprintf(&text, "children: %d\n", len(children))
		rows = [][]string{{"ID", "MACHINE", "ROUND", "STATUS", "STEP", "RESULT OR ERROR"}}
		for _, c := range children[:min(most, len(children))] {
			rows = append(rows, []string{decimal(c.ID), fmt.Sprintf("%s/%d", c.Machine, c.Version), decimal(c.ParentRound),
				strings.TrimSpace(fmt.Sprintf("%s %s", c.Status, c.Failure)), c.Step, short(string(c.Result) + shown.At(c.LastError))})
		}
		table(&text, rows)
	}
	return text.String()
}

func decimal[N ~int | ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// short returns a text on one line, short enough for a table.
func short(text string) string {
	const longest = 400
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " ⏎ "), "\t", " ")
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

// table prints rows in columns. The last column is not padded.
func table(into *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		into.WriteString("  ")
		for i, cell := range row {
			if i == len(row)-1 {
				into.WriteString(cell + "\n")
				break
			}
			fmt.Fprintf(into, "%-*s  ", widths[i], cell)
		}
	}
}
