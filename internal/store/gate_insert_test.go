package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A process that has polled inserts in line what is due and behind a gate, and a claim takes it
// from there in one update. Everything else goes in front, and so does everything where the gates
// are not known.
func TestInsertStraightIntoLine(t *testing.T) {
	b := newBench(t)
	b.gate(perCustomer)
	insert := func(change func(*step.Spec)) int64 {
		x := &step.Spec{UID: uuid.New(), Machine: "m", Version: 1, Step: "s", Queue: "default", State: []byte("{}"),
			Labels: []byte(`{"customer": "acme"}`)}
		change(x)
		out, err := b.Insert(t.Context(), []*step.Spec{x})
		require.NoError(t, err)
		return out[0].ID
	}
	plain := func(*step.Spec) {}
	unknown := insert(plain)
	require.Equal(t, "- - 0", b.placed(unknown), "nobody has polled")
	_, err := b.Poll(t.Context(), nil, nil, true)
	require.NoError(t, err)
	lined := insert(plain)
	require.Equal(t, "per-customer/acme - 3", b.placed(lined))
	require.Equal(t, "per-customer/acme - 3", b.placed(insert(func(x *step.Spec) { x.Key = "k" })))
	for name, change := range map[string]func(*step.Spec){
		"later": func(x *step.Spec) { x.Delay = time.Hour }, "at a time": func(x *step.Spec) { x.At = time.Now().Add(time.Hour) },
		"with a partition key": func(x *step.Spec) { x.PartitionKey = "p" }, "without the label": func(x *step.Spec) { x.Labels = nil },
	} {
		require.Equal(t, "- - 0", b.placed(insert(change)), name)
	}
	require.Contains(t, ids(b.claim(gated).Claims), lined)

	_, err = b.DropGate(t.Context(), perCustomer.Name, store.By{Actor: "test"})
	require.NoError(t, err)
	late := insert(plain)
	require.Equal(t, "per-customer/acme - 3", b.placed(late), "what it knows is out of date")
	b.claim(gated)
	require.Contains(t, ids(b.claim(gated).Claims), late, "a claim mends it")
}
