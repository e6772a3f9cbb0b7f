package pgtest

import "go.uber.org/goleak"

// NoLeaks is a package's TestMain: it fails if a goroutine of the tests is left after them. It
// ignores the goroutine that waits for the end of the tests' own server, which lives as long as the
// process.
func NoLeaks(m goleak.TestingM) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/gendurable/gendurable/internal/pgdev.(*server).run.func1"))
}
