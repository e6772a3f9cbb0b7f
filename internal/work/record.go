package work

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// diffStates bounds the states that are compared, both together, in bytes: decoding larger ones
// would cost a step more than the history is worth.
const diffStates = 1 << 20

// record returns what the history keeps of an outcome of this visit, whose step ran for some time.
func (x *execution) record(o *step.Commit, took time.Duration) *store.Record {
	if !x.m.History.Recorded() {
		return nil
	}
	r := &store.Record{Took: took, Ahead: x.ahead > 0}
	c := x.f.claim
	if x.m.History != step.KeepStates || o.State == nil || c.State == nil || len(o.State)+len(c.State) > diffStates {
		return r
	}
	_, failed := x.guarded(func() (*step.Commit, error) { // Redact is the host's code
		r.Diff = x.diff(c.Machine, c.State, o.State)
		return o, nil
	})
	if failed != nil {
		r.Diff = nil
		x.log.Warn("cannot redact the difference of two states: the history does without it", slog.Int64("instance", c.ID),
			slog.String("machine", c.Machine), slog.String("step", c.Step), slog.Any("error", failed.safe))
	}
	return r
}

// diff returns the redacted difference of two states, or nil if it is not to be kept.
func (p *process) diff(machine string, from, to json.RawMessage) json.RawMessage {
	patch := mergePatch(from, to)
	if patch == nil {
		return nil
	}
	return step.Redacted(p.config.Redact, machine, patch)
}
