package store_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
)

// A session that has rows locked, and was cut off in the middle of its statements, loses them.
// Others who have rows locked for long stay: in a transaction that is idle, in a COPY, in a
// pipeline about something else, or for a moment only.
func TestRowsOfWhoIsCutOffAreFreed(t *testing.T) {
	b := newBench(t)
	const locks = `SELECT id FROM "gendurable".gen_durable WHERE id = $1 FOR NO KEY UPDATE`
	config := b.pool.Config().ConnConfig
	connect := func() *pgx.Conn {
		c, err := pgx.ConnectConfig(t.Context(), config.Copy())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	free := func(silent time.Duration) int {
		n, err := b.FreeRows(t.Context(), silent)
		require.NoError(t, err)
		return n
	}
	silent := func(c *pgx.Conn, in string) { // a connection that has sent nothing yet is silent, too
		steady.Eventually(t, func() bool {
			return b.number(`SELECT count(*) FROM pg_stat_activity WHERE pid = `+number(int64(c.PgConn().PID()))+` AND wait_event = 'ClientRead'
				AND state = 'active' AND starts_with(query, '`+in+`')`) == 1
		})
	}
	cutOff := func(last string) (*pgx.Conn, int64) {
		c, id := connect(), b.row("queue", "'cut off'")
		p := c.PgConn().StartPipeline(t.Context())
		p.SendQueryParams(`BEGIN`, nil, nil, nil, nil)
		p.SendQueryParams(locks, [][]byte{[]byte(number(id))}, nil, nil, nil)
		if last != "" {
			p.SendQueryParams(last, nil, nil, nil, nil)
		}
		p.SendFlushRequest()
		require.NoError(t, p.Flush())
		silent(c, cmp.Or(last, `SELECT id FROM`))
		return c, id
	}
	alive := func(c *pgx.Conn) bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE pid = `+number(int64(c.PgConn().PID()))) == 1
	}

	idle, in := connect(), b.row("queue", "'idle'")
	tx, err := idle.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), locks, in)
	require.NoError(t, err)
	b.exec(`CREATE TABLE hosts (id bigint)`)
	copying := connect()
	tx, err = copying.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), locks, b.row("queue", "'copy'"))
	require.NoError(t, err)
	more := make(chan []any)
	copied := make(chan error, 1)
	go func() {
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"hosts"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) { return <-more, nil }))
		copied <- err
	}()
	silent(copying, `copy`)
	elsewhere, _ := cutOff(`SELECT 1`)

	gone, id := cutOff("")
	require.Zero(t, free(time.Hour))
	require.Equal(t, 1, free(0))
	steady.Eventually(t, func() bool { return !alive(gone) })
	b.exec(`UPDATE gendurable.gen_durable SET priority = 1 WHERE id = $1`, id)
	require.Zero(t, free(0))
	for name, c := range map[string]*pgx.Conn{"idle": idle, "copying": copying, "about something else": elsewhere} {
		require.True(t, alive(c), name)
	}
	close(more)
	require.NoError(t, <-copied)
}
