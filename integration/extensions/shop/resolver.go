package shop

import (
	"context"
	"strings"

	"github.com/gendurable/gendurable/engine"
	durable "github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/integration/extensions/shop/ent"
)

// Server resolves the fields that need more than their row.
type Server struct {
	Client *ent.Client
	Engine *engine.Engine
}

type (
	queries   struct{ *Server }
	mutations struct{ *Server }
	orders    struct{ *Server }
	instances struct{ *Server }
)

// Query resolves queries.
func (s *Server) Query() QueryResolver { return queries{s} }

// Mutation resolves mutations.
func (s *Server) Mutation() MutationResolver { return mutations{s} }

// Order resolves fields of orders.
func (s *Server) Order() OrderResolver { return orders{s} }

// Instance resolves fields of instances.
func (s *Server) Instance() InstanceResolver { return instances{s} }

// Status is a text for clients.
func (instances) Status(_ context.Context, i *durable.Instance) (string, error) {
	return string(i.Status), nil
}

// Progress is what a step has published last.
func (instances) Progress(_ context.Context, i *durable.Instance) (any, error) {
	if len(i.Progress) == 0 {
		return nil, nil
	}
	return i.Progress, nil
}

// Why says what holds an instance back. It reads a snapshot for each one, so ask for it of few.
func (s instances) Why(ctx context.Context, i *durable.Instance) (string, error) {
	causes, err := s.Engine.Admin().Why(ctx, i.ID)
	if err != nil {
		return "", err
	}
	texts := make([]string, len(causes))
	for n, c := range causes {
		texts[n] = c.String()
	}
	return strings.Join(texts, "; "), nil
}
