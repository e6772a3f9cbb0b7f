package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.NoLeaks(m) }

func TestAccessIsBoundToQueuesAndMachines(t *testing.T) {
	t.Parallel()
	bound := Access{Level: Read, Within: engine.Bounds{Queues: []string{"emails"}, Machines: []string{"welcome", "invoice"}}}
	require.True(t, bound.sees("emails", "welcome"))
	require.False(t, bound.sees("emails", "payout"))
	require.False(t, bound.sees("payments", "welcome"))
	require.False(t, bound.sees("", ""), "what belongs to all queues is more than one of them")
	require.False(t, Access{Within: engine.Bounds{Labels: map[string]string{"tenant": "ada"}}}.sees("emails", ""), "it is of all labels")
	require.False(t, bound.everywhere())
	require.True(t, Access{}.everywhere())
	require.True(t, Access{}.sees("any", "any"))
}

func TestShowDecidesWhatIsSeen(t *testing.T) {
	t.Parallel()
	secret := json.RawMessage(`{"card":"4111x1"}`)
	reader := context.WithValue(t.Context(), accessKey{}, Access{Level: Read})
	outline := context.WithValue(t.Context(), accessKey{}, Access{Level: Outline})
	s := &server{log: slog.New(slog.DiscardHandler)}
	require.Equal(t, secret, s.visible(reader, "shop", "state", secret))
	require.Nil(t, s.visible(outline, "shop", "state", secret))
	require.Nil(t, s.visible(t.Context(), "shop", "state", secret), "without an access there is nothing to see")

	s.Show = func(machine, field string, v json.RawMessage) json.RawMessage {
		switch machine + "." + field {
		case "shop.state":
			return json.RawMessage(`{"card":"…"}`)
		case "shop.result":
			return json.RawMessage(`{`)
		case "shop.payload":
			panic("a fault of the host")
		}
		v[0] = '['
		return nil
	}
	require.JSONEq(t, `{"card":"…"}`, string(s.visible(reader, "shop", "state", secret)))
	require.Nil(t, s.visible(reader, "shop", "result", secret), "no JSON")
	require.Nil(t, s.visible(reader, "shop", "payload", secret), "a panic shows nothing")
	require.Nil(t, s.visible(reader, "bank", "state", secret))
	require.JSONEq(t, `{"card":"4111x1"}`, string(secret), "what Show changes is its own copy")
}

// Everyone who asks while one read is under way gets its answer, and so does who comes soon after;
// an asker who goes away takes nothing from the others.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	var s shared
	var asked atomic.Int32
	begun, release := make(chan struct{}), make(chan struct{})
	read := func(ctx context.Context) (int32, error) {
		n := asked.Add(1)
		if n == 1 {
			close(begun)
			<-release
		}
		return n, ctx.Err()
	}
	first, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := once(first, &s, "counts", time.Hour, time.Hour, read)
		gone <- err
	}()
	<-begun
	leave()
	require.ErrorIs(t, <-gone, context.Canceled)
	answers := make(chan int32)
	for range 20 {
		go func() {
			n, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, read)
			if err != nil {
				n = -1
			}
			answers <- n
		}()
	}
	close(release)
	for range 20 {
		require.Equal(t, int32(1), <-answers)
	}
	n, at, err := once(t.Context(), &s, "counts", 0, time.Hour, read)
	require.NoError(t, err)
	require.Equal(t, int32(2), n, "an answer that is too old is asked anew")
	require.False(t, at.IsZero())
}

func TestErrorsAreNotShared(t *testing.T) {
	t.Parallel()
	var s shared
	_, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, func(context.Context) (int, error) { return 0, errors.New("down") })
	require.EqualError(t, err, "down")
	n, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)
	for k := range maxShared + 10 {
		_, _, err := once(t.Context(), &s, string(rune(k+1000)), time.Hour, time.Hour, func(context.Context) (int, error) { return k, nil })
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(s.answers), maxShared)
}

// A read that panics is an error of who asked, and not the end of the program.
func TestAReadThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	var s shared
	_, _, err := once(t.Context(), &s, "counts", time.Hour, time.Hour, func(context.Context) (int, error) { panic("a fault") })
	require.ErrorContains(t, err, "a fault")
}

