package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrate"
)

// soak is one run.
type soak struct {
	o     Options
	began time.Time
	dir   string
	chaos *chaos
	fleet *fleet
	tally *tally
}

// Run soaks the engine. It returns nil if every check holds, every floor is reached and every kind
// of fault had an effect, and [ErrStoodStill] if only that took too long, on a machine that is to
// blame. In any case, also if ctx ends, it leaves no process and no cluster; the log stays if a
// check failed.
func Run(ctx context.Context, o Options) (err error) {
	s := &soak{o: o, began: time.Now(), chaos: newChaos(o)}
	s.say("seed %d, %d s of faults, %d workers, %d clients, an operator", o.Seed, o.Seconds, workers, clients)
	watchdog := steady.Begin()
	defer watchdog.End()
	if s.dir, err = os.MkdirTemp("", "gendurable-soak-"); err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.Keep || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
			return
		}
		s.say("log and output of the processes: %s", s.dir)
	}()
	cluster, err := pgdev.Start(ctx, pgdev.WithSetting("max_connections", "300"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	s.chaos.cluster = cluster
	if err := s.setUp(ctx); err != nil {
		return err
	}
	defer s.chaos.admin.Close()
	defer s.chaos.log.close()
	defer s.chaos.proxy.close()
	defer s.fleet.slay()
	if err := s.fleet.startAll(ctx); err != nil {
		return excused(err, watchdog, time.Since(s.began))
	}
	s.say("everyone works")
	err = s.soak(ctx)
	if err == nil || onlyLate(err) {
		// The records so far say more than a timeout does.
		err = errors.Join(err, s.settle(ctx), s.judge(ctx))
	}
	return excused(err, watchdog, time.Since(s.began))
}

// setUp makes the schema, with the triggers that record its changes, the proxy and the log.
func (s *soak) setUp(ctx context.Context) error {
	c := s.chaos
	config, err := pgxpool.ParseConfig(c.cluster.URL(""))
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off" // the soak changes the server's default
	config.ConnConfig.RuntimeParams["application_name"] = "soak"
	config.ConnConfig.RuntimeParams["jit"] = "off" // compiling a check takes longer than running it
	config.MaxConns = 8                            // a stranger keeps one
	if c.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if _, err := (migrate.Migrator{Pool: c.admin}).Up(ctx); err != nil {
		return err
	}
	if _, err := c.admin.Exec(ctx, recordSQL); err != nil {
		return fmt.Errorf("record changes: %w", err)
	}
	if err := neglect(ctx, c.admin); err != nil {
		return err
	}
	if err := bound(ctx, c.admin); err != nil {
		return err
	}
	address := net.JoinHostPort(config.ConnConfig.Host, fmt.Sprint(config.ConnConfig.Port))
	if c.proxy, err = startProxy(ctx, address); err != nil {
		return err
	}
	if c.log, err = openJournal(filepath.Join(s.dir, "log.jsonl"), "soak"); err != nil {
		return err
	}
	through, err := url.Parse(c.cluster.URL(""))
	if err != nil {
		return err
	}
	through.Host = c.proxy.address()
	record := s.o.Calls
	if record == "" {
		record = filepath.Join(s.dir, "calls.jsonl")
	}
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		return fmt.Errorf("record calls: %w", err)
	}
	s.tally = &tally{path: c.log.file.Name(), done: map[string]int64{}}
	s.fleet = &fleet{program: s.o.Program, dir: s.dir, log: c.log, seed: s.o.Seed, url: through.String(), pace: pace, calls: record}
	c.fleet = s.fleet
	return nil
}

// pace is how many undertakings all clients together begin in a second: a third more than the
// floors need.
const pace = 44

// adminPace is how many verbs an operator begins in a second: more than the floors need, since many
// find no instance.
const adminPace = 6

