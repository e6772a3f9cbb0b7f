package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// These bits of the corpus say which options a spec has.
const (
	hasKey = 1 << iota
	hasPartition
	hasQueue
	hasAfter
	hasAt
	hasStep
	own // of a machine and queue that this engine runs, so that an accepted spec runs to its end
)

// badNames are names that cause trouble somewhere, or just fit.
var badNames = []string{
	"", "\x00", "a\x00", "\xff", "\xed\xa0\x80", strings.Repeat("n", 512), strings.Repeat("n", 513), strings.Repeat("é", 257), strings.Repeat("n", 10_000),
	" ", "/", "a/1", "'; DROP TABLE gendurable.gen_durable; --", `{a,"b"}`, "NULL", "\n\t\\", "\u202e", "😀", "%s", "$1", "{s}",
}

// option is a spec with any options.
type option struct {
	machine, step, queue, key, partition string
	version, priority                    int
	delay, at                            int64
	scope                                uint8
	has                                  uint8
}

var owned = fsm.Declare[json.RawMessage, json.RawMessage]("owned")

// FuzzInsertOptions tests a spec with any options. Either it is refused with the name of the field,
// or its instance has all of them, its key is occupied, and the instance runs if it can.
func FuzzInsertOptions(f *testing.F) {
	sample := seeds(f)
	add := func(o option) {
		sample(o.machine, o.step, o.queue, o.key, o.partition, o.version, o.priority, o.delay, o.at, o.scope, o.has)
	}
	fine := option{machine: "machine", step: "step", queue: "queue", key: "key", partition: "partition", version: 1}
	for _, name := range badNames {
		for _, o := range []option{
			{machine: name}, {machine: "m", step: name, has: hasStep}, {machine: "m", queue: name, has: hasQueue},
			{machine: "m", key: name, has: hasKey}, {machine: "m", partition: name, has: hasPartition},
			{key: name, partition: name, has: own | hasKey | hasPartition}, {step: name, has: own | hasStep},
		} {
			o.version = 1
			add(o)
		}
	}
	for _, n := range []int{0, 1, -1, math.MaxInt16, math.MaxInt16 + 1, math.MinInt16, math.MinInt16 - 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64, math.MinInt64} {
		o := fine
		o.version = n
		add(o)
		o = fine
		o.priority = n
		add(o)
		o.has = own | hasPartition
		add(o)
	}
	const century = 36_525 * 24 * time.Hour
	for _, n := range []int64{0, 1, -1, int64(century), int64(century) + 1, math.MaxInt64, math.MinInt64, 253402300800, -62135596801, time.Now().Unix() + 3600} {
		for _, has := range []uint8{hasAfter, hasAt, hasAfter | hasAt} {
			o := fine
			o.delay, o.at, o.has = n, n, has
			add(o)
			o.has |= own
			add(o)
		}
	}
	for scope := range uint8(7) {
		o := fine
		o.scope, o.has = scope, hasKey
		add(o)
		o.has |= own
		add(o)
	}

	r := &rig{}
	r.start(f, verbatim{}, owned.Define(fsm.Step("start", func(_ context.Context, v *parcel) (fsm.Outcome, error) { return v.Done(v.State), nil })))
	f.Fuzz(func(t *testing.T, machine, step, queue, key, partition string, version, priority int, delay, at int64, scope, has uint8) {
		o := option{machine, step, queue, key, partition, version, priority, delay, at, scope, has}
		x := r.begin(t)
		defer x.finish()
		began := x.clock()
		id, err := x.insert(o.spec())
		wrong := o.wrong()
		if len(wrong) > 0 {
			requireSpecError(t, err, wrong...)
			return
		}
		require.NoError(t, err)
		i, err := r.eng.Get(t.Context(), id)
		require.NoError(t, err)
		x.kept(o, i, began)
		x.occupied(o, id)
		if o.has&own == 0 {
			return
		}
		i = x.rested(id)
		x.kept(o, i, began)
		switch {
		case i.Status == fsm.StatusRunnable:
			require.True(t, o.has&(hasAfter|hasAt) != 0, "it is due")
		case o.has&hasStep != 0 && o.step != "start":
			require.Equal(t, fsm.StatusFailed, i.Status)
			require.Contains(t, i.LastError, "no step")
		default:
			require.Equal(t, fsm.StatusDone, i.Status, i.LastError)
		}
	})
}

