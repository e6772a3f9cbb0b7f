package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

type clusterCommands struct {
	Init       clusterInit       `cmd:"" help:"Record at each place which one of how many it is; again it changes nothing."`
	Status     clusterStatus     `cmd:"" help:"Show how each place stands, also those that are down."`
	Distribute clusterDistribute `cmd:"" help:"Let Citus distribute the schemas of the places, by their coordinator, while no engine works; again it changes nothing."`
	Move       clusterMove       `cmd:"" help:"Let Citus move a place to another worker, while engines work."`
	Check      clusterCheck      `cmd:"" help:"Check the places beside each other, and each as doctor does; say what is wrong, and what to do."`
	Run        clusterRun        `cmd:"" help:"Run a command at the place of the instance or the schedule that it names, else at all places, one after the other."`
	UI         clusterUI         `cmd:"" help:"Serve a dashboard of all places to this machine."                                                                       name:"ui"`
}

// placed is the part of a command that names the places.
type placed struct {
	Place []string      `env:"GENDURABLE_PLACES" help:"A place, as postgres://user@host/database#schema; once for each, in their order. Without a URL it is at --database-url, without a schema in --schema. In the variable, blanks or lines are between them." placeholder:"URL#SCHEMA" sep:"none"`
	Wait  time.Duration `default:"5s"            help:"How long to wait for a place that does not answer."`
}

// These bound --wait.
const leastWait, mostWait = time.Millisecond, 10 * time.Minute

// Validate checks the time.
func (c *placed) Validate() error {
	if c.Wait < leastWait || c.Wait > mostWait {
		return fmt.Errorf("--wait: %v, %v to %v", c.Wait, leastWait, mostWait)
	}
	return nil
}

// whereabouts are where a place is.
type whereabouts struct{ url, schema string }

// addresses reads where the places are. Its errors name a place by its number, since its text may
// hold a password.
func (c *placed) addresses(a *app) (all []whereabouts, err error) {
	words := strings.Fields(strings.Join(c.Place, " "))
	if len(words) == 0 {
		return nil, usagef("no places: give --place postgres://user@host/database#schema for each, in their order, or set GENDURABLE_PLACES")
	}
	if len(words) > cluster.MaxPlaces {
		return nil, usagef("--place: %d places, 1 to %d", len(words), cluster.MaxPlaces)
	}
	seen := map[whereabouts]int{}
	for n, word := range words {
		at, err := addressOf(word, whereabouts{a.DatabaseURL, a.Schema})
		if err != nil {
			return nil, usagef("--place: place %d: %w", n, err)
		}
		if first, taken := seen[at]; taken {
			return nil, usagef("--place: place %d: schema %q of the same database is place %d already", n, at.schema, first)
		}
		seen[at] = n
		all = append(all, at)
	}
	return all, nil
}

func addressOf(word string, usual whereabouts) (at whereabouts, err error) {
	at = usual
	server := word
	if n := strings.LastIndexByte(word, '#'); n >= 0 {
		server = word[:n]
		if at.schema, err = url.PathUnescape(word[n+1:]); err != nil || at.schema == "" {
			return at, fmt.Errorf("no schema behind the #; want postgres://user@host/database#schema")
		}
	}
	switch {
	case strings.HasPrefix(server, "postgres://"), strings.HasPrefix(server, "postgresql://"):
		at.url = server
	case server != "":
		return at, fmt.Errorf("it is no URL; want postgres://user@host/database#schema, or #schema of --database-url")
	case at.url == "":
		return at, fmt.Errorf("it has no URL, and there is no --database-url nor DATABASE_URL")
	}
	return at, nil
}

// places are the places of a cluster, each with its pool. Those on one database share it, but for
// those that Citus distributes.
type places struct {
	*cluster.Cluster

	list []cluster.Place
	meta []*pgxpool.Pool // to where each place is said to be: of a distributed one, the coordinator
}

