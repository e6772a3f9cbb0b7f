package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
)

// An open page says that the database is away, and mends itself when it is back.
func TestPostgresRestartsUnderAnOpenPage(t *testing.T) {
	chromium(t)
	cluster, err := pgdev.Start(t.Context(), pgdev.WithSetting("fsync", "off"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	pool := pgtest.Pool(t, cluster.URL(""))
	_, err = migrate.Migrator{Pool: pool}.Up(t.Context())
	require.NoError(t, err)
	eng, err := engine.New(engine.Config{Pool: pool})
	require.NoError(t, err)
	id, err := eng.Insert(t.Context(), mail.New("first"))
	require.NoError(t, err)
	server := newServer(t, served(t, eng, dashboard.Options{Timeout: 3 * time.Second}))
	for _, path := range []string{"/", fmt.Sprintf("/instances/%d", id)} {
		b := openTab(t, 1440, 900, false)
		b.open(server.URL + path)
		b.run(chromedp.Evaluate(`window.sameDocument = true`, nil))
		require.NoError(t, cluster.StopImmediate())
		b.until(`!document.getElementById('link').hidden`)
		require.Contains(t, b.text(), "mails", "what was read stays")
		require.NoError(t, cluster.Restart(t.Context()))
		b.until(`document.getElementById('link').hidden && window.sameDocument`)
		b.run(chromedp.Navigate("about:blank")) // it is not to see the next restart
		b.forgive()
	}
}

// Ten thousand children are counted, and shown in pages.
func TestManyChildren(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, nil)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue, parent_id, parent_round, depth, status, finished_at)
		SELECT 'mail', 'run', 'mails', $1, 1, 1, 'done', now() FROM generate_series(1, 10000)`, int64(id))
	require.NoError(t, err)
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	b.until(`document.querySelector('[data-live=children]').innerText.includes('10,000 done')`)
	b.until(`document.querySelectorAll('[data-live=children] tbody tr').length === 20 && document.querySelector('[data-live=children]').innerText.includes('and 9,980 others')`)
	b.run(chromedp.Click(fmt.Sprintf(`[data-live=children] a[href$="parent=%d"]`, id), chromedp.ByQuery))
	b.until(fmt.Sprintf(`location.search === '?parent=%d' && document.querySelectorAll('main tbody tr').length === 50`, id))
	b.run(chromedp.Click(`a[rel=next]`, chromedp.ByQuery))
	b.until(`document.querySelector('a[rel=prev]') !== null && document.querySelectorAll('main tbody tr').length === 50`)
	b.checkWidth("children")
}

// A plan of ten thousand changes those that are still as they were planned, and says how many.
func TestBulkOfManyThatChangeMeanwhile(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	_, err := w.pool.Exec(t.Context(), `INSERT INTO gendurable.gen_durable (fsm, step, queue) SELECT 'mail', 'run', 'nobody serves' FROM generate_series(1, 10000)`)
	require.NoError(t, err)
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + "/instances?queue=nobody+serves&status=runnable")
	b.run(chromedp.SetValue(`form[action$=plan] select`, "pause", chromedp.ByQuery), chromedp.Click(`form[action$=plan] button`, chromedp.ByQuery),
		chromedp.WaitVisible(`form[action$=apply]`, chromedp.ByQuery))
	require.Contains(t, b.text(), "Pause 10,000 instances")
	_, err = w.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET status = 'done', finished_at = now() WHERE queue = 'nobody serves' AND id % 10 = 0`)
	require.NoError(t, err)
	b.run(chromedp.SendKeys(`input[name=reason]`, "in bulk", chromedp.ByQuery), chromedp.Click(`form[action$=apply] button`, chromedp.ByQuery))
	b.until(`document.body.innerText.includes('9,000 changed') && document.body.innerText.includes('1,000 skipped')`)
	var paused int
	require.NoError(t, w.pool.QueryRow(t.Context(), `SELECT count(*) FROM gendurable.gen_durable WHERE paused`).Scan(&paused))
	require.Equal(t, 9000, paused)
}

// A user who may only read sees no verb, and is refused by address.
func TestReadersAreRefusedByAddress(t *testing.T) {
	w := newWorld(t, dashboard.Options{Authorize: dashboard.Loopback(dashboard.Access{Level: dashboard.Read})})
	id := w.fill()
	b := openTab(t, 1440, 900, false)
	for _, path := range pages(id) {
		b.open(w.URL + path)
		b.until(`document.querySelectorAll('form[method=post]').length === 0`)
	}
	for _, path := range []string{fmt.Sprintf("/instances/%d/cancel", id), "/verbs/pause_queue", "/plan", fmt.Sprintf("/api/instances/%d/cancel", id)} {
		b.until(fmt.Sprintf(`fetch(%q, {method: 'POST', body: new URLSearchParams({name: 'checkout', verb: 'cancel', all: '1'})}).then(a => a.status === 403)`, path))
	}
	b.forgive()
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.False(t, i.Status.Terminal())
}
