package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// requireErrors compares the errors of an instance, each as its kind and text.
func (b bench) requireErrors(id int64, want ...string) {
	b.t.Helper()
	got, err := b.Errors(b.t.Context(), byID(id))
	require.NoError(b.t, err)
	var texts []string
	for _, e := range got {
		texts = append(texts, string(e.Kind)+" "+e.Message)
	}
	require.Equal(b.t, want, texts)
}

// fails commits an error for the row's claim, and claims the row anew.
func (b bench) fails(id int64, text string) {
	b.t.Helper()
	b.exec(`UPDATE gendurable.gen_durable SET status = 'executing', locked_by = $2, lease_expires_at = now() + interval '1 h' WHERE id = $1`, id, me)
	b.commit(newMark(), false, store.Entry{Claim: &step.Claim{ID: id, Token: 7}, Commit: &step.Commit{Kind: step.Retry, Err: text}})
}

// The newest twenty errors stay, in the order in which they happened.
func TestErrorsAreBounded(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	var want []string
	for n := range 45 {
		text := fmt.Sprint("error ", n)
		b.fails(c.ID, text)
		want = append(want, "retry "+text)
		b.requireErrors(c.ID, want[max(0, len(want)-20):]...)
	}
	got, err := b.Errors(t.Context(), byID(c.ID))
	require.NoError(t, err)
	for i, e := range got {
		require.Equal(t, []any{25 + i, c.Step, ""}, []any{e.Attempt, e.Step, e.Worker})
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
	}
	b.fails(c.ID, strings.Repeat("ä", 5000)) // the longest text that last_error takes
	got, err = b.Errors(t.Context(), byID(c.ID))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("ä", 1024), got[19].Message)
	b.fails(c.ID, "") // a Retry without an error
	again, err := b.Errors(t.Context(), byID(c.ID))
	require.NoError(t, err)
	require.Equal(t, got, again)
}

// Texts that Postgres does not accept were removed before. Texts that JSON cannot contain are
// escaped.
func TestErrorsOfAnyText(t *testing.T) {
	b := newBench(t)
	c := b.executing(nil)
	for _, text := range []string{"\x01\x1f\x7f \"quoted\" \\ \\u0000 </script>", "\U0010ffff\u2028", `{"at": 1}`, "a\nb\tc"} {
		b.fails(c.ID, text)
		got, err := b.Errors(t.Context(), byID(c.ID))
		require.NoError(t, err)
		require.Equal(t, text, got[len(got)-1].Message)
	}
}

func TestErrorsOfNobody(t *testing.T) {
	b := newBench(t)
	_, err := b.Errors(t.Context(), byID(4711))
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = b.Errors(t.Context(), byKey("nobody"))
	require.ErrorIs(t, err, store.ErrNotFound)
	b.insert(plain.with(columns{"correlation_key": `'x'`, "correlation_scope": liveScope}))
	got, err := b.Errors(t.Context(), byKey("x"))
	require.NoError(t, err)
	require.Empty(t, got)
}
