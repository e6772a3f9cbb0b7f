package fsm

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/gendurable/gendurable/internal/step"
)

// MaxProgressBytes bounds what [Visit.Publish] stores.
const MaxProgressBytes = 8 << 10

// Publish stores the progress of the instance, for Get, Wait, WaitParked and lists to return with
// it: any small value that encodes as JSON, of at most [MaxProgressBytes]. It is there at once,
// while the step runs, and stays, also if the step fails, until a step of the instance publishes
// again. It is for people to watch: a step should not decide by it.
//
// Each call is an update of the row, so publish a few times a second at most. Errors:
// [ErrLeaseLost] if the instance is no longer the step's, the codec's error, an [ErrTooLarge].
// Transient faults of Postgres are repeated until ctx ends. Without a database, as in unit tests,
// it only checks the value.
func (v *Visit[S, R]) Publish(ctx context.Context, progress any) error {
	return v.execution().publish(ctx, progress)
}

func (x *execution) publish(ctx context.Context, progress any) error {
	err := step.CheckType(x.env.Codec, reflect.TypeOf(progress))
	var text json.RawMessage
	if err == nil {
		text, err = encode(x.env, progress)
	}
	if err != nil {
		return fmt.Errorf("publish the progress of instance %d: %w", x.claim.ID, err)
	}
	if len(text) > MaxProgressBytes {
		return fmt.Errorf("publish the progress of instance %d: %d bytes, at most %d: %w", x.claim.ID, len(text), MaxProgressBytes, ErrTooLarge)
	}
	if x.claim.Publish == nil {
		return nil
	}
	return x.claim.Publish(ctx, text)
}

// ProgressOf decodes what the steps of an instance have published last. ok is false if they have
// published nothing. It returns a [DecodeError] if that does not fit P.
func ProgressOf[P, S, R any](from Reader, of Instance[S, R]) (progress P, ok bool, err error) {
	if len(of.Progress) == 0 {
		return progress, false, nil
	}
	progress, err = decode[P](from.Codec(), of.Progress, "progress")
	return progress, err == nil, err
}
