//go:build !unix

package pgdev

import (
	"context"
	"errors"
)

// Option is without effect here.
type Option func()

// WithSetting is without effect here.
func WithSetting(string, string) Option { return nil }

// WithoutFsync is without effect here.
func WithoutFsync() Option { return nil }

// WithDirectory is without effect here.
func WithDirectory(string) Option { return nil }

// WithPort is without effect here.
func WithPort(int) Option { return nil }

// Cluster is none that Start would return here.
type Cluster struct{}

// Start returns an error: servers are started on Unix only.
func Start(context.Context, ...Option) (*Cluster, error) {
	return nil, errors.New("no Postgres is started on this system: install one, and set DATABASE_URL")
}

// URL is empty.
func (*Cluster) URL(string) string { return "" }

// Wait returns at once.
func (*Cluster) Wait(context.Context) error { return nil }

// Stop does nothing.
func (*Cluster) Stop() error { return nil }
