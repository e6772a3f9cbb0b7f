package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// patience bounds how long a test waits.
const patience = time.Minute

// hostile is markup, a mark that turns the direction of text, and a template.
const hostile = `<img src=x onerror=alert(1)>"'{{.}}` + "\u202egnp.exe"

// chromium is the browser's program. Without it the tests are skipped, but not in CI.
func chromium(t testing.TB) string {
	t.Helper()
	tier.Needs(t, tier.CI)
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no Chromium: make chromium installs it")
	}
	t.Skip("no Chromium: make chromium installs it")
	return ""
}

// tab is a page of a separate browser. An error in the page fails the test at its end.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// openTab starts a browser. Nothing that it does by itself leaves this machine.
func openTab(t *testing.T, width, height int64, dark bool) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WindowSize(int(width), int(height)))
	allocated, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, endTab := chromedp.NewContext(allocated)
	limited, endTime := context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		endTime()
		endTab()
		end()
	})
	b := &tab{t: t, ctx: limited}
	chromedp.ListenTarget(limited, b.listen)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.faults, "the browser complains")
	})
	return b
}

// listen notes errors of scripts and what the browser itself complains of, as of its policy.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.faults = append(b.faults, fmt.Sprint(e.Type, " on the console"))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// forgive forgets complaints that a test has provoked.
func (b *tab) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// open opens a page, and waits until it is there.
func (b *tab) open(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address), chromedp.WaitReady("main", chromedp.ByQuery))
}

// text of the page.
func (b *tab) text() (text string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(`document.body.innerText`, &text))
	return text
}

// until waits until an expression of the page is true, also across a navigation, at which the
// browser forgets what it was asked.
func (b *tab) until(expression string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var is bool
		err := chromedp.Run(b.ctx, chromedp.Evaluate("Promise.resolve("+expression+").then(Boolean)", &is,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		return err == nil && is
	}, patience, 50*time.Millisecond, expression)
}

type order struct {
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Card     string `json:"card,omitempty"`
	Fails    bool   `json:"fails,omitempty"`
	Items    []item `json:"items,omitempty"`
}

type item struct {
	SKU   string `json:"sku"`
	Count int    `json:"count"`
}

var (
	checkout = fsm.Declare[order, string]("checkout", fsm.Queue("checkout"))
	mail     = fsm.Declare[string, fsm.None]("mail", fsm.Queue("mails"))
	paid     = fsm.DeclareSignal[int64]("paid")
)

// world is a shop with a worker, and a server with its dashboard.
type world struct {
	*httptest.Server

	t        *testing.T
	eng      *engine.Engine
	pool     *pgxpool.Pool
	requests atomic.Int64
	down     atomic.Bool // the server answers nothing
}

// newWorld starts a shop. An order reserves, waits for a payment, ships and mails; one in a hundred
// is refunded.
func newWorld(t *testing.T, o dashboard.Options) *world {
	t.Helper()
	next := func(to string) fsm.StepFunc[order, string] {
		return func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			return v.Next(to, v.State), nil
		}
	}
	shop := checkout.Define(
		fsm.Step("start", next("reserve")).To("reserve"),
		fsm.Step("reserve", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			if v.State.Fails {
				return nil, fsm.Permanent(errors.New("warehouse: out of stock: " + v.State.Card))
			}
			return v.Await("paid", v.State, paid), nil
		}).To("paid"),
		fsm.Step("paid", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			cents, _, err := paid.First(v)
			if err != nil {
				return nil, err
			}
			if cents < v.State.Cents {
				return v.Next("refund", v.State), nil
			}
			return v.Next("ship", v.State), nil
		}).To("ship", "refund"),
		fsm.Step("ship", next("mail")).To("mail", "refund"),
		fsm.Step("refund", next("mail")).To("mail"),
		fsm.Step("mail", func(_ context.Context, v *fsm.Visit[order, string]) (fsm.Outcome, error) {
			return v.Done("shipped"), nil
		}),
	).History(fsm.KeepStates)
	post := mail.Job(func(context.Context, string) (fsm.None, error) { return fsm.None{}, nil })
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	eng, err := engine.New(engine.Config{
		Pool: pool, Machines: []fsm.Definition{shop, post},
		Queues:    map[string]engine.Queue{"checkout": {Concurrency: 8, PollMax: 300 * time.Millisecond}, "mails": {Concurrency: 4}},
		Schedules: []engine.Schedule{engine.Cron("nightly report", "0 3 * * *", mail.New("report")).In("Europe/Berlin")},
	})
	require.NoError(t, err)
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, eng.Stop(context.WithoutCancel(t.Context()))) })
	w := &world{t: t, eng: eng, pool: pool}
	w.Server = httptest.NewServer(w.count(served(t, eng, o)))
	t.Cleanup(w.Close)
	return w
}

