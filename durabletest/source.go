package durabletest

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

// Source is where [RequireInserted] looks: a *[Kit] sees committed instances, a *[Tx] sees those
// that a transaction of the host sees.
type Source interface {
	client() *ent.Client
	kit() *Kit
}

// Tx looks into a transaction of the host: it also sees what that has inserted itself, before its
// commit.
type Tx struct {
	of      *Kit
	queries *ent.Client
}

// WithPgx returns a Tx that looks into a transaction of pgx.
func (k *Kit) WithPgx(tx pgx.Tx) *Tx {
	return k.within(entpgx.Within(tx))
}

// WithSQL returns a Tx that looks into a transaction of database/sql or of an ent client.
func (k *Kit) WithSQL(tx engine.SQLTx) *Tx {
	return k.within(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx}))
}

func (k *Kit) within(driver dialect.Driver) *Tx {
	schema := quoted(k.schema)
	return &Tx{of: k, queries: ent.NewClient(ent.Driver(driver),
		ent.AlternateSchema(ent.SchemaConfig{Instance: schema, Signal: schema, PausedQueue: schema, Gate: schema}))}
}

func (t *Tx) client() *ent.Client { return t.queries }
func (t *Tx) kit() *Kit           { return t.of }

func (k *Kit) client() *ent.Client { return k.Engine.Ent() }
func (k *Kit) kit() *Kit           { return k }

// inserted returns the instances of a machine, oldest first.
func inserted[S, R any](ctx context.Context, from Source, m *fsm.Machine[S, R]) ([]fsm.Instance[S, R], error) {
	rows, err := from.client().Instance.Query().Where(instance.Machine(m.Name())).Order(instance.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the instances of machine %q: %w", m.Name(), err)
	}
	out := make([]fsm.Instance[S, R], 0, len(rows))
	for _, row := range rows {
		i, err := m.Get(ctx, stored{Engine: from.kit().Engine, row: row}, row.ID)
		if err != nil {
			return nil, fmt.Errorf("instance %d: %w", row.ID, err)
		}
		out = append(out, i)
	}
	return out, nil
}

// stored reads a row that was read already, as the engine reads one.
type stored struct {
	*engine.Engine

	row *ent.Instance
}

// Get returns the row, whatever the target.
func (s stored) Get(context.Context, fsm.Target) (fsm.RawInstance, error) {
	return shown.Snapshot(s.row), nil
}

func scanStrings(rows pgx.Rows) ([]string, error) {
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