// An answer that no request may use any more is not kept, whichever request comes next.
func TestStaleAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	var s shared
	ask := func(key string, age time.Duration) {
		_, _, err := once(t.Context(), &s, key, age, time.Hour, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	ask("old", time.Nanosecond)
	ask("long", time.Hour)
	ask("new", time.Hour)
	require.Equal(t, []string{"long", "new"}, slices.Sorted(maps.Keys(s.answers)))
}

// All documents of a page share its room: a document that comes too late is named by its size.
func TestAPageHasRoomForSoMuch(t *testing.T) {
	t.Parallel()
	s := &server{}
	ctx := withRoom(context.WithValue(t.Context(), accessKey{}, Access{Level: Read}))
	one, err := json.Marshal(strings.Repeat("x", maxShown-2))
	require.NoError(t, err)
	for range maxPageShown / maxShown {
		require.NotNil(t, s.document(ctx, "m", "diff", one).Tree)
	}
	require.Equal(t, document{Large: maxShown}, s.document(ctx, "m", "diff", one))
}

// A user who may see some queues learns nothing of the processes that work there.
func TestCausesNameNoWorkerToOutsiders(t *testing.T) {
	t.Parallel()
	for _, kind := range []engine.CauseKind{engine.CauseRunning, engine.CauseLost} {
		c := engine.Cause{Kind: kind, WorkerID: "w-17", Worker: &engine.Worker{Host: "secret-host", PID: 4711}}
		row := causeOf(c, covered{})
		require.Nil(t, row.Worker)
		require.NotContains(t, row.Text+row.WorkerID, "w-17")
		require.NotContains(t, row.Text, "secret-host")
		require.Contains(t, causeOf(c, nil).Text, "secret-host")
	}
}

// The oldest plan that is not being applied makes room, and a plan is of whose access covers it.
func TestPlansAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.WithValue(t.Context(), accessKey{}, Access{Level: Operate, Actor: "ada"})
	var p plans
	var tokens []string
	begun := time.Now()
	for n := range maxPlans + 1 {
		one := &planned{actor: "ada", filter: engine.Filter{Queue: "emails"}, at: begun.Add(time.Duration(n) * time.Millisecond)}
		if n == 0 {
			one.begun = begun // it is being applied
		}
		token, err := p.keep(one)
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	require.Len(t, p.all, maxPlans)
	_, err := p.of(ctx, tokens[0])
	require.NoError(t, err)
	_, err = p.of(ctx, tokens[1])
	require.Error(t, err)
	for _, access := range []Access{{Level: Operate, Actor: "eve"}, {Level: Operate, Actor: "ada", Within: engine.Bounds{Queues: []string{"payments"}}}} {
		_, err = p.of(context.WithValue(t.Context(), accessKey{}, access), tokens[0])
		require.Error(t, err)
	}
	for _, one := range p.all {
		one.begun = begun
	}
	_, err = p.keep(&planned{at: begun})
	require.Error(t, err, "all are being applied")
}

func TestRatesAreDrawn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 30, 30, 0, time.UTC)
	minute := at.Truncate(time.Minute)
	all := pulses(engine.Rates{At: at, InsertedSince: at.Add(-time.Hour), EndedSince: at.Add(-30 * time.Minute), Bins: []engine.RateBin{
		{Queue: "a", At: minute, Inserted: 120, Ended: 30, Failed: 3}, {Queue: "a", At: minute.Add(-time.Hour), Inserted: 1},
		{Queue: "b", At: minute.Add(-59 * time.Minute), Inserted: 60}, {Queue: "hidden", At: minute, Ended: 1000},
	}}, func(queue string) bool { return queue != "hidden" })
	require.Len(t, all, 3)
	require.EqualValues(t, 181, all[""].In)
	require.EqualValues(t, 120, all[""].Most())
	require.Equal(t, []string{"3.0", "1.0", "0.1"}, []string{all[""].InRate(), all[""].OutRate(), all[""].FailedRate()})
	require.Equal(t, chartWidth/2, all[""].Unknown())
	require.Equal(t, "M591 64h8v20h-8z", all["a"].Ended())
	require.Len(t, strings.Fields(all["a"].Inserted()), chartMinutes)
	require.True(t, strings.HasPrefix(all["b"].Inserted(), "5.0,1.0 15.0,83.0 "), all["b"].Inserted())
	require.Equal(t, "0", new(pulse).InRate())
	require.Equal(t, "< 0.1", perMinute(1, time.Hour))
}

func TestWhoAcceptsGzip(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "gzip; q=0": false, "br": false, "": false, "xgzip": false, "gzip;q=x": false,
	} {
		require.Equal(t, want, acceptsGzip(http.Header{"Accept-Encoding": {text}}), text)
	}
}

// A busy queue is on the overview, however many there are.
func TestTheOverviewShowsWhereMostHappens(t *testing.T) {
	t.Parallel()
	o := &overview{}
	for n := range overviewQueues + 10 {
		o.Queues = append(o.Queues, &queueRow{Name: fmt.Sprintf("q%03d", n)})
	}
	o.Queues[overviewQueues+9].Due = 1
	o.cut()
	require.Len(t, o.Queues, overviewQueues)
	require.Equal(t, 10, o.Others)
	require.Equal(t, "q059", o.Queues[overviewQueues-1].Name)
}

func TestColumnsAreChosen(t *testing.T) {
	t.Parallel()
	names := func(form url.Values) (all []string) {
		for _, c := range (&instancesBody{Form: form}).Shown() {
			all = append(all, c.Name)
		}
		return all
	}
	usual := []string{"status", "machine", "key", "queue", "attempt", "inserted", "error"}
	require.Equal(t, usual, names(nil))
	require.Equal(t, usual, names(url.Values{"col": {"none of them"}}))
	require.Equal(t, []string{"queue", "failure"}, names(url.Values{"col": {"failure", "queue"}}))
}

func TestHeavyReadsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	turn := newTurns(1).heavy
	done, err := turn.take(t.Context())
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = turn.take(ended)
	require.ErrorIs(t, err, context.Canceled)
	done()
	done, err = turn.take(t.Context())
	require.NoError(t, err)
	done()
}

// A count of a large table is repeated so rarely that open pages cost the database one hundredth of
// its time. A count that was given up takes as long as it may.
func TestCountsRestAHundredTimesAsLongAsTheyTake(t *testing.T) {
	t.Parallel()
	require.Equal(t, freshCounts, countAge(time.Second, 0))
	require.Equal(t, freshCounts, countAge(time.Second, 99*time.Millisecond))
	require.Equal(t, 5*time.Minute+50*time.Second, countAge(time.Second, 3500*time.Millisecond))
	require.Equal(t, time.Hour, countAge(time.Hour, 3500*time.Millisecond))

	eng, err := engine.New(engine.Config{Pool: pgtest.Pool(t, pgtest.Migrated(t))})
	require.NoError(t, err)
	at := &site{engine: eng}
	s := &server{Options: Options{Refresh: time.Second, Timeout: time.Minute}, sites: []*site{at}}
	first, err := s.countsAged(t.Context(), at, 0)
	require.NoError(t, err)
	require.Equal(t, int64(first.Took), at.counting.Load())
}
