package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// chaos runs all faults.
type chaos struct {
	o       Options
	fleet   *fleet
	proxy   *proxy
	cluster *pgdev.Cluster
	admin   *pgxpool.Pool // beside the proxy
	log     *journal

	calm   sync.RWMutex // write-held when there must be no faults; each fault read-holds it
	server sync.Mutex   // at most one fault of the server at a time

	counts  map[string]*atomic.Int64 // faults done, by kind
	effects map[string]*atomic.Int64 // their known costs, where they are known at once
}

// fault is a kind of fault.
type fault struct {
	kind   string
	of180  int // how many in 180 seconds
	inject func(c *chaos, ctx context.Context, r *rand.Rand) error
}

// faults are more than the floors need: some find that all processes have a fault already.
var faults = []fault{
	{killed, 80, (*chaos).kill},
	{stopped, 40, (*chaos).stall},
	{restarted, 7, (*chaos).restart},
	{cut, 90, (*chaos).cut},
	{swallowed, 30, (*chaos).swallow},
	{unanswered, 60, (*chaos).unanswer},
	{terminated, 150, (*chaos).terminate},
	{readOnly, 7, (*chaos).refuseWrites},
	{exhausted, 20, (*chaos).exhaust},
	{strange, 25, (*chaos).hold},
	{frozen, 12, (*chaos).freeze},
}

const (
	rollsOf180 = 2 // how often all workers are restarted in order
	rollRest   = 3 // how many times as long as that took there are other faults, at least: a slow machine would do nothing else
)

func newChaos(o Options) *chaos {
	c := &chaos{o: o, counts: map[string]*atomic.Int64{}, effects: map[string]*atomic.Int64{}}
	for kind := range floors {
		c.counts[kind], c.effects[kind] = &atomic.Int64{}, &atomic.Int64{}
	}
	return c
}

