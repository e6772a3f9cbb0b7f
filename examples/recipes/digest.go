package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var Digest = fsm.Declare[DigestArgs, fsm.None]("digest", fsm.Queue("mail"))

type DigestArgs struct{ Customer string }

// requestDigest may be called as often as you like: each customer gets one digest an hour.
func requestDigest(ctx context.Context, eng *engine.Engine, customer string) (first bool, err error) {
	_, err = eng.Insert(ctx, Digest.New(DigestArgs{customer}).OncePer(fsm.Key("digest:"+customer), time.Hour))
	if errors.Is(err, engine.ErrThrottled) {
		return false, nil
	}
	return err == nil, err
}
