package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entpgx"
)

// A place is recorded at the sequence of its ids. The sequence has the bounds of the place, so
// that Postgres never gives an id of another place. Its comment says which place it is, of how
// many, and of which cluster. Dumps and replicas include both, and plain engines need no further
// table (decision D71). If Citus distributes the schema, each node has its own sequences, so the
// record is in the table that every transaction reads at its beginning (record_citus.go).

// record is the content of the comment.
type record struct {
	place, of int
	cluster   uuid.UUID
}

const recordFormat = "gendurable place %d of %d of cluster %s"

func (r record) String() string { return fmt.Sprintf(recordFormat, r.place, r.of, r.cluster) }

func parseRecord(comment string) (r record, ok bool) {
	var id string
	if n, err := fmt.Sscanf(comment, recordFormat, &r.place, &r.of, &id); n != 3 || err != nil { //nolint:mnd // the verbs of the format
		return r, false
	}
	var err error
	r.cluster, err = uuid.Parse(id)
	return r, err == nil
}

// found is what a schema says about its place.
type found struct {
	bounds      [2]int64 // of the sequence
	ids         [2]int64 // the least and the greatest in the table; 0: it has no rows
	comment     string
	distributed bool  // by Citus
	epoch       int64 // of a distributed schema
}

// foundSQL reads found from a plain schema. {s} is the schema; $1 its sequence
const foundSQL = `SELECT s.seqmin, s.seqmax, (SELECT coalesce(min(id), 0) FROM {s}.gen_durable), (SELECT coalesce(max(id), 0) FROM {s}.gen_durable),
coalesce(pg_catalog.obj_description(s.seqrelid, 'pg_class'), '')
FROM pg_catalog.pg_sequence s WHERE s.seqrelid = $1::text::regclass`

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (p *place) quoted(name string) string { return pgx.Identifier{p.schema, name}.Sanitize() }

func (p *place) sql(text string) string {
	return strings.ReplaceAll(text, "{s}", pgx.Identifier{p.schema}.Sanitize())
}

// find reads what a schema says about its place. Call it outside of a transaction, which an error
// would end: a distributed schema has no sequence of that name.
func (p *place) find(ctx context.Context, db querier) (f found, err error) {
	err = db.QueryRow(ctx, p.sql(foundSQL), p.quoted("gen_durable_id_seq")).Scan(&f.bounds[0], &f.bounds[1], &f.ids[0], &f.ids[1], &f.comment)
	if hasCode(err, codeUndefinedTable, codeUnsupported) {
		if there, problem := p.distributed(ctx, db); problem == nil && there {
			return p.findDistributed(ctx, db)
		}
	}
	return f, unread(err)
}

const (
	codeUndefinedTable  = "42P01"
	codeUndefinedSchema = "3F000"
	codeUnsupported     = "0A000" // by Citus
)

func hasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// unread says why a record could not be read.
func unread(err error) error {
	if hasCode(err, codeUndefinedTable, codeUndefinedSchema) {
		return fmt.Errorf("%w: %w", engine.ErrSchema, err)
	}
	if err != nil {
		return fmt.Errorf("read which place it is: %w", err)
	}
	return nil
}

// judge compares what a schema says with the place that it should be. It returns ErrUninitialised
// for a schema without a record.
func (p *place) judge(f found) (r record, err error) {
	r, recorded := parseRecord(f.comment)
	first, last := firstID(p.index), lastID(p.index)
	switch {
	case recorded && r.of != p.of:
		return r, fmt.Errorf("%w: it is place %d of %d, and there are %d", ErrPlaces, r.place, r.of, p.of)
	case recorded && r.place != p.index:
		return r, fmt.Errorf("%w: it was recorded as place %d, and is given as place %d", ErrPlaces, r.place, p.index)
	case f.ids[1] > 0 && (f.ids[0] < first || f.ids[1] > last):
		return r, fmt.Errorf("%w: it holds ids from %d to %d, and the ids of place %d are %d to %d", ErrPlaces, f.ids[0], f.ids[1], p.index, first, last)
	case f.distributed && f.epoch > citus.MaxEpoch: // of 34 bits each
		return r, fmt.Errorf("%w: Citus has moved it to its epoch %d, and the ids of a place carry epochs up to %d", ErrPlaces, f.epoch, citus.MaxEpoch)
	case f.bounds != [2]int64{first, last} && (recorded || f.bounds != [2]int64{1, math.MaxInt64}):
		return r, fmt.Errorf("%w: its sequence gives ids from %d to %d, and the ids of place %d are %d to %d", ErrPlaces,
			f.bounds[0], f.bounds[1], p.index, first, last)
	case !recorded:
		return r, ErrUninitialised
	}
	return r, nil
}

