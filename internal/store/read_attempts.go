package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// remembered begins the expression for the errors of an instance's attempts with one more, the
// newest: the last 19, then the entry that the statement completes with `'at', …, 'kind', …,
// 'error', left(…, 1024))`. It is part of the statement that commits the error's consequence, so it
// costs no round trip. Statements for Done, and for outcomes that keep their claim, do not contain
// it. If foreign SQL has put anything but a list there, the expression replaces it: an SQL error
// here would keep the instance from failing.
const remembered = `coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, `

// AttemptError is an error of one attempt of an instance.
type AttemptError struct {
	At      time.Time `json:"at"`
	Step    string    `json:"step"`
	Visit   int64     `json:"visit"`
	Attempt int       `json:"attempt"`
	Kind    string    `json:"kind"`
	Message string    `json:"error"`
	Worker  string    `json:"worker"` // the worker that was lost; otherwise ""
}

const (
	errorsByIDSQL  = `SELECT g.errors FROM {s}.gen_durable g WHERE g.id = $1::bigint`
	errorsByKeySQL = `SELECT g.errors FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text`
)

// Errors reads the newest errors of an instance's attempts, the oldest first. It returns
// ErrNotFound if no instance has that address. It leaves out entries that it cannot read, since the
// engine has not written them.
func (s *Store) Errors(ctx context.Context, of Address) (list []AttemptError, err error) {
	found := false
	read := func(rows pgx.Rows) error {
		var text []byte
		_, err := pgx.ForEachRow(rows, []any{&text}, func() error {
			found = true
			for _, one := range own[[]json.RawMessage](text) {
				if e := own[AttemptError](one); e.Kind != "" {
					list = append(list, e)
				}
			}
			return nil
		})
		return err
	}
	if of.Key == "" {
		err = s.one(ctx, fastLock, "errors by id", errorsByIDSQL, read, of.ID)
	} else {
		err = s.one(ctx, fastLock, "errors by key", errorsByKeySQL, read, of.Key)
	}
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read the errors of %s: %w", of, err)
	}
	return list, nil
}
