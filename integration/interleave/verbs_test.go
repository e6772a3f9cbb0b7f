package interleave

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// things are the rows that verbs touch. Two verbs that share none cannot affect each other.
type things uint8

const (
	subject things = 1 << iota // the subject's row and its inbox
	key                        // the rows of the subject's partition key
	guard                      // the occupancy of the subject's correlation key
	parent                     // the parent's row
	second                     // another parent's row
	pulses                     // the row of a schedule
	loner                      // the row of another schedule
	rule                       // the rows of gates and of their keys
)

// verb is the operation of one session in a schedule.
type verb struct {
	name       string
	family     string
	touches    things
	turns      int  // how many it may take, if that depends on others; 0: the proof finds out
	quick      bool // it must not wait for anybody's row
	mayMeetKey bool // but it may meet another's partition key in the index
	harmless   bool // it locks the subject's key only: nobody may notice
	sole       bool // an outcome of the subject's claim that is paired with no other outcome of it, since four others stand for all
	run        func(ctx context.Context, s *session)
}

// inTurn runs several verbs in one session. It belongs to the family of the first.
func inTurn(name string, verbs ...verb) verb {
	v := verb{name: name, family: verbs[0].family, quick: true, run: func(ctx context.Context, s *session) {
		for _, one := range verbs {
			one.run(ctx, s)
		}
	}}
	for _, one := range verbs {
		v.touches |= one.touches
		v.quick, v.mayMeetKey = v.quick && one.quick, v.mayMeetKey || one.mayMeetKey
	}
	return v
}

// commits applies outcomes as one batch.
func commits(name string, slow bool, entries ...store.Entry) verb {
	family := "commit"
	var touched things
	for _, e := range entries {
		slow = slow || e.Keyed()
		touched |= touches(&e)
	}
	if slow {
		family = "commit, slow lane"
	}
	return verb{name: name, family: family, touches: touched, quick: !slow, run: func(ctx context.Context, s *session) {
		s.commit(ctx, owner, entries, slow)
	}}
}

func touches(e *store.Entry) (t things) {
	c := e.Claim
	if c.ID == subjectID {
		t |= subject
	}
	if !e.Keep && c.PartitionKey != "" || len(e.Commit.Spawn) > 0 {
		t |= key
	}
	if e.Commit.Kind == step.Done || e.Commit.Kind == step.Fail {
		if c.ID == subjectID {
			t |= guard
		}
		t |= map[int64]things{parentID: parent, subjectID: subject, secondID: second}[c.Parent]
	}
	return t
}

// lostMark returns the mark of the attempt to commit an outcome whose answer is lost.
func lostMark(outcome string) string { return uuid.NewSHA1(uuid.Nil, []byte(outcome)).String() }

// loses commits an outcome under a mark that the session that resolves it knows: its answer is
// still on its way, or lost.
func loses(name string, e store.Entry) verb {
	return verb{name: "lost: " + name, family: "commit, answer lost", touches: touches(&e), quick: !e.Keyed(), run: func(ctx context.Context, s *session) {
		c := &committing{session: s, worker: owner, entries: s.noted(e)}
		if e.Keyed() {
			c.wait = slowly
		}
		if err := c.round(ctx, lostMark(name)); err != nil && !s.transient("commit", err) {
			return
		}
		s.later(c.conclude)
	}}
}

// resolves does what the committer does when the answer to an attempt does not come: it looks at
// the rows, as far as they are free, and commits again the outcomes that are not there.
func resolves(name string, e store.Entry) verb {
	return verb{name: "resolve: " + name, family: "resolve", touches: touches(&e), quick: !e.Keyed(), run: func(ctx context.Context, s *session) {
		c := &committing{session: s, worker: owner, entries: s.noted(e), marks: []string{lostMark(name)}}
		if e.Keyed() {
			c.wait = slowly
		}
		current, err := c.look(ctx, 0)
		if err == nil && len(current) > 0 {
			err = c.round(ctx, uuid.NewString())
		}
		if err != nil && !s.transient("resolve", err) {
			return
		}
		s.later(c.conclude)
	}}
}

// unlike reports whether a is the lost attempt of one outcome and b the search for another: they
// cannot meet, since a claim has one outcome.
func unlike(a, b verb) bool {
	_, lost, both := strings.Cut(a.name, "lost: ")
	_, sought, searches := strings.Cut(b.name, "resolve: ")
	return both && searches && lost != sought || searches && strings.HasPrefix(a.name, "resolve: ") && a.name != b.name
}

