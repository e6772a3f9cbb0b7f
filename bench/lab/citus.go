package lab

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// Citus is a Citus cluster of a coordinator and two workers on this machine, with one database that
// spans them.
type Citus struct {
	Coordinator *Database
	Workers     []*Database
}

// citusWorkers is how many workers the cluster has.
const citusWorkers = 2

// OpenCitus starts a cluster from the Postgres in a bin directory, with the settings of a [Lab].
func OpenCitus(ctx context.Context, binaries string) (*Citus, error) {
	nodes, err := pgdev.StartCitus(ctx, binaries, citusWorkers, options(settings)...)
	if err != nil {
		return nil, err
	}
	c := &Citus{}
	const name = "gendurable_bench_citus"
	if err := nodes.Join(ctx, name); err != nil {
		return nil, errors.Join(err, nodes.Stop())
	}
	for i, node := range nodes.Nodes() {
		l, err := over(ctx, node)
		if err != nil {
			return nil, errors.Join(err, nodes.Stop())
		}
		d, err := l.attach(ctx, name)
		if err != nil {
			return nil, errors.Join(err, nodes.Stop())
		}
		if i == 0 {
			c.Coordinator = d
		} else {
			c.Workers = append(c.Workers, d)
		}
	}
	return c, nil
}

// Nodes returns the databases on the coordinator and then on the workers.
func (c *Citus) Nodes() []*Database { return append([]*Database{c.Coordinator}, c.Workers...) }

// Close stops all nodes.
func (c *Citus) Close(ctx context.Context) error {
	var err error
	for _, d := range c.Nodes() {
		err = errors.Join(err, d.conn.Close(ctx), d.lab.Close(ctx))
	}
	return err
}
