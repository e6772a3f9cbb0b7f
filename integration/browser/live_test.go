package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/fsm"
)

func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// A step ends and the page says so, without being loaded again. A hidden page asks nothing, and a
// lost connection is said until it is back.
func TestPagesStayTrue(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{Customer: "Ada"}, nil)
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	b.run(chromedp.Evaluate(`window.sameDocument = true; document.querySelector('[data-live=state] details').open = false`, nil))
	require.Contains(t, b.text(), "awaiting signal")
	_, err := w.eng.Signal(t.Context(), id, paid.With(1<<40))
	require.NoError(t, err)
	b.until(`document.querySelector('[data-live=status]').innerText.includes('done') && window.sameDocument`)
	b.until(`document.querySelector('[data-live=timeline]').innerText.includes('done')`)
	var open bool
	b.run(chromedp.Evaluate(`document.querySelector('[data-live=state] details').open`, &open))
	require.False(t, open, "what was folded stays folded")

	b.open(w.URL + "/")
	w.down.Store(true)
	b.until(`!document.getElementById('link').hidden && document.getElementById('link').innerText.includes('lost')`)
	w.down.Store(false)
	b.until(`document.getElementById('link').hidden`)
	b.forgive()

	b.run(chromedp.Evaluate(`Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true}); window.away = true`, nil))
	b.until(`new Promise(done => setTimeout(() => done(true), 1500))`) // what was under way has ended
	before := w.requests.Load()
	b.until(`new Promise(done => setTimeout(() => done(true), 3000))`)
	require.Equal(t, before, w.requests.Load(), "a hidden page asks nothing")
	b.run(chromedp.Evaluate(`window.away = false; document.dispatchEvent(new Event('visibilitychange'))`, nil))
	require.Eventually(t, func() bool { return w.requests.Load() > before }, patience, patience/1000)
}