// check reads the record until it is right, and returns nil at once from then on.
func (p *place) check(ctx context.Context) error {
	if p.recorded.Load() {
		return nil
	}
	select {
	case p.checking <- struct{}{}:
		defer func() { <-p.checking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.recorded.Load() {
		return nil
	}
	f, err := p.find(ctx, p.db)
	if err != nil {
		return err
	}
	r, err := p.judge(f)
	if err == nil {
		err = p.origin.agree(r)
	}
	if err == nil {
		p.recorded.Store(true)
	}
	return err
}

// origin is the first correct record that was read at any place. The records of all other places
// have to be of the same cluster.
type origin struct {
	mu    sync.Mutex
	first record // zero until it is known
}

func (o *origin) agree(r record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == (record{}) {
		o.first = r
	}
	return r.sameCluster(o.first)
}

func (r record) sameCluster(as record) error {
	if r.cluster != as.cluster {
		return fmt.Errorf("%w: it is of cluster %s, and place %d of %s", ErrPlaces, r.cluster, as.place, as.cluster)
	}
	return nil
}

// isRecord reports whether an error of check is an answer of the place, not a failure to reach it.
func isRecord(err error) bool {
	if errors.Is(err, ErrPlaces) || errors.Is(err, ErrUninitialised) || errors.Is(err, engine.ErrSchema) {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(e.Code, "42") // e.g. no rights
}

// Init makes migrated schemas the places of a cluster. It gives each place its own range of ids,
// and records there which place it is, of how many. It needs the rights of the tables' owner, and
// has to run once, before the first start. Running it again changes nothing; run it again after an
// error, e.g. when a place was down. The pool of a place that Citus distributes has to lead to the
// schema's owner: see package citus.
//
// Place 0 may be a schema that a plain engine has used; its instances keep their ids. Live
// instances with keys, and schedules, must belong to place 0 by their keys and names: see
// [ErrStrays]. The other places must not have had instances yet.
//
// Errors: a *[PlaceError] that wraps ErrPlaces, ErrStrays or engine.ErrSchema.
func Init(ctx context.Context, places []Place) error {
	if err := checkPlaces(places); err != nil {
		return err
	}
	id := uuid.Nil // of the cluster: place 0 says which
	for i, at := range places {
		c := engine.Config{Pool: at.Pool, Driver: at.Driver, Schema: at.Schema}.WithDefaults()
		p := &place{index: i, of: len(places), schema: c.Schema, db: c.Driver}
		distributed, err := p.distributed(ctx, p.db)
		if err == nil {
			err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) (err error) {
				id, err = p.initialise(ctx, tx, distributed, id)
				return err
			})
		}
		if err != nil {
			return p.at(err)
		}
	}
	return nil
}

const (
	// initLockSQL keeps a second Init from the place, and this one from waiting for long. $1 sequence
	initLockSQL = `SELECT pg_catalog.set_config('lock_timeout', '5s', true),
pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('gendurable place ' || $1::text, 0))`

	// straysSQL counts what a cluster would look for at other places, and finds the first of each:
	// live instances by their keys, except children and instances of schedules, and schedules by their
	// names. $1 places, $2 the place
	straysSQL = `SELECT i.count, i.first, s.count, s.first
FROM (SELECT count(*), coalesce(min(id), 0) AS first FROM {s}.gen_durable WHERE status NOT IN ('done', 'failed') AND parent_id IS NULL
  AND coalesce(correlation_key, partition_key) IS NOT NULL AND NOT coalesce(correlation_key, '') LIKE 'schedule:%' AND {instance} <> $2::bigint) i,
(SELECT count(*), coalesce(min(name), '') AS first FROM {s}.schedules WHERE {schedule} <> $2::bigint) s`
)

// initialise makes the schema the place, in a transaction, and returns its cluster.
func (p *place) initialise(ctx context.Context, tx pgx.Tx, distributed bool, cluster uuid.UUID) (uuid.UUID, error) {
	if _, err := tx.Exec(ctx, initLockSQL, p.quoted("gen_durable_id_seq")); err != nil {
		return cluster, fmt.Errorf("lock the place: %w", err)
	}
	find, write := p.find, p.record
	if distributed {
		find, write = p.findDistributed, p.recordDistributed
	}
	f, of, err := p.belongs(ctx, tx, find, cluster)
	if distributed && err == nil && of == nil { // entering holds engines up, so it is done only if there is something to write
		if err := p.enter(ctx, tx); err != nil {
			return cluster, err
		}
		f, of, err = p.belongs(ctx, tx, find, cluster) // its ids may be others meanwhile
	}
	switch {
	case err != nil:
		return cluster, err
	case of != nil:
		return *of, nil
	}
	if err := p.refuseStrays(ctx, tx); err != nil {
		return cluster, err
	}
	if cluster == uuid.Nil {
		if cluster, err = uuid.NewRandom(); err != nil {
			return cluster, fmt.Errorf("make an id of the cluster: %w", err)
		}
	}
	return cluster, write(ctx, tx, f, record{p.index, p.of, cluster})
}

// belongs reads what a schema says about its place, and returns the cluster of its record, or nil
// if it has no record. It refuses a record of another cluster than the given one, unless that is
// zero.
func (p *place) belongs(ctx context.Context, tx pgx.Tx, find func(context.Context, querier) (found, error), cluster uuid.UUID) (found, *uuid.UUID, error) {
	f, err := find(ctx, tx)
	if err != nil {
		return f, nil, err
	}
	r, err := p.judge(f)
	switch {
	case errors.Is(err, ErrUninitialised):
		return f, nil, nil
	case err != nil:
		return f, nil, err
	case cluster != uuid.Nil && r.cluster != cluster:
		return f, nil, r.sameCluster(record{cluster: cluster})
	}
	return f, &r.cluster, nil
}

// record writes the record of a plain schema.
func (p *place) record(ctx context.Context, tx pgx.Tx, f found, r record) error {
	sequence := p.quoted("gen_durable_id_seq")
	if first, last := firstID(p.index), lastID(p.index); f.bounds != [2]int64{first, last} {
		restart := ""
		if p.index > 0 {
			restart = fmt.Sprintf(" START %d RESTART", first)
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("ALTER SEQUENCE %s MINVALUE %d MAXVALUE %d%s", sequence, first, last, restart)); err != nil {
			return fmt.Errorf("give the ids their range: %w", err)
		}
	}
	// A utility statement takes no parameters. The text has digits, letters and blanks only.
	if _, err := tx.Exec(ctx, fmt.Sprintf("COMMENT ON SEQUENCE %s IS '%s'", sequence, r)); err != nil {
		return fmt.Errorf("record the place: %w", err)
	}
	return nil
}

// strays counts what a place holds but belongs to other places.
type strays struct {
	instances, schedules int64
	instance             int64  // the first by id; 0: there is none
	schedule             string // the first by name
}

func (p *place) strays(ctx context.Context, db querier) (s strays, err error) {
	text := strings.NewReplacer("{instance}", placeSQL("coalesce(correlation_key, partition_key)", "$1::bigint"), "{schedule}", placeSQL("name", "$1::bigint")).
		Replace(straysSQL)
	if err := db.QueryRow(ctx, p.sql(text), p.of, p.index).Scan(&s.instances, &s.instance, &s.schedules, &s.schedule); err != nil {
		return s, fmt.Errorf("look for instances and schedules of other places: %w", err)
	}
	return s, nil
}

func (p *place) refuseStrays(ctx context.Context, tx pgx.Tx) error {
	s, err := p.strays(ctx, tx)
	if err == nil && s.instances+s.schedules > 0 {
		err = fmt.Errorf("%w: %d live instances by their keys, %d schedules by their names", ErrStrays, s.instances, s.schedules)
	}
	return err
}

var _ querier = (*entpgx.Driver)(nil)
