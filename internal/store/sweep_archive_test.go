package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// Instances are archived before they are deleted, children before their parents, and nothing that
// stays. A queue whose archive fails keeps its instances, and no other queue does.
func TestPruneArchives(t *testing.T) {
	b := newBench(t)
	parent := b.ended("failed", 40, "round", "1")
	child := b.ended("done", 40, "parent_id, parent_round", "$1, 1", parent)
	stays := b.ended("done", 1, "", "")
	var broken []int64
	for range 250 { // three calls, if the first did not fail
		broken = append(broken, b.ended("done", 50, "queue", "'broken'"))
	}
	other := b.ended("done", 30, "queue", "'other'")
	p := aDay
	p.Limit = 1000
	var calls [][]int64
	brokenCalls, works := 0, false
	p.Archive = func(_ context.Context, queue string, ids []int64) error {
		for _, id := range ids {
			require.Equal(t, 1, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE id = $1`, id), "it is there still")
		}
		if queue == "broken" {
			if brokenCalls++; !works {
				return errors.New("no space left")
			}
			require.LessOrEqual(t, len(ids), 100)
			return nil
		}
		calls = append(calls, ids)
		return nil
	}
	got := b.prune(p)
	require.Equal(t, 3, got.Instances)
	require.EqualError(t, got.Kept["broken"], "no space left")
	require.Len(t, got.Kept, 1)
	require.Equal(t, 1, brokenCalls, "the rest of the queue is left for the next sweep")
	require.Equal(t, [][]int64{{child}, {other}, {parent}}, calls)
	require.Equal(t, append([]int64{stays}, broken...), b.left())

	works = true
	require.Equal(t, store.Pruned{Instances: 250}, b.prune(p))
	require.Equal(t, 4, brokenCalls)
	require.Equal(t, []int64{stays}, b.left())
}

// What an operator revives while it is archived is not deleted.
func TestPruneSparesWhatIsRevivedWhileItIsArchived(t *testing.T) {
	b := newBench(t)
	id := b.ended("failed", 40, "", "")
	p := aDay
	p.Archive = func(context.Context, string, []int64) error {
		b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', finished_at = NULL, failure = NULL WHERE id = $1`, id)
		return nil
	}
	require.Equal(t, store.Pruned{}, b.prune(p))
	require.Equal(t, []int64{id}, b.left())
}

func TestPruneByRetentionOfTheCancelled(t *testing.T) {
	b := newBench(t)
	cancelled := func(hours int) int64 {
		id := b.ended("failed", hours, "", "")
		b.exec(`UPDATE gendurable.gen_durable SET failure = 'cancelled' WHERE id = $1`, id)
		return id
	}
	failed := b.ended("failed", 30, "", "")
	cancelled(30)
	fresh := cancelled(1)
	p := aDay
	p.Failed, p.Cancelled = 72*time.Hour, 2*time.Hour
	require.Equal(t, store.Pruned{Instances: 1}, b.prune(p))
	require.Equal(t, []int64{failed, fresh}, b.left())
	p.Failed, p.Cancelled = 72*time.Hour, 0 // as the failed
	require.Equal(t, store.Pruned{}, b.prune(p))
}
