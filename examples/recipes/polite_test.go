package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

var Call = fsm.Declare[string, int]("call")

// However often the provider wants to be left alone, the job has all of its attempts in the end: it
// has one, is held back many times, and runs once.
func TestPoliteCostsNoAttempt(t *testing.T) {
	t.Parallel()
	ran, asked := 0, 0
	times := tier.Pick(6, 30)
	provider := func(string) time.Time {
		if asked++; asked <= times {
			return time.Now().Add(time.Minute)
		}
		return time.Time{}
	}
	job := Call.Job(func(ctx context.Context, _ string) (int, error) {
		ran++
		info, _ := fsm.InfoFrom(ctx)
		return info.Attempt, nil
	}).Retry(fsm.RetryPolicy{MaxAttempts: 1})
	kit := durabletest.New(t, durabletest.Config{
		DatabaseURL: pgtest.URL(t), Machines: []fsm.Definition{job},
		Options: func(c *engine.Config) { c.Middleware = []engine.Middleware{polite(provider)} },
	})
	id := insert(t, kit, Call.New("x"))
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.Equal(t, 0, durabletest.RequireDone(t, kit, Call, id))
	require.Equal(t, 1, ran)
	require.Equal(t, times+1, asked)
}