// reign injects faults until ctx ends, and heals those that have begun before it returns. An error
// of a fault ends the soak, since it means that the soak itself is broken.
func (c *chaos) reign(ctx context.Context) error {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i, f := range faults {
		r := rand.New(rand.NewPCG(c.o.Seed, uint64(i)+100)) //nolint:gosec // repeatable
		running.Go(func() {
			every := 180 * time.Second / time.Duration(f.of180)
			pause(ctx, rand.N(every)) //nolint:gosec // where it begins
			for ctx.Err() == nil {
				began := time.Now()
				if err := c.one(ctx, f, r); err != nil {
					cancel(fmt.Errorf("%s: %w", f.kind, err))
					return
				}
				// Half of the interval is chance. The time that a fault took is part of it.
				pause(ctx, every/2+time.Duration(r.Int64N(int64(every)))-time.Since(began))
			}
		})
	}
	running.Go(func() {
		every := c.o.duration() / time.Duration(c.o.scaled(rollsOf180)+1)
		for rest := every; ; {
			pause(ctx, rest)
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			if err := c.roll(ctx); err != nil {
				cancel(fmt.Errorf("rolling restart: %w", err))
				return
			}
			rest = max(every, rollRest*time.Since(began))
		}
	})
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// errEnough ends the faults: all floors are reached.
var errEnough = errors.New("enough")

func (c *chaos) one(ctx context.Context, f fault, r *rand.Rand) error {
	c.calm.RLock()
	defer c.calm.RUnlock()
	if ctx.Err() != nil {
		return nil
	}
	return f.inject(c, ctx, r)
}

// note logs a fault and returns a function that logs its end.
func (c *chaos) note(kind, process string) (healed func()) {
	c.counts[kind].Add(1)
	c.log.write(event{Kind: evFault, Label: process, Detail: kind})
	return func() { c.log.write(event{Kind: evHealed, Label: process, Detail: kind}) }
}

// victim chooses a worker that works; nil if other faults use all of them, or the faults are over.
func (c *chaos) victim(ctx context.Context, r *rand.Rand) (*process, error) {
	p := c.fleet.take(r)
	if p == nil {
		return nil, nil
	}
	err := p.wait(ctx, p.ready, startWithin)
	if err == nil {
		return p, nil
	}
	c.fleet.giveBack(p)
	if ctx.Err() == nil {
		return nil, fmt.Errorf("wait for %s: %w", p.name, err)
	}
	return nil, nil // the faults are over
}

// kill kills a worker, like a power failure: about every other time in the middle of a step. Where
// steps are few, since the machine is slow, no other moment might ever interrupt one.
func (c *chaos) kill(ctx context.Context, r *rand.Rand) error {
	p, err := c.victim(ctx, r)
	if p == nil {
		return err
	}
	if r.IntN(2) == 0 {
		if _, err := c.halt(ctx, p); err != nil {
			return err
		}
	}
	defer c.note(killed, p.name)()
	if err := c.fleet.kill(p); err != nil {
		return err
	}
	interrupted, err := c.log.running(p.name)
	c.effects[killed].Add(int64(len(interrupted)))
	return err
}

// halt stops a worker in the middle of a step, and returns what runs. A worker that runs nothing
// for a while is not stopped.
func (c *chaos) halt(ctx context.Context, p *process) (running []event, err error) {
	for range 50 {
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
		if running, err = c.log.running(p.name); err != nil || len(running) > 0 || ctx.Err() != nil {
			break
		}
		if err := p.signal(syscall.SIGCONT); err != nil {
			return nil, err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return running, err
}

// stall stops a worker in the middle of a step, past its lease, and lets it go on.
func (c *chaos) stall(ctx context.Context, r *rand.Rand) error {
	p, err := c.victim(ctx, r)
	if p == nil {
		return err
	}
	defer c.fleet.giveBack(p)
	running, err := c.halt(ctx, p)
	defer c.note(stopped, p.name)()
	pause(ctx, lease+reap+time.Duration(r.IntN(1000))*time.Millisecond)
	// After a restart of the server, no claim is reaped for a while; and a busy machine is slow.
	late, lost := time.Now().Add(10*lease), c.lost(ctx, running)
	for lost < len(running) && ctx.Err() == nil && time.Now().Before(late) {
		pause(ctx, 50*time.Millisecond)
		lost = c.lost(ctx, running)
	}
	c.effects[stopped].Add(int64(lost))
	return errors.Join(err, p.signal(syscall.SIGCONT))
}

// lost counts the steps that ran when their worker was stopped, and are no longer that worker's.
func (c *chaos) lost(ctx context.Context, running []event) (n int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	const sql = `SELECT NOT EXISTS (SELECT FROM gendurable.gen_durable WHERE id = $1 AND claim_token <= $2 AND status = 'executing')`
	for _, e := range running {
		var gone bool
		if err := c.admin.QueryRow(ctx, sql, e.ID, e.Token).Scan(&gone); err == nil && gone { // another fault causes the error
			n++
		}
	}
	return n
}

// restart crashes Postgres: without a checkpoint, open transactions are lost, committed ones are
// kept.
func (c *chaos) restart(ctx context.Context, r *rand.Rand) error {
	c.server.Lock()
	defer c.server.Unlock()
	defer c.note(restarted, "")()
	before := len(c.proxy.all())
	if err := c.cluster.StopImmediate(); err != nil {
		return err
	}
	c.effects[restarted].Add(int64(before))
	pause(ctx, time.Duration(r.IntN(500))*time.Millisecond)
	return c.cluster.Restart(context.WithoutCancel(ctx))
}

func (c *chaos) cut(_ context.Context, r *rand.Rand) error {
	defer c.note(cut, "")()
	if c.proxy.cut(r) {
		c.effects[cut].Add(1)
	}
	return nil
}

func (c *chaos) swallow(ctx context.Context, r *rand.Rand) error {
	defer c.note(swallowed, "")()
	c.proxy.swallow(ctx, r, time.Duration(1000+r.IntN(3000))*time.Millisecond)
	return nil
}

// unanswer makes a COMMIT take effect whose answer never comes.
func (c *chaos) unanswer(ctx context.Context, r *rand.Rand) error {
	c.proxy.skip.Store(r.Int64N(20))
	for c.proxy.skip.Load() >= 0 && ctx.Err() == nil {
		pause(ctx, 10*time.Millisecond)
	}
	if c.proxy.skip.Swap(-1) < 0 {
		c.note(unanswered, "")()
	}
	return nil
}

// terminate ends sessions as an administrator does: busy ones, if there are any.
func (c *chaos) terminate(ctx context.Context, _ *rand.Rand) error {
	const sql = `SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM (SELECT pid FROM pg_stat_activity
		WHERE application_name ~ '^(worker|client|operator)' ORDER BY state = 'active' DESC, random() LIMIT 1) one`
	var done bool
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// An error means that the server is down, by another fault.
	if err := c.admin.QueryRow(ctx, sql).Scan(&done); err == nil && done {
		c.note(terminated, "")()
	}
	return nil
}

// refuseWrites makes the server look like one that is not primary yet, in a fail-over.
func (c *chaos) refuseWrites(ctx context.Context, r *rand.Rand) error {
	c.server.Lock()
	defer c.server.Unlock()
	defer c.note(readOnly, "")()
	if err := c.set(ctx, `ALTER SYSTEM SET default_transaction_read_only = on`); err != nil {
		return err
	}
	pause(ctx, time.Duration(500+r.IntN(1500))*time.Millisecond)
	return c.set(context.WithoutCancel(ctx), `ALTER SYSTEM RESET default_transaction_read_only`)
}

// set changes a setting of the server, on a connection that no fault has broken.
func (c *chaos) set(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		_, err := c.admin.Exec(ctx, sql)
		if err == nil {
			_, err = c.admin.Exec(ctx, `SELECT pg_reload_conf()`)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// exhaust takes all connections of a worker's pool away for a while.
func (c *chaos) exhaust(ctx context.Context, r *rand.Rand) error {
	p, err := c.victim(ctx, r)
	if p == nil {
		return err
	}
	defer c.fleet.giveBack(p)
	defer c.note(exhausted, p.name)()
	if err := p.signal(syscall.SIGUSR1); err != nil {
		return err
	}
	began := time.Now()
	for reported := false; !reported && ctx.Err() == nil && time.Since(began) < 6*lease; pause(ctx, 50*time.Millisecond) {
		err := c.log.recent(func(e *event) {
			if e.Kind == evExhausted && e.Process == p.name && e.At > began.UnixMicro() {
				reported = true
				if e.Count > 0 {
					c.effects[exhausted].Add(1)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rollAtOnce is how many workers are down together.
const rollAtOnce = 2

// roll restarts all workers in order, under load, with no other fault at the time: so its costs are
// its own.
func (c *chaos) roll(ctx context.Context) error {
	c.calm.Lock()
	defer c.calm.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	pause(ctx, time.Second) // until the effects of the last faults are over
	c.log.write(event{Kind: evFault, Detail: rolled})
	defer c.log.write(event{Kind: evHealed, Detail: rolled})
	for slot := 0; slot < workers; slot += rollAtOnce {
		var rolling sync.WaitGroup
		errs := make([]error, rollAtOnce)
		for i := range errs {
			rolling.Go(func() { errs[i] = c.fleet.roll(context.WithoutCancel(ctx), slot+i) })
		}
		rolling.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		c.counts[rolled].Add(rollAtOnce)
		c.effects[rolled].Add(rollAtOnce)
	}
	return nil
}
