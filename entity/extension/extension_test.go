package extension

import (
	"encoding/json"
	"testing"

	"entgo.io/ent/entc/gen"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entity"
)

// said is a type as ent loads it: its annotations have been through JSON.
func said(t *testing.T, a entity.Annotation, fields ...string) *gen.Type {
	t.Helper()
	text, err := json.Marshal(a)
	require.NoError(t, err)
	var loaded any
	require.NoError(t, json.Unmarshal(text, &loaded))
	n := &gen.Type{Config: &gen.Config{}, Name: "Order", ID: &gen.Field{Name: "id"}, Annotations: gen.Annotations{a.Name(): loaded}}
	for _, f := range fields {
		n.Fields = append(n.Fields, &gen.Field{Name: f})
	}
	return n
}

// What a schema says is checked before anything is written.
func TestCheck(t *testing.T) {
	t.Parallel()
	right := entity.Annotation{Machine: "checkout", OnDelete: entity.Refuse}
	require.NoError(t, check(said(t, right, entity.Field, "cents")))
	require.NoError(t, check(&gen.Type{Name: "Ledger"}), "no machine drives it")

	for name, wrong := range map[string]*gen.Type{
		"no name":            said(t, entity.Annotation{OnDelete: entity.Leave}, entity.Field),
		`"never" is neither`: said(t, entity.Annotation{Machine: "checkout", OnDelete: "never"}, entity.Field),
		"use the mixin":      said(t, right, "cents"),
		"field instance has": said(t, right, entity.Field, "instance"),
	} {
		require.ErrorContains(t, check(wrong), name)
	}
	composite := said(t, right, entity.Field)
	composite.ID = nil
	require.ErrorContains(t, check(composite), "an id of one field")
	edged := said(t, right, entity.Field)
	edged.Edges = []*gen.Edge{{Name: "instance"}}
	require.ErrorContains(t, check(edged), "edge instance has")

	for name, why := range map[string]string{"Gendurable_Entity": "the file gendurable_entity.go", "Durable": "the method Durable", "Within": "the method Within", "InTx": "the method InTx", "CommitBy": "the method CommitBy"} {
		require.ErrorContains(t, named(&gen.Type{Name: name}), why)
		require.ErrorContains(t, named(&gen.Type{Name: name}), "give the type another name")
	}
	require.NoError(t, named(&gen.Type{Name: "Gendurable"}))

	graph := &gen.Graph{Config: &gen.Config{}, Nodes: []*gen.Type{composite}}
	written := false
	err := New().Hooks()[0](gen.GenerateFunc(func(*gen.Graph) error { written = true; return nil })).Generate(graph)
	require.ErrorContains(t, err, "schema Order: entity.DrivenBy")
	require.False(t, written)
}
