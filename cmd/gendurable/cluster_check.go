package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/migrations"
)

type clusterCheck struct {
	placed

	Skip      []string      `help:"Skip these checks, by name." placeholder:"CHECK"`
	Retention time.Duration `default:"168h"                     help:"Report ended instances that are older than this. Set it above the longest retention of any engine."`
	Patience  time.Duration `default:"1m"                       help:"Report work that has been due, and leases that have been expired, for longer than this."`
}

// Validate checks the time and the names.
func (c *clusterCheck) Validate() error {
	if err := c.placed.Validate(); err != nil {
		return err
	}
	known := checkNames()
	for _, kind := range cluster.FaultKinds() {
		if !slices.Contains(known, string(kind)) {
			known = append(known, string(kind))
		}
	}
	for _, name := range c.Skip {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--skip: no check %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// placeFinding is what a check found at some places.
type placeFinding struct {
	Places []int `json:"places"`
	finding
}

// clusterDiagnosis is the result of cluster check.
type clusterDiagnosis struct {
	Grade    grade          `json:"grade"` // the worst
	Findings []placeFinding `json:"checks"`
}

// Run runs the command.
func (c *clusterCheck) Run(ctx context.Context, a *app) error {
	at, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	out := clusterDiagnosis{Grade: gradeOK, Findings: []placeFinding{}}
	note := func(f placeFinding) {
		if slices.Contains(c.Skip, f.Check) {
			return
		}
		out.Findings = append(out.Findings, f)
		if f.Grade == gradeFail || out.Grade == gradeOK {
			out.Grade = f.Grade
		}
	}
	for _, f := range at.Check(ctx) {
		g := gradeFail
		if f.Warning {
			g = gradeWarn
		}
		note(placeFinding{f.Places, finding{Check: string(f.Kind), Grade: g, Seen: plain(errors.New(f.Seen)), Do: f.Do}})
	}
	found, stopped := c.examine(ctx, a, at)
	for _, f := range found {
		note(f)
	}
	err = a.show(out, func(w io.Writer) { out.write(w, at.Places()) })
	switch {
	case stopped != nil || err != nil:
		return errors.Join(stopped, err)
	case out.Grade == gradeFail:
		return &exitError{code: codeUnmet}
	}
	return nil
}

// examine makes the checks of doctor: the server's once, the tables' at each place. Servers are
// examined side by side, and the places on one after the other.
func (c *clusterCheck) examine(ctx context.Context, a *app, at *places) (found []placeFinding, err error) {
	on := map[*pgxpool.Pool][]int{}
	for n, p := range at.list {
		on[p.Pool] = append(on[p.Pool], n)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, there := range on {
		all.Go(func() {
			some, stopped := c.examineServer(ctx, a, at, there)
			mu.Lock()
			defer mu.Unlock()
			found, err = append(found, some...), errors.Join(err, stopped)
		})
	}
	all.Wait()
	slices.SortStableFunc(found, func(a, b placeFinding) int { return a.Places[0] - b.Places[0] })
	return found, err
}

func (c *clusterCheck) examineServer(ctx context.Context, a *app, at *places, on []int) (found []placeFinding, err error) {
	for i, n := range on {
		there := on // that a check of the server concerns
		if i > 0 {
			there = nil
		}
		some, err := c.examinePlace(ctx, a, at.list[n], n, there)
		found = append(found, some...)
		if err != nil || some == nil { // it is down, which the cluster's own checks say
			return found, err
		}
	}
	return found, nil
}

// examinePlace makes the checks of a place's tables, and if it is the first of its server, the
// server's checks. It finds nothing where the place does not answer.
func (c *clusterCheck) examinePlace(ctx context.Context, a *app, at cluster.Place, n int, server []int) (found []placeFinding, err error) {
	one := &app{options: a.options, console: a.console}
	one.DatabaseURL, one.Schema = at.Pool.Config().ConnString(), at.Schema
	defer one.close()
	waiting, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	unfit := migrations.Check(waiting, at.Pool, at.Schema)
	if unfit != nil && !is[*migrations.SchemaError](unfit) {
		return nil, nil
	}
	p := &patient{&doctorCommand{c.Skip, c.Retention, c.Patience}, one, at.Pool, at.Schema, time.Now, usual()}
	found = []placeFinding{}
	for _, k := range checks {
		if slices.Contains(c.Skip, k.name) || k.name == "schema" || k.tables && unfit != nil || !k.tables && server == nil {
			continue
		}
		f, err := p.examine(ctx, k.name)
		if err != nil { // the findings so far are shown all the same
			return found, fmt.Errorf("cluster check got as far as %q at place %d: %w", k.name, n, err)
		}
		places := []int{n}
		if !k.tables {
			places = server
		}
		found = append(found, placeFinding{places, f})
	}
	return found, nil
}

// write writes what is wrong, and of each place how many checks found nothing.
func (d *clusterDiagnosis) write(w io.Writer, places int) {
	fine := make([]int, places)
	for _, f := range d.Findings {
		if f.Grade == gradeOK {
			for _, n := range f.Places {
				fine[n]++
			}
			continue
		}
		texts := make([]string, len(f.Places))
		for i, n := range f.Places {
			texts[i] = strconv.Itoa(n)
		}
		fmt.Fprintf(w, "%-4s  place %-5s %-14s %s\n", f.Grade, strings.Join(texts, ","), f.Check, printable(f.Seen, false))
		if f.Do != "" {
			fmt.Fprintf(w, "%33s%s\n", "→ ", printable(f.Do, false))
		}
	}
	for n, count := range fine {
		if count > 0 {
			fmt.Fprintf(w, "ok    place %-5d %d checks of doctor\n", n, count)
		}
	}
}
