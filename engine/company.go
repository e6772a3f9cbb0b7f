package engine

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/store"
)

// Company lets engines of one process share their polls and their heartbeats, if they work on
// several schemas through one pool: see Config.Company. Package cluster makes a Company for the
// places of each pool.
type Company struct{ stores *store.Company }

// NewCompany returns a Company for engines with this pool. Without a pool, it is for engines with
// separate pools: they share their polls while Citus has their schemas on one node.
func NewCompany(pool *pgxpool.Pool) *Company { return &Company{store.NewCompany(pool)} }
