package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// refuse makes Postgres refuse every outcome that makes rows fulfil the condition, which only
// Postgres can find wrong. It returns a function that tells how often that has happened.
func refuse(t *testing.T, pool *pgxpool.Pool, condition string) (refused func() int) {
	t.Helper()
	execute(t, pool, `CREATE SEQUENCE refused`)
	execute(t, pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM nextval('public.refused');
		RAISE EXCEPTION 'forbidden' USING ERRCODE = 'check_violation';
	END $$`)
	execute(t, pool, `CREATE TRIGGER refuse BEFORE UPDATE ON gendurable.gen_durable FOR EACH ROW WHEN (`+condition+`)
		EXECUTE FUNCTION refuse()`)
	return func() int {
		return query[int](t, pool, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refused`)
	}
}

func TestWhatPostgresRefusesReachesTheHandlerAndSparesTheBatch(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, string]("numbers")
	gate := make(chan struct{})
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		<-gate // so that all outcomes meet in one batch
		if v.State == 13 {
			return v.Done("forbidden"), nil
		}
		return v.Done("fine"), nil
	})).OnError(func(_ context.Context, v *fsm.Visit[int, string], err error) (fsm.Outcome, error) {
		if outcome, ok := errors.AsType[*fsm.OutcomeError](err); ok {
			return v.Done("refused: " + outcome.Field), nil
		}
		return nil, err
	})
	c := config(t, def)
	c.Queues["default"] = quick(100)
	refuse(t, c.Pool, `NEW.result = '"forbidden"'`)
	eng := start(t, c)
	specs := make([]fsm.Spec, 100)
	for n := range specs {
		specs[n] = m.New(n)
	}
	ids := insertAll(t, eng, specs)
	close(gate)
	for n, id := range ids {
		got := result(t, eng, m, id)
		if n == 13 {
			require.Equal(t, "refused: commit", got)
		} else {
			require.Equal(t, "fine", got)
		}
	}
}

func TestWhatPostgresRefusesTwiceFails(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, string]("stubborn")
	def := m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		return v.Done("forbidden"), nil
	})).OnError(func(_ context.Context, v *fsm.Visit[int, string], _ error) (fsm.Outcome, error) {
		return v.Done("forbidden"), nil
	})
	c := config(t, def)
	refused := refuse(t, c.Pool, `NEW.result = '"forbidden"'`)
	eng := start(t, c)
	i := ended(t, eng, insert(t, eng, m.New(0)))
	require.Equal(t, fsm.StatusFailed, i.Status)
	require.Contains(t, i.LastError, "forbidden")
	require.Equal(t, 2, refused())
}

// Postgres refuses even the failure of the instance. The row cannot be changed, but the other
// instances go on, and the database is not flooded with attempts.
func TestARowThatPostgresLetsNobodyEndHoldsUpNothing(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[string, string]("undead")
	log := newJournal(t)
	c := hasty(config(t, m.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		return v.Done(v.State), nil
	}))))
	c.Logger = log.logger()
	refused := refuse(t, c.Pool, `NEW.state = '"undead"' AND NEW.status IN ('done', 'failed')`)
	eng := start(t, c)
	id := insert(t, eng, m.New("undead"))
	eventually(t, func() bool { return refused() >= 3 })
	for range 20 {
		allDone(t, eng, insert(t, eng, m.New("living")))
	}
	eventually(t, func() bool { return len(log.lines("level=ERROR", "refuse")) > 0 })
	require.Less(t, refused(), 50, "tried over and over without a pause")
	log.isShort(t)
	require.NotEqual(t, fsm.StatusDone, get(t, eng, id).Status)
}

// An instance whose row cannot be read fails with that error, by its machine's handler, and its
// parent goes on.
func TestAnInstanceThatCannotBeReadFails(t *testing.T) {
	t.Parallel()
	c := hasty(config(t, plainJob()))
	execute(t, c.Pool, `ALTER TABLE gendurable.gen_durable DROP CONSTRAINT gen_durable_times_check`)
	parent := put(t, c.Pool, "fsm, fsm_version, step, state, status, children_pending, round, visit",
		`'plain', 1, 'start', '{"N": 7}', 'awaiting_children', 1, 1, 1`)
	child := put(t, c.Pool, "fsm, fsm_version, step, state, parent_id, parent_round, depth, inserted_at, partition_key",
		fmt.Sprintf(`'plain', 1, 'start', '{}', %d, 1, 1, 'infinity', 'k'`, parent))
	behind := put(t, c.Pool, "fsm, fsm_version, step, state, partition_key", `'plain', 1, 'start', '{"N": 8}', 'k'`)
	eng := start(t, c)
	eventuallyStatus(t, eng, parent, fsm.StatusDone)
	eventuallyStatus(t, eng, behind, fsm.StatusDone)
	text := query[string](t, c.Pool, `SELECT last_error FROM gendurable.gen_durable WHERE id = $1 AND status = 'failed'`, child)
	require.Contains(t, text, "repair its row")
}
