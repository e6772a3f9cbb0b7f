package pairs

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// bystander is a machine beside the population: its instances wait at gates that let none begin.
var bystander = fsm.Declare[state, int]("bystander")

// bystandersSQL inserts instances in line at $1 keys that are each closed, of which three are to be
// opened, and others at a total that is used up, and behind a whole run that has the one place.
var bystandersSQL = []string{
	`INSERT INTO gendurable.gate_keys (key, closed_until) SELECT 'lanes/' || to_char(n, 'FM0000'), $2::timestamptz FROM generate_series(1, $1::int) n`,
	`INSERT INTO gendurable.gate_keys (key, debt) SELECT 'sums', 1000 WHERE $1::int > 0 AND $2::timestamptz > now()`,
	`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
		SELECT 'bystander', 'start', 'default', 3, 'lanes/' || to_char(n, 'FM0000'), jsonb_build_object('lane', to_char(n, 'FM0000'))
			|| CASE WHEN n IN (1, $1::int / 2, $1::int) THEN '{"opened": "later"}' ELSE '{}' END::jsonb
		FROM generate_series(1, $1::int) n WHERE $2::timestamptz > now()`,
	`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
		SELECT 'bystander', 'start', 'default', 3, 'sums/' || n, jsonb_build_object('sum', n::text) FROM generate_series(1, $1::int / 10) n WHERE $2::timestamptz > now()`,
	`INSERT INTO gendurable.gen_durable (fsm, step, queue, pick_lane, gate, labels)
		SELECT 'bystander', 'start', 'default', 3, 'full/one', '{"full": "one"}' FROM generate_series(1, $1::int / 10) n WHERE $2::timestamptz > now()`,
}

// blockedKeys is how many keys are blocked. A claim of an engine that works by itself jumps over
// keys if there are over a thousand; one by hand never does.
func (r *rig) blockedKeys() int {
	if r.fleet != nil {
		return 1200
	}
	return 200
}

// elsewhere returns an engine as of another process, such as the command line: no engine of the
// case hears of its verbs.
func (r *rig) elsewhere() (*engine.Engine, error) { return engine.New(r.config(r.pool)) }

// Some hundred blocked keys beside the population, whose instances are in line at free keys between
// them. None of the blocked instances begins, unless its key is opened: then it does.
var _ = register(feature{
	name:  "blocked",
	steps: plain("blocked"),
	config: func(_ *rig, c *engine.Config) {
		c.Machines = append(c.Machines, bystander.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[state, int]) (fsm.Outcome, error) {
				if v.State.Path == "holder" {
					return v.Await("start", v.State, letter), nil
				}
				return v.Done(1), nil
			})))
	},
	prepare: func(r *rig) error {
		for _, g := range []engine.Gate{
			{Name: "lanes", Label: "lane", Places: 1}, {Name: "full", Label: "full", Places: 1, Run: true},
			{Name: "sums", Label: "sum", TotalRate: engine.Rate{N: 1, Per: engine.MaxGatePer}},
		} {
			if _, err := r.eng.Admin().SetGate(r.ctx, g); err != nil {
				return err
			}
		}
		holder := bystander.New(state{Path: "holder"}).Label("full", "one").Label("holder", "yes")
		for held := false; !held; { // an engine that has not polled yet claims without heeding a new gate
			if _, err := r.eng.Insert(r.ctx, holder); err != nil {
				return err
			}
			if _, err := r.run(mostTakes); err != nil {
				return err
			}
			if err := r.pool.QueryRow(r.ctx, `SELECT EXISTS (SELECT FROM gendurable.gen_durable WHERE run_place IS NOT NULL)`).Scan(&held); err != nil {
				return err
			}
		}
		for _, text := range bystandersSQL {
			if _, err := r.pool.Exec(r.ctx, text, r.blockedKeys(), engine.GateForGood); err != nil {
				return err
			}
		}
		return nil
	},
	spec: func(r *rig, s fsm.Spec, at state) fsm.Spec {
		h := fnv.New32a()
		_, _ = h.Write([]byte(at.Path))
		return s.Label("lane", fmt.Sprintf("%04d+", 1+(h.Sum32()%10)*uint32(r.blockedKeys())/10)) //nolint:gosec // it is small
	},
	serve: func(r *rig) error {
		operator, err := r.elsewhere()
		if err != nil {
			return err
		}
		for _, n := range []int{1, r.blockedKeys() / 2, r.blockedKeys()} {
			if _, err := operator.Admin().OpenGate(r.ctx, fmt.Sprintf("lanes/%04d", n)); err != nil {
				return err
			}
		}
		return operator.Stop(r.ctx)
	},
	check: func(r *rig) error {
		var done int
		err := r.pool.QueryRow(r.ctx, `SELECT count(*) FROM gendurable.gen_durable WHERE fsm = 'bystander' AND status = 'done'`).Scan(&done)
		if err == nil && done != 3 {
			r.violate("a key is opened, and nothing begins there", "%d are done of 3", done)
		}
		return err
	},
	end: func(r *rig) error {
		if err := r.look(); err != nil {
			return err
		}
		_, err := r.pool.Exec(r.ctx, `DELETE FROM gendurable.gen_durable WHERE fsm = 'bystander'`)
		return err
	},
})
