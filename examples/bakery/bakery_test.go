package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"

	"example.com/bakery/ent"
	"example.com/bakery/ent/order"
)

// world remembers each effect by its key.
type world struct {
	mu    sync.Mutex
	did   map[string]string
	late  func() // runs while a parcel is sent
	burnt int    // how many cakes fail
}

func (w *world) do(effect, key string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did[key] = effect
	return nil
}

func (w *world) count(effect string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, did := range w.did {
		if did == effect {
			n++
		}
	}
	return n
}

func (w *world) Bake(_ context.Context, _, key string) error {
	w.mu.Lock()
	burnt := w.burnt > 0
	w.burnt--
	w.mu.Unlock()
	if burnt {
		return errors.New("burnt")
	}
	return w.do("bake", key)
}

func (w *world) Write(_ context.Context, _, key string) error { return w.do("card", key) }

func (w *world) Send(_ context.Context, _, key string) (string, error) {
	if w.late != nil {
		w.late()
	}
	return "parcel", w.do("send", key)
}

func (w *world) Refund(_ context.Context, _ string, cents int64, key string) error {
	return w.do(fmt.Sprint("refund ", cents), key)
}

type shop struct {
	*durabletest.Kit
	client  *ent.Client
	world   *world
	metrics *prometheus.Registry
}

func open(t *testing.T) shop {
	t.Helper()
	s := shop{world: &world{did: map[string]string{}}, metrics: prometheus.NewRegistry()}
	b := &bakery{world: s.world}
	s.Kit = durabletest.New(t, durabletest.Config{
		Machines: b.machines(),
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			return ent.NewClient(ent.Driver(entpgx.New(pool))).Schema.Create(ctx)
		},
		Options: func(c *engine.Config) {
			if _, err := instrument(c, s.metrics); err != nil {
				t.Error(err)
			}
		},
	})
	s.client = ent.NewClient(ent.Driver(entpgx.New(s.Pool)))
	b.client = s.client
	if _, err := s.Engine.Admin().SetGate(t.Context(), oven); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s shop) place(t *testing.T) *ent.Order {
	t.Helper()
	o, err := place(t.Context(), s.client, s.Engine, "ann", "sacher", 4200)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (s shop) pay(t *testing.T, o *ent.Order, event string) {
	t.Helper()
	if _, err := s.Engine.Signal(t.Context(), OrderKey(o.ID), Paid.With(4200).DedupKey(event)); err != nil {
		t.Error(err)
	}
}

func TestAPaidCakeIsMadeAndSent(t *testing.T) {
	t.Parallel()
	s := open(t)
	o := s.place(t)
	durabletest.RequireDrain(t, s.Kit)
	durabletest.RequireParked(t, s.Kit, *o.InstanceID, Paid.Name())
	s.world.burnt = 2
	s.pay(t, o, "evt-7")
	s.pay(t, o, "evt-7") // the provider asks twice
	durabletest.RequireAdvance(t, s.Kit, time.Hour)
	if parcel := durabletest.RequireDone(t, s.Kit, Ordered, *o.InstanceID); parcel != "parcel" {
		t.Errorf("the result is %q", parcel)
	}
	for effect, want := range map[string]int{"bake": 1, "card": 1, "send": 1, "refund 4200": 0} {
		if got := s.world.count(effect); got != want {
			t.Errorf("%s happened %d times, not %d", effect, got, want)
		}
	}
	if o = s.client.Order.GetX(t.Context(), o.ID); o.Delivered == nil {
		t.Error("the order has no time of delivery")
	}
	var steps []string
	for transition, err := range s.Engine.History(t.Context(), *o.InstanceID) {
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, transition.From)
	}
	if got := strings.Join(steps, " "); got != "start settle deliver finish" {
		t.Errorf("the history has the steps %s", got)
	}
}

func TestAnUnpaidCakeIsNotMade(t *testing.T) {
	t.Parallel()
	s := open(t)
	o := s.place(t)
	durabletest.RequireAdvance(t, s.Kit, 25*time.Hour) // a day passes
	durabletest.RequireFailed(t, s.Kit, *o.InstanceID, fsm.FailureDecided, "not paid within a day")
	failed := s.client.Order.Query().Where(order.HasInstanceWith(s.Engine, instance.StatusEQ(fsm.StatusFailed))).OnlyX(t.Context())
	if failed.ID != o.ID || s.world.count("bake") != 0 {
		t.Errorf("order %d failed, %d cakes were baked", failed.ID, s.world.count("bake"))
	}
}

func TestALatePaymentIsGivenBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	o := s.place(t)
	s.pay(t, o, "evt-7")
	s.world.late = func() { s.pay(t, o, "evt-8") }
	durabletest.RequireDrain(t, s.Kit)
	durabletest.RequireDone(t, s.Kit, Ordered, *o.InstanceID)
	if s.world.count("send") != 1 || s.world.count("refund 4200") != 1 {
		t.Errorf("the effects are %v", s.world.did)
	}
}

func TestTheMoneyForABurntCakeIsGivenBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	o := s.place(t)
	s.world.burnt = 99
	s.pay(t, o, "evt-7")
	durabletest.RequireAdvance(t, s.Kit, time.Hour)
	durabletest.RequireFailed(t, s.Kit, *o.InstanceID, fsm.FailureDecided, "no cake was sent")
	if s.world.count("send") != 0 || s.world.count("refund 4200") != 1 {
		t.Errorf("the effects are %v", s.world.did)
	}
}

func TestOperatorsSeeTheBakery(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.place(t)
	durabletest.RequireDrain(t, s.Kit)
	pages, err := dashboard.New(s.Engine, dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "http://localhost/instances", nil)
	request.RemoteAddr = "127.0.0.1:1234"
	recorder := httptest.NewRecorder()
	pages.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK || !strings.Contains(recorder.Body.String(), "bakery.order") {
		t.Errorf("the dashboard answers %d", recorder.Code)
	}
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), "gendurable") }) {
		t.Errorf("none of %d metrics is the engine's", len(families))
	}
}
