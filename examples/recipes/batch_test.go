package recipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

const customers = `CREATE TABLE customer (id bigint PRIMARY KEY, name text NOT NULL)`

// source has so many rows; bad is one that Postgres refuses, and flaky how many reads fail.
type source struct {
	rows, bad int64
	flaky     int
}

func (s *source) read(_ context.Context, _ string, offset int64, n int) (rows [][]any, next int64, err error) {
	if s.flaky > 0 && offset > 0 {
		s.flaky--
		return nil, 0, errors.New("the disk is tired")
	}
	for id := offset; id < min(offset+int64(n), s.rows); id++ {
		var name any = fmt.Sprint("customer ", id)
		if s.bad > 0 && id == s.bad {
			name = nil
		}
		rows = append(rows, []any{id, name})
	}
	return rows, offset + int64(len(rows)), nil
}

func TestAFileIsImportedOnce(t *testing.T) {
	t.Parallel()
	s := &source{rows: 2500, flaky: 3}
	kit := kitWith(t, customers, importing{read: s.read}.definition())
	id := insert(t, kit, Importing.New(Import{File: "a"}))
	durabletest.RequireAdvance(t, kit, time.Hour)
	require.Equal(t, 2500, durabletest.RequireDone(t, kit, Importing, id))
	require.Equal(t, 2500, count(t, kit, `SELECT count(*) FROM customer`))
}

func TestABadRowStopsTheImportWhereItIs(t *testing.T) {
	t.Parallel()
	s := &source{rows: 2500, bad: 1700}
	kit := kitWith(t, customers, importing{read: s.read}.definition())
	id := insert(t, kit, Importing.New(Import{File: "a"}))
	durabletest.RequireAdvance(t, kit, 24*time.Hour)
	durabletest.RequireFailed(t, kit, id, fsm.FailureExhausted, "null value")
	require.Equal(t, 1000, count(t, kit, `SELECT count(*) FROM customer`), "the chunk before it stays, and nothing of its own is there")
	i, err := Importing.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, Import{File: "a", Offset: 1000, Rows: 1000}, i.State)
	attempts, err := kit.Engine.Errors(t.Context(), id)
	require.NoError(t, err)
	require.NotEmpty(t, attempts)

	s.bad = 0 // mended: an operator goes on from there
	_, err = kit.Engine.Admin().Retry(t.Context(), id)
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, 2500, durabletest.RequireDone(t, kit, Importing, id))
}
