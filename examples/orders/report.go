package orders

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/examples/internal/run"
)

// report prints what became of everything, and returns a *[FailedError] if a check does not hold.
func report(ctx context.Context, db *pgxpool.Pool, progress *run.Progress, took time.Duration, resumed bool) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, part := range []func(context.Context, *pgxpool.Pool, *tabwriter.Writer) error{fates, money, deliveries, effects, interruptions} {
		if err := part(ctx, db, w); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	_ = w.Flush() // a strings.Builder takes all
	verdict, err := verify(ctx, db, resumed)
	progress.Block(fmt.Sprintf("\norders, after %.1f s\n%s\n%s", took.Seconds(), text.String(), verdict))
	return err
}

func fates(ctx context.Context, db *pgxpool.Pool, w *tabwriter.Writer) error {
	const query = `select coalesce(result->>'fate', status::text), count(*), coalesce(sum((result->>'cents')::bigint), 0)
		from gen_durable where fsm = 'checkout' group by 1 order by 2 desc`
	all := 0
	if err := each(ctx, db, query, func(fate string, count int, cents int64) {
		all += count
		fmt.Fprintf(w, "  orders\t%s\t%s\t%s\n", fate, run.Count(count), amount(cents))
	}); err != nil {
		return err
	}
	fmt.Fprintf(w, "  \tall\t%s\n", run.Count(all))
	return nil
}

func money(ctx context.Context, db *pgxpool.Pool, w *tabwriter.Writer) error {
	const query = `select 'received', count(*), coalesce(sum(cents), 0)::bigint from received
		union all select 'goods shipped', count(*), coalesce(sum(cents), 0)::bigint from effect where name = 'shipment'
		union all select 'refunded', count(*), coalesce(sum(cents), 0)::bigint from effect where name = 'refund'`
	return each(ctx, db, query, func(what string, count int, cents int64) {
		fmt.Fprintf(w, "  money\t%s\t%s\t%s\n", what, run.Count(count), amount(cents))
	})
}

func deliveries(ctx context.Context, db *pgxpool.Pool, w *tabwriter.Writer) error {
	const query = `select 'accepted', count(*) filter (where answer = 202), 0 from payment
		union all select 'known already', count(*) filter (where answer = 200), 0 from payment
		union all select 'first came too early', count(*) filter (where too_early > 0), 0 from payment`
	return each(ctx, db, query, func(what string, count int, _ int64) {
		fmt.Fprintf(w, "  payments\t%s\t%s\n", what, run.Count(count))
	})
}

func effects(ctx context.Context, db *pgxpool.Pool, w *tabwriter.Writer) error {
	const query = `select name, count(*), count(*) filter (where calls > 1) from effect group by name order by name desc`
	return each(ctx, db, query, func(name string, count int, again int64) {
		fmt.Fprintf(w, "  effects\t%s\t%s\t%s of them asked for again, done once\n", name, run.Count(count), run.Count(again))
	})
}

// interruptions tells what the faults did: how much was in hand, how much of it others ran again,
// and how much of that had already had its effect, which the idempotency key then kept from
// happening twice.
func interruptions(ctx context.Context, db *pgxpool.Pool, w *tabwriter.Writer) error {
	const query = `select f.kind, f.worker, count(i.id), count(i.retaken_at), coalesce(extract(epoch from max(i.retaken_at) - f.at), 0)::float8,
			(select count(distinct e.key) from effect e join gen_durable g on g.correlation_key = 'order:' || e.order_id
				join interrupted j on j.id = g.id and j.kind = f.kind
				where e.calls > 1 and e.first_at <= f.at and e.last_at > f.at),
			(select coalesce(sum(stale), 0)::bigint from worker k where k.name = f.worker)
		from fault f left join interrupted i on i.kind = f.kind group by f.kind, f.worker, f.at order by f.at`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return err
	}
	var kind, worker string
	var claims, retaken, repeated, stale int
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&kind, &worker, &claims, &retaken, &seconds, &repeated, &stale}, func() error {
		fmt.Fprintf(w, "  %s\t%s\t%d in hand\t%d run again elsewhere, the last after %.1f s (lease %v); %d had had their effect already\n",
			kind, worker, claims, retaken, seconds, lease, repeated)
		if kind == stalled {
			fmt.Fprintf(w, "  \t\t%d late\toutcomes refused when it went on\n", stale)
		}
		return nil
	})
	return err
}

func each(ctx context.Context, db *pgxpool.Pool, query string, line func(what string, count int, cents int64)) error {
	rows, err := db.Query(ctx, query)
	if err != nil {
		return err
	}
	var what string
	var count int
	var cents int64
	_, err = pgx.ForEachRow(rows, []any{&what, &count, &cents}, func() error {
		line(what, count, cents)
		return nil
	})
	return err
}

// amount of money as people write it.
func amount(cents int64) string { return fmt.Sprintf("%s.%02d", run.Count(cents/100), cents%100) }
