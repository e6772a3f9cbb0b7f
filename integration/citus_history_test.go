package integration

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
)

// change is a change of an instance, as the trigger has written it.
type change struct {
	Seq             int64
	Op              string
	ID              int64
	Key, Was, Is    *string
	OldToken, Token *int64
	OldVisit, Visit *int64
	Crashes         *int32
}

// check reads what each node has written, and goes through it in order. Nothing is missing in
// between: each change of an instance begins where the last one has ended, also across a move. An
// instance is inserted once, ends once, and then stays as it is; its tokens never fall, and its
// visits grow one by one. Under a partition key one instance executes at a time, and each claim has
// a greater token than those before. Some claims were lost, or the faults had no effect.
func (s *citusSoak) check() {
	var history []change
	for _, node := range s.d.Nodes[1:] {
		at := pgtest.Pool(s.t, node)
		rows, err := at.Query(s.t.Context(), `SELECT * FROM soak.change`)
		require.NoError(s.t, err)
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[change])
		require.NoError(s.t, err)
		require.NotEmpty(s.t, found, "it never was the owner")
		history = append(history, found...)
	}
	slices.SortFunc(history, func(a, b change) int { return cmp.Compare(a.Seq, b.Seq) })
	last, executing, newest, lost, ended := map[int64]change{}, map[string]int64{}, map[string]int64{}, 0, 0
	for _, c := range history {
		says := fmt.Sprintf("instance %d, change %d", c.ID, c.Seq)
		before, known := last[c.ID]
		require.NotEqual(s.t, "DELETE", c.Op, says)
		require.Equal(s.t, known, c.Op == "UPDATE", says)
		if last[c.ID] = c; !known {
			continue
		}
		require.Equal(s.t, []any{*before.Is, *before.Token, *before.Visit}, []any{*c.Was, *c.OldToken, *c.OldVisit}, "%s does not go on where the last has ended", says)
		require.GreaterOrEqual(s.t, *c.Token, *c.OldToken, says)
		require.Contains(s.t, []int64{*c.OldVisit, *c.OldVisit + 1}, *c.Visit, says)
		require.NotEqual(s.t, "done", *c.Was, "%s after its end", says)
		if *c.Is == "done" {
			ended++
		}
		if *c.Crashes > *before.Crashes {
			lost++
		}
		if c.Key == nil {
			continue
		}
		if *c.Was == "executing" && *c.Is != "executing" {
			delete(executing, *c.Key)
		}
		if *c.Was != "executing" && *c.Is == "executing" {
			require.Zero(s.t, executing[*c.Key], "%s begins beside another of %s", says, *c.Key)
			require.Greater(s.t, *c.Token, newest[*c.Key], says)
			executing[*c.Key], newest[*c.Key] = c.ID, *c.Token
		}
	}
	require.Len(s.t, last, ended, "an instance that has not ended")
	require.EqualValues(s.t, s.inserted.Load(), ended)
	require.Positive(s.t, lost, "no claim was lost")
	s.t.Logf("%d orders, %d changes, %d moves, %d lost claims", ended, len(history), s.moves, lost)
}
