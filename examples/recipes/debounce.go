package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type Document struct{ ID string }

var Reindex = fsm.Declare[Document, fsm.None]("reindex")

// edited is called after each edit.
func edited(ctx context.Context, eng *engine.Engine, document string) error {
	key := "reindex:" + document
	_, err := eng.Insert(ctx, Reindex.New(Document{document}).Debounce(fsm.Key(key), 5*time.Second, time.Minute).PartitionKey(key))
	return err
}

type reindex struct {
	index func(ctx context.Context, document string) error // reads the document, and indexes what it says
}

func (m reindex) definition() fsm.Definition {
	return Reindex.Job(func(ctx context.Context, d Document) (fsm.None, error) {
		return fsm.None{}, m.index(ctx, d.ID)
	}).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited})
}
