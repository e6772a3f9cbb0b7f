package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/gatekey"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
)

// question selects some rows. Into is a pointer to a slice of what they are.
type question struct {
	rows *entsql.Selector
	into any
}

// found is an instance that a question has found.
type found struct {
	ID     fsm.ID     `json:"id"`
	Status fsm.Status `json:"status"`
	Step   string     `json:"step"`
	Node   string     `json:"node"` // "": it is no node of a graph
}

func foundIDs(all []found) []fsm.ID {
	if len(all) == 0 {
		return nil
	}
	ids := make([]fsm.ID, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids
}

// find asks for instances, at most so many. The answer is there when what was said is called.
func (w *why) find(most int, order []instance.OrderOption, among ...predicate.Instance) *[]found {
	table := entsql.Dialect(dialect.Postgres).Table(instance.Table).Schema(query.Quoted(w.schema))
	rows := entsql.Dialect(dialect.Postgres).
		Select(table.C(instance.FieldID), table.C(instance.FieldStatus), table.C(instance.FieldStep), table.C(instance.FieldNode)).From(table)
	for _, p := range among {
		p(rows)
	}
	for _, o := range order {
		o(rows)
	}
	into := &[]found{}
	w.questions = append(w.questions, question{rows.Limit(most), into})
	return into
}

// gateKeys asks what is known of keys of gates.
func (w *why) gateKeys(keys ...string) *[]*ent.GateKey {
	table := entsql.Dialect(dialect.Postgres).Table(gatekey.Table).Schema(query.Quoted(w.schema))
	rows := entsql.Dialect(dialect.Postgres).Select("*").AppendSelectAs(table.C(gatekey.FieldID), "id").From(table)
	gatekey.IDIn(keys...)(rows)
	into := &[]*ent.GateKey{}
	w.questions = append(w.questions, question{rows, into})
	return into
}

// send sends all questions in one statement. Each answer is JSON, so that any driver can carry it.
func (w *why) send(ctx context.Context, tx *ent.Tx) error {
	if len(w.questions) == 0 {
		return nil
	}
	answer := func(n int) string { return fmt.Sprint("answer", n) }
	row, err := tx.Instance.Query().Where(instance.ID(w.row.ID), func(q *entsql.Selector) {
		for n, one := range w.questions {
			q.AppendSelectExprAs(entsql.ExprFunc(func(b *entsql.Builder) {
				b.WriteString("(SELECT coalesce(jsonb_agg(to_jsonb(q)), '[]')::text FROM ").Wrap(func(b *entsql.Builder) { b.Join(one.rows) }).WriteString(" q)")
			}), answer(n))
		}
	}).Select(instance.FieldID).Only(ctx)
	if err != nil {
		return err
	}
	for n, one := range w.questions {
		v, err := row.Value(answer(n))
		if err != nil {
			return err
		}
		text, err := textOf(v)
		if err == nil {
			err = json.Unmarshal(text, one.into)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", answer(n), err)
		}
	}
	return nil
}

// textOf returns a text as a driver has it.
func textOf(v any) ([]byte, error) {
	switch text := v.(type) {
	case string:
		return []byte(text), nil
	case []byte:
		return text, nil
	}
	return nil, fmt.Errorf("a %T, want a text", v)
}
