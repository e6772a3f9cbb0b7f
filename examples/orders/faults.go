package orders

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/examples/internal/run"
)

// The kinds of fault, as they stand in the table.
const (
	killed  = "SIGKILL"
	stalled = "SIGSTOP"
)

// stallFor is longer than lease + reap: others take over what the stalled worker has claimed, and
// it does not know.
const stallFor = lease + reap + 1500*time.Millisecond

// errTooLate: all orders had ended before there was anything to disturb.
var errTooLate = errors.New("too little was left to do")

// faults disturbs the fleet half-way.
type faults struct {
	db       *pgxpool.Pool
	fleet    *fleet
	progress *run.Progress
	optional bool // in a run that resumes, too little may be left to do
}

// kill ends a worker without warning when it is in the middle of things, starts a new one in its
// place, and waits until all that the dead one had claimed runs again.
func (f *faults) kill(ctx context.Context, name string, share float64) error {
	if done, err := f.happened(ctx, killed); err != nil || done {
		return err
	}
	p := f.fleet.get(name)
	if err := f.catch(ctx, p, share); err != nil {
		return f.unlessOptional(err)
	}
	at := time.Now()
	if err := f.fleet.kill(p); err != nil {
		return err
	}
	// What it had sent before it died may still commit; after that, nothing moves.
	if err := f.waitForBackends(ctx, name, `true`); err != nil {
		return err
	}
	claims, err := f.note(ctx, killed, p, at)
	if err != nil {
		return err
	}
	f.progress.Say("%s killed (SIGKILL) with %d orders in hand; another takes its place", name, claims)
	if err := f.fleet.start(ctx, name); err != nil {
		return err
	}
	if err := f.waitUntilRetaken(ctx, claims); err != nil {
		return err
	}
	f.progress.Say("all orders of the killed %s run again, %.1f s after its death", name, time.Since(at).Seconds())
	return f.over(ctx, killed)
}

// stall stops a worker past its lease and lets it go on.
func (f *faults) stall(ctx context.Context, name string, share float64) error {
	if done, err := f.happened(ctx, stalled); err != nil || done {
		return err
	}
	p := f.fleet.get(name)
	if err := f.catch(ctx, p, share); err != nil {
		return f.unlessOptional(err)
	}
	claims, err := f.note(ctx, stalled, p, time.Now())
	if err != nil {
		return err
	}
	f.progress.Say("%s stopped (SIGSTOP) with %d orders in hand, for %v; its lease is %v", name, claims, stallFor, lease)
	if err := f.watch(ctx, stalled, stallFor); err != nil {
		return err
	}
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	f.progress.Say("%s goes on (SIGCONT), and finds that others have its orders", name)
	return f.over(ctx, stalled)
}

// catch stops a worker in the middle of things: nothing is under way to the database any more, and
// it has orders in hand.
func (f *faults) catch(ctx context.Context, p *process, share float64) error {
	for {
		if err := f.waitUntilBusy(ctx, p, share); err != nil {
			return err
		}
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if err := f.waitForBackends(ctx, p.name, `state = 'active'`); err != nil {
			return err
		}
		var busy bool
		const look = `select exists (select from gen_durable where fsm = 'checkout' and status = 'executing' and locked_by = $1)`
		if err := f.db.QueryRow(ctx, look, p.identity).Scan(&busy); err != nil {
			return fmt.Errorf("look what %s has in hand: %w", p.name, err)
		}
		if busy {
			return nil
		}
		if err := p.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
}

func (f *faults) happened(ctx context.Context, kind string) (there bool, err error) {
	err = f.db.QueryRow(ctx, `select exists (select from fault where kind = $1)`, kind).Scan(&there)
	return there, err
}

func (f *faults) unlessOptional(err error) error {
	if f.optional && errors.Is(err, errTooLate) {
		return nil
	}
	return err
}

// waitUntilBusy waits until so large a share of the orders has ended and the worker has others in
// hand, half its slots full.
func (f *faults) waitUntilBusy(ctx context.Context, p *process, share float64) error {
	const look = `select
		count(*) filter (where status = 'done') >= $1::float8 * (select count(*) from shop_order)
			and count(*) filter (where status = 'executing' and locked_by = $2) >= $3,
		count(*) filter (where status in ('done', 'failed')) = (select count(*) from shop_order)
	from gen_durable where fsm = 'checkout'`
	busy := max(2, f.fleet.settings.Concurrency/2)
	for {
		var now, late bool
		if err := f.db.QueryRow(ctx, look, share, p.identity, busy).Scan(&now, &late); err != nil {
			return fmt.Errorf("wait for %s to be busy: %w", p.name, err)
		}
		switch {
		case now:
			return nil
		case late:
			return fmt.Errorf("disturb %s: %w", p.name, errTooLate)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// waitForBackends waits until no session of the worker is in the given condition any more.
func (f *faults) waitForBackends(ctx context.Context, name, condition string) error {
	look := `select count(*) from pg_stat_activity where datname = current_database() and application_name = $1 and ` + condition
	for {
		var sessions int
		if err := f.db.QueryRow(ctx, look, name).Scan(&sessions); err != nil {
			return fmt.Errorf("look at the sessions of %s: %w", name, err)
		}
		if sessions == 0 {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// note keeps what the worker has claimed.
func (f *faults) note(ctx context.Context, kind string, p *process, at time.Time) (claims int, err error) {
	err = pgx.BeginFunc(ctx, f.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into interrupted (kind, id, token)
			select $1, id, claim_token from gen_durable where status = 'executing' and locked_by = $2 and fsm = 'checkout'`, kind, p.identity)
		if err != nil {
			return err
		}
		claims = int(tag.RowsAffected())
		_, err = tx.Exec(ctx, `insert into fault (kind, worker, at) values ($1, $2, $3)`, kind, p.name, at)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("note what %s had claimed: %w", p.name, err)
	}
	return claims, nil
}

// retaken notes which of the interrupted instances have been claimed again, and counts them.
func (f *faults) retaken(ctx context.Context, kind string) (count int, err error) {
	const mark = `with taken as (
			update interrupted i set retaken_at = clock_timestamp() from gen_durable g
			where i.kind = $1 and i.retaken_at is null and g.id = i.id and g.claim_token > i.token returning 1)
		select (select count(*) from taken) + (select count(*) from interrupted where kind = $1 and retaken_at is not null)`
	if err := f.db.QueryRow(ctx, mark, kind).Scan(&count); err != nil {
		return 0, fmt.Errorf("look what was taken over: %w", err)
	}
	return count, nil
}

func (f *faults) waitUntilRetaken(ctx context.Context, claims int) error {
	for {
		count, err := f.retaken(ctx, killed)
		if err != nil || count == claims {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d orders of the killed worker run again: %w", count, claims, err)
		}
	}
}

// watch notes for a while what is taken over.
func (f *faults) watch(ctx context.Context, kind string, long time.Duration) error {
	for end := time.Now().Add(long); time.Now().Before(end); {
		if _, err := f.retaken(ctx, kind); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (f *faults) over(ctx context.Context, kind string) error {
	_, err := f.db.Exec(ctx, `update fault set over_at = clock_timestamp() where kind = $1`, kind)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
