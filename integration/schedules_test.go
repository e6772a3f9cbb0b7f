package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

// A client has stored the schedules. Processes that do not know the machine fire them, and are
// killed while they catch up: no occurrence is lost, and none is there twice.
func TestKilledProcessesFireEachOccurrenceOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	pool := pgtest.Pool(t, url)
	unknown := fsm.Declare[string, fsm.None]("unknown to the processes")
	var schedules []engine.Schedule
	seconds := tier.Pick(300, 900)
	for n := range 10 {
		spec := unknown.New("state").Queue("elsewhere")
		schedules = append(schedules, engine.Every(fmt.Sprint("pulse ", n), time.Second, spec).CatchUp(engine.CatchUpAll))
	}
	eng, err := engine.New(engine.Config{Pool: pool, Schedules: schedules})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	processes := []*process{spawn(t, role{URL: url}), spawn(t, role{URL: url})}
	execute(t, pool, `UPDATE gendurable.schedules SET paused_at = now(), next_at = date_trunc('second', now()) - interval '`+fmt.Sprint(seconds)+` s'`)
	first := query[time.Time](t, pool, `UPDATE gendurable.schedules SET paused_at = NULL RETURNING next_at`)
	behind := `SELECT count(*) FROM gendurable.schedules WHERE next_at < clock_timestamp()`
	watchdog, midway := steady.Watch(t), 0
	for n := range 6 {
		<-time.After(time.Duration(n) * 10 * time.Millisecond) // so that the kill may come anywhere in a transaction
		processes[n%2].kill()
		if query[int](t, pool, behind) > 0 {
			midway++
		}
		processes[n%2] = spawn(t, role{URL: url})
	}
	if midway == 0 { // they have caught up before this process went on
		watchdog.SkipIfStood(100 * time.Millisecond)
	}
	require.NotZero(t, midway)
	steady.Progressing(t, func() (reached time.Time, done bool) {
		return query[time.Time](t, pool, `SELECT min(next_at) FROM gendurable.schedules`), query[int](t, pool, behind) == 0
	})
	for _, p := range processes {
		p.kill()
	}
	for n := range schedules {
		name := fmt.Sprint("pulse ", n)
		last := query[time.Time](t, pool, `SELECT last_at FROM gendurable.schedules WHERE name = $1`, name)
		want := int(last.Sub(first).Seconds()) + 1
		require.Greater(t, want, seconds)
		require.Equal(t, want, query[int](t, pool, `SELECT count(DISTINCT correlation_key) FROM gendurable.gen_durable
			WHERE starts_with(correlation_key, $1)`, "schedule:"+name+":"))
		require.Equal(t, want, query[int](t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE starts_with(correlation_key, $1)`,
			"schedule:"+name+":"))
	}
}
