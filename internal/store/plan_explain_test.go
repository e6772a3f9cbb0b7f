package store_test

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// plan is the output of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON), with the statement's text.
type plan struct {
	Text string   `json:"Query Text"`
	Plan planNode `json:"Plan"`
}

// planNode is a node of a plan.
type planNode struct {
	Type     string     `json:"Node Type"`
	Does     string     `json:"Operation"` // of ModifyTable
	Join     string     `json:"Join Type"`
	Part     string     `json:"Subplan Name"` // what the text names it, with CTE, InitPlan or SubPlan before it
	CTE      string     `json:"CTE Name"`
	Alias    string     `json:"Alias"`
	Cond     string     `json:"Index Cond"`
	Parent   string     `json:"Parent Relationship"` // what it is to the node above; InitPlan: no input of it
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Rows     float64    `json:"Actual Rows"` // per loop
	Loops    float64    `json:"Actual Loops"`
	Plans    []planNode `json:"Plans"`
}

func (n *planNode) walk(visit func(*planNode)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}

// explained is a bench with one connection that reports how Postgres executed each of its
// statements.
type explained struct {
	bench
	when  string // when its statements were planned
	plans *[]plan
	line  *store.Line
}

func (b bench) explained(when string) explained {
	b.t.Helper()
	e := explained{when: when, plans: &[]plan{}}
	e.bench = b.beside(func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			_, text, ok := strings.Cut(n.Message, "plan:\n")
			var p plan
			if ok && json.Unmarshal([]byte(text), &p) == nil {
				*e.plans = append(*e.plans, p)
			}
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = notice;
				SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off;
				SET auto_explain.log_format = json`)
			return err
		}
	})
	e.line = e.Line()
	b.t.Cleanup(func() { require.NoError(b.t, e.line.Close(context.Background())) })
	return e
}

// cost sums up the statements that were executed since the last call.
type cost struct {
	plans   []plan
	buffers int
	indexes map[string]bool
	scanned []string // tables that were read from end to end
	sorted  int      // number of rows of the largest sort
}

func (e explained) cost() cost {
	c := cost{plans: *e.plans, indexes: map[string]bool{}}
	for i := range c.plans {
		p := &c.plans[i].Plan
		c.buffers += p.Hit + p.Read
		p.walk(func(n *planNode) {
			if n.Index != "" {
				c.indexes[n.Index] = true
			}
			if n.Type == "Seq Scan" && (n.Relation == "gen_durable" || n.Relation == "signals" || n.Relation == "kept_signals") {
				c.scanned = append(c.scanned, n.Relation)
			}
			if strings.HasSuffix(n.Type, "Sort") {
				for _, below := range n.Plans {
					if below.Parent != "InitPlan" {
						c.sorted = max(c.sorted, int(below.Rows*below.Loops))
					}
				}
			}
		})
	}
	*e.plans = nil
	return c
}
