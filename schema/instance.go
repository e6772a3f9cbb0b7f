package schema

import (
	_ "embed" // of the functions
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
)

// status is the type of statuses in Postgres, an enum.
const status = "durable_status"

// guard is the correlation key while it is occupied. The statuses are an array of the enum, not of
// text: a generated column must be immutable, and the cast from an enum to text is not.
const guard = `CASE WHEN correlation_key IS NOT NULL AND status = ANY (correlation_scope) THEN correlation_key END`

// alike is equal for instances that failed alike.
const alike = `CASE WHEN status = 'failed' THEN gen_durable_fingerprint(errors, failure, queue, fsm, fsm_version) END`

// functions are those that generated columns call, as the base has them: Atlas' community edition
// does not compare functions.
//
//go:embed functions.sql
var functions string

// Instance is one instance of a machine, live or ended: a row of gen_durable (spec §2).
type Instance struct{ ent.Schema }

// Annotations names the table and its checks. Where a value may be NULL, a check has to use
// coalesce: a CHECK whose result is NULL passes.
func (Instance) Annotations() []entschema.Annotation {
	return []entschema.Annotation{
		entsql.Annotation{Table: "gen_durable"},
		TableSQL{Before: functions, Indexes: []TableIndex{
			// This one serves GC by the instances' own retention.
			{Name: "gen_durable_retained", Expression: retainedUntil, Where: "finished_at IS NOT NULL AND " + ownRetention + " >= 0"},
		}},
		Reference{Edge: "parent", Field: "parent_id", Type: "Instance", Ref: "children"},
		entsql.Checks(map[string]string{
			// With any other set, a mere change of status could collide with another instance and wedge a
			// whole queue (spec §7).
			"gen_durable_scope_check": `correlation_scope = '{}' OR correlation_scope @> ` +
				`'{runnable,executing,awaiting_signal,awaiting_children}'`,
			// The reaper finds an executing instance by its lease alone.
			"gen_durable_lease_check": `status <> 'executing' OR (locked_by IS NOT NULL AND lease_expires_at IS NOT NULL)`,
			// An infinite time does not scan into a time.Time: it would break the loop that reads it.
			"gen_durable_finite_check": `isfinite(eligible_at) AND isfinite(lease_expires_at) AND isfinite(await_deadline) AND isfinite(finished_at) ` +
				`AND isfinite(deadline)`,
			"gen_durable_times_check": `isfinite(inserted_at) AND isfinite(updated_at)`,
			// The index of the labels serves objects only, and a step could read nothing else.
			"gen_durable_labels_check": `jsonb_typeof(labels) = 'object'::text`,
			// Longer names may not fit an index entry; empty ones name nothing. Postgres reads the text of
			// each check anew in each statement that writes a row, so they are written short.
			"gen_durable_names_check": `'' <> ALL (ARRAY[fsm, step, queue, partition_key, correlation_key]) ` +
				`AND greatest(octet_length(fsm), octet_length(step), octet_length(queue), octet_length(partition_key), ` +
				`octet_length(correlation_key)) <= 512 AND fsm_version >= 1`,
			// Nothing could ever wake an instance that awaits no name.
			"gen_durable_awaits_check": `status <> 'awaiting_signal' OR ` +
				`(COALESCE(cardinality(awaits), 0) > 0 AND array_position(awaits, NULL::text) IS NULL)`,
			"gen_durable_finished_check": `(status IN ('done', 'failed')) = (finished_at IS NOT NULL)`,
			"gen_durable_failure_check":  `(status = 'failed') = (failure IS NOT NULL)`,
			"gen_durable_counts_check":   `least(children_pending, attempt, crashes, depth) >= 0 AND visit >= 0 AND depth <= 100`,
			// An instance without a partition key in lane 1 would never leave it, nor one without a gate
			// lane 3, nor one without the name of a step lane 4.
			"gen_durable_lane_check": `pick_lane BETWEEN 0 AND 5 AND (pick_lane <> 1 OR partition_key IS NOT NULL) ` +
				`AND (pick_lane <> 3 OR gate IS NOT NULL) AND (pick_lane <> 4 OR aside_step IS NOT NULL)`,
			"gen_durable_gate_check": `octet_length(gate) BETWEEN 1 AND 1200 AND (place IS NULL OR place >= 1 AND gate IS NOT NULL)`,
		}),
	}
}

