package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) == "" {
		pgtest.NoLeaks(m) // and exits
	}
	main()
}

// patience bounds how long a test waits.
const patience = time.Minute

// host is a migrated database with a client of the engine, on which the tests run the program.
type host struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	eng  *engine.Engine

	stdin       string
	interactive bool
	width       int // of the terminal; 0: none
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, url: pgtest.Migrated(t)}
	h.pool = pgtest.Pool(t, h.url)
	eng, err := engine.New(engine.Config{Pool: h.pool})
	require.NoError(t, err)
	h.eng = eng
	return h
}

// answer is the result of a run of the program.
type answer struct {
	t         *testing.T
	code      exitCode
	out, errs string
}

// run runs the program on the host's database.
func (h *host) run(args ...string) answer {
	h.t.Helper()
	return h.in(append([]string{"--database-url", h.url}, args...)...)
}

// in runs the program with just these arguments.
func (h *host) in(args ...string) answer {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*patience) // vet compiles what it reads: minutes on an empty cache
	defer cancel()
	var out, errs buffer
	c := &console{in: strings.NewReader(h.stdin), out: &out, errs: &errs, interactive: h.interactive}
	if h.width > 0 {
		c.size = func() (int, int) { return h.width, 24 }
	}
	code := run(ctx, args, c)
	return answer{h.t, code, out.String(), errs.String()}
}

// is requires an exit code.
func (a answer) is(code exitCode) answer {
	a.t.Helper()
	require.Equal(a.t, code, a.code, "%s%s", a.out, a.errs)
	return a
}

// says requires texts on stdout, in this order.
func (a answer) says(texts ...string) answer {
	a.t.Helper()
	rest := a.out
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		require.True(a.t, found, "no %q in\n%s", text, rest)
		rest = after
	}
	return a
}

// complains requires a text on stderr.
func (a answer) complains(text string) answer {
	a.t.Helper()
	require.Contains(a.t, a.errs, text)
	return a
}

// read decodes all of stdout, and refuses fields that T does not have.
func read[T any](a answer) (v T) {
	a.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(a.out))
	require.NoError(a.t, decoder.Decode(&v), a.out)
	require.False(a.t, decoder.More(), "more than one document")
	return v
}

// exec changes rows past the engine.
func (h *host) exec(sql string, args ...any) {
	h.t.Helper()
	_, err := h.pool.Exec(h.t.Context(), sql, args...)
	require.NoError(h.t, err)
}

type order struct {
	N int `json:"n"`
}

var (
	orders = fsm.Declare[order, string]("order")
	paid   = fsm.DeclareSignal[int]("paid")
)

func (h *host) insert(n int, refine ...func(fsm.Spec) fsm.Spec) fsm.ID {
	h.t.Helper()
	spec := orders.New(order{n})
	for _, change := range refine {
		spec = change(spec)
	}
	id, err := h.eng.Insert(h.t.Context(), spec)
	require.NoError(h.t, err)
	return id
}

// work starts an engine that runs orders: each waits to be paid, and fails if less than 1 is paid.
func (h *host) work() {
	h.t.Helper()
	type visit = fsm.Visit[order, string]
	definition := orders.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Await("ship", v.State, paid), nil }).To("ship"),
		fsm.Step("ship", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			cents, _, err := paid.First(v)
			if err == nil && cents < 1 {
				return v.Fail(context.Canceled), nil
			}
			return v.Done("shipped"), err
		}).To(),
	)
	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(h.t, h.url), Machines: []fsm.Definition{definition},
		Queues: map[string]engine.Queue{"default": {Concurrency: 3}}})
	require.NoError(h.t, err)
	require.NoError(h.t, eng.Start(h.t.Context()))
	h.t.Cleanup(func() { require.NoError(h.t, eng.Stop(context.Background())) })
}

// until waits for an instance to have a status.
func (h *host) until(id fsm.ID, status fsm.Status) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		i, err := h.eng.Get(h.t.Context(), id)
		return err == nil && i.Status == status
	}, patience, 10*time.Millisecond)
}

// buffer can be written by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
