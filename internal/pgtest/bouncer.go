package pgtest

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// Bouncer returns a PgBouncer with these settings, each a name and a value, in front of the server
// whose superuser's URL is given. It ends with the test. Without PgBouncer on the machine the test
// is skipped, except in continuous integration, which installs it.
func Bouncer(t testing.TB, upstream string, settings ...[2]string) *pgdev.Bouncer {
	t.Helper()
	var options []pgdev.Option
	for _, setting := range settings {
		options = append(options, pgdev.WithSetting(setting[0], setting[1]))
	}
	b, err := pgdev.StartBouncer(t.Context(), upstream, options...)
	if errors.Is(err, pgdev.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	return b
}