// strays gives back the claims that a worker holds without knowing, since a claim's answer was
// lost.
func strays(name string, known ...*step.Claim) verb {
	return verb{name: name, family: "release", touches: subject | key, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			held, err := s.db.Held(ctx, owner, "default")
			if err != nil {
				return err
			}
			held = slices.DeleteFunc(held, func(c *step.Claim) bool {
				return slices.ContainsFunc(known, func(k *step.Claim) bool { return k.ID == c.ID })
			})
			for _, c := range held {
				s.facts.holds(s.name, owner, c)
			}
			if len(held) == 0 {
				return nil
			}
			done, err := s.db.Release(ctx, owner, held)
			s.promoteMissed(done.Missed)
			return locked(done, err)
		}
		s.insist("strays", once(ctx), once)
	}}
}

// reads reads a parent and then its children. A reader that finds the barrier open finds all of
// them ended.
func reads() verb {
	return verb{name: "read", family: "read", touches: subject | parent, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			p, err := query.New(s.db).Get(ctx, store.Address{ID: parentID})
			if err != nil {
				return err
			}
			children, _, err := s.db.Children(ctx, []int64{subjectID, siblingID})
			if err != nil {
				return err
			}
			for _, c := range children {
				if p.Status == "runnable" && c.Status != "done" && c.Status != "failed" {
					s.fault("the parent joins, and child %d is %s", c.ID, c.Status)
				}
			}
			return nil
		}
		s.insist("read", once(ctx), once)
	}}
}

// claims claims up to limit rows of a queue.
func claims(name, queue, worker string, limit int) verb {
	return verb{name: name, family: "claim", touches: subject | key | parent, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		if len(s.claim(ctx, queue, worker, limit)) == 0 {
			s.emptyHanded = true
		}
	}}
}

// claimsPlainly claims up to limit rows of a queue whose rows have no keys.
func claimsPlainly(name, queue, worker string, limit int) verb {
	v := claims(name, queue, worker, limit)
	v.run = func(ctx context.Context, s *session) {
		got, _ := s.pick(ctx, queue, worker, limit, func(p *store.ClaimParams) { p.Plain = true })
		s.emptyHanded = len(got) == 0
	}
	return v
}

// clears claims up to limit rows of a queue, moves blocked rows out of the front, and settles
// their keys like the worker: once at once, and the keys that this misses when the others are
// done.
func clears(name, queue, worker string, limit int) verb {
	const turns = 5 // claim, commit, inbox; settle, commit
	return verb{name: name, family: "claim", touches: subject | key | parent, turns: turns, quick: true, mayMeetKey: true, run: func(ctx context.Context, s *session) {
		got, unsettled := s.pick(ctx, queue, worker, limit, func(p *store.ClaimParams) { p.MoveBlocked = true })
		s.emptyHanded = len(got) == 0
		if len(unsettled) == 0 {
			return
		}
		p, err := s.db.Promote(ctx, unsettled)
		if s.promoteMissed(p.Missed); err != nil && s.transient("settle", err) {
			s.promoteMissed(unsettled)
		}
	}}
}

// delivers sends a signal.
func delivers(name string, to store.Address, signal, dedup string) verb {
	return verb{name: name, family: "deliver", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			d, err := s.db.Deliver(ctx, to, &step.Signal{Name: signal, DedupKey: dedup}, 100)
			if err == nil || errors.Is(err, store.ErrNoTarget) {
				s.facts.delivery(s.name, to, signal, d, err)
				return nil
			}
			return err
		}
		s.insist("deliver", once(ctx), once)
	}}
}

// deliversMany sends a signal to each of some targets in one transaction.
func deliversMany(name, signal string, to ...store.Address) verb {
	return verb{name: name, family: "deliver", touches: subject | key | guard | parent, run: func(ctx context.Context, s *session) {
		var list []store.Letter
		for _, a := range to {
			list = append(list, store.Letter{To: a, Signal: &step.Signal{Name: signal}})
		}
		once := func(ctx context.Context) error {
			got, err := s.db.DeliverMany(ctx, list, 100)
			for i, a := range got {
				s.facts.delivery(s.name, to[i], signal, a.Delivery, a.Err)
			}
			return err
		}
		s.insist("deliver many", once(ctx), once)
	}}
}

// arrives sends a signal with start.
func arrives(name, at, signal, dedup string) verb {
	return verb{name: name, family: "signal with start", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		x := spec(at, "")
		once := func(ctx context.Context) error {
			d, err := s.db.DeliverOrInsert(ctx, &x, &step.Signal{Name: signal, DedupKey: dedup}, 100)
			if err != nil && !errors.Is(err, store.ErrNoTarget) {
				return err
			}
			s.facts.delivery(s.name, byKey(at), signal, d, err)
			if d.Inserted {
				s.facts.insertion(s.name, at, store.Inserted{ID: d.Target})
			}
			return nil
		}
		s.insist("arrive", once(ctx), once)
	}}
}

