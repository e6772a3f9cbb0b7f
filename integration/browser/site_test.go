package browser

import (
	"context"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// site makes the site of the documentation, and returns its folder. SITE names one that was made
// before.
func site(t *testing.T) string {
	t.Helper()
	chromium(t)
	if made := os.Getenv("SITE"); made != "" {
		return made
	}
	packages := filepath.Join("..", "..", ".cache", "node", "site", "node_modules")
	if _, err := os.Stat(packages); os.IsNotExist(err) && os.Getenv("CI") == "" {
		t.Skip("no VitePress: make node installs it")
	}
	into := t.TempDir()
	command := exec.CommandContext(t.Context(), "node", filepath.Join("..", "..", "tools", "site", "build.mjs"), //nolint:gosec // the project's own
		"--packages", packages, "--into", into)
	said, err := command.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return into
}

// htmlOf reads the pages of a site, by their addresses.
func htmlOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	pages := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(at) != ".html" || at == "404.html" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, at)) //nolint:gosec // the site's own
		pages["/"+at] = string(text)
		return err
	}))
	require.NotEmpty(t, pages)
	return pages
}

var (
	href = regexp.MustCompile(`<a [^>]*?href="([^"]*)"`)
	id   = regexp.MustCompile(` id="([^"]*)"`)
)

// Each link leads to a page or a file of the site, and to a place in it.
func checkSitesLinks(t *testing.T, folder string, pages map[string]string) {
	t.Helper()
	ids, outside := map[string]map[string]bool{}, map[string]bool{}
	for at, text := range pages {
		ids[at] = map[string]bool{"": true}
		for _, m := range id.FindAllStringSubmatch(text, -1) {
			ids[at][html.UnescapeString(m[1])] = true
		}
	}
	for at, text := range pages {
		for _, m := range href.FindAllStringSubmatch(text, -1) {
			address := html.UnescapeString(m[1])
			if strings.Contains(address, "://") {
				outside[address] = true
				continue
			}
			to, anchor, _ := strings.Cut(address, "#")
			switch {
			case to == "":
				to = at
			case !strings.HasPrefix(to, "/"):
				to = path.Join(path.Dir(at), to)
			}
			if strings.HasSuffix(to, "/") {
				to += "index.html"
			}
			if pages[to] != "" {
				require.True(t, ids[to][anchor], "%s: the link %s leads to a place that does not exist", at, address)
			} else {
				require.FileExists(t, filepath.Join(folder, to), "%s: the link %s leads nowhere", at, address)
			}
		}
	}
	for _, name := range []string{"fsm#Declare", "engine#Config"} {
		require.True(t, outside["https://pkg.go.dev/github.com/gendurable/gendurable/"+name], "no page links to the documentation of %s", name)
	}
}

// elsewhere notes requests of a tab to other hosts than the site's.
func (b *tab) elsewhere(site string) (asked func() []string) {
	b.t.Helper()
	var mu sync.Mutex
	var found []string
	chromedp.ListenTarget(b.ctx, func(event any) {
		e, ok := event.(*network.EventRequestWillBeSent)
		if !ok || strings.HasPrefix(e.Request.URL, site) || strings.HasPrefix(e.Request.URL, "data:") {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, e.Request.URL)
	})
	b.run(network.Enable())
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return found
	}
}

// The site of the documentation has no dead link, fits a telephone, asks no other host, finds
// words, draws its drawings and has a dark form.
func TestTheSite(t *testing.T) {
	folder := site(t)
	pages := htmlOf(t, folder)
	checkSitesLinks(t, folder, pages)
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)

	b := openTab(t, 390, 844, false)
	asked := b.elsewhere(server.URL)
	drawn := ""
	for at, text := range pages {
		b.open(server.URL + at)
		if strings.Contains(text, `class="drawing"`) {
			drawn = at
			b.until(`[...document.querySelectorAll('.drawing')].every(d => d.querySelector('svg'))`)
		}
		b.checkWidth(at)
	}
	require.NotEmpty(t, drawn, "no page has a drawing")

	b.run(emulation.SetDeviceMetricsOverride(1280, 900, 1, false))
	for word, page := range map[string]string{"debounce": "/insertion", "rewind": "/control"} {
		b.open(server.URL + "/")
		b.until(`document.querySelector('#local-search button')`)
		b.run(chromedp.Click(`#local-search button`, chromedp.ByQuery), chromedp.WaitVisible(`#localsearch-input`, chromedp.ByQuery),
			chromedp.SendKeys(`#localsearch-input`, word, chromedp.ByQuery))
		b.until(fmt.Sprintf(`[...document.querySelectorAll('.VPLocalSearchBox .result')].some(r => r.href.includes(%q))`, page))
		b.run(chromedp.Click(`.VPLocalSearchBox .result`, chromedp.ByQuery))
		b.until(`!document.querySelector('.VPLocalSearchBox') && location.pathname !== '/'`)
	}

	b.open(server.URL + drawn)
	color := `getComputedStyle(document.body).backgroundColor`
	b.until(`document.querySelector('.drawing svg')`)
	b.run(chromedp.Evaluate(`window.before = `+color+`; window.light = document.querySelector('.drawing svg').outerHTML`, nil),
		chromedp.Click(`.VPSwitchAppearance`, chromedp.ByQuery, chromedp.NodeVisible))
	b.until(`document.documentElement.classList.contains('dark') && ` + color + ` !== window.before`)
	b.until(`document.querySelector('.drawing svg').outerHTML !== window.light`)
	b.run(chromedp.Reload())
	b.until(`document.documentElement.classList.contains('dark')`) // it remembers
	b.open(server.URL + "/docs/guide/getting-started.html")
	b.until(`document.querySelector('.vp-doc button.copy')`)
	require.Empty(t, asked(), "the site asks other hosts")
}

// A page that llms.txt does not list is not in the navigation, so there is no site without it.
func TestASiteNeedsEachPageInItsNavigation(t *testing.T) {
	chromium(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	if _, err := exec.LookPath("node"); err != nil && os.Getenv("CI") == "" {
		t.Skip("no Node")
	}
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(copied, "tools", "site"), os.DirFS(filepath.Join(root, "tools", "site"))))
	require.NoError(t, os.CopyFS(filepath.Join(copied, "docs", "guide"), os.DirFS(filepath.Join(root, "docs", "guide"))))
	require.NoError(t, os.WriteFile(filepath.Join(copied, "docs", "guide", "forgotten.md"), []byte("# Forgotten\n"), 0o600))
	text, err := os.ReadFile(filepath.Join(root, "llms.txt")) //nolint:gosec // the project's own
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(copied, "llms.txt"), text, 0o600))
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "node", "tools/site/build.mjs", "--packages", "none", "--into", t.TempDir())
	command.Dir = copied
	said, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "does not list docs/guide/forgotten.md")
}
