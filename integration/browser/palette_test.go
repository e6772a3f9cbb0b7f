package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gendurable/gendurable/dashboard"
)

// The palette goes to pages, to what there is by name, to an instance by its id, and to the form of
// a verb, which it does not send.
func TestPalette(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.fill()
	b := openTab(t, 1440, 900, false)
	ask := func(text, first string) {
		b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)))
		b.until(`document.activeElement.id === 'palette-q'`)
		b.run(chromedp.KeyEvent(text))
		b.until(fmt.Sprintf(`document.querySelector('#palette [aria-selected=true]').innerText.replace(/\s+/g, ' ') === %q`, first))
	}
	b.open(w.URL + "/")
	ask("machines", "Machines page")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`location.pathname === '/machines' && document.readyState === 'complete'`)
	ask("checkout", "checkout machine")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`location.pathname === '/machine' && location.search === '?name=checkout' && document.readyState === 'complete'`)
	ask("tenant=ac", "tenant=ac search")
	b.until(`document.querySelectorAll('#palette li').length > 1`) // the names are there
	b.run(chromedp.KeyEvent(kb.ArrowDown))
	b.until(`document.querySelector('#palette [aria-selected=true]').innerText.includes('tenant=acme')`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.getElementById('palette').open`)
	ask(fmt.Sprint(id), fmt.Sprintf("%d search", id))
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(fmt.Sprintf(`location.pathname === '/instances/%d' && document.readyState === 'complete'`, id))
	ask("pause", "Pause verb")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.activeElement.name === 'reason' && document.activeElement.form.action.endsWith('/pause')`)
}

func TestThePaletteIsAccessible(t *testing.T) {
	script := axe(t)
	w := newWorld(t, dashboard.Options{})
	for _, dark := range []bool{false, true} {
		b := openTab(t, 1440, 900, dark)
		b.open(w.URL + "/")
		b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)))
		b.until(`document.querySelectorAll('#palette li').length > 1`)
		b.checkPage(script, "the palette")
	}
}
