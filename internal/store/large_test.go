package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// document returns JSON of about n bytes. A noisy one hardly compresses.
func document(n int, noisy bool) string {
	if !noisy {
		return `{"a": "` + strings.Repeat("x", max(0, n-9)) + `"}`
	}
	var b strings.Builder
	b.WriteString(`{"a": "`)
	for b.Len() < n-2 {
		fmt.Fprintf(&b, "%016x", rand.Uint64())
	}
	b.WriteString(`"}`)
	return b.String()
}

// round reads all children of a round.
func (b bench) round(parent, round int64) (all []step.Child, err error) {
	page, behind, err := b.Round(b.t.Context(), parent, round)
	for all = page; len(behind) > 0 && err == nil; all = append(all, page...) {
		page, behind, err = b.Children(b.t.Context(), behind)
	}
	return all, err
}

// A claim brings states up to its bounds, whether they are compressed or not. Complete reads larger
// ones, under the fence.
func TestAClaimBringsOnlySoMuchState(t *testing.T) {
	b := newBench(t)
	want := map[int64]string{}
	for _, n := range []int{10, 1_000, 3_000, 60_000, 3 << 20} {
		for _, noisy := range []bool{false, true} {
			state := document(n, noisy)
			want[b.row("state", "$1::jsonb", state)] = state
		}
	}
	dropped := []step.Dropped{{Index: 4, Key: strings.Repeat("k", 500), Occupant: 1}}
	for len(dropped) < 100 {
		dropped = append(dropped, dropped[0])
	}
	text, err := json.Marshal(dropped)
	require.NoError(t, err)
	joins := b.row("dropped, round, visit", "$1::jsonb, 3, 3", string(text))

	claims := b.claim(most(1000), window(1000)).Claims // of some 4,000 bytes each
	require.Len(t, claims, len(want)+1)
	partial := 0
	for _, c := range claims {
		if c.Partial {
			partial++
			require.True(t, len(want[c.ID]) > 4194 || c.ID == joins, "a state of %d bytes", len(want[c.ID]))
			held, err := b.Complete(t.Context(), other, c, 1<<20)
			require.NoError(t, err)
			require.False(t, held, "it is not that worker's")
			require.True(t, c.Partial)
			held, err = b.Complete(t.Context(), me, c, 1<<20)
			require.NoError(t, err)
			require.True(t, held)
			require.False(t, c.Partial)
		}
		if c.ID == joins {
			require.Equal(t, dropped, c.Dropped)
			continue
		}
		require.Equal(t, want[c.ID], string(c.State))
	}
	require.Equal(t, 5, partial)

	b.exec(`UPDATE gendurable.gen_durable SET status = 'runnable', locked_by = NULL, lease_expires_at = NULL`)
	for _, c := range b.claim(most(1), window(1)).Claims {
		require.False(t, c.Partial, "a single claim brings what all together may")
	}
}

// The awaited signals that come with a claim are bounded in number and bytes. Complete reads all of
// them up to the limit of a visit, or the first alone.
func TestAClaimBringsOnlySoManySignals(t *testing.T) {
	b := newBench(t)
	fill := func(signals, bytes int, noisy bool) int64 {
		id := b.row("awaits", "'{go}'")
		payload := document(bytes, noisy)
		b.exec(`INSERT INTO gendurable.signals (target_id, name, payload) SELECT $1, 'go', $2::jsonb FROM generate_series(1, $3)`, id, payload, signals)
		return id
	}
	rows := map[int64]struct {
		signals, with, complete int
		omitted                 bool
	}{
		fill(0, 0, false):       {},
		fill(3, 10, false):      {3, 3, 3, false},
		fill(100, 10, true):     {100, 100, 100, false},
		fill(101, 10, false):    {101, 100, 101, false},
		fill(3000, 10, false):   {3000, 100, 3000, false},
		fill(5, 1<<20, true):    {5, 0, 1, true},
		fill(5, 1<<20, false):   {5, 0, 1, true},
		fill(30, 100_000, true): {30, 2, 10, true},
		fill(30, 3_000, false):  {30, 30, 30, false},
		fill(70, 4_000, false):  {70, 51, 70, false},
	}
	for _, c := range b.claim(most(20), window(1000)).Claims { // of some 200,000 bytes each
		r := rows[c.ID]
		require.Len(t, c.Awaited, r.with)
		require.Equal(t, r.with < r.signals, c.Partial, "%d of %d", r.with, r.signals)
		held, err := b.Complete(t.Context(), me, c, 1<<20)
		require.NoError(t, err)
		require.True(t, held)
		require.Len(t, c.Awaited, r.complete)
		require.Equal(t, r.omitted, c.Omitted)
		for i := 1; i < len(c.Awaited); i++ {
			require.Less(t, c.Awaited[i-1].ID, c.Awaited[i].ID)
		}
		if r.signals == 0 {
			continue
		}
		// A page of the whole inbox has the same bounds.
		var inbox []step.Signal
		for more := true; more; {
			var page []step.Signal
			var after int64
			if n := len(inbox); n > 0 {
				after = inbox[n-1].ID
			}
			page, more, err = b.Inbox(t.Context(), c.ID, after)
			require.NoError(t, err)
			size := 0
			for _, s := range page {
				size += len(s.Payload)
			}
			require.True(t, size < 25<<20 || len(page) == 1, "%d bytes in a page", size)
			inbox = append(inbox, page...)
		}
		require.Len(t, inbox, r.signals)
	}
}

