package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/migrations"
)

// citusSQL says whether a server has Citus, in which case its schemas may be distributed.
const citusSQL = `SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL`

// follow gives each place that Citus distributes its own pool, which leads to its owner. A server
// that does not answer in time counts as a plain one: the command itself says that it is down.
func (c *placed) follow(ctx context.Context, a *app, all []whereabouts, list []cluster.Place) error {
	limited, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	on := map[*pgxpool.Pool][]int{}
	for n, p := range list {
		on[p.Pool] = append(on[p.Pool], n)
	}
	distributed := make([]bool, len(list))
	var servers sync.WaitGroup
	for pool, there := range on {
		servers.Go(func() {
			var has bool
			if pool.QueryRow(limited, citusSQL).Scan(&has) != nil || !has {
				return
			}
			for _, n := range there {
				_, _, err := citus.Owner(limited, pool, list[n].Schema)
				distributed[n] = err == nil
			}
		})
	}
	servers.Wait()
	for n, is := range distributed {
		if !is {
			continue
		}
		meta := list[n].Pool
		pool, err := a.pool(ctx, "--place: place "+strconv.Itoa(n), all[n].url, func(config *pgxpool.Config) { citus.Follow(config, meta, list[n].Schema) })
		if err != nil {
			return err
		}
		list[n].Pool = pool
	}
	return nil
}

// ownerOf returns the address of the worker that has a place.
func ownerOf(ctx context.Context, at *places, n int) (string, error) {
	host, port, err := citus.Owner(ctx, at.meta[n], at.list[n].Schema)
	return net.JoinHostPort(host, strconv.Itoa(int(port))), err
}

type clusterDistribute struct {
	placed
}

func (*clusterDistribute) lasts() bool { return true }

// distributedPlace is a place that Citus distributes.
type distributedPlace struct {
	Place  int    `json:"place"`
	Schema string `json:"schema"`
	Node   string `json:"node"` // that has its tables
}

// Run runs the command.
func (c *clusterDistribute) Run(ctx context.Context, a *app) error {
	at, before, err := c.ready(ctx, a, false)
	if err != nil {
		return err
	}
	var working []string
	for _, s := range before {
		if s.Workers > 0 {
			working = append(working, fmt.Sprintf("place %d has %d live workers", s.Place, s.Workers))
		}
	}
	if len(working) > 0 {
		return &exitError{codeConflict, fmt.Errorf("nothing was done: no engine may work meanwhile: stop all processes\n  %s", strings.Join(working, "\n  "))}
	}
	out := make([]distributedPlace, len(before))
	for n, s := range before {
		out[n] = distributedPlace{Place: n, Schema: s.Schema}
		err := citus.Distribute(ctx, at.meta[n], s.Schema)
		if err == nil {
			out[n].Node, err = ownerOf(ctx, at, n)
		}
		if err != nil {
			return &cluster.PlaceError{Place: n, Schema: s.Schema, Err: fmt.Errorf("after %d places: %w", n, err)}
		}
	}
	return a.show(map[string]any{"places": out}, func(w io.Writer) {
		t := newTable("place", "schema", "node")
		for _, p := range out {
			t.add(p.Place, p.Schema, p.Node)
		}
		t.write(w, a.console.width())
	})
}

type clusterMove struct {
	placed

	Number int    `arg:""                                                                             help:"The number of the place."`
	To     string `help:"The worker, as the nodes know it: host:port."                                placeholder:"HOST:PORT"         required:""`
	Block  bool   `help:"Copy while nobody writes: faster, and engines wait for as long as it takes."`
}

func (*clusterMove) lasts() bool { return true }

// movedPlace is the result of a move.
type movedPlace struct {
	Place  int    `json:"place"`
	Schema string `json:"schema"`
	From   string `json:"from"`
	To     string `json:"to"` // where it is now; the same as From if it was there
}

// Run runs the command.
func (c *clusterMove) Run(ctx context.Context, a *app) error {
	host, number, err := net.SplitHostPort(c.To)
	if err != nil {
		return usagef("--to: %w; want host:port", err)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || host == "" {
		return usagef("--to: %q, want host:port", c.To)
	}
	at, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	if c.Number < 0 || c.Number >= len(at.list) {
		return usagef("no place %d: there are 0 to %d", c.Number, len(at.list)-1)
	}
	schema := at.list[c.Number].Schema
	failed := func(err error) error {
		return &cluster.PlaceError{Place: c.Number, Schema: schema, Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	if err := migrations.Check(limited, at.meta[c.Number], schema); err != nil {
		return failed(err)
	}
	from, err := ownerOf(limited, at, c.Number)
	if errors.Is(err, citus.ErrNotDistributed) {
		err = fmt.Errorf("%w, which alone moves places while engines work: see \"Another server\" in the guide to clusters for how others move", err)
	}
	if err != nil {
		return failed(err)
	}
	o := citus.MoveOptions{BlockWrites: c.Block}
	if !a.JSON && a.console.interactive {
		o.Progress = func(p citus.Progress) {
			fmt.Fprintf(a.console.errs, "%s: %d of %d MB\n", p.Status, p.Copied>>20, p.Total>>20) //nolint:mnd // megabytes
		}
	}
	if err := citus.Move(ctx, at.meta[c.Number], schema, host, uint16(port), o); err != nil {
		return failed(err)
	}
	return a.show(movedPlace{c.Number, schema, from, net.JoinHostPort(host, number)}, func(w io.Writer) {
		fmt.Fprintf(w, "place %d (schema %q) is at %s\n", c.Number, schema, net.JoinHostPort(host, number))
	})
}
