package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// axe is the text of axe-core. make test installs it.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", ".cache", "node", "browser", "node_modules", "axe-core", "axe.min.js"))
	if os.IsNotExist(err) && os.Getenv("CI") == "" {
		t.Skip("no axe-core: make node installs it")
	}
	require.NoError(t, err)
	return string(text)
}

// checkPage holds the page to accessibility, and to the width of the window.
func (b *tab) checkPage(axe, path string) {
	b.t.Helper()
	var faults []string
	b.run(chromedp.Evaluate(axe, nil), chromedp.Evaluate(
		`axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')))`,
		&faults, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	require.Empty(b.t, faults, path)
	b.checkWidth(path)
}

func (b *tab) checkWidth(path string) {
	b.t.Helper()
	var over int
	b.run(chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over))
	require.LessOrEqual(b.t, over, 0, "%s is wider than the window", path)
}

// Every page is accessible in both themes, with data and without, and no wider than the window.
func TestPagesAreAccessible(t *testing.T) {
	script := axe(t)
	w := newWorld(t, dashboard.Options{})
	id := w.fill()
	empty, err := engine.New(engine.Config{Pool: pgtest.Pool(t, pgtest.Migrated(t))})
	require.NoError(t, err)
	bare := newServer(t, served(t, empty, dashboard.Options{}))
	for _, c := range []struct {
		width int64
		dark  bool
	}{{1440, false}, {1440, true}, {360, false}} {
		b := openTab(t, c.width, 900, c.dark)
		for _, path := range pages(id) {
			b.open(w.URL + path)
			b.checkPage(script, fmt.Sprint(path, c))
		}
		b.open(w.URL + "/instances?status=awaiting_signal&machine=checkout")
		b.run(chromedp.Click(`form[action$=plan] button`, chromedp.ByQuery), chromedp.WaitVisible(`h1`, chromedp.ByQuery))
		b.until(`location.pathname.startsWith('/plans/') && document.readyState === 'complete'`)
		b.checkPage(script, fmt.Sprint("a plan", c))
		b.open(w.URL + "/instances/1000000")
		b.checkPage(script, fmt.Sprint("a fault", c))
		b.forgive() // the console says that it is missing
		if c.dark || c.width == 360 {
			continue
		}
		for _, path := range []string{"/", "/machines", "/instances", "/queues", "/limits", "/schedules", "/workers", "/audit"} {
			b.open(bare.URL + path)
			b.checkPage(script, "empty "+path)
		}
		b.run(emulation.SetDeviceMetricsOverride(2560, 1200, 1, false))
		b.open(w.URL + "/")
		b.checkWidth("/")
	}
}

// Names of all kinds, labels, keys, states, errors, signals and reasons stay text, on every page.
// An id beyond 2^53 keeps its digits.
func TestHostileContentStaysText(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	const id = 1<<62 + 1
	ctx := t.Context()
	for _, text := range []string{
		`INSERT INTO gendurable.gen_durable (id, fsm, step, queue, state, correlation_key, partition_key, labels, last_error, status, failure, finished_at, awaits, trace)
			OVERRIDING SYSTEM VALUE VALUES ($2, $1, $1, $1, jsonb_build_object($1::text, $1::text, 'n', 9007199254740993), $1, $1, jsonb_build_object($1::text, $1::text),
			$1, 'runnable', NULL, NULL, NULL, jsonb_build_object($1::text, $1::text))`,
		`INSERT INTO gendurable.gen_durable (fsm, step, queue, parent_id, parent_round, depth, status, failure, last_error, finished_at)
			VALUES ($1, $1, $1, $2, 1, 1, 'failed', 'error', $1, now())`,
		`INSERT INTO gendurable.gen_durable (id, fsm, step, state) OVERRIDING SYSTEM VALUE VALUES ($2::bigint + 1, $1, $1, jsonb_build_object($1::text, repeat('<b>', 340000)))`,
		`INSERT INTO gendurable.history (at, instance, visit, kind, fsm, step, to_step, error, actor, reason, diff)
			VALUES (now(), $2, 1, 'next', $1, $1, $1, $1, $1, $1, jsonb_build_object($1::text, $1::text))`,
		`INSERT INTO gendurable.workers (id, host, pid, version, queues, machines, expires_at)
			VALUES (gen_random_uuid(), $1, ($2::bigint % 1000)::int, $1, jsonb_build_object($1::text, 3), ARRAY[$1::text], now() + interval '1 h')`,
		`INSERT INTO gendurable.signals (target_id, name, payload, dedup_key) VALUES ($2, $1, to_jsonb($1::text), $1)`,
		`UPDATE gendurable.schedules SET name = $1 WHERE $2::bigint > 0`,
	} {
		_, err := w.pool.Exec(ctx, text, hostile, int64(id))
		require.NoError(t, err, text)
	}
	_, err := w.eng.Admin().PauseQueue(ctx, hostile, engine.Reason(hostile), engine.Actor(hostile))
	require.NoError(t, err)
	_, err = w.eng.Admin().SetGate(ctx, engine.Gate{Name: "<b>gate", Queue: hostile, Label: hostile, Places: 1})
	require.NoError(t, err)
	b := openTab(t, 1440, 900, false)
	name := url.QueryEscape(hostile)
	for _, path := range []string{
		"/", "/machines", "/machine?name=" + name, "/instances", "/instances?machine=" + name + "&queue=" + name + "&label=" + name + "%3D" + name,
		fmt.Sprintf("/instances/%d", id), fmt.Sprintf("/instances/%d", id+1), fmt.Sprintf("/instances?parent=%d", id), "/queues", "/limits?keys=%3Cb%3Egate",
		"/schedules", "/workers", "/audit", "/find?q=" + name, "/instances?version=" + name, "/machine?name=x" + name, "/instances/" + url.PathEscape("<b>"),
	} {
		b.open(w.URL + path)
		var strange int
		b.run(chromedp.Evaluate(`document.images.length + document.querySelectorAll('main script, main b > b, main [onerror]').length`, &strange))
		require.Zero(t, strange, path)
		b.checkWidth(path)
	}
	b.forgive() // the last ones are answered by 400 and 404, which the console says
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	require.Contains(t, b.text(), "<img src=x onerror=alert(1)>")
	require.Contains(t, b.text(), "9007199254740993", "all digits")
	require.Contains(t, b.text(), fmt.Sprint(id))
	b.run(chromedp.SetValue(`form[action$="/pause"] input[name=reason]`, hostile, chromedp.ByQuery), chromedp.Click(`form[action$="/pause"] button`, chromedp.ByQuery))
	b.until(`document.body.innerText.includes('Paused.')`)
	b.open(w.URL + "/instances?queue=" + name)
	b.run(chromedp.SetValue(`form[action$=plan] select`, "cancel", chromedp.ByQuery), chromedp.Click(`form[action$=plan] button`, chromedp.ByQuery),
		chromedp.WaitVisible(`form[action$=apply]`, chromedp.ByQuery))
	require.Contains(t, b.text(), "<img src=x onerror=alert(1)>", "the plan repeats its filter")
	b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)))
	b.until(`document.querySelectorAll('#palette li').length > 1 && document.images.length === 0`)
}

