package work

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

const (
	pruneEvery     = time.Minute
	pruneSoon      = 5 * time.Second // pause after a sweep that was full: many small sweeps disturb less than a large one
	pruneMost      = 1000
	rollEvery      = time.Hour // days are made a week ahead
	tombstonesKept = 10_000    // per instance (§4)
	sweepSlice     = 1000      // partition keys of one statement
	sweepSlices    = 10        // slices of one sweep
)

// pruner deletes terminal instances past their retention.
type pruner struct{ *process }

func (g *pruner) run() {
	var rolled time.Duration
	p := store.PruneParams{Done: g.config.RetainDone, Failed: g.config.RetainFailed, Cancelled: g.config.RetainCancelled,
		Tombstones: tombstonesKept, Limit: pruneMost}
	if g.config.Archive != nil {
		p.Archive = g.archive
	}
	p.Slice = func(ctx context.Context, do func(context.Context) error) error {
		took, err := g.slice(ctx, do)
		g.room(took, deadlinePoll)
		return err
	}
	for wait := pruneEvery; g.pause(pace.Jittered(wait)); {
		wait = pruneEvery
		p.Gates = len(g.gates.all()) > 0 || g.gates.waits("")
		if now := g.since(); rolled == 0 || now-rolled >= rollEvery {
			rolled = now
			g.roll()
			p.Gates = true // those of gates that are gone
		}
		g.freeRows()
		done, err := g.db.Prune(g.looking, p)
		if done.Instances >= pruneMost {
			wait = pruneSoon
		}
		for queue, err := range done.Kept {
			g.log.Warn("instances past their retention stay, since the archive did not take them", slog.String("queue", queue), slog.Any("error", err))
		}
		if err != nil {
			g.trouble("prune", err)
			continue
		}
		if len(done.Refused) > 0 {
			g.log.Warn("Postgres refuses to delete instances past their retention: does a table of yours refer to them?",
				slog.Any("refused", done.Refused))
		}
		if done.Expired > 0 {
			g.log.Warn("kept signals have expired: nobody occupied their keys in time", slog.Int("expired", done.Expired))
		}
		if done.Instances > 0 || done.Expired > 0 {
			tell(g.base, g.process, g.hooks.prune, worker.PruneEvent{Deleted: done.Instances, Unread: done.Unread, Expired: done.Expired})
		}
	}
}

// freeRows ends sessions of processes that were stopped or cut off in the middle of a transaction:
// their rows would stay locked until the server finds their connections dead.
func (g *pruner) freeRows() {
	ended := 0
	_, err := g.slice(g.looking, func(ctx context.Context) (err error) {
		ended, err = g.db.FreeRows(ctx, store.RowsSilent)
		return err
	})
	if err != nil {
		g.trouble("look for sessions that were cut off", err)
	}
	if ended > 0 {
		g.log.Warn("sessions that were cut off in the middle of a transaction had instances locked, and were ended", slog.Int("sessions", ended))
	}
}

// roll makes the history's partitions for the days ahead, and removes the days past their
// retention. What another session has locked comes with a later call. A call that has made
// something may have left more to do.
func (g *pruner) roll() {
	for range 10 {
		var done store.Rolled
		took, err := g.slice(g.looking, func(ctx context.Context) (err error) {
			done, err = g.db.RollHistory(ctx, g.config.RetainHistory)
			return err
		})
		if err != nil {
			g.trouble("make the partitions of the history", err)
		}
		if done.Refused > 0 {
			g.log.Error("Postgres refuses to move or to remove rows of the history: they stay in place, and nothing else waits for them; "+
				"is there a trigger or a check of yours?", slog.Any("refused", done.Refused), slog.Any("error", errors.New(done.Because)))
		}
		if done.Made == 0 || err != nil || !g.room(took, deadlinePoll) {
			return
		}
	}
}

// archiveTimeout is how long one call of the host's archive may take.
const archiveTimeout = time.Minute

// archive calls the host's archive, which may panic or end its goroutine.
func (g *pruner) archive(ctx context.Context, _ string, ids []int64) error {
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	err := errors.New("the archive panicked, or called runtime.Goexit")
	g.survive(func() {
		returned := g.config.Archive(ctx, ids)
		if err = returned; err != nil {
			err = errors.New(step.SanitizeError(returned)) // its methods are the host's
		}
	})
	return err
}

// sweeper looks through partition keys for one that makes no progress, a few thousand keys at a
// time. It is a safety net for crashes and foreign SQL.
type sweeper struct {
	*process
	keys       *keyring
	promotions *promotions
}

func (s *sweeper) run() {
	after := ""
	for s.pause(pace.Jittered(s.config.Reap)) {
		own := s.keys.inFlight()
		for range sweepSlices {
			var last string
			var p store.Promotion
			took, err := s.slice(s.looking, func(ctx context.Context) (err error) {
				// It looks through some keys behind one. If own is given, it also forgets lost claims.
				last, p, err = s.db.Sweep(ctx, after, sweepSlice, own)
				return err
			})
			if err != nil {
				s.trouble("sweep partition keys", err)
				break
			}
			s.reportRefused("bring a partition key's next instance forward", p.Refused)
			own = nil // once a round
			s.Nudge(p.Queues...)
			s.promotions.add(p.Missed)
			if after = last; after == "" || !s.room(took, deadlinePoll) {
				break
			}
		}
	}
}
