package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A column in which all specs are alike is sent once, and one without values not at all. So each
// spec here differs from the others in one of them, and must keep what is its own: as an instance
// or a child, with keys and without.
func TestEachSpecKeepsItsOwnValues(t *testing.T) {
	b := newBench(t)
	for _, keyed := range []bool{false, true} {
		fixed := func() step.Spec {
			return step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "q", State: json.RawMessage(`{}`)}
		}
		var list []step.Spec
		for n, differ := range []func(x *step.Spec){
			func(*step.Spec) {},
			func(x *step.Spec) { x.Machine = "other" },
			func(x *step.Spec) { x.Version = 2 },
			func(x *step.Spec) { x.Step = "other" },
			func(x *step.Spec) { x.Queue = "other" },
			func(x *step.Spec) { x.Priority = 3 },
			func(x *step.Spec) { x.PartitionKey = "p" },
			func(x *step.Spec) { x.PartitionKey = "p" }, // behind it
			func(x *step.Spec) { x.Delay = time.Hour },
			func(x *step.Spec) { x.At = time.Now().Add(time.Hour) },
			func(x *step.Spec) { x.Deadline = time.Hour },
			func(x *step.Spec) { x.Labels = json.RawMessage(`{"a": "b"}`) },
			func(x *step.Spec) { x.Trace = json.RawMessage(`{"c": "d"}`) },
			func(x *step.Spec) { x.Retain = step.Retain{Done: time.Second} },
			func(x *step.Spec) { x.Scope = step.ScopeLiveOrDone },
			func(*step.Spec) {},
		} {
			x := fixed()
			if differ(&x); keyed {
				x.Key = fmt.Sprintf("key %02d", (n*7)%16)
			}
			list = append(list, x)
		}
		want := func(x *step.Spec, lane int) string {
			key, scope := "", 0
			if keyed {
				if key, scope = x.Key, 4; x.Scope == step.ScopeLiveOrDone {
					scope = 5
				}
			}
			return fmt.Sprintf("%s %d %s %s %d <%s> %d %t %t <%s> <%s> %t <%s> %d", x.Machine, x.Version, x.Step, x.Queue, x.Priority, x.PartitionKey,
				lane, x.Delay > 0 || !x.At.IsZero(), x.Deadline > 0, x.Labels, x.Trace, x.Retain.Done > 0, key, scope)
		}
		check := func(of string, list []step.Spec) {
			var all []string
			for n := range list {
				lane := 0
				if n == 7 && !keyed { // the one in front may be dropped where it has a key
					lane = 1
				}
				all = append(all, want(&list[n], lane))
			}
			require.Equal(t, all, b.column(`SELECT format('%s %s %s %s %s <%s> %s %s %s <%s> <%s> %s <%s> %s', fsm, fsm_version, step, queue, priority,
				partition_key, pick_lane, (eligible_at > now() + interval '1 minute')::text, (deadline IS NOT NULL)::text, labels, trace,
				(retain IS NOT NULL)::text, correlation_key, cardinality(correlation_scope))
				FROM gendurable.gen_durable WHERE `+of+` ORDER BY id`), "keyed: %t", keyed)
		}
		var specs []*step.Spec
		for n := range list {
			specs = append(specs, &list[n])
		}
		b.insertSpecs(specs)
		check(`parent_id IS NULL AND status = 'runnable'`, list)
		b.exec(`DELETE FROM gendurable.gen_durable WHERE parent_id IS NULL`)

		one, two := b.executing(nil), b.executing(nil)
		two.Depth = 3
		for n := range list {
			list[n].UID = uuid.New()
		}
		entries := []store.Entry{spawnOf(one, list[:8]), spawnOf(two, list[8:])}
		got, err := b.Commit(t.Context(), me, newMark(), entries, 0)
		require.NoError(t, err)
		require.Len(t, got.Applied, 2)
		check(`parent_id IS NOT NULL`, list)
		require.Equal(t, strings.Fields(strings.Repeat(fmt.Sprintf("%d/1 ", one.ID), 8)+strings.Repeat(fmt.Sprintf("%d/4 ", two.ID), 8)),
			b.column(`SELECT concat(parent_id, '/', depth) FROM gendurable.gen_durable WHERE parent_id IS NOT NULL ORDER BY id`))
		b.exec(`DELETE FROM gendurable.gen_durable`)
	}
}