// Fields returns the columns: first the columns of the base, then those that the engine adds. A
// field is named as package fsm names it, also where the column of the base has another name.
func (Instance) Fields() []ent.Field {
	return append(instanceBase(), instanceEngine()...)
}

func instanceBase() []ent.Field {
	return []ent.Field{
		field.Int64("id").GoType(fsm.ID(0)).Annotations(identity()),
		field.Text("machine").StorageKey("fsm").Comment("the machine's name"),
		field.Int("version").StorageKey("fsm_version").SchemaType(postgres("integer")).Annotations(entsql.DefaultExpr("1")).Comment("of the machine"),
		field.Text("step"),
		field.Enum("status").GoType(fsm.Status("")).Annotations(entsql.Default(string(fsm.StatusRunnable)), ColumnSQL{Enum: status}),
		field.JSON("state", json.RawMessage{}).Annotations(entsql.Default("{}")),
		field.JSON("result", json.RawMessage{}).Optional().Comment("only of a done instance"),
		field.Other("awaits", Names{}).SchemaType(postgres("text[]")).Optional().
			Comment("the signal names parked on; kept until progress"),
		field.Text("queue").Annotations(entsql.Default("default")),
		field.Int16("priority").Annotations(entsql.DefaultExpr("0")).Comment("lower is earlier"),
		field.Text("partition_key").Optional().Nillable(),
		field.Time("eligible_at").Annotations(now()),
		field.Int32("attempt").Annotations(entsql.DefaultExpr("0")).Comment("failed runs of the current visit"),
		field.Text("last_error").Optional().Nillable(),
		field.Text("locked_by").Optional().Nillable().Comment("the worker that executes it"),
		field.Time("lease_expires_at").Optional().Nillable(),
		field.Int64("parent_id").GoType(fsm.ID(0)).Optional().Nillable(),
		field.Int32("children_pending").Annotations(entsql.DefaultExpr("0")).Comment("children that have not joined yet"),
		field.Text("correlation_key").Optional().Nillable(),
		field.Other("correlation_scope", Statuses{}).SchemaType(postgres("text[]")).
			Annotations(entsql.Default("{}"), ColumnSQL{Enum: status + "[]"}).Comment("the statuses in which the key is occupied"),
		field.Text("correlation_guard").Optional().Nillable().Immutable().Annotations(ColumnSQL{Generated: guard}).
			Comment("the key while it is occupied; generated, never written"),
		field.Time("inserted_at").Immutable().Annotations(now()),
		field.Time("updated_at").Annotations(now()),
	}
}