// Everything that reads and acts works without scripts.
func TestWithoutScripts(t *testing.T) {
	w := newWorld(t, dashboard.Options{Authorize: dashboard.Loopback(dashboard.Access{Level: dashboard.Operate, Actor: "ada"})})
	id := w.fill()
	b := openTab(t, 1440, 900, false)
	b.run(emulation.SetScriptExecutionDisabled(true))
	b.open(w.URL + "/machine?name=checkout")
	b.run(chromedp.WaitVisible("svg.figure .box", chromedp.ByQuery))
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	b.run(chromedp.Click(`form[action$="/pause"] button`, chromedp.ByQuery), chromedp.WaitVisible(`form[action$="/resume"]`, chromedp.ByQuery))
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.True(t, i.Paused)
}

// A picture of each page for docs: make screenshots.
func TestScreenshots(t *testing.T) {
	into := os.Getenv("SCREENSHOTS")
	if into == "" {
		t.Skip("make screenshots draws them")
	}
	w := newWorld(t, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) {
		return dashboard.Access{Level: dashboard.Operate, Actor: "ada@shop"}, nil
	}})
	id := w.fill()
	for _, c := range []struct {
		name   string
		width  int64
		height int64
		dark   bool
		pages  map[string]string
	}{
		{"light", 1440, 900, false, map[string]string{
			"overview": "/", "machine": "/machine?name=checkout", "instances": "/instances", "instance": fmt.Sprintf("/instances/%d", id), "limits": "/limits?keys=per-tenant",
		}},
		{"dark", 1440, 900, true, map[string]string{"overview": "/", "machine": "/machine?name=checkout", "instance": fmt.Sprintf("/instances/%d", id)}},
		{"narrow", 360, 760, false, map[string]string{"overview": "/", "machine": "/machine?name=checkout", "instance": fmt.Sprintf("/instances/%d", id)}},
	} {
		b := openTab(t, c.width, c.height, c.dark)
		for name, path := range c.pages {
			b.open(w.URL + path)
			var picture []byte
			b.run(chromedp.CaptureScreenshot(&picture))
			require.NoError(t, os.WriteFile(filepath.Join(into, name+"-"+c.name+".png"), picture, 0o644)) //nolint:gosec // for everyone
		}
	}
}
