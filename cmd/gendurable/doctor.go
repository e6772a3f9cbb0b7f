package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/migrations"
)

type doctorCommand struct {
	Skip      []string      `help:"Skip these checks, by name." placeholder:"CHECK"`
	Retention time.Duration `default:"168h"                     help:"Report ended instances that are older than this. Set it above the longest retention of any engine."`
	Patience  time.Duration `default:"1m"                       help:"Report work that has been due, and leases that have been expired, for longer than this."`
}

// grade is the result of a check.
type grade string

const (
	gradeOK   grade = "ok"
	gradeWarn grade = "warn"
	gradeFail grade = "fail"
)

// finding is what a check found. Do is what to do about it; "" if nothing.
type finding struct {
	Check string `json:"check"`
	Grade grade  `json:"grade"`
	Seen  string `json:"seen"`
	Do    string `json:"do,omitempty"`
}

func ok(format string, args ...any) finding {
	return finding{Grade: gradeOK, Seen: fmt.Sprintf(format, args...)}
}

// or returns the finding with a grade and what to do.
func (f finding) or(g grade, do string) finding {
	f.Grade, f.Do = g, do
	return f
}

// write writes the finding as text.
func (f finding) write(w io.Writer) {
	fmt.Fprintf(w, "%-4s  %-14s %s\n", f.Grade, f.Check, printable(f.Seen, false))
	if f.Do != "" {
		fmt.Fprintf(w, "%21s%s\n", "→ ", printable(f.Do, false))
	}
}

// patient is the server and the schema that the checks examine.
type patient struct {
	*doctorCommand

	app    *app
	pool   *pgxpool.Pool
	schema string
	here   func() time.Time // this machine's clock
	limits limits
}

// limits are the values from which on a check warns or fails.
type limits struct {
	// skewWarn is how far this machine's clock may be off. Leases and timers go by the server's clock,
	// so this one matters only to people who compare logs.
	skewWarn time.Duration
	// horizonWarn and horizonFail bound the age of a transaction, or of anything else that holds back
	// dead rows. An older one keeps more of them than autovacuum can make up for.
	horizonWarn, horizonFail time.Duration
	// horizonWarnXIDs and horizonFailXIDs bound the same in transactions, where no time is known.
	horizonWarnXIDs, horizonFailXIDs int64
	// deadWarn and deadFail bound the dead rows of a table. A busy queue always has some.
	deadWarn, deadFail int64
	// bloatLeast is the size in bytes below which no index counts as bloated.
	bloatLeast int64
	// walk bounds how many waiting instances are read, of each queue and lane.
	walk int
	// repeats is how many runs of one visit may have had no outcome. Two deploys cut off two.
	repeats int
	// unconverted bounds how long the table may be read for instances that could not be converted.
	unconverted time.Duration
}

// usual returns the limits of the command.
func usual() limits {
	return limits{
		skewWarn:    2 * time.Second,
		horizonWarn: 5 * time.Minute, horizonFail: time.Hour,
		horizonWarnXIDs: 1_000_000, horizonFailXIDs: 10_000_000,
		deadWarn: 10_000, deadFail: 1_000_000,
		bloatLeast:  64 << 20,
		walk:        engine.MaxLoad,
		repeats:     5,
		unconverted: 3 * time.Second,
	}
}

// check answers one question. If tables is true, it needs a current schema.
type check struct {
	name   string
	tables bool
	ask    func(*patient, context.Context) (finding, error)
}

var checks = []check{
	{"schema", false, (*patient).schemaVersion},
	{"server", false, (*patient).serverVersion},
	{"clock", false, (*patient).clock},
	{"durability", false, (*patient).durability},
	{"connections", false, (*patient).connections},
	{"proxy", false, (*patient).proxy},
	{"horizon", false, (*patient).horizon},
	{"autovacuum", true, (*patient).autovacuum},
	{"dead-rows", true, (*patient).deadRows},
	{"indexes", true, (*patient).indexes},
	{"leases", true, (*patient).leases},
	{"repeats", true, (*patient).repeats},
	{"unserved", true, (*patient).unserved},
	{"steps", true, (*patient).strays},
	{"conversions", true, (*patient).unconverted},
	{"paused-queues", true, (*patient).pausedQueues},
	{"kept-signals", true, (*patient).keptSignals},
	{"gates", true, (*patient).gates},
	{"retention", true, (*patient).retention},
	{"definitions", true, (*patient).definitions},
	{"history", true, (*patient).history},
}

// diagnosis is the result of doctor.
type diagnosis struct {
	Grade    grade     `json:"grade"` // the worst
	Findings []finding `json:"checks"`
}

// Validate checks the names.
func (c *doctorCommand) Validate() error {
	for _, name := range c.Skip {
		if !slices.ContainsFunc(checks, func(k check) bool { return k.name == name }) {
			return fmt.Errorf("--skip: no check %q; there are %s", name, strings.Join(checkNames(), ", "))
		}
	}
	return nil
}

// Run runs the command.
func (c *doctorCommand) Run(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	p := &patient{doctorCommand: c, app: a, pool: pool, schema: a.Schema, here: time.Now, limits: usual()}
	current := migrations.Check(ctx, pool, a.Schema) == nil
	out := diagnosis{Grade: gradeOK, Findings: []finding{}}
	var stopped error
	for _, k := range checks {
		if slices.Contains(c.Skip, k.name) || k.tables && !current {
			continue
		}
		f, err := p.examine(ctx, k.name)
		if err != nil { // the findings so far are shown all the same
			stopped = fmt.Errorf("doctor got as far as %q: %w", k.name, err)
			break
		}
		out.Findings = append(out.Findings, f)
		if f.Grade == gradeFail || out.Grade == gradeOK {
			out.Grade = f.Grade
		}
	}
	err := a.show(out, func(w io.Writer) {
		for _, f := range out.Findings {
			f.write(w)
		}
	})
	switch {
	case stopped != nil || err != nil:
		return errors.Join(stopped, err)
	case out.Grade == gradeFail:
		return &exitError{code: codeUnmet}
	}
	return nil
}

// examine makes one check. Its only error is that the time is up.
func (p *patient) examine(ctx context.Context, name string) (finding, error) {
	k := checks[slices.IndexFunc(checks, func(k check) bool { return k.name == name })]
	f, err := k.ask(p, ctx)
	if ctx.Err() != nil {
		return f, errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		f = finding{Seen: "could not be looked at: " + plain(err)}.or(gradeFail, "give this role the right to look, or --skip "+k.name)
	}
	f.Check = k.name
	return f, nil
}

func checkNames() (names []string) {
	for _, k := range checks {
		names = append(names, k.name)
	}
	return names
}
