package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// delivery is what the payment provider posts.
type delivery struct {
	Event string `json:"event"`
	Order int64  `json:"order"`
	Cents int64  `json:"cents"`
}

// payments is the shop's webhook. It knows orders by their number only, has no step's code, and
// never waits for a worker.
type payments struct {
	eng *engine.Engine
	db  *pgxpool.Pool
}

// ServeHTTP answers what the provider should do next:
//
//	202  accepted, durably                 (done)
//	200  known already, nothing happened   (done)
//	404  no such order yet                 (again later)
//	410  the order has ended without it    (the provider keeps the money)
//	503  not now                           (again later)
func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var d delivery
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&d); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, err := p.accept(r.Context(), d)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(status)
}

// accept signals the order, with the provider's event as the dedup key, so that a second delivery
// changes nothing. The books come after the signal: a process that dies in between has not
// answered, and is called again.
func (p *payments) accept(ctx context.Context, d delivery) (int, error) {
	sent, err := p.eng.Signal(ctx, Key(d.Order), Paid.With(Payment{Event: d.Event, Cents: d.Cents}).DedupKey(d.Event))
	status := http.StatusAccepted
	switch {
	case errors.Is(err, engine.ErrNoTarget):
		if status, err = p.ended(ctx, d); err != nil || status != http.StatusOK {
			return status, err
		}
	case err != nil:
		return 0, fmt.Errorf("signal order %d: %w", d.Order, err)
	case sent.Duplicate:
		status = http.StatusOK
	}
	const book = `insert into received as r (event, order_id, cents) values ($1, $2, $3)
		on conflict (event) do update set deliveries = r.deliveries + 1`
	if _, err := p.db.Exec(ctx, book, d.Event, d.Order, d.Cents); err != nil {
		return 0, fmt.Errorf("book the payment of order %d: %w", d.Order, err)
	}
	return status, nil
}

// ended finds out why no instance takes the payment: the order is not there yet, or it has ended,
// perhaps by this very payment.
func (p *payments) ended(ctx context.Context, d delivery) (int, error) {
	order, err := Checkout.Get(ctx, p.eng, Key(d.Order))
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return http.StatusNotFound, nil
	case err != nil:
		return 0, fmt.Errorf("look for order %d: %w", d.Order, err)
	case order.Status == fsm.StatusDone && order.Result.Event == d.Event:
		return http.StatusOK, nil
	case order.Status.Terminal():
		return http.StatusGone, nil
	default: // it came to be since the signal looked
		return http.StatusNotFound, nil
	}
}

// listen serves the webhook on a free port until stop is called, which lets running requests
// finish.
func listen(ctx context.Context, handler http.Handler) (url string, stop func(context.Context) error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for payments: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	return "http://" + listener.Addr().String() + "/payments", stop, nil
}
