package run

import (
	"fmt"
	"os"
	"path/filepath"
)

// KeepIn is where a cluster is kept between runs: gendurable/demo in the user's cache directory,
// for root in /var/cache, since the account that Postgres runs as then cannot enter root's home.
func KeepIn() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/gendurable/demo", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place to keep the database: %w", err)
	}
	return filepath.Join(cache, "gendurable", "demo"), nil
}
