package work

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/worker"
)

// Stop drains the worker, in this order (§6). It ends claims and run-ahead, and gives claims that
// were never started back unchanged. Running steps may finish for DrainTimeout; then Stop cancels
// their contexts, and they have DrainGrace. The committer commits outcomes all the while. Heartbeat
// and key locks end last. A step that still runs then falls to its lease, and Stop returns an error
// that names it. With or without a database, Stop takes no longer than DrainTimeout and DrainGrace.
// The end of ctx shortens DrainTimeout.
func (w *Worker) Stop(ctx context.Context) error {
	close(w.draining)
	w.stopLooking()
	drain, cancel := context.WithTimeout(ctx, w.config.DrainTimeout)
	defer cancel()
	grace, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	inTime := context.AfterFunc(drain, func() {
		w.cancelSteps(fsm.ErrDraining)
		if pace.Sleep(grace, w.config.DrainGrace) {
			giveUp()
		}
	})
	defer inTime()
	looped := wait(&w.loops)
	await(drain, looped)
	// A claim that is cut off may still take effect, after everyone has looked. So it gets half of the
	// grace to answer.
	answer, cancel := context.WithTimeout(grace, w.config.DrainGrace/2)
	defer cancel()
	await(answer, looped)
	w.stopClaims()
	<-looped
	w.unprefer(grace)
	var unstarted []*flight
	for _, f := range w.flights.all() {
		if !f.started.Load() {
			unstarted = append(unstarted, f)
		}
	}
	w.flights.started.Go(func() {
		w.claims.giveBack(w.base, unstarted, w.flights.land)
	})
	landed := wait(&w.flights.started)
	await(drain, landed)
	w.cancelSteps(fsm.ErrDraining)
	await(grace, landed)
	abandoned := w.flights.all()
	w.abort()
	w.commits.stop()
	w.endLife()
	w.lifelines.Wait()
	tell(context.WithoutCancel(ctx), w.process, w.hooks.drain, worker.DrainEvent{Released: len(unstarted), Abandoned: len(abandoned)})
	w.log.Info("stopped", slog.Int("released", len(unstarted)), slog.Int("abandoned", len(abandoned)))
	if len(abandoned) > 0 {
		return fmt.Errorf("stop: %d steps did not end, or could not be committed, in time: their instances run again when the leases expire: %s",
			len(abandoned), names(abandoned))
	}
	return nil
}

// names renders some of the flights whose code ignores the end of its context.
func names(fs []*flight) string {
	const most = 10
	var list []string
	for _, f := range fs[:min(most, len(fs))] {
		list = append(list, fmt.Sprintf("%d (%s)", f.beat.ID, f.beat.Machine))
	}
	if len(fs) > most {
		list = append(list, "…")
	}
	return strings.Join(list, ", ")
}

// wait returns a channel that closes when the group ends.
func wait(group *sync.WaitGroup) chan struct{} {
	over := make(chan struct{})
	go func() {
		group.Wait()
		close(over)
	}()
	return over
}

// await waits until over closes, or ctx ends.
func await(ctx context.Context, over chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}