// signals sends a signal by the function for other languages.
func signals(name string, to store.Address, signal, dedup string) verb {
	return verb{name: name, family: "deliver", touches: subject | key | guard, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			var d store.Delivery
			var id *int64
			if to.Key == "" {
				id = &to.ID
			}
			read := func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&d.Target, &d.Duplicate}, func() error { return nil })
				return err
			}
			err := s.pipeline(ctx, entpgx.Stmt{Name: "signal", Read: read,
				SQL:  `SELECT * FROM gendurable.gen_durable_signal($1, target => $2, correlation_key => nullif($3, ''), dedup_key => nullif($4, ''))`,
				Args: []any{signal, id, to.Key, dedup}})
			if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "Y0001" {
				err = store.ErrNoTarget
			}
			if err == nil || errors.Is(err, store.ErrNoTarget) {
				s.facts.delivery(s.name, to, signal, d, err)
				return nil
			}
			return err
		}
		s.insist("signal", once(ctx), once)
	}}
}

// adds inserts an instance by the function for other languages.
func adds(name, at string) verb {
	return verb{name: name, family: "insert", touches: key | guard, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			var i store.Inserted
			err := s.pipeline(ctx, entpgx.Stmt{Name: "add", SQL: `SELECT * FROM gendurable.gen_durable_insert('m', step => 's', correlation_key => $1)`,
				Args: []any{at}, Read: func(rows pgx.Rows) error {
					_, err := pgx.ForEachRow(rows, []any{&i.ID, &i.Duplicate}, func() error { return nil })
					return err
				}})
			if err == nil {
				s.facts.insertion(s.name, at, i)
			}
			return err
		}
		s.insist("add", once(ctx), once)
	}}
}

// transacts applies an outcome in its step's own transaction.
func transacts(name string, e store.Entry) verb {
	return verb{name: name, family: "commit, own transaction", touches: touches(&e), run: func(ctx context.Context, s *session) {
		s.transact(ctx, owner, e)
	}}
}

func beats(name string, c *step.Claim) verb {
	return verb{name: name, family: "heartbeat", touches: subject, quick: true, run: func(ctx context.Context, s *session) {
		s.facts.holds(s.name, owner, c)
		once := func(ctx context.Context) error {
			b, err := s.line.Beat(ctx, owner, []*step.Claim{c}, time.Minute)
			if err == nil && len(b.Lost) > 0 {
				s.facts.gone(s.name, owner, c)
			}
			if err == nil && len(b.Lost)+len(b.Extended) == 0 {
				s.leftOut++
			}
			return err
		}
		s.insist("beat", once(ctx), once)
	}}
}

// insists is a heartbeat that waits for its one row.
func insists(name string, c *step.Claim) verb {
	return verb{name: name, family: "heartbeat", touches: subject, run: func(ctx context.Context, s *session) {
		s.facts.holds(s.name, owner, c)
		once := func(ctx context.Context) error {
			_, err := s.line.Insist(ctx, owner, c, time.Minute, time.Minute)
			return err
		}
		s.insist("beat alone", once(ctx), once)
	}}
}

// locked is an error that the worker would repeat, if another session has the rows of claims locked
// that are to be released.
func locked(done store.Released, err error) error {
	if err == nil && len(done.Locked) > 0 {
		return &pgconn.PgError{Code: "55P03", Message: "somebody has the row locked"}
	}
	return err
}

func releases(name string, c *step.Claim) verb {
	return verb{name: name, family: "release", touches: subject | key, run: func(ctx context.Context, s *session) {
		s.facts.holds(s.name, owner, c)
		once := func(ctx context.Context) error {
			done, err := s.db.Release(ctx, owner, []*step.Claim{c})
			s.promoteMissed(done.Missed)
			return locked(done, err)
		}
		s.insist("release", once(ctx), once)
	}}
}

// reaps sweeps expired leases. The crash limit of the machine decides whether the subject fails.
func reaps(name string, limit int32) verb {
	return verb{name: name, family: "reap", touches: subject | key | parent | guard, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			mark := uuid.NewString()
			s.facts.mark(mark, s.name, kindReap)
			r, err := s.db.Reap(ctx, mark, store.CrashLimits{Machines: []string{"m/1"}, Limits: []int32{limit}}, 100)
			if len(r.Refused) > 0 {
				s.fault("rows that cannot be reaped: %v", r.Refused)
			}
			s.promoteMissed(r.Missed)
			return err
		}
		s.insist("reap", once(ctx), once)
	}}
}

func timesOut() verb {
	return verb{name: "time out", family: "await timeout", touches: subject | key, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.TimeOut(ctx, 100)
			return err
		}
		s.insist("time out", once(ctx), once)
	}}
}

