package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// fleeting is the schedule that operators delete. The next worker that starts stores it again.
const fleeting = "fleeting"

// schedules returns schedules of each policy, which every worker declares. Their periods divide a
// minute, so that checks.sql can count occurrences on its own.
func schedules() []engine.Schedule {
	task := func(name string, busy int) fsm.Spec {
		return job.New(work{Label: "schedule:" + name, Fate: "done", Busy: busy})
	}
	const longer = 1200 // ms: an occurrence that the next one meets
	return []engine.Schedule{
		engine.Every("all", time.Second, task("all", 5)).CatchUp(engine.CatchUpAll),
		engine.Cron("latest", "*/2 * * * * *", task("latest", 20)).In("Europe/Berlin").Jitter(500 * time.Millisecond),
		engine.Every("none", time.Second, task("none", longer)).CatchUp(engine.CatchUpNone).Overlap(engine.OverlapSkip),
		engine.Cron("alone", "*/3 * * * * *", task("alone", longer)).CatchUp(engine.CatchUpAll).Overlap(engine.OverlapSkip),
		engine.Every(fleeting, 2*time.Second, task(fleeting, 5)),
	}
}

// neglected is how long the schedules were due when the workers start: longer than an occurrence
// may be late and still count as on time.
const neglected = 4 * time.Minute

// neglect stores the schedules as if that had happened long ago.
func neglect(ctx context.Context, db *pgxpool.Pool) error {
	eng, err := engine.New(engine.Config{Pool: db, Schedules: schedules()})
	if err != nil {
		return err
	}
	if err := eng.Start(ctx); err != nil {
		return fmt.Errorf("store the schedules: %w", err)
	}
	if _, err := db.Exec(ctx, `UPDATE gendurable.schedules SET next_at = next_at - $1::interval`, neglected); err != nil {
		return fmt.Errorf("neglect the schedules: %w", err)
	}
	return eng.Stop(ctx)
}

// hush pauses all schedules, once each has fired all occurrences that were due at the call.
func hush(ctx context.Context, db *pgxpool.Pool) error {
	eng, err := engine.New(engine.Config{Pool: db})
	if err != nil {
		return err
	}
	var since time.Time
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&since); err != nil {
		return err
	}
	const within = 30 * time.Second
	for began := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		behind := 0
		var all []engine.StoredSchedule
		for s, err := range eng.Admin().AllSchedules(ctx, engine.ScheduleQuery{}) {
			if err != nil {
				return err
			}
			if all = append(all, s); !s.Next.After(since) {
				behind++
			}
		}
		if behind > 0 && time.Since(began) > within {
			return fmt.Errorf("%d schedules have not been fired for %v, without a fault", behind, within)
		}
		if behind > 0 {
			continue
		}
		for _, s := range all {
			if _, err := eng.Admin().PauseSchedule(ctx, s.Name); err != nil {
				return err
			}
		}
		return eng.Stop(ctx)
	}
}

// meddle acts on schedules as operators do: it runs them by hand, pauses them for a while, and
// deletes one.
func (o *operator) meddle(ctx, life context.Context) {
	random := rand.New(rand.NewPCG(o.r.Seed, 4)) //nolint:gosec // repeatable
	names := []string{"all", "latest", "none", "alone", fleeting}
	for n := 0; ; n++ {
		pause(ctx, time.Duration(300+random.IntN(1500))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		name := names[random.IntN(len(names))]
		switch n % 3 {
		case 0:
			o.runSchedule(life, name)
		case 1:
			if o.insist(life, func(ctx context.Context) (bool, error) { return there(o.eng.Admin().PauseSchedule(ctx, name)) }) {
				o.log.write(event{Kind: evMeddled, Label: name, Detail: string(engine.VerbPauseSchedule)})
				pause(ctx, time.Duration(500+random.IntN(2500))*time.Millisecond)
			}
			o.insist(life, func(ctx context.Context) (bool, error) { return there(o.eng.Admin().ResumeSchedule(ctx, name)) })
		default:
			if o.insist(life, func(ctx context.Context) (bool, error) {
				return there(true, o.eng.Admin().DeleteSchedule(ctx, fleeting))
			}) {
				o.log.write(event{Kind: evMeddled, Label: fleeting, Detail: string(engine.VerbDeleteSchedule)})
			}
		}
	}
}

// there treats a deleted schedule as one that did not change.
func there(changed bool, err error) (bool, error) {
	if errors.Is(err, engine.ErrNoSchedule) {
		return false, nil
	}
	return changed, err
}

// runSchedule runs a schedule by hand, once: if the answer is lost, it is unknown whether it took
// effect.
func (o *operator) runSchedule(ctx context.Context, name string) {
	e := event{Kind: evOrdered, Label: name, Detail: string(engine.VerbRunSchedule)}
	o.log.write(e)
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id, err := o.eng.Admin().RunSchedule(calling, name)
	if err != nil {
		slog.Warn("not carried out", slog.String("schedule", name), slog.Any("error", err))
		return
	}
	e.Kind, e.ID = evMeddled, int64(id)
	o.log.write(e)
}
