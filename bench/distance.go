package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
)

// distances are round trips of the network: within a rack, within a zone, and between two regions
// that are near.
var distances = []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}

// far names a distance. The first goes without a proxy.
func far(d time.Duration) string {
	if d == 0 {
		return "loopback"
	}
	return d.String()
}

// distant calls use with a change of pools that makes them go this far.
func (b *bench) distant(ctx context.Context, d time.Duration, use func(change func(*pgxpool.Config)) (report.Sample, error)) (report.Sample, error) {
	if d == 0 {
		return use(nil)
	}
	way, err := b.lab.Far(ctx, d)
	if err != nil {
		return nil, err
	}
	sample, err := use(way.Tap)
	return sample, errors.Join(err, way.Close())
}

// drainFar is D1: P1 at a distance, by how many steps may run at once.
func drainFar(_ context.Context, b *bench) (*trial, error) {
	t := &trial{}
	for _, slots := range []int{10, 100, 1000, 4000} {
		for _, d := range distances {
			// As many rows as take a second or two.
			n := b.count(min(40_000, int(float64(3*slots)/(0.0005+2*d.Seconds()))))
			name := fmt.Sprintf("%s, %d", far(d), slots)
			t.contenders = append(t.contenders, contender{name, func(ctx context.Context) (report.Sample, error) {
				return b.distant(ctx, d, func(change func(*pgxpool.Config)) (report.Sample, error) {
					return b.drainOurs(ctx, "D1", n, ours.Options{Concurrency: slots, Pool: change})
				})
			}})
			if d > 0 {
				t.checks = append(t.checks, report.Check{Label: name, Of: name, Against: fmt.Sprintf("loopback, %d", slots), By: report.Rate})
			}
		}
	}
	return t, nil
}

// poolFar is D2: P1 at five milliseconds, by the size of the pool.
func poolFar(_ context.Context, b *bench) (*trial, error) {
	n, d := b.count(30_000), distances[len(distances)-1]
	t := &trial{}
	for _, conns := range []int{2, 4, 8, 16} {
		name := fmt.Sprintf("%d connections", conns)
		t.contenders = append(t.contenders, contender{name, func(ctx context.Context) (report.Sample, error) {
			return b.distant(ctx, d, func(change func(*pgxpool.Config)) (report.Sample, error) {
				return b.drainOurs(ctx, "D2", n, ours.Options{Concurrency: b.workers, Conns: conns, Pool: change})
			})
		}})
		if conns > 2 {
			t.checks = append(t.checks, report.Check{Label: fmt.Sprint(conns), Of: name, Against: "2 connections", By: report.Rate})
		}
	}
	return t, nil
}

// startFar is D3: P5 at a distance.
func startFar(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100)
	t := &trial{}
	for _, d := range distances {
		// What the job before has left to do takes some round trips.
		idle := func() time.Duration { return gap() + 10*d }
		t.contenders = append(t.contenders, contender{far(d), func(ctx context.Context) (report.Sample, error) {
			return b.distant(ctx, d, func(change func(*pgxpool.Config)) (report.Sample, error) { return b.startsOver(ctx, n, idle, change) })
		}})
		if d > 0 {
			t.checks = append(t.checks, report.Check{Label: far(d), Of: far(d), Against: far(0), By: report.P50})
		}
	}
	return t, nil
}
