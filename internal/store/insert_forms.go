package store

// insertForm is a form of the statements that insert instances. There are several, so that an
// insertion costs nothing that none of its specs needs.
type insertForm struct {
	// keyless: no spec has a key. With ON CONFLICT Postgres takes a lock for every row, and writes
	// one record more to its log, though only rows with keys can conflict; and for the order of the
	// keys it copies and sorts them. Without it rows are inserted in input order, since no other
	// insert can wait for them.
	keyless  bool
	retained bool // some spec has a retention of its own: see insert_retain.go
	lined    bool // some spec is in line at a gate: see gate_insert.go
	claimed  bool // the rows are claimed by who inserts them: see insert_claimed.go
	nodes    bool // the children are nodes of a graph
	added    bool // to the graph of the parent of who commits
}

// forms are the statements of an insertion: for specs with keys and for others, and if some spec
// has its own retention.
type forms struct{ keyed, keyless, keyedRetained, keylessRetained *statement }

// formsOf makes the statements of an insertion in all of these forms.
func formsOf(name string, f insertForm, text func(insertForm) string) forms {
	var out forms
	out.keyed = named(name, text(f))
	f.keyless = true
	out.keyless = named(name, text(f), "keyless")
	f.retained = true
	out.keylessRetained = named(name, text(f), "keyless retained")
	f.keyless = false
	out.keyedRetained = named(name, text(f), "retained")
	return out
}

// of returns the statement for specs, and its arguments.
func (f *forms) of(c *specs, args ...any) (of *statement, all []any) {
	if c.keyed {
		return c.retain(f.keyed, f.keyedRetained, args...)
	}
	return c.retain(f.keyless, f.keylessRetained, args...)
}

var (
	insertForms      = formsOf("insert", insertForm{}, insertForm.insert)
	insertLinedForms = formsOf("insert lined", insertForm{lined: true}, insertForm.insert)
	spawnForms       = formsOf("spawn", insertForm{}, insertForm.spawn)
	spawnLinedForms  = formsOf("spawn lined", insertForm{lined: true}, insertForm.spawn)
	spawnNodesForms  = formsOf("spawn nodes", insertForm{nodes: true}, insertForm.spawn)
	addNodesForms    = formsOf("add nodes", insertForm{nodes: true, added: true}, insertForm.spawn)

	insertDrawnSQL         = named("insert", insertForm{}.drawn(), "drawn")
	insertDrawnRetainedSQL = named("insert", insertForm{retained: true}.drawn(), "drawn retained")
)

// insert inserts instances. It drops a row whose key is occupied; of two equal keys the first wins.
// $1 … $16 as rows, and behind these what the form has: gates, retentions
func (f insertForm) insert() string {
	p := parameters(16)
	return f.into() + f.numbered(&p) + f.inKeyOrder()
}

// drawn inserts those specs that one message of several holds. It inserts them in the order of
// their keys, which is the order of the messages, too, under ids that were drawn in input order. $1
// … $16 as rows $17 ids $18 retentions
func (f insertForm) drawn() string {
	p := parameters(17)
	return f.into() + f.rows(&p) + `, unnest($17::bigint[]) AS id) r ` + f.inKeyOrder()
}

// spawn inserts the children of this batch's ScheduleChildren outcomes, each for the round of its
// parent that this commit has begun. A parent without such a round had no outcome applied, and gets
// no children. The round of a stream is negative: see streamSQL. Nodes that are added are of the
// round of the child that adds them, if its outcome was applied.
//
// $1 … $16 as rows $17 the parent of each, by its place in $20 $18 depths $19 mark $20 the distinct
// parents, and of nodes $21 names $22 how many edges each waits for, its quorum as one $23 its
// quorum; NULL: none $24 of so many, and of added ones $25 the child; behind these what the form
// has: gates, retentions
func (f insertForm) spawn() string {
	p := parameters(20)
	switch {
	case f.added:
		p = 25
	case f.nodes:
		p = 24
	}
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (
  SELECT ARRAY(SELECT coalesce((SELECT ` + either(f.added, `x.parent_round`, `x.round`) + ` FROM {s}.gen_durable x WHERE ` +
		either(f.added, `x.parent_id = u.id AND x.id = $25::bigint`, `x.id = u.id`) + ` AND x.commit_id = $19::uuid), 0)
    FROM unnest($20::bigint[]) WITH ORDINALITY AS u(id, n) ORDER BY u.n) AS rounds)
INSERT INTO {s}.gen_durable (` + f.columns() + `, parent_id, parent_round, depth` +
		when(f.nodes, `, node, status, children_pending, wake_done, join_done, join_size`) + `)
OVERRIDING SYSTEM VALUE
SELECT r.id, ` + f.values() + `, r.parent, r.round, coalesce(r.depth, ($18::int[])[1])` + when(f.nodes, `,
  r.node, CASE WHEN r.edges > 0 THEN 'awaiting_children'::{s}.durable_status ELSE 'runnable' END, r.edges, r.quorum, `+
		`CASE WHEN r.quorum > 0 THEN 0 END, r.members`) + `
FROM (
  SELECT {next id} AS id, t.*, ($20::bigint[])[` + placeText + `] AS parent, (SELECT rounds FROM p)[` + placeText + `] AS round
  FROM (` + f.rows(&p) + `, unnest($17::int[]) AS place, unnest($18::int[]) AS depth` +
		when(f.nodes, `, unnest($21::text[]) AS node, unnest($22::int[]) AS edges, unnest($23::int[]) AS quorum, unnest($24::int[]) AS members`) + `) t) r
WHERE r.round <> 0 ` + either(f.keyless && !f.nodes, ``, f.inKeyOrder()) // rows of children without keys are not read back
}

const placeText = `coalesce(t.place, ($17::int[])[1])`

// into begins an insertion, up to where its rows come from.
func (f insertForm) into() string {
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO {s}.gen_durable ` + when(f.claimed, `AS g `) + `(` + f.columns() + when(f.claimed, `, status, locked_by, lease_expires_at, claim_token`) + `)
OVERRIDING SYSTEM VALUE
SELECT r.id, ` + f.values() + when(f.claimed, `, 'executing'::{s}.durable_status, $18::text, `+
		`(SELECT now FROM c) + $19::bigint * interval '1 microsecond', {next token}`) + `
FROM (`
}