func served(t *testing.T, eng *engine.Engine, o dashboard.Options) http.Handler {
	t.Helper()
	if o.Refresh == 0 {
		o.Refresh = time.Second
	}
	h, err := dashboard.New(eng, o)
	require.NoError(t, err)
	return h
}

// count counts the requests for pages, and breaks the connection while the server is down.
func (w *world) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/assets/") {
			w.requests.Add(1)
		}
		if w.down.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
}

// insert inserts an order, and waits until it stands still.
func (w *world) insert(state order, change func(fsm.Spec) fsm.Spec) fsm.ID {
	w.t.Helper()
	spec := checkout.New(state)
	if change != nil {
		spec = change(spec)
	}
	id, err := w.eng.Insert(w.t.Context(), spec)
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	_, err = w.eng.WaitParked(ctx, id, -1)
	require.NoError(w.t, err)
	return id
}

// fill makes a shop on a usual day, and returns an order that waits for its payment.
func (w *world) fill() fsm.ID {
	w.t.Helper()
	ctx := w.t.Context()
	admin := w.eng.Admin()
	for n := range 24 {
		state := order{Customer: fmt.Sprint("customer ", n%7), Cents: int64(1000 + 37*n), Items: []item{{"ELK-1", 1 + n%3}, {"FOX-7", 1}}}
		state.Fails, state.Card = n%6 == 5, "ELK-1"
		id := w.insert(state, func(s fsm.Spec) fsm.Spec {
			return s.Key(fsm.Key(fmt.Sprint("order:", 4700+n))).Label("tenant", []string{"acme", "globex", "initech"}[n%3])
		})
		if n%2 == 0 {
			_, err := w.eng.Signal(ctx, id, paid.With(map[bool]int64{true: 5, false: 1 << 40}[n%8 == 0]))
			require.NoError(w.t, err)
		}
	}
	_, err := admin.SetGate(ctx, engine.Gate{Name: "per-tenant", Queue: "checkout", Label: "tenant", Places: 3, Total: 8})
	require.NoError(w.t, err)
	_, err = admin.SetGate(ctx, engine.Gate{Name: "mail-provider", Queue: "mails", Places: 4, Rate: engine.Rate{N: 20, Per: time.Second}})
	require.NoError(w.t, err)
	_, err = admin.PauseQueue(ctx, "imports", engine.Actor("grace@shop"), engine.Reason("the partner's files are broken, ticket 81"))
	require.NoError(w.t, err)
	_, err = w.eng.Insert(ctx, mail.New("later").After(time.Hour))
	require.NoError(w.t, err)
	_, err = w.eng.Insert(ctx, mail.New("imported").Queue("imports"))
	require.NoError(w.t, err)
	id := w.insert(order{Customer: "Ada", Cents: 9007199254740993, Card: "4111 1111", Items: []item{{"ELK-1", 2}}}, func(s fsm.Spec) fsm.Spec {
		return s.Key("order:4799").Label("tenant", "acme").Label("channel", "web")
	})
	_, err = w.eng.Signal(ctx, id, fsm.DeclareSignal[string]("note").With("ring twice"))
	require.NoError(w.t, err)
	_, err = admin.Pause(ctx, id, engine.Actor("ada@shop"), engine.Reason("the customer asked us to wait"))
	require.NoError(w.t, err)
	_, err = admin.Resume(ctx, id, engine.Actor("ada@shop"))
	require.NoError(w.t, err)
	return id
}

// pages are the paths of all pages about a filled shop.
func pages(id fsm.ID) []string {
	return []string{
		"/", "/machines", "/machine?name=checkout", "/instances", "/instances?status=failed&machine=checkout", fmt.Sprintf("/instances/%d", id),
		"/queues", "/limits?keys=per-tenant", "/schedules", "/workers", "/audit",
	}
}
