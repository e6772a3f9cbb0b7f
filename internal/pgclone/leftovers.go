package pgclone

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	namePrefix = "gendurable_test_"
	// leftoverAge is the age from which on a database without connections counts as one of a killed
	// test. A live test may have no connection for a moment, and clocks differ; but none does without
	// its database for so long.
	leftoverAge = time.Hour
	// leftoverMost bounds how many are dropped at a time, since a test is waiting.
	leftoverMost = 20
)

// namePattern matches exactly the names that Name makes.
var namePattern = regexp.MustCompile(`^` + namePrefix + `([0-9a-f]{8,12})_[a-z2-7]{26}$`)

// sweep drops databases of this role that killed tests have left behind. If it cannot drop one, the
// next sweep tries again: no test fails for it.
func sweep(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, `SELECT d.datname::text FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba
		WHERE r.rolname = current_user AND starts_with(d.datname, $1) ORDER BY d.datname`, namePrefix)
	if err != nil {
		return
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return
	}
	dropped := 0
	for _, name := range names {
		if dropped == leftoverMost {
			return
		}
		if !isLeftover(name) {
			continue
		}
		// Without FORCE, Postgres refuses if there is a connection.
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted(name)); err == nil {
			dropped++
		}
	}
}

func isLeftover(name string) bool {
	found := namePattern.FindStringSubmatch(name)
	if found == nil {
		return false
	}
	made, err := strconv.ParseInt(found[1], 16, 64)
	return err == nil && time.Since(time.Unix(made, 0)) > leftoverAge
}