// columns lists what an insertion sets.
func (f insertForm) columns() string {
	return `id, uid, fsm, fsm_version, step, queue, priority, state, partition_key, correlation_key, correlation_scope,
  eligible_at, pick_lane,` + when(f.lined, ` gate,`) + ` labels, trace, deadline` + when(f.retained, `, retain`)
}

// values lists what a spec makes of its row, from the uid on.
func (f insertForm) values() string {
	return `r.uid, ` + fsmText + `, ` + versionText + `, ` + stepText + `, ` + queueText + `, ` + priorityText + `, r.state::jsonb, r.part, r.key,
  ` + scopeText + `, ` + dueText + `, ` + laneText + `,` + when(f.lined, ` r.gate,`) + `
  r.labels::jsonb, r.trace::jsonb, (SELECT now FROM c) + r.life * interval '1 microsecond'` + when(f.retained, `, r.retain::bigint[]`)
}

// numbered lists the specs, each with an id. It draws ids in input order, which decides ties of
// the pick order; the draw is below the sort, in a subquery that Postgres does not merge since
// nextval is volatile.
func (f insertForm) numbered(p *parameters) string {
	return `SELECT {next id} AS id, t.* FROM (` + f.rows(p) + `) t) r `
}

// rows lists the specs in input order.
//
// A column in which all specs are alike has one element, if it is one that values gives to the
// others; one in which no spec has a value is NULL. unnest pads both.
//
// $1 uids $2 machines $3 versions $4 steps $5 queues $6 priorities $7 states $8 partition keys $9
// correlation keys $10 scopes $11 delays, µs $12 times $13 lanes $14 labels $15 traces $16 µs until
// the deadline. Gates and retentions have the next parameters.
func (f insertForm) rows(p *parameters) string {
	var gate, retain string
	if f.lined {
		gate = `, unnest(` + p.next() + `::text[]) AS gate`
	}
	if f.retained {
		retain = `, unnest(` + p.next() + `::text[]) AS retain`
	}
	return `SELECT unnest($1::uuid[]) AS uid, unnest($2::text[]) AS fsm, unnest($3::int[]) AS ver, unnest($4::text[]) AS step,
  unnest($5::text[]) AS queue, unnest($6::smallint[]) AS prio, unnest($7::text[]) AS state, unnest($8::text[]) AS part,
  unnest($9::text[]) AS key, unnest($10::smallint[]) AS scope, unnest($11::bigint[]) AS us, unnest($12::timestamptz[]) AS at,
  unnest($13::smallint[]) AS lane, unnest($14::text[]) AS labels, unnest($15::text[]) AS trace, unnest($16::bigint[]) AS life` + retain + gate
}

// inKeyOrder ends an insertion. Rows are inserted in key order, so that two processes that insert
// the same new keys in opposite orders do not deadlock (T52, T89): in the order of bytes, which Go
// has, too, whatever the database's collation is.
func (f insertForm) inKeyOrder() string {
	return when(!f.keyless, forKeys) + either(f.claimed, claimedText, `RETURNING id, uid`)
}

const forKeys = `ORDER BY r.key COLLATE "C" NULLS FIRST, r.id
` + refuseKeys

// refuseKeys drops a row whose key is occupied.
const refuseKeys = `ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
`

// scopeText turns fsm.Scope into the statuses in which a key is occupied. Only these five scopes
// exist (§7).
const scopeText = `CASE WHEN r.key IS NULL THEN '{}'::{s}.durable_status[] ELSE CASE coalesce(r.scope, ($10::smallint[])[1])
    WHEN 0 THEN '{runnable,executing,awaiting_signal,awaiting_children}'::{s}.durable_status[]
    WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children,done}'::{s}.durable_status[]
    WHEN 2 THEN '{runnable,executing,awaiting_signal,awaiting_children,failed}'::{s}.durable_status[]
    WHEN 3 THEN '{runnable,executing,awaiting_signal,awaiting_children,done,failed}'::{s}.durable_status[]
    ELSE '{}'::{s}.durable_status[] END END`

// These are the columns in which the specs of an insertion are mostly alike.
const (
	fsmText      = `coalesce(r.fsm, ($2::text[])[1])`
	versionText  = `coalesce(r.ver, ($3::int[])[1])`
	stepText     = `coalesce(r.step, ($4::text[])[1])`
	queueText    = `coalesce(r.queue, ($5::text[])[1])`
	priorityText = `coalesce(r.prio, ($6::smallint[])[1])`
	laneText     = `coalesce(r.lane, ($13::smallint[])[1])`
)

// dueText is the time when a spec is due, never in the past.
const dueText = `greatest(coalesce(r.at, (SELECT now FROM c) + r.us * interval '1 microsecond'), (SELECT now FROM c))`

// alike returns a column, only its first element if all are alike.
func alike[T comparable](column []T) []T {
	for i := range column {
		if column[i] != column[0] {
			return column
		}
	}
	return column[:min(1, len(column))]
}

// some returns a column, or nil if it has no values.
func some[T any](column []*T) []*T {
	for _, v := range column {
		if v != nil {
			return column
		}
	}
	return nil
}
