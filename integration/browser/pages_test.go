package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
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
			if c.width > 360 {
				b.checkPage(script, fmt.Sprint(path, c))
			}
			b.checkWidth(path)
		}
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

// Names, labels, states, errors, signals and reasons stay text.
func TestHostileContentStaysText(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{Customer: hostile, Cents: 1 << 60}, func(s fsm.Spec) fsm.Spec {
		return s.Key(fsm.Key(hostile)).Label("x", hostile)
	})
	w.insert(order{Fails: true, Card: hostile}, nil)
	big := w.insert(order{Customer: strings.Repeat("a", 900_000)}, nil)
	ctx := t.Context()
	_, err := w.eng.Admin().PauseQueue(ctx, hostile, engine.Reason(hostile), engine.Actor(hostile))
	require.NoError(t, err)
	_, err = w.eng.Signal(ctx, id, fsm.DeclareSignal[string](hostile).With(hostile))
	require.NoError(t, err)
	b := openTab(t, 1440, 900, false)
	for _, path := range append(pages(id)[:6], fmt.Sprintf("/instances/%d", big), "/queues", "/schedules", "/workers", "/audit") {
		b.open(w.URL + path)
		var images int
		b.run(chromedp.Evaluate(`document.images.length + document.querySelectorAll('main script').length`, &images))
		require.Zero(t, images, path)
		b.checkWidth(path)
	}
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	require.Contains(t, b.text(), "<img src=x onerror=alert(1)>")
	require.Contains(t, b.text(), fmt.Sprint(int64(1)<<60), "all digits")
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
