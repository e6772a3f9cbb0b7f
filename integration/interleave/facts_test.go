package interleave

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// facts are the intentions and the results of a schedule's verbs, as rows of the tables that the
// invariants read.
type facts struct {
	outcomes, held, stale, claimed, sent, inserted, owned, firings, tried, landed, asked, throttled, edited, rulings, newest, shelved, looked [][]any
	refiled, closed, weighed, granted, waited, added                                                                                          [][]any
}

// These kinds of marks exist besides the kinds of outcomes.
const (
	kindKept   step.Kind = "kept"           // a next that keeps its claim
	kindReap   step.Kind = "reap"           // a sweep of expired leases
	kindExpire step.Kind = "expire"         // a sweep of instances over their deadline
	kindCancel step.Kind = "cancel"         // by an operator
	kindFamily step.Kind = "cancel family"  // by an operator, with all descendants
	kindRetry  step.Kind = "operator retry" // by an operator, of failed instances
)

// outcome notes an attempt to commit an outcome, and whether the store reported it as applied.
func (f *facts) outcome(mark, actor, worker string, e *store.Entry, applied bool) {
	kind := e.Commit.Kind
	if e.Keep {
		kind = kindKept
	}
	presented, ignored := []int64{}, []int64{}
	for _, g := range e.Claim.Awaited {
		presented = append(presented, g.ID)
	}
	if e.Commit.Kind == step.Await && e.Commit.Step == e.Claim.Step {
		ignored = presented
	}
	unless := []string{}
	if e.Commit.Unless != nil {
		unless = e.Commit.Unless.Names
	}
	f.outcomes = append(f.outcomes, []any{mark, actor, e.Claim.ID, worker, e.Claim.Token, e.Claim.Visit, kind, presented, ignored,
		len(e.Commit.Spawn), applied, unless})
	f.adds(mark, actor, e)
}

// kindOver marks the cancel of a node that adds to its graph, since that is over.
const kindOver step.Kind = "over"

// adds notes the nodes and edges that an outcome adds to its graph.
func (f *facts) adds(mark, actor string, e *store.Entry) {
	if e.Commit.Add == nil {
		return
	}
	f.mark(store.OverMark(mark), actor, kindOver)
	names := e.Commit.Add.Graph.Nodes
	for _, name := range names[:len(e.Commit.Add.Specs)] {
		f.added = append(f.added, []any{mark, e.Claim.Parent, nil, name})
	}
	for _, edge := range e.Commit.Add.Graph.Edges {
		f.added = append(f.added, []any{mark, e.Claim.Parent, names[edge.From], names[edge.To]})
	}
}

// mark notes the mark of an operation that ends instances without an outcome of theirs.
func (f *facts) mark(mark, actor string, kind step.Kind) {
	f.outcomes = append(f.outcomes, []any{mark, actor, 0, "", 0, 0, kind, []int64{}, []int64{}, 0, false, []string{}})
}

// cancelledFamily notes that an instance was cancelled with its descendants.
func (f *facts) cancelledFamily(actor string, root int64) {
	f.outcomes = append(f.outcomes, []any{uuid.NewString(), actor, root, "", 0, 0, kindFamily, []int64{}, []int64{}, 0, true, []string{}})
}

// holds notes a claim whose lease the actor may extend, or that it may release.
func (f *facts) holds(actor, worker string, c *step.Claim) {
	f.held = append(f.held, []any{actor, worker, c.ID, c.Token})
}

// gone notes that the store told the actor that its claim is no longer current.
func (f *facts) gone(actor, worker string, c *step.Claim) {
	f.stale = append(f.stale, []any{actor, worker, c.ID, c.Token, c.Visit})
}

func (f *facts) claims(actor, worker string, claims []*step.Claim) {
	for _, c := range claims {
		awaited := []int64{}
		for _, g := range c.Awaited {
			awaited = append(awaited, g.ID)
		}
		f.claimed = append(f.claimed, []any{actor, worker, c.ID, c.Token, awaited, c.FencingToken, c.Lingers})
	}
}

func (f *facts) delivery(actor string, to store.Address, name string, d store.Delivery, err error) {
	f.sent = append(f.sent, []any{actor, to.ID, to.Key, name, d.Target, d.Woken, d.Duplicate, err == nil})
}

func (f *facts) insertion(actor, key string, i store.Inserted) {
	f.inserted = append(f.inserted, []any{actor, i.ID, i.Duplicate, key})
}

// firing notes a schedule's next occurrence before and after, the keys of the fired occurrences,
// and whether all were reported.
func (f *facts) firing(actor, schedule string, was, next time.Time, keys []string, told bool) {
	f.firings = append(f.firings, []any{actor, schedule, was, next, append([]string{}, keys...), told})
}

// tries notes that a worker looks whether a schedule is due at a time.
func (f *facts) tries(schedule string, at time.Time) { f.tried = append(f.tried, []any{schedule, at}) }

// lands notes that a worker knows that nothing of a claim runs any more.
func (f *facts) lands(worker string, token int64) { f.landed = append(f.landed, []any{worker, token}) }

// asks notes whether a worker was told that a lost claim lingers under a key.
func (f *facts) asks(worker, key string, lingers bool) {
	f.asked = append(f.asked, []any{worker, key, lingers})
}

// save queues the facts for the database.
func (f *facts) save(b *pgx.Batch) {
	for table, rows := range map[string][][]any{
		`outcome VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`: f.outcomes,
		`held VALUES ($1, $2, $3, $4)`:                 f.held,
		`stale VALUES ($1, $2, $3, $4, $5)`:            f.stale,
		`claimed VALUES ($1, $2, $3, $4, $5, $6, $7)`:  f.claimed,
		`sent VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`: f.sent,
		`inserted VALUES ($1, $2, $3, $4)`:             f.inserted,
		`owned VALUES ($1::text::uuid)`:                f.owned,
		`firing VALUES ($1, $2, $3, $4, $5, $6)`:       f.firings,
		`tried VALUES ($1, $2)`:                        f.tried,
		`landed VALUES ($1, $2)`:                       f.landed,
		`asked VALUES ($1, $2, $3)`:                    f.asked,
		`throttled VALUES ($1)`:                        f.throttled,
		`edited VALUES ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8::text::jsonb, $9, $10, $11)`: f.edited,
		`ruling VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`:                                         f.rulings,
		newestCancels:                               f.newest,
		`shelved VALUES ($1, $2, $3, $4)`:           f.shelved,
		`looked VALUES ($1)`:                        f.looked,
		`refiled VALUES ($1)`:                       f.refiled,
		`closed VALUES ($1)`:                        f.closed,
		`weighed VALUES ($1)`:                       f.weighed,
		`granted VALUES ($1, $2)`:                   f.granted,
		`waited VALUES ($1, $2)`:                    f.waited,
		`added VALUES ($1::text::uuid, $2, $3, $4)`: f.added,
	} {
		for _, row := range rows {
			b.Queue("INSERT INTO interleave."+table, row...)
		}
	}
}

// refused reports whether a foreign key refused a statement.
func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23503"
}
