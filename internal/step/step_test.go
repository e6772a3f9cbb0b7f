package step_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

func TestSanitizeError(t *testing.T) {
	t.Parallel()
	limit := step.MaxErrorBytes
	require.Equal(t, 8192, limit)
	for in, want := range map[string]string{
		"":                                       "error of type *errors.errorString, without a text",
		"\x00":                                   "error of type *errors.errorString, without a text",
		"plain äöü":                              "plain äöü",
		"\x00a\x00b\x00":                         "ab",
		"a\xff\xfeb":                             "a\ufffdb",
		"\xed\xa0\x80":                           "\ufffd",
		strings.Repeat("x", limit):               strings.Repeat("x", limit),
		strings.Repeat("x", limit+1):             strings.Repeat("x", limit),
		strings.Repeat("x", limit-1) + "ä":       strings.Repeat("x", limit-1),
		strings.Repeat("x", limit-2) + "ä!":      strings.Repeat("x", limit-2) + "ä",
		strings.Repeat("x", limit-3) + "😀":       strings.Repeat("x", limit-3),
		strings.Repeat("\x00", limit) + "y":      "y",
		strings.Repeat("\xff.", limit/2) + "cut": strings.Repeat("\ufffd.", limit/4),
	} {
		require.Equal(t, want, step.SanitizeError(errors.New(in)), "%.20q", in)
	}
	require.Empty(t, step.SanitizeError(nil))
}

type grumpy struct{}

func (*grumpy) Error() string { panic("no") }

type chatty struct{ text string }

func (c *chatty) Error() string { return c.text }

func TestSanitizeErrorSurvivesErrors(t *testing.T) {
	t.Parallel()
	require.Equal(t, "error of type *step_test.grumpy, whose Error method panicked", step.SanitizeError(&grumpy{}))
	require.Contains(t, step.SanitizeError((*chatty)(nil)), "*step_test.chatty")
}

func FuzzSanitizeError(f *testing.F) {
	f.Add("a\x00\xff")
	f.Add(strings.Repeat("ä", step.MaxErrorBytes))
	f.Fuzz(func(t *testing.T, text string) {
		got := step.SanitizeError(errors.New(text))
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
		require.LessOrEqual(t, len(got), step.MaxErrorBytes)
		require.NotEmpty(t, got)
		if text != "" && utf8.ValidString(text) && !strings.Contains(text, "\x00") {
			require.True(t, strings.HasPrefix(text, got))
		}
	})
}

func TestLimitsDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, step.Limits{PayloadBytes: 1 << 20, OutcomeBytes: 256 << 20, AwaitNames: 1000, Inbox: 10_000, AwaitedBytes: 16 << 20,
		Children: 20_000, ChildrenBytes: 256 << 20, Depth: 100}, step.Limits{}.WithDefaults())
	own := step.Limits{PayloadBytes: 1, OutcomeBytes: 6, AwaitNames: 2, Inbox: 3, AwaitedBytes: 7, Children: 4, ChildrenBytes: 8, Depth: 5}
	require.Equal(t, own, own.WithDefaults())
}

func TestJoins(t *testing.T) {
	t.Parallel()
	require.True(t, (&step.Claim{Round: 3, Visit: 3}).Joins())
	require.False(t, (&step.Claim{Round: 3, Visit: 4}).Joins())
	require.False(t, (&step.Claim{}).Joins(), "a first visit joins nothing")
	require.True(t, (&step.Claim{Round: 3, Visit: 5, JoinsAt: 5}).Joins(), "a Rejoin")
	require.False(t, (&step.Claim{Round: 3, Visit: 6, JoinsAt: 5}).Joins())
}

func TestKinds(t *testing.T) {
	t.Parallel()
	require.Equal(t, "none", step.Kind("").String())
	require.Equal(t, "children", step.Children.String())
	for _, k := range []step.Kind{step.Next, step.Retry, step.Again, step.Await, step.Children, step.Rejoin, step.Done, step.Fail} {
		require.Equal(t, k == step.Done || k == step.Fail, k.Terminal(), k)
	}
}
