package rollout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.NoLeaks(tests{m}) }

// tests removes after the tests what they have built.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	if builtAny {
		if path, err := built(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	return code
}
