package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var Digest = fsm.Declare[DigestArgs, fsm.None]("digest", fsm.Queue("mail"))

type DigestArgs struct {
	Customer string
	Hour     time.Time
}

// requestDigest may be called as often as you like: each customer gets one digest an hour.
func requestDigest(ctx context.Context, eng *engine.Engine, customer string) (first bool, err error) {
	hour := time.Now().UTC().Truncate(time.Hour)
	key := fsm.Key("digest:" + customer + ":" + hour.Format(time.RFC3339))
	in, err := eng.GetOrInsert(ctx, Digest.New(DigestArgs{customer, hour}).Key(key).Scope(fsm.ScopeAll))
	if err != nil {
		return false, err
	}
	return !in.Duplicate, nil
}
