package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/store"
)

// RightsError says which rights the role of the Pool lacks. It is an [ErrRights].
type RightsError struct {
	Role   string
	Grants []string // the statements that would grant them
	Err    error    // what Postgres refused; nil where Start found out before
}

func (e *RightsError) Error() string {
	text := fmt.Sprintf("%v: role %q needs: %s", ErrRights, e.Role, strings.Join(e.Grants, "; "))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is ErrRights.
func (e *RightsError) Is(target error) bool { return target == ErrRights }

// Unwrap returns the error of Postgres.
func (e *RightsError) Unwrap() error { return e.Err }

// These are the rights that each job of a role takes. The guide lists the jobs; its test runs each
// job without each of its rights.
var (
	toCheck            = slices.Concat(right("", "USAGE"), right("atlas_schema_revisions", "SELECT"))
	toDeclareSchedules = right("schedules", "SELECT", "INSERT", "UPDATE")

	// Nothing here changes a row of the history, or deletes one that is not past its retention.
	toRecord = slices.Concat(right("history", "INSERT"), right("recorded_machines", "SELECT", "INSERT", "DELETE"),
		right("gen_durable_roll_history", "EXECUTE"))

	// Postgres calls it where an instance is inserted, or its status changes.
	toFingerprint = right("gen_durable_fingerprint", "EXECUTE")

	toWrite = slices.Concat(right("", "USAGE"), right("gen_durable", "SELECT", "INSERT", "UPDATE"), right("signals", "SELECT", "INSERT"),
		right("gen_durable_id_seq", "USAGE"), toFingerprint)

	// toTake is what an insert takes beside toWrite that takes kept messages, and toKeep what a
	// message takes that is to be kept.
	toTake = right("kept_signals", "SELECT", "DELETE")
	toKeep = slices.Concat(right("kept_signals", "SELECT", "INSERT", "UPDATE", "DELETE"), right("gen_durable", "DELETE"))

	// toRule has the rights that inserts by a policy or in a window need beside toWrite.
	toRule = slices.Concat(right("windows", "SELECT", "INSERT", "UPDATE", "DELETE"), right("lost_claims", "INSERT"),
		right("history", "INSERT"))

	toWork = slices.Concat(toCheck, right("paused_queues", "SELECT"), right("gates", "SELECT"),
		right("gate_keys", "SELECT", "INSERT", "UPDATE", "DELETE"), right("gen_durable", "SELECT", "INSERT", "UPDATE", "DELETE"),
		right("signals", "SELECT", "INSERT", "UPDATE", "DELETE"), right("workers", "SELECT", "INSERT", "UPDATE", "DELETE"),
		right("lost_claims", "SELECT", "INSERT", "UPDATE", "DELETE"), right("edges", "SELECT", "INSERT", "DELETE"),
		right("definitions", "SELECT", "INSERT", "UPDATE"), toRecord,
		right("windows", "SELECT", "INSERT", "UPDATE", "DELETE"), right("kept_signals", "SELECT", "INSERT", "UPDATE", "DELETE"), toDeclareSchedules,
		right("gen_durable_id_seq", "USAGE"), right("gen_durable_token", "USAGE"), toFingerprint)

	toOperate = slices.Concat(right("", "USAGE"), right("gen_durable", "SELECT", "UPDATE"), right("edges", "SELECT"), right("lost_claims", "INSERT"), right("history", "INSERT"),
		toFingerprint)

	toPauseQueues = slices.Concat(right("", "USAGE"), right("paused_queues", "SELECT", "INSERT", "DELETE"), right("history", "INSERT"))

	toSetGates = slices.Concat(right("", "USAGE"), right("gates", "SELECT", "INSERT", "UPDATE", "DELETE"),
		right("gate_keys", "SELECT", "INSERT", "UPDATE"), right("history", "INSERT"))

	toOperateSchedules = slices.Concat(right("", "USAGE"), right("gen_durable", "SELECT", "INSERT"), right("gen_durable_id_seq", "USAGE"),
		right("schedules", "SELECT", "UPDATE", "DELETE"), right("history", "INSERT"), toFingerprint)
)

// toRead returns the rights to read tables.
func toRead(tables ...string) []store.Right {
	rights := right("", "USAGE")
	for _, table := range tables {
		rights = append(rights, right(table, "SELECT")...)
	}
	return rights
}

// right holds the privileges on an object; on "", the schema. Its 60 calls would each be a copy.
//
//go:noinline
func right(object string, privileges ...string) []store.Right {
	rights := make([]store.Right, len(privileges))
	for i, p := range privileges {
		rights[i] = store.Right{Object: object, Privilege: p}
	}
	return rights
}

// toStart returns the rights that Start itself takes.
func (e *Engine) toStart() []store.Right {
	switch {
	case e.worker != nil:
		return toWork
	case len(e.schedules) > 0:
		return slices.Concat(toCheck, toDeclareSchedules)
	default:
		return toCheck
	}
}

// checkRights returns a *[RightsError] if a worker's role lacks a right. Else the worker would
// claim, and then find that it cannot commit.
func (e *Engine) checkRights(ctx context.Context) error {
	if e.worker == nil {
		return nil
	}
	role, lacking, err := e.store.Lacking(ctx, toWork)
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		return &RightsError{Role: role, Grants: e.grants(role, lacking)}
	}
	return nil
}

// explain turns Postgres' refusal of a verb into a *[RightsError] that says what to grant.
func (e *Engine) explain(ctx context.Context, job []store.Right, err *error) {
	if _, done := errors.AsType[*RightsError](*err); done || !store.IsRefused(*err) {
		return
	}
	// Without an answer the refusal itself is returned.
	if role, lacking, failed := e.store.Lacking(ctx, job); failed == nil && len(lacking) > 0 {
		*err = &RightsError{Role: role, Grants: e.grants(role, lacking), Err: *err}
	}
}

// grants returns the statements that give a role rights, one for each object.
func (e *Engine) grants(role string, rights []store.Right) []string {
	var grants []string
	for i := 0; i < len(rights); {
		object := rights[i].Object
		var privileges []string
		for ; i < len(rights) && rights[i].Object == object; i++ {
			privileges = append(privileges, rights[i].Privilege)
		}
		on := pgx.Identifier{e.config.Schema, object}.Sanitize()
		switch {
		case object == "":
			on = "SCHEMA " + pgx.Identifier{e.config.Schema}.Sanitize()
		case privileges[0] == "USAGE":
			on = "SEQUENCE " + on
		case privileges[0] == "EXECUTE":
			on = "FUNCTION " + on
		}
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(privileges, ", "), on, pgx.Identifier{role}.Sanitize()))
	}
	return grants
}