func instanceEngine() []ent.Field {
	return []ent.Field{
		field.UUID("uid", uuid.UUID{}).Immutable().Annotations(entsql.DefaultExpr("gen_random_uuid()")).
			Comment("random identity, root of the idempotency keys: ids repeat between databases"),
		field.Int64("claim_token").Annotations(entsql.DefaultExpr("0")).Comment("fence: drawn by every claim from the sequence gen_durable_token"),
		field.Int64("visit").Annotations(entsql.DefaultExpr("0")).Comment("moves with every progress"),
		field.Int32("crashes").Annotations(entsql.DefaultExpr("0")).Comment("times the current visit lost its process"),
		field.UUID("commit_id", uuid.UUID{}).Optional().Nillable().Comment("mark of the newest commit"),
		field.Text("failure").GoType(fsm.Failure("")).Optional().Comment("why it failed"),
		field.Time("finished_at").Optional().Nillable().Comment("set exactly when terminal; what GC goes by"),
		field.Time("await_deadline").Optional().Nillable(),
		field.Bool("timed_out").Annotations(entsql.DefaultExpr("false")).Comment("the newest await ended by its deadline"),
		field.Int64("round").Annotations(entsql.DefaultExpr("0")).Comment("as a parent: the visit at which the newest children join first; negative if they are a stream"),
		field.Int64("parent_round").Annotations(entsql.DefaultExpr("0")).Comment("as a child: the parent's round it belongs to"),
		field.UUID("joined", uuid.UUID{}).Optional().Nillable().Comment("as a child: the commit that settled its join"),
		field.JSON("dropped", json.RawMessage{}).Optional().Comment("children of the round that were not inserted"),
		field.Int32("depth").Annotations(entsql.DefaultExpr("0")).Comment("nesting below the first ancestor"),
		field.Int16("pick_lane").Annotations(entsql.DefaultExpr("0")).
			Comment("hint of the pick: 0 visible, 1 behind its partition key, 2 set aside as unknown to a worker, 3 in line at its gate, 4 set aside at a step that is unknown to a worker"),
		field.Bool("paused").Annotations(entsql.DefaultExpr("false")),
		field.Time("deadline").Optional().Nillable().Comment("when it fails unless it has ended"),
		field.JSON("labels", fsm.Texts{}).Optional().Comment("what the host finds it by"),
		field.JSON("trace", fsm.Texts{}).Optional().Comment("the trace that it was inserted in"),
		field.JSON("errors", json.RawMessage{}).Optional().Comment("its newest errors, oldest first"),
		field.Int64("fingerprint").Optional().Nillable().Immutable().Annotations(ColumnSQL{Generated: alike}).
			Comment("of a failed instance: equal for those that failed alike; generated, never written"),
		field.Text("gate").Optional().Nillable().Comment("the gate at which it is in line, or of which it has a place: name, or name/value"),
		field.Text("aside_step").Optional().Nillable().Comment("the step at which it is set aside; as it is, since no index may name step"),
		field.Int32("place").Optional().Nillable().Comment("the place that it has while it executes"),
		field.Int32("seat").Optional().Nillable().Comment("the place that it has while it executes at the gate of its queue"),
		field.Text("run_gate").Optional().Nillable().Comment("the gate for whole runs of which it has a place"),
		field.Int32("run_place").Optional().Nillable().Comment("the place that it has from its first claim to its end"),
		field.Other("retain", Micros{}).SchemaType(postgres("bigint[]")).Optional().
			Comment("µs that it is kept after its end if it is done, has failed, was cancelled; negative, or NULL: as the engine's Config says"),
		field.JSON("progress", json.RawMessage{}).Optional().Comment("what its steps have published last"),
		// The policy of a round of children. It counts only while join_round = round, so that a round
		// without one needs not clear it.
		field.Int64("join_round").Optional().Nillable().Comment("the round that the policy is of"),
		field.Int32("join_size").Optional().Nillable().Comment("children of that round"),
		field.Int32("join_done").Optional().Nillable().Comment("of them, those that are done"),
		field.Int32("join_failed").Optional().Nillable().Comment("of them, those that failed"),
		field.Int32("wake_done").Optional().Nillable().Comment("so many that are done wake it"),
		field.Int32("wake_failed").Optional().Nillable().Comment("so many that failed wake it"),
		field.Int32("wake_ended").Optional().Nillable().Comment("so many that have ended wake it"),
		field.Other("losers", Rounds{}).SchemaType(postgres("bigint[]")).Optional().
			Comment("rounds whose rest is to be cancelled, oldest first; the one that it waits for is armed"),
		field.Other("graphs", Rounds{}).SchemaType(postgres("bigint[]")).Optional().
			Comment("as a root: rounds whose nodes may live, oldest first; what is left of them is cancelled once it has ended"),
		// A node of a graph waits for others with children_pending, and counts in join_failed those that
		// ended otherwise than it needs.
		field.Text("node").Optional().Nillable().Immutable().Comment("as a node of its parent's graph: its name there"),
		// These are of streams: see internal/store/commit_stream.go.
		field.Int32("stream_most").Optional().Nillable().Comment("as a parent: so many ends of its stream it is shown at most; NULL: its join is no stream"),
		field.Int64("stream_nth").Optional().Nillable().Comment("as a child in a stream: grows with the ends, in the order of their commits"),
		field.Int64("stream_visit").Optional().Nillable().Comment("as a child in a stream: the visit of its parent that was shown its end"),
	}
}

// Edges returns the inbox. The parent is a [Reference]: a foreign key would lock it for each child.
func (Instance) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("signals", Signal.Type).
			StorageKey(edge.Symbol("signals_target_id_fkey")).Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Indexes returns the indexes of gen_durable. None may name updated_at, step, state, visit or
