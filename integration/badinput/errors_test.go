package badinput

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// These are the ways in which an error's text gets into last_error.
const (
	returned = iota // as the step's error, past the default handler
	stopping        // as the reason of a Fail
	panicked        // as the value of a panic
	giveUp          // as the last error of a policy
	faults
)

// FuzzErrorText tests that, whatever an error's text is, its instance fails with that text in a
// form that Postgres can store, and its parent reads it.
func FuzzErrorText(f *testing.F) {
	add := seeds(f)
	for i, text := range []string{
		"", "plain", "\x00", "a\x00b\xffc", "\xed\xa0\x80", "\ufffd", `\u0000 \ud800`, "ä", "😀", "\xf0\x9f\x98", "' OR 1=1; --", "%s%n{}[]\"",
	} {
		for fault := range uint8(faults) {
			add(text, uint32(1), fault)
		}
		add(text, uint32(10_000), uint8(i%faults)) //nolint:gosec // a dozen
	}
	add("é", uint32(1<<20), uint8(stopping))
	add("xé", uint32(2731), uint8(returned)) // 8,193 bytes: the cut is within a rune

	parent := fsm.Declare[string, string]("parent")
	child := fsm.Declare[string, string]("child")
	r := &rig{}
	r.start(f, fsm.JSON{},
		parent.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				return v.ScheduleChildren("end", v.State, child.New("").Key(fsm.Key(v.State))), nil
			}),
			fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
				for _, c := range child.Children(v) {
					return v.Done(c.LastError), nil
				}
				return nil, errors.New("no child")
			})),
		child.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			p, err := r.plan(v.Key)
			if err != nil {
				return nil, err
			}
			switch failed := errors.New(p.bad.text); p.bad.kind {
			case stopping:
				return v.Fail(failed), nil
			case panicked:
				panic(p.bad.text) //nolint:forbidigo // on purpose
			case giveUp:
				return v.RetryBy(fsm.RetryPolicy{MaxAttempts: 1}, failed), nil
			default:
				return nil, failed
			}
		})))
	f.Fuzz(func(t *testing.T, text string, times uint32, fault uint8) {
		text = strings.Repeat(text, int(min(times, uint32(2*mostBytes/max(1, len(text)))))) //nolint:gosec // a few million
		x := r.begin(t)
		defer x.finish()
		key, p := x.put(input{kind: fault % faults, text: text})
		id, err := x.insert(parent.New(string(key)))
		require.NoError(t, err)
		if p.bad.kind == panicked {
			text = "panic: " + text
		}
		got, err := parent.Wait(t.Context(), r.eng, id)
		require.NoError(t, err)
		require.Equal(t, storable(text), got)
	})
}

// storable returns the part of a text that can be stored: without NUL, in whole runes, at most 8
// KiB. Where nothing is left, another text says so.
func storable(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), string(utf8.RuneError))
	if text == "" {
		return "error of type *errors.errorString, without a text"
	}
	for len(text) > 8<<10 {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