// soak runs the faults for the given time, and longer if the floors are not reached by then.
func (s *soak) soak(ctx context.Context) error {
	reign, over := context.WithCancelCause(ctx)
	defer over(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(reign, over)
	}()
	err := s.chaos.reign(reign)
	over(nil)
	<-watched
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// watch ends the faults in time.
func (s *soak) watch(ctx context.Context, over context.CancelCauseFunc) {
	began := time.Now()
	const between = 15 * time.Second
	for told := began; ctx.Err() == nil; pause(ctx, time.Second) {
		passed, quiet := time.Since(began), time.Since(told) < between
		if passed < s.o.duration() && quiet {
			continue
		}
		instances, signals, err := s.volume(ctx)
		if err != nil {
			continue // the server is down for a moment
		}
		missing := s.chaos.missing(instances, signals)
		if !quiet {
			told = time.Now()
			var wanted string
			if passed >= s.o.duration() && len(missing) > 0 {
				wanted = "; the floors still want " + strings.Join(missing, ", ")
			}
			s.say("%d instances, %d signals, %d kills%s", instances, signals, s.chaos.counts[killed].Load(), wanted)
		}
		if passed >= s.o.duration() && len(missing) == 0 || passed >= busy*s.o.duration() {
			over(errEnough)
			return
		}
	}
}

func (s *soak) volume(ctx context.Context) (instances, signals int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = s.chaos.admin.QueryRow(ctx, `SELECT (SELECT count(*) FROM gendurable.gen_durable), (SELECT count(*) FROM soak.signal WHERE op = 'I')`).
		Scan(&instances, &signals)
	if err != nil {
		return 0, 0, err
	}
	if err := s.tally.count(); err != nil {
		return 0, 0, err
	}
	for what, n := range s.tally.done {
		s.chaos.counts[what].Store(n)
	}
	return instances, signals, nil
}

// settle lets all undertakings come to their end, without faults, and then ends all processes in
// order.
func (s *soak) settle(ctx context.Context) error {
	s.say("faults are over; everything comes to its end")
	if err := s.fleet.finish(ctx); err != nil {
		return err
	}
	if err := hush(ctx, s.chaos.admin); err != nil {
		return err
	}
	// An instance that was lost several times in one visit waits longer each time.
	const within = 90 * time.Second
	least := math.MaxInt
	for ended := time.Now(); ; pause(ctx, 200*time.Millisecond) {
		var left int
		if err := s.chaos.admin.QueryRow(ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed')`).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if left < least {
			least, ended = left, time.Now()
		}
		if time.Since(ended) > within {
			return late("%d instances have not ended, and no other one has for %v", left, within)
		}
	}
	if err := s.fleet.stop(ctx); err != nil {
		return err
	}
	return s.unlocked(ctx)
}

// unlocked requires that no session holds an advisory lock. A session ends some time after its
// process: the proxy has to pass on that the connection is closed, and the server to notice.
func (s *soak) unlocked(ctx context.Context) error {
	const within = 20 * time.Second
	for began := time.Now(); ; pause(ctx, 50*time.Millisecond) {
		var locks []string
		err := s.chaos.admin.QueryRow(ctx, `SELECT coalesce(array_agg(format('%s of %s, which is %s (%s) since %s: %s', l.mode, a.application_name, a.state, a.wait_event,
			a.state_change, left(a.query, 60))), '{}') FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory'`).Scan(&locks)
		if err != nil || len(locks) == 0 {
			return err
		}
		if time.Since(began) > within {
			return late("%d advisory locks are left: %s", len(locks), strings.Join(locks, "; "))
		}
	}
}

// judge checks the history, the floors and the effects.
func (s *soak) judge(ctx context.Context) error {
	instances, signals, err := s.volume(ctx)
	if err != nil {
		return err
	}
	missing := s.chaos.missing(instances, signals)
	if err := load(ctx, s.chaos.admin, s.chaos.log.file.Name()); err != nil {
		return err
	}
	if err := s.tell(ctx); err != nil {
		return err
	}
	var short error
	if len(missing) > 0 {
		short = late("floors not reached: %s", strings.Join(missing, ", "))
	}
	return errors.Join(s.verify(ctx), s.recovered(ctx), short)
}

// actsSQL counts the engine's reactions to the faults.
const actsSQL = `
SELECT (SELECT count(*) FROM soak.run), (SELECT count(*) FROM soak.outcome WHERE kind = 'reap'),
  (SELECT count(*) FROM soak.outcome WHERE kind = 'release'), (SELECT count(*) FROM soak.event WHERE kind = 'stale')`

// operationsSQL counts what operators did to instances, by the status that these had.
const operationsSQL = `
SELECT coalesce(string_agg(format('%s of %s ×%s', verb, old_status, n), ', ' ORDER BY verb, n DESC), 'none')
FROM (SELECT verb, old_status, count(*) AS n FROM soak.operation GROUP BY verb, old_status) o`

// tell prints the counts.
func (s *soak) tell(ctx context.Context) error {
	c := s.chaos
	var runs, reaped, released, stale int64
	if err := c.admin.QueryRow(ctx, actsSQL).Scan(&runs, &reaped, &released, &stale); err != nil {
		return fmt.Errorf("count what the engine did: %w", err)
	}
	for _, kind := range faultKinds {
		n, of := c.cost(kind)
		s.say("%-22s %4d  (%d %s)", kind, c.counts[kind].Load(), n, of)
	}
	for _, what := range slices.Sorted(maps.Keys(s.tally.done)) {
		s.say("%-22s %4d", what, s.tally.done[what])
	}
	var operations string
	if err := c.admin.QueryRow(ctx, operationsSQL).Scan(&operations); err != nil {
		return fmt.Errorf("count what operators did: %w", err)
	}
	s.say("changes by operators: %s", operations)
	s.say("%d instances, %d signals, %d steps run, %d reaped, %d released, %d stale outcomes",
		c.counts["instances"].Load(), c.counts["signals"].Load(), runs, reaped, released, stale)
	s.say("errors of the server: %s", c.proxy.codesText())
	return nil
}

func (p *proxy) codesText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, code := range slices.Sorted(maps.Keys(p.codes)) {
		out = append(out, fmt.Sprintf("%s ×%d", code, p.codes[code]))
	}
	return strings.Join(out, ", ")
}

// say prints a line with the time since the beginning.
func (s *soak) say(format string, args ...any) {
	_, _ = io.WriteString(s.o.Out, fmt.Sprintf("%6.1f s  ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...)+"\n")
}
