package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets/style.css assets/live.js assets/icon.svg
var assetFiles embed.FS

// page is what the layout shows around a body.
type page struct {
	Root    string // the relative path to the overview: "./", or "../" below it
	Assets  string // the folder of the assets, which their content names
	Title   string
	Section string // which entry of the navigation is marked
	Access  Access
	Refresh int64 // in milliseconds; 0: the page does not refresh itself
	Now     time.Time
	Took    time.Duration
	Search  string
	Notice  string // what a verb did
	Fault   string // what went wrong
	Advice  string // what to do about it
	Cluster bool   // there are several places
	Lacks   []lack // those that the page is without
	Body    any
}

// Operator reports whether the reader may use verbs.
func (p *page) Operator() bool { return p.Access.Level >= Operate }

// Operates reports whether the reader may use the verbs on schedules and limits, which are of all
// instances.
func (p *page) Operates() bool { return p.Operator() && p.Access.everywhere() }

// Pauses reports whether the reader may use the verbs on the queues that the page shows.
func (p *page) Pauses() bool { return p.Operator() && p.Access.byQueue() }

// Nav lists the entries of the navigation.
func (p *page) Nav() []navEntry {
	all := []navEntry{
		{"overview", "Overview", ""}, {"machines", "Machines", "machines"}, {"instances", "Instances", "instances"},
		{"queues", "Queues", "queues"}, {"limits", "Limits", "limits"}, {"schedules", "Schedules", "schedules"},
		{"workers", "Workers", "workers"}, {"audit", "Audit", "audit"},
	}
	for n := range all {
		all[n].Path = p.Root + all[n].Path
	}
	return all
}

type navEntry struct{ Section, Name, Path string }

// pages are the templates, by the name of the page. They are parsed once, from the embedded files.
var pages = parse()

func parse() map[string]*template.Template {
	base := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	entries, _ := templateFiles.ReadDir("templates") // it is embedded
	all := map[string]*template.Template{}
	for _, entry := range entries {
		if name := entry.Name(); name != "layout.html" && name != "parts.html" {
			own := template.Must(base.Clone())
			all[strings.TrimSuffix(name, ".html")] = template.Must(own.ParseFS(templateFiles, "templates/"+name))
		}
	}
	return all
}

// assetFolder is named by what the assets hold, so that browsers may keep them for good.
var assetFolder = func() string {
	sum := sha256.New()
	for _, name := range []string{"style.css", "live.js", "icon.svg"} {
		text, _ := assetFiles.ReadFile("assets/" + name) // it is embedded
		sum.Write(text)
	}
	return "assets/" + hex.EncodeToString(sum.Sum(nil)[:6])
}()

// asset serves an embedded file.
func (*server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := assetFiles.ReadFile("assets/" + name)
	if err != nil || r.PathValue("sum") != path.Base(assetFolder) {
		http.NotFound(w, r)
		return
	}
	kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	w.Header().Set("Content-Type", kind[path.Ext(name)])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(text) //nolint:gosec // an embedded file; who asked may have gone
}

