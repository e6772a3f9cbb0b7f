package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

func TestCount(t *testing.T) {
	b := newBench(t)
	b.rowsOf(3, 200)
	counts, err := b.Count(t.Context(), time.Minute)
	require.NoError(t, err)
	want := map[store.Count]int64{}
	for _, i := range b.allInstances() {
		want[store.Count{Machine: i.Machine, Version: i.Version, Step: i.Step, Queue: i.Queue, Status: string(i.Status)}]++
	}
	got := map[store.Count]int64{}
	for _, c := range counts {
		n := c.Count
		c.Count = 0
		got[c] = n
	}
	require.Equal(t, want, got)
}

// The server cuts off a count that would exceed its limit. A count that breaks, or that its caller
// gives up, does not return ErrCutOff.
func TestCountIsCutOff(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE FUNCTION gendurable.slow(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN $1; END $$`)
	b.exec(`ALTER TABLE gendurable.gen_durable RENAME TO really`)
	b.exec(`CREATE VIEW gendurable.gen_durable AS SELECT gendurable.slow(fsm) AS fsm, fsm_version, step, queue, status FROM gendurable.really`)
	b.exec(`INSERT INTO gendurable.really (fsm, step) VALUES ('m', 's')`)
	_, err := b.Count(t.Context(), 10*time.Millisecond)
	require.ErrorIs(t, err, store.ErrCutOff)
	require.ErrorContains(t, err, "10ms")
	b.exec(`DROP VIEW gendurable.gen_durable`)
	_, err = b.Count(t.Context(), time.Minute)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrCutOff)
}
