package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// archiveMost is the number of instances that Archive is called with at a time.
const archiveMost = 100

// leavesSQL finds the rows of a page that may go now: instances without children. $1 ids
var leavesSQL = named("leaves", `SELECT g.id, g.queue FROM {s}.gen_durable g WHERE g.id = ANY($1::bigint[])
  AND NOT EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = g.id OFFSET 0) ORDER BY g.id`)

// deletePage deletes the instances of a page, and archives them before, if there is an archive. It
// archives only what it is about to delete: leaves, and then the instances that thereby became
// leaves.
//
// Archive runs between two transactions, since it may take long. So what it gets may be deleted by
// another sweeper meanwhile, or revived by an operator: pruneSQL repeats the condition. A process
// that dies in between archives the same instances again. Hence archives get each instance at least
// once, and know it by its id.
//
// If Archive fails for a queue, the rest of that queue stays for this sweep, and the others go on.
func (s *Store) deletePage(ctx context.Context, p PruneParams, ids []int64, sum *Pruned) (alone bool, err error) {
	if p.Archive == nil {
		return s.deleteDue(ctx, p, ids, sum)
	}
	for seen := map[int64]bool{}; ; {
		leaves, err := s.leaves(ctx, p, ids)
		if err != nil {
			return true, err
		}
		gone := sum.Instances
		for _, queue := range slices.Sorted(maps.Keys(leaves)) {
			fresh := slices.DeleteFunc(leaves[queue], func(id int64) bool { return seen[id] })
			for _, id := range fresh {
				seen[id] = true
			}
			if alone, err := s.archive(ctx, p, queue, fresh, sum); err != nil || !alone {
				return alone, err
			}
		}
		if sum.Instances == gone {
			return true, nil
		}
	}
}

// archive archives and deletes leaves of one queue, a part at a time.
func (s *Store) archive(ctx context.Context, p PruneParams, queue string, ids []int64, sum *Pruned) (alone bool, err error) {
	for part := range slices.Chunk(ids, archiveMost) {
		if sum.Kept[queue] != nil {
			break
		}
		if err := p.Archive(ctx, queue, part); err != nil {
			if sum.Kept == nil {
				sum.Kept = map[string]error{}
			}
			sum.Kept[queue] = err
			break
		}
		if alone, err := s.deleteDue(ctx, p, part, sum); err != nil || !alone {
			return alone, err
		}
	}
	return true, nil
}

// leaves returns the ids that have no children, by queue.
func (s *Store) leaves(ctx context.Context, p PruneParams, ids []int64) (map[string][]int64, error) {
	leaves := map[string][]int64{}
	err := s.sweep(ctx, p, s.stmt(leavesSQL, func(rows pgx.Rows) error {
		var id int64
		var queue string
		_, err := pgx.ForEachRow(rows, []any{&id, &queue}, func() error { leaves[queue] = append(leaves[queue], id); return nil })
		return err
	}, ids))
	if err != nil {
		return nil, fmt.Errorf("look for instances without children: %w", err)
	}
	return leaves, nil
}