// By keys alone: to the search, to an instance, through rows.
func TestKeyboard(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.fill()
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + "/")
	b.run(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.id === 'q'`)
	b.run(chromedp.Evaluate(`document.getElementById('q').value = ''`, nil)) // the driver types what the page has prevented, too
	b.run(chromedp.KeyEvent(fmt.Sprint(id)), chromedp.KeyEvent(kb.Enter))
	b.until(fmt.Sprintf(`location.pathname === '/instances/%d' && document.readyState === 'complete'`, id))
	b.open(w.URL + "/instances")
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.until(`document.activeElement.closest('tr') === document.querySelectorAll('main tbody tr')[1]`)
	b.run(chromedp.KeyEvent("k"), chromedp.KeyEvent(kb.Enter))
	b.until(`/^\/instances\/\d+$/.test(location.pathname)`)
	b.run(chromedp.Evaluate(`history.back()`, nil))
	b.until(`location.pathname === '/instances'`)
}

// A verb goes from the click to the row and back to the page; a bulk verb shows its plan between.
func TestVerbsFromClickToRow(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.fill()
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	b.run(chromedp.SendKeys(`form[action$="/pause"] input[name=reason]`, "by a click", chromedp.ByQuery),
		chromedp.Click(`form[action$="/pause"] button`, chromedp.ByQuery), chromedp.WaitVisible(`.notice`, chromedp.ByQuery))
	require.Contains(t, b.text(), "Paused.")
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.True(t, i.Paused)
	b.open(w.URL + "/audit")
	require.Contains(t, b.text(), "by a click")

	b.open(w.URL + "/instances?machine=checkout&status=awaiting_signal")
	b.run(chromedp.SetValue(`form[action$=plan] select`, "pause", chromedp.ByQuery), chromedp.Click(`form[action$=plan] button`, chromedp.ByQuery),
		chromedp.WaitVisible(`form[action$=apply]`, chromedp.ByQuery), chromedp.SendKeys(`input[name=reason]`, "in bulk", chromedp.ByQuery),
		chromedp.Click(`form[action$=apply] button`, chromedp.ByQuery))
	b.until(`document.body.innerText.includes('changed')`)
	b.open(w.URL + "/audit?verb=pause")
	require.Contains(t, b.text(), "in bulk")
}

// A page of another site cannot send a verb in the reader's name, and cannot show ours in a frame.
func TestOtherSitesCanDoNothing(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, nil)
	at, err := url.Parse(w.URL)
	require.NoError(t, err)
	evil := newServer(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, `<main><form method=post action="http://localhost:%s/instances/%d/cancel"><button>win</button></form></main>`, at.Port(), id)
	}))
	b := openTab(t, 1440, 900, false)
	b.open(evil.URL)
	b.run(chromedp.Click("button", chromedp.ByQuery))
	b.until(`document.body.innerText.includes('another site')`)
	i, err := w.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.False(t, i.Status.Terminal())
	b.forgive()
}

// Below a path, behind a proxy that rewrites it, links, assets and verbs lead to the right places.
func TestBehindAReverseProxy(t *testing.T) {
	w := newWorld(t, dashboard.Options{Authorize: func(*http.Request) (dashboard.Access, error) {
		return dashboard.Access{Level: dashboard.Operate, Actor: "ada"}, nil
	}})
	id := w.fill()
	to, err := url.Parse(w.URL)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/durable/", http.StripPrefix("/ops/durable", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}}))
	proxy := newServer(t, mux)
	b := openTab(t, 1440, 900, false)
	b.open(proxy.URL + "/ops/durable/")
	b.run(chromedp.Click(`nav a[href$=machines]`, chromedp.ByQuery))
	b.until(`location.pathname === '/ops/durable/machines' && getComputedStyle(document.querySelector('.bar')).position === 'sticky'`)
	b.open(proxy.URL + fmt.Sprintf("/ops/durable/instances/%d", id))
	b.run(chromedp.Click(`form[action$="/pause"] button`, chromedp.ByQuery))
	b.until(fmt.Sprintf(`location.pathname === '/ops/durable/instances/%d' && document.body.innerText.includes('Paused.')`, id))
}

// A refresh leaves a fold as it is, and the focus on the same link, though rows and folds come
// before them. A lost connection says how old the page is.
func TestNewRowsMoveNeitherFoldsNorTheFocus(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	first := w.insert(order{Customer: "Ada"}, nil)
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + "/instances?machine=checkout")
	link := fmt.Sprintf(`document.querySelector('[data-live=list] td.id a[href$="/%d"]')`, first)
	b.run(chromedp.Evaluate(`window.sameDocument = true; `+link+`.focus()`, nil))
	var second fsm.ID
	for range 3 {
		second = w.insert(order{Customer: "Bea"}, nil)
	}
	b.until(fmt.Sprintf(`document.querySelector('[data-live=list] td.id a[href$="/%d"]') !== null && window.sameDocument`, second))
	b.until(`document.activeElement === ` + link)

	edit := func(cents int) {
		_, err := w.eng.Admin().Edit(t.Context(), first, fsm.ChangeJSON(func(json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprintf(`{"customer": "Ada", "cents": %d}`, cents)), nil
		}))
		require.NoError(t, err)
	}
	edit(1)
	b.open(w.URL + fmt.Sprintf("/instances/%d", first))
	const folds = `Array.from(document.querySelectorAll('[data-live=timeline] li > details'))`
	b.run(chromedp.Evaluate(`window.sameDocument = true; window.folds = `+folds+`.length; `+folds+`.pop().open = true`, nil))
	edit(2)
	b.until(folds + `.length > window.folds && window.sameDocument`)
	b.until(folds + `.pop().open && ` + folds + `.filter(d => d.open).length === 1`)

	b.open(w.URL + "/")
	w.down.Store(true)
	b.until(`/What you see is from [1-9]\d* (s|min)/.test(document.getElementById('link').innerText)`)
	w.down.Store(false)
	b.forgive()
}

// A time that is typed is one of the zone in which times are shown.
func TestTypedTimesAreOfTheViewersZone(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	b := openTab(t, 1440, 900, false)
	b.run(emulation.SetTimezoneOverride("Asia/Kathmandu")) // 5:45 ahead, all the year
	b.open(w.URL + "/instances")
	b.run(chromedp.Evaluate(`(() => { const f = document.querySelector('input[name=since]'); f.value = '2026-07-01 12:00'; f.form.requestSubmit(); })()`, nil))
	b.until(`new URL(location.href).searchParams.get('since') === '2026-07-01T06:15:00.000Z'`)
	b.open(w.URL + "/instances")
	b.run(chromedp.Evaluate(`(() => { const f = document.querySelector('input[name=since]'); f.value = '90m'; f.form.requestSubmit(); })()`, nil))
	b.until(`new URL(location.href).searchParams.get('since') === '90m'`)
}
