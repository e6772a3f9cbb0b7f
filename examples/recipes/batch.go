package recipes

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type Import struct {
	File   string
	Offset int64
	Rows   int
}

var Importing = fsm.Declare[Import, int]("import", fsm.Queue("imports"))

type importing struct {
	// read returns up to n rows from an offset, and where the next begin.
	read func(ctx context.Context, file string, offset int64, n int) (rows [][]any, next int64, err error)
}

func (m importing) definition() fsm.Definition {
	return Importing.Define(fsm.Step("start", m.chunk).To("start").Timeout(5 * time.Minute)).Retry(fsm.RetryPolicy{})
}

// chunk imports a thousand rows, in the transaction that commits how far it is.
func (m importing) chunk(ctx context.Context, v *fsm.Visit[Import, int]) (fsm.Outcome, error) {
	rows, next, err := m.read(ctx, v.State.File, v.State.Offset, 1000)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return v.Done(v.State.Rows), nil
	}
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"customer"}, []string{"id", "name"}, pgx.CopyFromRows(rows)); err != nil {
			return nil, err
		}
		return v.Next("start", Import{File: v.State.File, Offset: next, Rows: v.State.Rows + len(rows)}), nil
	}), nil
}