func (o *option) spec() fsm.Spec {
	declared := fsm.Declare[json.RawMessage, json.RawMessage](o.machine, fsm.Version(o.version))
	if o.has&own != 0 {
		declared = owned
	}
	spec := declared.New(json.RawMessage("{}")).Priority(o.priority).Scope(fsm.Scope(o.scope))
	if o.has&hasKey != 0 {
		spec = spec.Key(fsm.Key(o.key))
	}
	if o.has&hasPartition != 0 {
		spec = spec.PartitionKey(o.partition)
	}
	if o.has&hasQueue != 0 && o.has&own == 0 {
		spec = spec.Queue(o.queue)
	}
	if o.has&hasAfter != 0 {
		spec = spec.After(time.Duration(o.delay))
	}
	if o.has&hasAt != 0 {
		spec = spec.At(time.Unix(o.at, 0))
	}
	if o.has&hasStep != 0 {
		spec = spec.Step(o.step)
	}
	return spec
}

// wrong names fields, one of which must be refused. If there is none, the spec must be accepted.
func (o *option) wrong() (fields []string) {
	const century = 36_525 * 24 * time.Hour
	for field, is := range map[string]bool{
		"machine":       o.has&own == 0 && (badName(o.machine) || o.version < 1 || o.version > math.MaxInt32),
		"step":          o.has&hasStep != 0 && (badName(o.step) || o.has&own != 0 && o.step != "start"),
		"queue":         o.has&hasQueue != 0 && o.has&own == 0 && badName(o.queue),
		"key":           o.has&hasKey != 0 && badName(o.key),
		"partition_key": o.has&hasPartition != 0 && badName(o.partition),
		"priority":      o.priority < math.MinInt16 || o.priority > math.MaxInt16,
		"scope":         o.scope > uint8(fsm.ScopeNone),
		"delay":         o.has&hasAfter != 0 && (o.delay < 0 || o.delay > int64(century)),
		"at":            o.has&hasAt != 0 && (o.has&hasAfter != 0 || time.Unix(o.at, 0).After(time.Now().Add(century))),
	} {
		if is {
			fields = append(fields, field)
		}
	}
	return fields
}

// kept requires that the instance has its options.
func (x *trial) kept(o option, i fsm.RawInstance, began time.Time) {
	x.t.Helper()
	want := o.spec().Options()
	require.Equal(x.t, want.Machine, i.Machine)
	require.Equal(x.t, want.Version, i.Version)
	require.Equal(x.t, want.Step, i.Step)
	require.Equal(x.t, want.Queue, i.Queue)
	require.Equal(x.t, want.Priority, i.Priority)
	require.Equal(x.t, want.Key, i.Key)
	require.Equal(x.t, want.PartitionKey, i.PartitionKey)
	due := began.Add(want.Delay)
	if want.At.After(due) {
		due = want.At
	}
	require.False(x.t, i.EligibleAt.Before(due.Add(-time.Millisecond)), "due at %v, not at %v", due, i.EligibleAt)
	require.True(x.t, i.EligibleAt.Before(due.Add(patience)), "due at %v, not at %v", due, i.EligibleAt)
}

// occupied requires that the key is an address, and that no other instance gets it.
func (x *trial) occupied(o option, id fsm.ID) {
	x.t.Helper()
	if o.has&hasKey == 0 {
		return
	}
	always := o.scope == uint8(fsm.ScopeAll) || o.has&own == 0 && o.scope != uint8(fsm.ScopeNone)
	if always {
		i, err := x.eng.Get(x.t.Context(), fsm.Key(o.key))
		require.NoError(x.t, err)
		require.Equal(x.t, id, i.ID)
	}
	again, err := x.insert(o.spec())
	duplicate, ok := errors.AsType[*engine.DuplicateError](err)
	switch {
	case ok:
		require.Equal(x.t, id, duplicate.Occupant)
		require.NotEqual(x.t, uint8(fsm.ScopeNone), o.scope)
	default:
		require.NoError(x.t, err)
		require.NotEqual(x.t, id, again)
		require.False(x.t, always, "two have the key")
	}
}
