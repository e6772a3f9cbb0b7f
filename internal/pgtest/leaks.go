package pgtest

import (
	"testing"

	"go.uber.org/goleak"
)

// NoLeaks is a package's TestMain: after its tests no goroutine of theirs may be left. The one that
// waits for the end of the tests' own server is let be: like the server, it lives as long as the
// process.
func NoLeaks(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/gendurable/gendurable/internal/pgdev.(*server).run.func1"))
}
