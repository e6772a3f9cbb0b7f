package pgtest

import (
	"context"

	"go.uber.org/goleak"

	"github.com/gendurable/gendurable/internal/pgclone"
)

// NoLeaks is a package's TestMain: it fails if a goroutine of the tests is left after them. It
// ignores the goroutine that waits for the end of the tests' own server, which lives as long as the
// process.
func NoLeaks(m goleak.TestingM) {
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("github.com/gendurable/gendurable/internal/pgdev.(*server).run.func1"))
}

// tests are a package's tests, without the connections that they keep for each other.
type tests struct{ goleak.TestingM }

func (t tests) Run() int {
	defer pgclone.CloseKept(context.Background())
	return t.TestingM.Run()
}
