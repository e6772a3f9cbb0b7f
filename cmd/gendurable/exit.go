package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/scaffold"
	"github.com/gendurable/gendurable/migrations"
)

// exitCode is the code that the program exits with. The numbers and the names are for scripts:
// neither changes.
type exitCode int

const (
	codeDone         exitCode = 0
	codeError        exitCode = 1
	codeUsage        exitCode = 2
	codeNotFound     exitCode = 3
	codeConflict     exitCode = 4
	codeUnmet        exitCode = 5
	codeNoConnection exitCode = 6
	codeSchema       exitCode = 7
	codeUnconfirmed  exitCode = 8
	codeTimeout      exitCode = 9
	codeInterrupted  exitCode = 130
)

// exitCodes documents the codes: the guide's table is made of it.
var exitCodes = []struct {
	code          exitCode
	name, meaning string
}{
	{codeDone, "done", "it was done"},
	{codeError, "error", "anything else went wrong; part of it may be done"},
	{codeUsage, "usage", "the command line, or a value in it, is wrong; nothing was done"},
	{codeNotFound, "not_found", "no such instance, schedule or machine, or no live instance to send a signal to"},
	{codeConflict, "conflict", "the verb does not apply to the instance as it is, its key is taken, its inbox is full, a schedule's instances must not overlap, a schema cannot be the place, or a place cannot move"},
	{codeUnmet, "unmet", "a filter matched nothing, a check of `doctor` or `cluster check` failed, `vet` found something, `migrate status` is not current, the instance waited for has failed"},
	{codeNoConnection, "no_connection", "the database cannot be reached"},
	{codeSchema, "schema", "the schema is missing, older or newer than this program"},
	{codeUnconfirmed, "unconfirmed", "not confirmed; nothing was done"},
	{codeTimeout, "timeout", "the time of `--timeout`, `--for` or `--count` was up"},
	{codeInterrupted, "interrupted", "by a signal"},
}

func (c exitCode) String() string {
	for _, one := range exitCodes {
		if one.code == c {
			return one.name
		}
	}
	return fmt.Sprintf("code %d", int(c))
}

// exitError is an error with the program's exit code. Without an Err, everything has been written
// already.
type exitError struct {
	code exitCode
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return e.code.String()
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{codeUsage, fmt.Errorf(format, args...)}
}

// codeOf returns the code of an error; for several joined ones, the first in this order.
func codeOf(err error) exitCode {
	if err == nil {
		return codeDone
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	for _, question := range []struct {
		code exitCode
		asks func(error) bool
	}{
		{codeSchema, is[*migrations.SchemaError]},
		{codeNotFound, anyOf(engine.ErrNotFound, engine.ErrNoTarget, engine.ErrNoSchedule)},
		{codeConflict, anyOf(engine.ErrConflict, engine.ErrDuplicate, engine.ErrInboxFull, cluster.ErrPlaces, cluster.ErrStrays,
			citus.ErrNotDistributed, citus.ErrCoordinator, citus.ErrNode, citus.ErrEpochs)},
		{codeUsage, is[*engine.BoundsError]},
		{codeUsage, is[*engine.VerbError]},
		{codeUsage, is[*engine.QueryError]},
		{codeUsage, is[*engine.InsertError]},
		{codeUsage, is[*fsm.MessageError]},
		{codeUsage, is[*scaffold.Error]},
		{codeTimeout, anyOf(context.DeadlineExceeded, engine.ErrCounts)},
		{codeNoConnection, is[*pgconn.ConnectError]},
	} {
		if question.asks(err) {
			return question.code
		}
	}
	return codeError
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func anyOf(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// remedies says what to do about an error of Postgres, by SQLSTATE.
var remedies = map[string]string{
	"42501": "this role lacks a right: see \"Rights\" in the guide to operations",
	"42P01": "a table is missing: gendurable migrate status says whether the schema is as this program needs it",
	"53300": "the server has no connection left: gendurable doctor counts them",
	"25006": "this is a standby, or a read-only session: point at the primary",
}

// plain returns the text of an error for people, without the prefix "gendurable: ", and without the
// repetition of an error that a driver got twice.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "gendurable: ", "")
	return strings.TrimSpace(strings.Join(slices.Compact(strings.Split(text, "\n")), "\n"))
}

// said returns the plain text, and the remedy if there is one.
func said(err error) string {
	text := plain(err)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && remedies[refused.Code] != "" {
		text += "\n  " + remedies[refused.Code]
	}
	return text
}