// poolMost bounds the connections to a server.
const poolMost = 16

// open makes the pools, and waits for no place.
func (c *placed) open(ctx context.Context, a *app) (*places, error) {
	all, err := c.addresses(a)
	if err != nil {
		return nil, err
	}
	on := map[string]int{}
	for _, at := range all {
		on[at.url]++
	}
	pools := map[string]*pgxpool.Pool{}
	var list []cluster.Place
	for n, at := range all {
		if pools[at.url] == nil {
			pools[at.url], err = a.pool(ctx, "--place: place "+strconv.Itoa(n), at.url, func(config *pgxpool.Config) {
				config.MaxConns = int32(min(poolMost, max(int(config.MaxConns), on[at.url]))) //nolint:gosec // a small number
			})
			if err != nil {
				return nil, err
			}
		}
		list = append(list, cluster.Place{Pool: pools[at.url], Schema: at.schema})
	}
	meta := make([]*pgxpool.Pool, len(list))
	for n, p := range list {
		meta[n] = p.Pool
	}
	if err := c.follow(ctx, a, all, list); err != nil {
		return nil, err
	}
	made, err := cluster.New(cluster.Config{Places: list, Patience: c.Wait, Engine: engine.Config{Logger: a.logger(slog.LevelError)}})
	if err != nil {
		return nil, usagef("--place: %w", err)
	}
	return &places{made, list, meta}, nil
}

type clusterInit struct {
	placed

	Migrate bool `help:"Migrate each schema first, as migrate up does."`
}

func (*clusterInit) lasts() bool { return true }

// initialised is a place that has its record.
type initialised struct {
	Place   int      `json:"place"`
	Server  string   `json:"server"`
	Schema  string   `json:"schema"`
	Applied []string `json:"applied"` // migrations, in their order
}

// Run runs the command.
func (c *clusterInit) Run(ctx context.Context, a *app) error {
	at, before, err := c.ready(ctx, a, c.Migrate)
	if err != nil {
		return err
	}
	out := make([]initialised, len(before))
	for n, s := range before {
		out[n] = initialised{s.Place, s.Server, s.Schema, []string{}}
		if s.Migrated.State == migrations.StateCurrent {
			continue
		}
		applied, err := migrate.Migrator{Pool: at.meta[n], Schema: s.Schema, Logger: a.logger(slog.LevelWarn)}.Up(ctx)
		if err != nil {
			return &cluster.PlaceError{Place: n, Schema: s.Schema, Err: err}
		}
		out[n].Applied = some(applied)
	}
	if err := cluster.Init(ctx, at.list); err != nil {
		return err
	}
	after, err := at.Status(ctx, cluster.StatusOptions{NoCounts: true})
	if err != nil {
		return err
	}
	id := ""
	if after[0].Record != nil {
		id = after[0].Record.Cluster.String()
	}
	return a.show(map[string]any{"cluster": id, "places": out}, func(w io.Writer) {
		t := newTable("place", "server", "schema", "migrations applied")
		for _, p := range out {
			t.add(p.Place, p.Server, p.Schema, len(p.Applied))
		}
		t.write(w, a.console.width())
		fmt.Fprintf(w, "cluster %s has these %d places, for good: name them in this order\n", id, len(out))
	})
}

