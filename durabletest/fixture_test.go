package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

type order struct {
	ID    int64
	Cents int64
	Sum   int64
}

var (
	checkout = fsm.Declare[order, int64]("checkout")
	parcel   = fsm.Declare[string, string]("parcel", fsm.Queue("parcels"))
	paid     = fsm.DeclareSignal[int64]("paid")
	refused  = fsm.DeclareSignal[string]("refused")
)

type visit = fsm.Visit[order, int64]

// shop is a machine that uses every kind of outcome.
type shop struct {
	ship func(ctx context.Context, v *visit) error
}

func (m shop) Definition() fsm.Definition {
	return checkout.Define(
		fsm.Step("start", m.start).To("settle"),
		fsm.Step("settle", m.settle).To("ship"),
		fsm.Step("ship", m.deliver).To("end"),
		fsm.Step("end", m.end).To(),
	).OnError(m.failed)
}

var errUnpaid = errors.New("not paid within a day")

func (m shop) start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("settle", v.State, paid, refused).Timeout(24 * time.Hour), nil
}

func (m shop) settle(_ context.Context, v *visit) (fsm.Outcome, error) {
	cents, ok, err := paid.First(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return v.Fail(errUnpaid), nil
	}
	next := v.State
	next.Cents = cents
	return v.Next("ship", next), nil
}

func (m shop) deliver(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if m.ship != nil {
		if err := m.ship(ctx, v); err != nil {
			return nil, err
		}
	}
	return v.ScheduleChildren("end", v.State, parcel.New("left"), parcel.New("right").Priority(3)), nil
}

func (m shop) end(_ context.Context, v *visit) (fsm.Outcome, error) {
	for _, c := range parcel.Children(v) {
		sent, err := c.Result()
		if err != nil {
			return nil, err
		}
		v.State.Sum += int64(len(sent))
	}
	return v.Done(v.State.Cents + v.State.Sum), nil
}

func (m shop) failed(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	return v.RetryBy(fsm.RetryPolicy{MaxAttempts: 3, Base: time.Minute}, err), nil
}

var parcels = parcel.Job(func(_ context.Context, side string) (string, error) { return "sent " + side, nil })

// looping loops for ever.
var looping = fsm.Declare[int, fsm.None]("looping")

var endless = looping.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, fsm.None]) (fsm.Outcome, error) {
	return v.Next("start", v.State+1), nil
}))

// ticker notes when it fires, and repeats after its period.
var ticker = fsm.Declare[tick, int]("ticker")

type tick struct {
	Name  string
	Every time.Duration
	Left  int
}

type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, " ")
}

func (d *diary) ticking() fsm.Definition {
	return ticker.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[tick, int]) (fsm.Outcome, error) {
		d.note(v.State.Name + strconv.Itoa(v.State.Left))
		if v.State.Left--; v.State.Left < 0 {
			return v.Done(0), nil
		}
		return v.Next("start", v.State).After(v.State.Every), nil
	}))
}

func newKit(t testing.TB, machines ...fsm.Definition) *durabletest.Kit {
	t.Helper()
	return durabletest.New(t, durabletest.Config{Machines: machines, DatabaseURL: pgtest.URL(t)})
}

func newShop(t testing.TB) *durabletest.Kit {
	t.Helper()
	return newKit(t, shop{}.Definition(), parcels)
}

func insert(t testing.TB, kit *durabletest.Kit, spec fsm.Spec) fsm.ID {
	t.Helper()
	id, err := kit.Engine.Insert(t.Context(), spec)
	require.NoError(t, err)
	return id
}

func send(t testing.TB, kit *durabletest.Kit, to fsm.Target, message fsm.Message) {
	t.Helper()
	_, err := kit.Engine.Signal(t.Context(), to, message)
	require.NoError(t, err)
}

// witness is a test that records how it failed, and then ends.
type witness struct {
	testing.TB

	said string
}

func (w *witness) Helper() {}

func (w *witness) Fatalf(format string, args ...any) {
	w.said = strings.TrimSpace(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// failing runs f on a separate test, and returns that test's failure.
func failing(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	w := &witness{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		f(w)
	}()
	<-over
	require.NotEmpty(t, w.said, "it did not fail")
	return w.said
}