// commit_id, not even in a predicate: a commit that keeps its claim changes those, and is heap-only
// just because no index covers them (T82).
func (Instance) Indexes() []ent.Index {
	const visible = "status = 'runnable' AND NOT paused AND "
	return []ent.Index{
		// These serve the reaper, the guard (uniqueness and address in one), and the join.
		partial("gen_durable_lease", "status = 'executing'", "lease_expires_at"),
		partial("gen_durable_correlation", "correlation_guard IS NOT NULL", "correlation_guard").Unique().
			Annotations(entsql.OpClass("text_pattern_ops")),
		// Together with the guard's, this one has all keys in the order of bytes, so that those with a
		// prefix are a range of each. It has what no longer occupies its key, or never did.
		partial("gen_durable_keyed", "correlation_key IS NOT NULL AND correlation_guard IS NULL", "correlation_key").
			Annotations(entsql.OpClass("text_pattern_ops")),
		partial("gen_durable_parent", "parent_id IS NOT NULL", "parent_id"),
		// These serve the pick. All end in id: rows of one bulk insert share eligible_at, and Postgres
		// would sort them otherwise (T83).
		partial("gen_durable_ready", visible+"pick_lane = 0", "queue", "priority", "eligible_at", "id"),
		partial("gen_durable_aside", visible+"pick_lane = 2", "queue", "machine", "version", "priority", "eligible_at", "id"),
		partial("gen_durable_stray", visible+"pick_lane = 4", "queue", "machine", "version", "aside_step", "priority", "eligible_at", "id"),
		partial("gen_durable_key", visible+"partition_key IS NOT NULL", "partition_key", "queue", "priority", "eligible_at", "id"),
		// This one is the last defence of the promise that at most one step of a key executes at a time.
		partial("gen_durable_busy", "status = 'executing' AND partition_key IS NOT NULL", "partition_key").Unique(),
		// These serve gates. The first is in the order of bytes, so that the keys of a gate are a range
		// of it. The others keep anyone from giving a place twice.
		partial("gen_durable_lines", visible+"pick_lane = 3", "queue", "gate", "priority", "eligible_at", "id").
			Annotations(entsql.OpClassColumn("gate", "text_pattern_ops")),
		partial("gen_durable_place", "place IS NOT NULL", "gate", "place").Unique(),
		partial("gen_durable_seat", "seat IS NOT NULL", "queue", "seat").Unique(),
		partial("gen_durable_run", "run_place IS NOT NULL AND finished_at IS NULL", "run_gate", "run_place").Unique(),
		// These serve GC and await timeouts.
		partial("gen_durable_finished", "finished_at IS NOT NULL", "finished_at"),
		// These serve lists and groups of failures.
		partial("gen_durable_failed", "status = 'failed'", "id").Annotations(entsql.IncludeColumns("fingerprint")),
		partial("gen_durable_alike", "fingerprint IS NOT NULL", "fingerprint", "id").Annotations(entsql.IncludeColumns("finished_at")),
		partial("gen_durable_deadline", "await_deadline IS NOT NULL", "await_deadline"),
		// These serve the sweeps of nodes to be skipped, and of children for which joins have not waited.
		partial("gen_durable_skip", visible+"pick_lane = 5", "id"),
		partial("gen_durable_losers", "losers IS NOT NULL AND (status <> 'awaiting_children' OR losers[1] <> round)"+
			" OR graphs IS NOT NULL AND finished_at IS NOT NULL", "id"),
		// This one finds a node by its name, and keeps a graph from having two of one name.
		partial("gen_durable_node", "node IS NOT NULL", "parent_id", "parent_round", "node").Unique(),
		partial("gen_durable_expiry", "deadline IS NOT NULL AND finished_at IS NULL", "deadline"),
		index.Fields("labels").StorageKey("gen_durable_labels").
			Annotations(entsql.IndexType("GIN"), entsql.OpClass("jsonb_path_ops"), entsql.IndexWhere("labels IS NOT NULL")),
	}
}

// ownRetention is the SQL of how long an instance that has ended is kept by its own retention, in
// µs. It is negative or NULL if the instance has none for how it ended.
const ownRetention = `CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END`

// retainedUntil is the SQL of when that retention ends, as a time in UTC: an index takes only what
// no setting of a session changes. The bound, a hundred years, keeps the sum a time that Postgres
// has, whatever foreign SQL has written.
const retainedUntil = `timezone('UTC', finished_at) + least(` + ownRetention + `, 3162240000000000) * interval '00:00:00.000001'`

func partial(name, where string, fields ...string) *index.Builder {
	return index.Fields(fields...).StorageKey(name).Annotations(entsql.IndexWhere(where))
}

func postgres(columnType string) map[string]string {
	return map[string]string{dialect.Postgres: columnType}
}

func now() *entsql.Annotation { return entsql.DefaultExpr("now()") }

// identity makes Postgres draw the ids, and refuse others: no statement can insert an id that the
// sequence would reach later.
func identity() ColumnSQL { return ColumnSQL{Identity: "ALWAYS"} }
