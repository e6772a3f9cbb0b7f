package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrate"
)

// onNodes are companions whose schemas Citus distributes. All are on one worker at first.
type onNodes struct {
	*companions
	nodes *pgdev.Citus
	sent  []wire // to each worker
}

func newOnNodes(t *testing.T, n int) *onNodes {
	t.Helper()
	nodes, name := pgtest.Citus(t), pgclone.Name()
	require.NoError(t, nodes.Join(t.Context(), name))
	url := nodes.Coordinator.URL(name)
	c := &onNodes{&companions{t: t, pool: pgtest.Pool(t, url), company: store.NewCompany(nil)}, nodes, make([]wire, 2)}
	c.company.Wait(time.Second, time.Minute) // a busy machine is no fault
	for i := range n {
		schema := fmt.Sprint("p", i)
		_, err := migrate.Migrator{Pool: c.pool, Schema: schema}.Up(t.Context())
		require.NoError(t, err)
		require.NoError(t, citus.Distribute(t.Context(), c.pool, schema))
		c.move(i, 0)
		pool := pgtest.Pool(t, url, func(config *pgxpool.Config) {
			citus.Follow(config, c.pool, schema)
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				to := slices.IndexFunc(nodes.Workers, func(w *pgdev.Cluster) bool { return strings.HasSuffix(address, fmt.Sprint(":", w.Port())) })
				return wireEnd{conn, &c.sent[to]}, err
			}
		})
		s := store.New(entpgx.New(pool), schema)
		s.Join(c.company)
		require.NoError(t, s.Locate(t.Context()))
		c.stores = append(c.stores, s)
	}
	return c
}

// move moves a schema to a worker.
func (c *onNodes) move(schema, worker int) {
	c.t.Helper()
	port := uint16(c.nodes.Workers[worker].Port()) //nolint:gosec // a port
	require.NoError(c.t, citus.Move(c.t.Context(), c.pool, fmt.Sprint("p", schema), "127.0.0.1", port, citus.MoveOptions{BlockWrites: true}))
}

// settles lets all stores poll until they do so by so many round trips to each worker.
func (c *onNodes) settles(trips [2]int) {
	c.t.Helper()
	for took, errs := [2]int{}, []error(nil); took != trips || errors.Join(errs...) != nil; {
		require.NoError(c.t, c.t.Context().Err())
		for _, s := range c.stores {
			s.Recover()
		}
		took = [2]int{-c.sent[0].count(), -c.sent[1].count()}
		errs = c.poll()
		took[0] += c.sent[0].count()
		took[1] += c.sent[1].count()
	}
}

// T191: schemas on one node of Citus are polled in one round trip, whatever their pools. One that
// moves leaves the rounds, keeps no other schema from them, and joins the rounds of the other node.
func TestPollsOfTheSchemasOfANode(t *testing.T) {
	t.Parallel()
	c := newOnNodes(t, 3)
	c.settles([2]int{1, 0})

	c.move(1, 1)
	errs := c.poll()
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], store.ErrElsewhere)
	require.NoError(t, errs[2])
	require.Equal(t, []bool{false, true, false}, c.outside())
	require.Equal(t, make([]error, 3), c.poll(), "the pool of the one has followed its schema")
	c.settles([2]int{1, 1})
	c.move(0, 1)
	c.move(2, 1)
	c.settles([2]int{0, 1})
}

// A store whose schema has moved before it has dialled the connection of the rounds would lead the
// others to another node.
func TestAConnectionToAnotherNodeIsNotUsed(t *testing.T) {
	t.Parallel()
	c := newOnNodes(t, 3)
	require.Equal(t, make([]error, 3), c.poll(), "each learns where it is")
	c.move(1, 1)
	_, err := c.stores[1].Poll(t.Context(), []string{"q"}, []string{"m/1"}, nil)
	require.ErrorIs(t, err, store.ErrElsewhere)
	require.Equal(t, []bool{false, true, false}, c.outside())
	c.settles([2]int{1, 1})
}
