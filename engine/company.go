package engine

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/internal/store"
)

// Company lets engines of one process that work on several schemas through one pool share what they
// do while they are idle: see Config.Company. Package cluster makes one for the places of each
// pool.
type Company struct{ stores *store.Company }

// NewCompany makes a company of engines with this pool.
func NewCompany(pool *pgxpool.Pool) *Company { return &Company{store.NewCompany(pool)} }
