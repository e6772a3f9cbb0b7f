package pgdev

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func passwordOf(t *testing.T, c *Cluster) string {
	t.Helper()
	parsed, err := url.Parse(c.URL(""))
	require.NoError(t, err)
	password, _ := parsed.User.Password()
	return password
}

// Clusters that are copied share nothing but what initdb made. One that is kept is no copy.
func TestDataDirectoriesAreCopied(t *testing.T) {
	shared := filepath.Join(enterable(t), "pristine")
	t.Setenv(PristineVariable, shared)
	first, second := start(t, WithoutFsync()), start(t, WithoutFsync())
	strict := start(t)
	kept := start(t, WithDirectory(filepath.Join(enterable(t), "kept")))
	made, err := os.ReadDir(shared)
	require.NoError(t, err)
	require.Len(t, made, 2, "one for each way to check passwords")
	require.Equal(t, passwordOf(t, first), passwordOf(t, second))
	require.NotEqual(t, passwordOf(t, first), passwordOf(t, strict))
	require.NotEqual(t, passwordOf(t, first), passwordOf(t, kept))
	for _, c := range []*Cluster{first, second, strict, kept} {
		_, err := connect(t, c.URL("")).Exec(t.Context(), "CREATE TABLE mine ()")
		require.NoError(t, err, "each has data of its own")
	}
	require.Equal(t, "md5", setting(t, connect(t, first.URL("")), "password_encryption"))
	require.Equal(t, "scram-sha-256", setting(t, connect(t, strict.URL("")), "password_encryption"))
}
