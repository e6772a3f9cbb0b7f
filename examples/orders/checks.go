package orders

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// check is a statement about the whole run. Its query returns one line of text for each exception.
type check struct {
	holds string
	query string
}

// expected is what the CSV files alone say about each order.
var expected = fmt.Sprintf(`with expected as (
	select o.id, o.cents, p.event, p.cents as paid, p.lines, case when p.event is null then 'expired'
		when o.item = '%s' or p.cents <> o.cents then 'refunded' else 'shipped' end as fate
	from shop_order o left join (
		select order_id, event, cents, count(*) as lines from payment group by order_id, event, cents) p on p.order_id = o.id
)`, soldOut)

var checks = []check{
	{"every order has one instance, and it is done", `
		select format('order %s: %s instances, %s', o.id, count(g.id), string_agg(g.status || coalesce(': ' || g.last_error, ''), ', '))
		from shop_order o left join gen_durable g on g.fsm = 'checkout' and g.correlation_key = 'order:' || o.id
		group by o.id having count(g.id) <> 1 or bool_or(g.status <> 'done')`},
	{"every order met the fate that the CSV files give it", expected + `
		select format('order %s: %s, should be %s', e.id, coalesce(g.result->>'fate', 'none'), e.fate)
		from expected e left join gen_durable g on g.fsm = 'checkout' and g.correlation_key = 'order:' || e.id
		where g.result->>'fate' is distinct from e.fate or g.result->>'event' is distinct from e.event`},
	{"every payment of the CSV file was accepted, once", expected + `
		select format('event %s: received %s, should be %s, deliveries %s of %s', coalesce(e.event, r.event), r.cents, e.paid, r.deliveries, e.lines)
		from (select * from expected where event is not null) e full join received r on r.event = e.event
		where r.cents is distinct from e.paid or r.order_id is distinct from e.id or r.deliveries < e.lines`},
	{"each effect happened once, under its idempotency key, and no other", expected + `, due (order_id, name, cents) as (
			select id, 'shipment', cents from expected where fate = 'shipped'
			union all select id, 'refund', paid from expected where fate = 'refunded'
			union all select id, 'mail', 0 from expected
		), happened as (select order_id, name, count(*) as times, sum(cents) as cents from effect group by order_id, name)
		select format('%s of order %s: %s times, %s cents, should be %s', coalesce(d.name, h.name), coalesce(d.order_id, h.order_id),
			coalesce(h.times, 0), h.cents, coalesce(d.cents::text, 'none'))
		from due d full join happened h on h.order_id = d.order_id and h.name = d.name
		where h.times is distinct from 1 or h.cents is distinct from d.cents`},
	{"money in = money shipped + money refunded", `
		select format('in %s, out %s', i, o) from (select coalesce(sum(cents), 0) as i from received) a,
			(select coalesce(sum(cents), 0) as o from effect) b where i <> o`},
	{"whoever got no answer asked again", fmt.Sprintf(`
		select format('shipment of order %%s: %%s call', order_id, calls) from effect
		where name = 'shipment' and order_id %% %d = 0 and calls < 2`, loseAnswer)},
	{"nothing is left in hand or in an inbox", `
		select format('instance %s is executing', id) from gen_durable where status = 'executing' and fsm = 'checkout'
		union all select format('signal %s of instance %s', s.id, s.target_id) from signals s
			join gen_durable g on g.id = s.target_id where g.fsm = 'checkout'`},
	{"all that the killed worker had in hand ran again", `
		select format('instance %s', id) from interrupted where kind = '` + killed + `' and retaken_at is null`},
}

// disturbed is required of runs that were not interrupted: only then there was enough to disturb.
var disturbed = check{"a worker was killed and another stood still, both in the middle of things", `
	select format('no %s', kind) from unnest(array['` + killed + `', '` + stalled + `']) as kind
	where not exists (select from interrupted i where i.kind = kind.kind)`}

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// exceptions runs the check.
func (c check) exceptions(ctx context.Context, db querier) ([]string, error) {
	rows, err := db.Query(ctx, c.query)
	if err != nil {
		return nil, fmt.Errorf("check that %s: %w", c.holds, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("check that %s: %w", c.holds, err)
	}
	return found, nil
}

// shown is how many exceptions to a check are spelled out.
const shown = 5

// FailedError is a run that went to its end and did not hold what it should.
type FailedError struct {
	Checks []string // that failed, with the first exceptions to each
}

func (e *FailedError) Error() string { return "orders: " + strings.Join(e.Checks, "; ") }

func verify(ctx context.Context, db querier, resumed bool) (verdict string, err error) {
	all := checks
	if !resumed {
		all = append(slices.Clip(all), disturbed)
	}
	var text strings.Builder
	failed := &FailedError{}
	for _, c := range all {
		found, err := c.exceptions(ctx, db)
		if err != nil {
			return "", err
		}
		if len(found) == 0 {
			fmt.Fprintf(&text, "  ok    %s\n", c.holds)
			continue
		}
		sample := strings.Join(found[:min(shown, len(found))], "\n          ")
		fmt.Fprintf(&text, "  FAIL  %s: %d exceptions\n          %s\n", c.holds, len(found), sample)
		failed.Checks = append(failed.Checks, fmt.Sprintf("not true that %s: %d exceptions, first: %s", c.holds, len(found), found[0]))
	}
	if len(failed.Checks) > 0 {
		return text.String(), failed
	}
	return text.String(), nil
}