// A round of large children is read in pages. Children that do not exist any more are skipped.
func TestARoundIsReadInPages(t *testing.T) {
	b := newBench(t)
	parent := b.row("round, visit", "7, 7")
	var ids []int64
	for i := range 9 {
		ids = append(ids, b.row("parent_id, parent_round, status, finished_at, result", "$1, 7, 'done', now(), $2::jsonb", parent, document(400_000+i, i%2 == 0)))
	}
	b.row("parent_id, parent_round", "$1, 6", parent)
	page, behind, err := b.Round(t.Context(), parent, 7)
	require.NoError(t, err)
	n := len(page)
	require.Equal(t, ids[:n], childIDs(page))
	require.Equal(t, ids[n:], behind)
	require.Greater(t, len(behind), 3) // some to delete, and two pages
	b.exec(`DELETE FROM gendurable.gen_durable WHERE id = ANY($1)`, []int64{ids[n], ids[n+2], ids[8]})
	pages, rest := 0, []int64(nil)
	for ; len(behind) > 0; pages++ {
		page, behind, err = b.Children(t.Context(), behind)
		require.NoError(t, err)
		rest = append(rest, childIDs(page)...)
	}
	require.Equal(t, append(ids[n+1:n+2:n+2], ids[n+3:8]...), rest)
	require.Greater(t, pages, 1)

	page, behind, err = b.Round(t.Context(), parent, 8)
	require.NoError(t, err)
	require.Empty(t, page)
	require.Empty(t, behind)
}

func childIDs(children []step.Child) (ids []int64) {
	for i := range children {
		ids = append(ids, children[i].ID)
	}
	return ids
}

// freezing is a connection whose client stops reading after a number of bytes, until thaw closes.
type freezing struct {
	net.Conn
	left         *int
	once         *sync.Once
	frozen, thaw chan struct{}
}

func (c *freezing) Read(p []byte) (int, error) {
	if *c.left <= 0 {
		c.once.Do(func() { close(c.frozen) })
		<-c.thaw // like a process that is stopped
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(len(p), *c.left)])
	*c.left -= n
	return n, err
}

// A process freezes in the middle of a claim's answer of several megabytes, and the server waits
// for it in a write. That delays no other session: its claims have a lease, and once that has
// expired the next worker gets them.
func TestAProcessThatFreezesWhileItsClaimIsAnsweredHoldsNoLocks(t *testing.T) {
	b := newBench(t)
	const rows = 400
	b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, state, awaits) SELECT 'm', 's', $1::jsonb, '{go}' FROM generate_series(1, $2)`,
		document(10_000, true), rows)
	b.exec(`INSERT INTO gendurable.signals (target_id, name, payload) SELECT id, 'go', $1::jsonb FROM gendurable.gen_durable`, document(10_000, true))
	var once sync.Once
	left, frozen, thaw, done := 1<<40, make(chan struct{}), make(chan struct{}), make(chan struct{})
	victim := b.beside(func(c *pgxpool.Config) {
		c.MaxConns = 1
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				require.NoError(t, tcp.SetReadBuffer(8<<10))
			}
			return &freezing{conn, &left, &once, frozen, thaw}, err
		}
	})
	p := store.ClaimParams{Queue: "none", Worker: other, Machines: []string{"m/1"}, Limit: rows, Window: rows, Lease: 500 * time.Millisecond}
	_, err := victim.Claim(t.Context(), p) // so that the connection has prepared the statements
	require.NoError(t, err)
	left, p.Queue = 50_000, "default"
	t.Cleanup(func() { close(thaw); <-done })
	go func() {
		defer close(done)
		_, _ = victim.Claim(context.Background(), p)
	}()
	<-frozen
	steady.Eventually(t, func() bool {
		return b.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'`) == 1
	}, "the answer does not fit into what the kernels hold")

	require.Equal(t, rows, b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'executing' AND locked_by = $1`, other))
	require.Equal(t, rows, b.number(`SELECT count(*) FROM (SELECT FROM gendurable.gen_durable FOR UPDATE SKIP LOCKED) r`), "none is locked")
	steady.Eventually(t, func() bool {
		_, err := b.Reap(t.Context(), newMark(), store.CrashLimits{}, 200)
		require.NoError(t, err)
		return b.number(`SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND crashes = 1`) == rows
	}, "they are reaped, and counted")
	require.Len(t, b.claim(most(rows), window(rows)).Claims, rows)
}
