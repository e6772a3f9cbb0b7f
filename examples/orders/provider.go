package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/examples/internal/run"
)

const (
	// requests is how many connections the provider uses at a time.
	requests = 16
	// firstPause and longestPause bound the wait between two tries of one delivery.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
)

// provider is the payment provider: it posts each line of payments.csv at its time, and repeats it
// until the answer says that all is well.
type provider struct {
	db     *pgxpool.Pool
	url    string
	client http.Client
}

// line of payments.csv.
type line struct {
	Number int
	SentMS int
	delivery
}

// deliver posts what has no answer yet.
func (p *provider) deliver(ctx context.Context, opened clock) error {
	rows, err := p.db.Query(ctx, `select line, sent_ms, event, order_id, cents from payment where answer is null order by line`)
	if err != nil {
		return fmt.Errorf("read the payments to deliver: %w", err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l line, err error) {
		return l, row.Scan(&l.Number, &l.SentMS, &l.Event, &l.Order, &l.Cents)
	})
	if err != nil {
		return fmt.Errorf("read the payments to deliver: %w", err)
	}
	p.client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxConnsPerHost: requests, MaxIdleConnsPerHost: requests}}
	defer p.client.CloseIdleConnections()
	deliveries := make([]func(context.Context) error, 0, len(lines))
	for _, l := range lines {
		deliveries = append(deliveries, func(ctx context.Context) error { return p.settle(ctx, opened, l) })
	}
	return run.Together(ctx, deliveries...)
}

// settle repeats one delivery until there is an answer to keep.
func (p *provider) settle(ctx context.Context, opened clock, l line) error {
	if err := opened.wait(ctx, l.SentMS); err != nil {
		return err
	}
	early := 0
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		switch status := p.post(ctx, l.delivery); status {
		case http.StatusAccepted, http.StatusOK, http.StatusGone:
			_, err := p.db.Exec(ctx, `update payment set answer = $2, too_early = $3 where line = $1`, l.Number, status, early)
			if err != nil {
				return fmt.Errorf("keep the answer to line %d of payments.csv: %w", l.Number, err)
			}
			return nil
		case http.StatusBadRequest:
			return fmt.Errorf("line %d of payments.csv: the shop calls it a bad request", l.Number)
		case http.StatusNotFound:
			early++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// post returns the status, 0 without one.
func (p *provider) post(ctx context.Context, d delivery) int {
	body, err := json.Marshal(d)
	if err != nil {
		return 0
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
