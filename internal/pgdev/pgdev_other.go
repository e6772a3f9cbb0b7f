//go:build !unix

package pgdev

import (
	"context"
	"errors"
)

// Option has no effect here.
type Option func()

// WithSetting has no effect here.
func WithSetting(string, string) Option { return nil }

// WithoutFsync has no effect here.
func WithoutFsync() Option { return nil }

// WithDirectory has no effect here.
func WithDirectory(string) Option { return nil }

// WithPort has no effect here.
func WithPort(int) Option { return nil }

// WithBinaries has no effect here.
func WithBinaries(string) Option { return nil }

// Cluster does not occur here: Start returns none.
type Cluster struct{}

// Start returns an error: this package starts servers on Unix only.
func Start(context.Context, ...Option) (*Cluster, error) {
	return nil, errors.New("no Postgres is started on this system: install one, and set DATABASE_URL")
}

// URL returns "".
func (*Cluster) URL(string) string { return "" }

// Wait returns at once.
func (*Cluster) Wait(context.Context) error { return nil }

// Stop does nothing.
func (*Cluster) Stop() error { return nil }