// expires fails instances over their deadline.
func expires() verb {
	return verb{name: "fail overdue", family: "deadline", touches: subject | key | parent | guard, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			mark := uuid.NewString()
			s.facts.mark(mark, s.name, kindExpire)
			r, err := s.db.Expire(ctx, mark, 100)
			if len(r.Refused) > 0 {
				s.fault("rows that cannot be failed: %v", r.Refused)
			}
			s.promoteMissed(r.Missed)
			return err
		}
		s.insist("fail overdue", once(ctx), once)
	}}
}

func inserts(name string, specs ...step.Spec) verb {
	return verb{name: name, family: "insert", touches: key | guard, run: func(ctx context.Context, s *session) {
		list := make([]*step.Spec, len(specs))
		for i := range specs {
			x := specs[i]
			x.UID = uuid.New()
			list[i] = &x
		}
		once := func(ctx context.Context) error {
			in, err := s.db.Insert(ctx, list)
			for i := range in {
				s.facts.insertion(s.name, list[i].Key, in[i])
			}
			return err
		}
		s.insist("insert", once(ctx), once)
	}}
}

func prunes() verb {
	return verb{name: "prune", family: "prune", touches: subject | guard | parent, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, err := s.db.Prune(ctx, store.PruneParams{Done: time.Hour, Failed: time.Hour, Tombstones: 1, Limit: 100})
			return err
		}
		s.insist("prune", once(ctx), once)
	}}
}

func promotes() verb {
	return verb{name: "promote", family: "promote, sweep", touches: key, quick: true, run: func(ctx context.Context, s *session) {
		p, err := s.db.Promote(ctx, []string{"k"})
		s.promoteMissed(p.Missed)
		s.insist("promote", err, func(ctx context.Context) error {
			_, err := s.db.Promote(ctx, []string{"k"})
			return err
		})
	}}
}

func sweeps() verb {
	return verb{name: "sweep", family: "promote, sweep", touches: key, quick: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			_, p, err := s.db.Sweep(ctx, "", 100, nil)
			s.promoteMissed(p.Missed)
			return err
		}
		s.insist("sweep", once(ctx), once)
	}}
}

// operates applies an operator's verb to one instance. If the verb no longer applies, or another
// instance's key forbids it, that is a valid result.
func operates(name string, v store.Verb, id int64, change ...func(*store.Order)) verb {
	return verb{name: name, family: "operator", touches: subject | key | guard | parent, run: func(ctx context.Context, s *session) {
		if v == store.Retry {
			s.facts.mark(uuid.NewString(), s.name, kindRetry)
		}
		once := func(ctx context.Context) error {
			o := store.Order{Verb: v, Mark: uuid.NewString(), Most: 100, At: time.Now()}
			for _, f := range change {
				f(&o)
			}
			s.facts.mark(o.Mark, s.name, kindCancel)
			got, err := s.db.Operate(ctx, []int64{id}, &o)
			if _, occupied := errors.AsType[*store.OccupiedError](err); occupied {
				return nil
			}
			if o.Descendants && len(got.Changed) > 0 {
				s.facts.cancelledFamily(s.name, id)
			}
			s.promoteMissed(got.Missed)
			return err
		}
		s.insist(name, once(ctx), once)
	}}
}

func cancels(name string, id int64) verb { return operates(name, store.Cancel, id) }
func revives(name string, id int64) verb { return operates(name, store.Retry, id) }

func cancelsFamily(name string, id int64) verb {
	return operates(name, store.Cancel, id, func(o *store.Order) { o.Descendants = true })
}

// holds is a host's transaction that keeps rows locked, one after the other in ascending order,
// like an open SignalTx.
func holds(name string, touches things, ids ...int64) verb {
	return verb{name: name, family: "host's lock", touches: touches, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			var stmts []entpgx.Stmt
			for _, id := range ids {
				stmts = append(stmts, entpgx.Stmt{Name: "hold", SQL: pgtest.ByHand(`SELECT id FROM gendurable.gen_durable WHERE id = $1 FOR NO KEY UPDATE`), Args: []any{id}})
			}
			return s.pipeline(ctx, stmts...)
		}
		s.insist(name, once(ctx), once)
	}}
}

// refers is a host's transaction that inserts a row which refers to the subject.
func refers(touches things, id int64) verb {
	return verb{name: "refer", family: "host's foreign key", touches: touches, harmless: true, run: func(ctx context.Context, s *session) {
		once := func(ctx context.Context) error {
			err := s.pipeline(ctx, entpgx.Stmt{Name: "refer",
				SQL: pgtest.ByHand(`INSERT INTO interleave.reference SELECT id FROM gendurable.gen_durable WHERE id = $1`), Args: []any{id}})
			if refused(err) { // the GC was first
				return nil
			}
			return err
		}
		s.insist("refer", once(ctx), once)
	}}
}
