package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type Edit struct{ Document string }

var Reindex = fsm.Declare[Edit, fsm.None]("reindex")

// edited is called after each edit.
func edited(ctx context.Context, eng *engine.Engine, document string) error {
	key := "reindex:" + document
	_, err := eng.Insert(ctx, Reindex.New(Edit{document}).Debounce(fsm.Key(key), time.Minute, 15*time.Minute).PartitionKey(key))
	return err
}

type reindex struct {
	index func(ctx context.Context, document string) error // reads the document, and indexes what it says
}

func (m reindex) definition() fsm.Definition {
	return Reindex.Job(func(ctx context.Context, e Edit) (fsm.None, error) {
		return fsm.None{}, m.index(ctx, e.Document)
	}).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited})
}
