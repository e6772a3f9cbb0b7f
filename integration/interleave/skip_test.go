package interleave

import (
	"context"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/internal/step"
)

// kindSkip marks a sweep of the nodes that are to be skipped.
const kindSkip step.Kind = "skip"

// skips is a sweep of the nodes that are to be skipped.
func skips(name string) verb {
	return verb{name: name, family: "skip", touches: subject | key | parent, quick: true, run: func(ctx context.Context, s *session) {
		s.insist(name, s.skipAll(ctx), s.skipAll)
	}}
}

// skipAll sweeps until a pass finds nothing: the nodes behind a node are to be skipped with it.
func (s *session) skipAll(ctx context.Context) error {
	for again := true; again; {
		mark := uuid.NewString()
		s.facts.mark(mark, s.name, kindSkip)
		got, err := s.db.Skip(ctx, mark, 0, 100)
		if err != nil {
			return err
		}
		if len(got.Refused) > 0 {
			s.fault("nodes that cannot be skipped: %v", got.Refused)
		}
		s.promoteMissed(got.Missed)
		again = len(got.Failed) > 0
	}
	return nil
}