// view makes a page of what show returns, or one that says what went wrong. Nothing is sent before
// the whole page is there.
func (s *server) view(show func(*http.Request) (name string, p *page, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		name, p, err := show(r)
		if to, ok := errors.AsType[*elsewhere](err); ok {
			w.Header().Set("Location", to.path)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		status := http.StatusOK
		if err != nil {
			name, p, status = s.failed(r, p, err)
		}
		p.Root, p.Assets, p.Access, p.Now = root(r), assetFolder, accessOf(r.Context()), time.Now()
		p.Took = p.Now.Sub(began)
		p.Cluster, p.Lacks = s.cluster != nil, lacking(r.Context())
		if p.Refresh != 0 {
			p.Refresh = s.Refresh.Milliseconds()
		}
		if p.Search == "" {
			p.Search = r.FormValue("q")
		}
		if p.Notice == "" {
			p.Notice = notices[r.FormValue("did")]
		}
		var text bytes.Buffer
		if err := pages[name].ExecuteTemplate(&text, "layout.html", p); err != nil {
			s.log.Error("dashboard: page", slog.String("page", name), slog.Any("error", err))
			s.refuse(w, r, http.StatusInternalServerError, "This page cannot be shown; the log says why.")
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = text.WriteTo(w) // who asked may have gone
	}
}

// elsewhere is the answer that another page has what was asked for.
type elsewhere struct{ path string }

func (e *elsewhere) Error() string { return "see " + e.path }

// misuse is a fault of the request: it is shown as it is.
type misuse struct {
	status int
	text   string
	advice string
}

func (m *misuse) Error() string { return m.text }

var errNoSuchPage = &misuse{http.StatusNotFound, "There is no such page.", "The navigation above lists what there is."}

// failed decides what a reader sees of an error. A page that is there keeps its body, under what
// went wrong.
func (s *server) failed(r *http.Request, p *page, err error) (string, *page, int) {
	status, text, advice := explain(err)
	if status >= http.StatusInternalServerError {
		s.log.Warn("dashboard: a page could not be read", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	if p == nil {
		p = &page{Title: "Not shown"}
	}
	p.Fault, p.Advice = text, advice
	if status == http.StatusServiceUnavailable {
		p.Refresh = 1 // it mends itself
	}
	return "fault", p, status
}

// explain says in whose power it is, what happened, and what to do.
func explain(err error) (status int, text, advice string) {
	if m, ok := errors.AsType[*misuse](err); ok {
		return m.status, m.text, m.advice
	}
	if q, ok := errors.AsType[*engine.QueryError](err); ok {
		return http.StatusBadRequest, q.Error(), "Change the query, or begin again from the list without filters."
	}
	if v, ok := errors.AsType[*engine.VerbError](err); ok {
		return http.StatusBadRequest, v.Error(), "Nothing was changed. Go back and correct it."
	}
	if errors.Is(err, engine.ErrOutside) {
		return http.StatusForbidden, "It would also change instances that your access does not cover: its parent, nodes of its graph, or others beneath it.",
			"Nothing was changed. An operator without these bounds can do it."
	}
	if c, ok := errors.AsType[*engine.ConflictError](err); ok {
		return http.StatusConflict, c.Error(), "Nothing was changed: look at the instance as it is now."
	}
	if down, ok := errors.AsType[*downError](err); ok {
		return http.StatusServiceUnavailable, downText(down), "The page asks again by itself; what is at other places is there."
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "Your request is too large.", fmt.Sprintf("At most %d bytes are accepted.", tooLarge.Limit)
	case errors.Is(err, engine.ErrNotFound):
		return http.StatusNotFound, "There is no such instance, or no longer.",
			"It may have been deleted after its retention; the search finds others by id, key or label."
	case errors.Is(err, engine.ErrNoSchedule):
		return http.StatusNotFound, "There is no such schedule.", "The list of schedules shows what is stored."
	case errors.Is(err, engine.ErrDuplicate), errors.Is(err, engine.ErrInboxFull), errors.Is(err, engine.ErrNoTarget):
		return http.StatusConflict, err.Error(), "Nothing was changed."
	case errors.Is(err, engine.ErrTooLarge):
		return http.StatusRequestEntityTooLarge, err.Error(), "Nothing was changed."
	case errors.Is(err, engine.ErrUnknown):
		return http.StatusServiceUnavailable, "The connection was lost before Postgres answered.", "Look whether the verb took effect before you repeat it."
	case errors.Is(err, engine.ErrRights):
		return http.StatusServiceUnavailable, err.Error(), "Grant these rights to the role of the dashboard's pool."
	case errors.Is(err, engine.ErrCounts):
		return http.StatusServiceUnavailable, "The instances could not be counted in time.", "The page asks again by itself."
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "Postgres did not answer in time.", "The page asks again by itself. Is the server up, and not overloaded?"
	}
	return http.StatusServiceUnavailable, "The database could not be read.", "The page asks again by itself; the log of this process says more."
}

// downText says why a place is left out.
func downText(down *downError) string {
	text := fmt.Sprintf("Place %d does not answer.", down.place)
	if errors.Is(down.err, cluster.ErrPlaces) || errors.Is(down.err, cluster.ErrUninitialised) {
		text = fmt.Sprintf("Place %d is not the one that was recorded.", down.place)
	}
	return text
}

// root is the relative path from a page to the overview.
func root(r *http.Request) string {
	if n := strings.Count(strings.TrimPrefix(r.URL.Path, "/"), "/"); n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

var functions = template.FuncMap{
	"num":      grouped,
	"ago":      func(t time.Time) moment { return moment{t, true} },
	"at":       func(t time.Time) moment { return moment{t, false} },
	"dur":      brief,
	"status":   func(s fsm.Status) string { return strings.ReplaceAll(string(s), "_", " ") },
	"lower":    strings.ToLower,
	"pretty":   func(name string) string { return strings.ReplaceAll(name, "_", " ") },
	"string":   func(v any) string { return fmt.Sprint(v) },
	"add64":    func(a, b int64) int64 { return a + b },
	"pathOf":   func(id fsm.ID) string { return "instances/" + strconv.FormatInt(int64(id), 10) },
	"list":     func(all ...any) []any { return all },
	"join":     strings.Join,
	"worker":   shortWorker,
	"forGood":  func(t time.Time) bool { return t.Equal(engine.GateForGood) },
	"in":       func(root string, v any) rooted { return rooted{root, v} },
	"number":   number,
	"cell":     func(name string, row fsm.RawInstance) cellOf { return cellOf{name, &row} },
	"numberOf": func(n int, one, more string) string { return number(int64(n), one, more) },
	"percent":  percent,
	"fraction": fraction,
}

// rooted is a value for a part of a template that needs the way to the overview, too.
type rooted struct {
	Root string
	V    any
}

// cellOf is a cell of the list of instances.
type cellOf struct {
	Name string
	Row  *fsm.RawInstance
}

func fraction(part, whole int) int {
	if whole <= 0 {
		return 0
	}
	return min(100, part*100/whole)
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(part)*100/float64(whole), 'f', 1, 64) + " %"
}

// shortWorker leaves out the part of a worker's id that only programs need.
func shortWorker(id string) string {
	if len(id) > 24 {
		return id[:8] + "…" + id[len(id)-8:]
	}
	return id
}

// moment is a time as a template shows it.
type moment struct {
	time.Time

	Relative bool
}

// Machine is the form for programs.
func (m moment) Machine() string { return m.UTC().Format(time.RFC3339Nano) }

// Full is the form that says all.
func (m moment) Full() string { return m.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// Text is the visible text; a script of the page keeps it true.
func (m moment) Text() string {
	if !m.Relative {
		return m.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	if d := time.Until(m.Time); d > time.Second {
		return "in " + brief(d)
	}
	return brief(time.Since(m.Time)) + " ago"
}

// brief is a duration in its largest one or two units.
func brief(d time.Duration) string {
	d = d.Abs()
	units := func(n, small int64, large, little string) string {
		if small == 0 {
			return fmt.Sprintf("%d %s", n, large)
		}
		return fmt.Sprintf("%d %s %d %s", n, large, small, little)
	}
	switch {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int64(d.Seconds()))
	case d < time.Hour:
		return units(int64(d.Minutes()), int64(d.Seconds())%60, "min", "s")
	case d < 24*time.Hour:
		return units(int64(d.Hours()), int64(d.Minutes())%60, "h", "min")
	}
	return units(int64(d.Hours())/24, int64(d.Hours())%24, "d", "h")
}

// number is a number of things.
func number(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + more
}

// grouped is a number with its thousands apart.
func grouped(v any) string {
	text := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	var out strings.Builder
	for n, digit := range text {
		if n > 0 && (len(text)-n)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return sign + out.String()
}