// ready opens the places, all of which have to answer, and to have schemas of this version unless
// they are to be migrated.
func (c *placed) ready(ctx context.Context, a *app, migrate bool) (*places, []*cluster.PlaceStatus, error) {
	at, err := c.open(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	all, err := at.Status(ctx, cluster.StatusOptions{NoCounts: true})
	if err == nil {
		err = refuse(all, migrate)
	}
	return at, all, err
}

// refuse returns why nothing can be done yet: a place does not answer, or its schema is not of this
// version.
func refuse(all []*cluster.PlaceStatus, migrate bool) error {
	var down, unfit []string
	for _, s := range all {
		switch {
		case !s.Reached:
			down = append(down, plain(s.Wrong[0]))
		case s.Migrated.State == migrations.StateNewer, s.Migrated.State == migrations.StateUnreleased,
			s.Migrated.State != migrations.StateCurrent && !migrate:
			unfit = append(unfit, fmt.Sprintf("place %d (schema %q of %s) is %s", s.Place, s.Schema, s.Server, s.Migrated.State))
		}
	}
	switch {
	case len(down) > 0:
		return &exitError{codeNoConnection, fmt.Errorf("nothing was done: all places have to answer\n  %s", strings.Join(down, "\n  "))}
	case len(unfit) > 0:
		return &exitError{codeSchema, fmt.Errorf("nothing was done: all schemas have to be current: "+
			"--migrate makes what is missing or older so, a newer one needs the gendurable of its release, an unreleased one a new schema\n  %s", strings.Join(unfit, "\n  "))}
	}
	return nil
}

type clusterStatus struct {
	placed
	counting
}

// Validate checks both parts.
func (c *clusterStatus) Validate() error { return cmp.Or(c.placed.Validate(), c.counting.Validate()) }

// Run runs the command.
func (c *clusterStatus) Run(ctx context.Context, a *app) error {
	at, err := c.open(ctx, a)
	if err != nil {
		return err
	}
	all, err := at.Status(ctx, cluster.StatusOptions{NoCounts: c.Count == 0, Counts: engine.CountsOptions{Timeout: c.Count}})
	if err != nil {
		return err
	}
	if err := a.show(map[string]any{"places": all}, func(w io.Writer) { writePlaces(w, all, a.console.width()) }); err != nil {
		return err
	}
	for _, s := range all {
		if s.Reached {
			return nil
		}
	}
	return &exitError{code: codeNoConnection}
}

func writePlaces(w io.Writer, all []*cluster.PlaceStatus, width int) {
	head := []string{"place", "server", "schema", "state", "version", "record", "cluster", "due", "oldest", "workers", "paused"}
	for _, status := range fsm.Statuses() {
		head = append(head, string(status))
	}
	t := newTable(head...)
	for _, s := range all {
		row := []any{s.Place, s.Server, s.Schema, standingOf(s), "", "", "", "", "", "", ""}
		if s.Reached {
			row[4] = s.Migrated.Current
		}
		if s.Record != nil {
			row[5], row[6] = fmt.Sprintf("%d of %d", s.Record.Place, s.Record.Of), s.Record.Cluster.String()[:8] //nolint:mnd // tells two apart
		}
		if !s.At.IsZero() {
			line := traffic{AtLeast: s.AtLeast}
			row[7], row[8], row[9], row[10] = line.waiting(s.Due), age(s.At, absent(s.Oldest)), s.Workers, s.Paused
		}
		for _, status := range fsm.Statuses() {
			count := ""
			if s.Counts != nil {
				count = strconv.FormatInt(s.Counts[status], 10)
			}
			row = append(row, count)
		}
		t.add(row...)
	}
	t.write(w, width)
	for _, s := range all {
		for _, e := range s.Wrong {
			fmt.Fprintln(w, printable(plain(e), false))
		}
	}
}

// standingOf says in a word whether a place can work.
func standingOf(s *cluster.PlaceStatus) string {
	uninitialised, wrong := false, false
	for _, e := range s.Wrong {
		uninitialised, wrong = uninitialised || errors.Is(e, cluster.ErrUninitialised), wrong || errors.Is(e, cluster.ErrPlaces)
	}
	switch {
	case !s.Reached:
		return "down"
	case s.Migrated.State != migrations.StateCurrent:
		return cmp.Or(string(s.Migrated.State), "unread")
	case wrong:
		return "wrong record"
	case uninitialised:
		return "no record"
	case s.At.IsZero():
		return "unread"
	}
	return "ok"
}
