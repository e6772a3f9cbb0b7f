//go:build unix

package pgdev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Citus is a throwaway Citus cluster: a coordinator and its workers, each a separate server with
// the same superuser and password. [Citus.Join] makes databases that span them.
type Citus struct {
	Coordinator *Cluster
	Workers     []*Cluster

	joining sync.Mutex // held by Join
}

// citusSettings are what each node needs. Moves replicate logically. The nodes are on one machine
// and use its loopback address, so that they encrypt nothing; by default Citus demands it.
var citusSettings = [][2]string{
	{"shared_preload_libraries", "citus"},
	{"wal_level", "logical"},
	{"max_wal_senders", "20"},
	{"max_replication_slots", "20"},
	{"max_worker_processes", "64"},
	{"max_connections", "200"},
	{"citus.node_conninfo", "sslmode=disable"},
	{"citus.local_hostname", "127.0.0.1"},
}

// StartCitus starts a coordinator and a number of workers. binaries is the bin directory of a
// Postgres for which Citus is installed. The options apply to each node.
func StartCitus(ctx context.Context, binaries string, workers int, options ...Option) (*Citus, error) {
	options = slices.Concat([]Option{
		WithBinaries(binaries),
		func(c *config) { c.settings = append(c.settings, citusSettings...) },
		withPassword(rand.Text()),
	}, options)
	c := &Citus{}
	for i := range workers + 1 {
		node, err := Start(ctx, options...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start node %d of Citus: %w", i, err), c.Stop())
		}
		if i == 0 {
			c.Coordinator = node
		} else {
			c.Workers = append(c.Workers, node)
		}
	}
	return c, nil
}

// Nodes returns the coordinator and then the workers.
func (c *Citus) Nodes() []*Cluster {
	if c.Coordinator == nil {
		return nil
	}
	return append([]*Cluster{c.Coordinator}, c.Workers...)
}

// Join makes a database on every node and the nodes one cluster for it. Distributed schemas are
// placed on workers only. One database joins at a time: beside another, Citus has been seen to lose
// a connection on which it adds a node.
func (c *Citus) Join(ctx context.Context, database string) error {
	c.joining.Lock()
	defer c.joining.Unlock()
	if err := c.OnAll(ctx, "", "SET citus.enable_create_database_propagation = off", "CREATE DATABASE "+pgx.Identifier{database}.Sanitize()); err != nil {
		return err
	}
	if err := c.OnAll(ctx, database, "CREATE EXTENSION citus"); err != nil {
		return err
	}
	statements := []string{fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.Coordinator.Port())}
	for _, worker := range c.Workers {
		statements = append(statements, fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", worker.Port()))
	}
	statements = append(statements, fmt.Sprintf("SELECT citus_set_node_property('127.0.0.1', %d, 'shouldhaveshards', false)", c.Coordinator.Port()))
	return c.Coordinator.Run(ctx, database, statements...)
}

// OnAll runs statements in a database of each node, one node after the other.
func (c *Citus) OnAll(ctx context.Context, database string, statements ...string) error {
	for _, node := range c.Nodes() {
		if err := node.Run(ctx, database, statements...); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops all nodes and removes their directories.
func (c *Citus) Stop() error {
	var err error
	for _, node := range c.Nodes() {
		err = errors.Join(err, node.Stop())
	}
	return err
}

// Port returns the port that the server listens at.
func (c *Cluster) Port() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.port
}

// Run runs statements in a database as superuser, each as a separate transaction.
func (c *Cluster) Run(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, c.URL(database))
	if err != nil {
		return fmt.Errorf("connect to a node: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// withPassword gives the superuser a password that servers share, so that they can connect to one
// another.
func withPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// passwords is the path of the file with which the server proves who it is to its peers.
func (c *Cluster) passwords() string { return filepath.Join(c.dir, "peers") }

// introduce writes that file, if the server has peers.
func (c *Cluster) introduce() error {
	if !c.peers {
		return nil
	}
	content := fmt.Sprintf("127.0.0.1:*:*:%s:%s\n", superuser, c.password)
	if err := os.WriteFile(c.passwords(), []byte(content), 0o600); err != nil {
		return fmt.Errorf("write the password of the server's peers: %w", err)
	}
	return c.account.own(c.passwords())
}
