package scaffold

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entity"
	"github.com/gendurable/gendurable/fsm"
)

var update = flag.Bool("update", false, "write package deliveries of integration/hosts instead of comparing with it")

// delivery is what [Read] finds in the schema of integration/hosts, as a test of the command line
// tool makes sure.
func delivery() *Column {
	return &Column{Entity: "Delivery", Field: "status", Default: "pending", Machine: "delivery", ID: Type{Name: "int64"},
		Client: "github.com/gendurable/gendurable/integration/hosts/ent",
		Values: []string{"pending", "packed", "out-for-delivery", "delivered", "cancelled", "archived"}}
}

func choice() Choice {
	return Choice{
		Transitions: []string{"pending:packed,cancelled", "packed:out-for-delivery", "out-for-delivery:delivered,packed"},
		Waits:       []string{"pending", "out-for-delivery"},
	}
}

// The host of the tests has these files, compiles them, and runs their tests.
func TestFiles(t *testing.T) {
	t.Parallel()
	p, err := delivery().Plan("deliveries", choice())
	require.NoError(t, err)
	require.Equal(t, []string{"archived"}, p.Without)
	files, err := p.Files()
	require.NoError(t, err)
	for _, f := range files {
		path := filepath.Join("../../integration/hosts/deliveries", f.Name)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, f.Text, 0o644))
		}
		there, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(there), string(f.Text), "go test ./internal/scaffold -run TestFiles -update writes it anew")
	}
}

// A machine without waits, and one without work, have nothing of the other.
func TestOnlyWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for _, waits := range [][]string{nil, {"pending", "packed", "out-for-delivery"}} {
		of := choice()
		of.Waits = waits
		p, err := delivery().Plan("deliveries", of)
		require.NoError(t, err)
		files, err := p.Files()
		require.NoError(t, err)
		for _, f := range files {
			for _, part := range []string{"DeclareSignal", "Await", "Discard", "exit"} {
				require.True(t, len(waits) > 0 || !strings.Contains(string(f.Text), part), "%s in %s", part, f.Text)
			}
			for _, part := range []string{"Work", ".work", "stub"} {
				require.True(t, len(waits) == 0 || !strings.Contains(string(f.Text), part), "%s in %s", part, f.Text)
			}
		}
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	none := func(*Choice) {}
	for text, wrong := range map[string]struct {
		choice func(of *Choice)
		column func(c *Column)
	}{
		`--transition: none, and an enum does not say which value may follow which. Delivery.status has "pending", "packed",`: {choice: func(of *Choice) { of.Transitions = nil }},
		`such as --transition 'pending:packed' --transition 'packed:out-for-delivery,delivered,cancelled,archived'`:           {choice: func(of *Choice) { of.Transitions = nil }},
		`such as --transition FROM:TO`:                            {choice: func(of *Choice) { of.Transitions = nil }, column: func(c *Column) { c.Values = []string{"one"} }},
		`--transition: "pending" is not FROM:TO`:                  {choice: func(of *Choice) { of.Transitions = []string{"pending"} }},
		`--transition: "pending:" is not FROM:TO`:                 {choice: func(of *Choice) { of.Transitions = []string{"pending:"} }},
		`--transition: "pending:lost" is not FROM:TO`:             {choice: func(of *Choice) { of.Transitions = []string{"pending:lost"} }},
		`--transition: "lost:pending" is not FROM:TO`:             {choice: func(of *Choice) { of.Transitions = []string{"lost:pending"} }},
		`--transition: "pending:packed;delivered" is not FROM:TO`: {choice: func(of *Choice) { of.Transitions = []string{"pending:packed;delivered"} }},
		`--transition: "" is not FROM:TO`:                         {choice: func(of *Choice) { of.Transitions = []string{""} }},
		`--transition: "packed" leads to itself`:                  {choice: func(of *Choice) { of.Transitions = append(of.Transitions, "packed:packed") }},
		`no way leads to "archived" from "pending"`:               {choice: func(of *Choice) { of.Transitions = append(of.Transitions, "archived:pending") }},
		`from "archived" no way leads to an end`: {choice: func(of *Choice) {
			*of = Choice{Transitions: []string{"pending:archived,packed", "archived:delivered", "delivered:archived"}}
		}},
		`--wait: no transition leads from "delivered"`:                {choice: func(of *Choice) { of.Waits = []string{"delivered"} }},
		`--wait: no transition leads from "lost"`:                     {choice: func(of *Choice) { of.Waits = []string{"lost"} }},
		`transitions lead from "pending", "packed", "out-for-delive`:  {choice: func(of *Choice) { of.Waits = []string{"lost"} }},
		`--initial: new rows have the status "delivered", from which`: {choice: func(of *Choice) { of.Initial = "delivered" }},
		`--initial: new rows have the status "lost", from which`:      {choice: func(of *Choice) { of.Initial = "lost" }},
		`--initial: new rows have the status "archived", from which`:  {choice: none, column: func(c *Column) { c.Default = "archived" }},
		`--machine: "other", but the mixin of schema Delivery says`:   {choice: func(of *Choice) { of.Machine = "other" }},
		`--machine: 513 bytes, at most 512`:                           {choice: func(of *Choice) { of.Machine = strings.Repeat("m", 513) }, column: func(c *Column) { c.Machine = "" }},
		`column: the value "xxxxxxxxxxxxxxxxxxxx"… has 256 bytes`:     {choice: func(of *Choice) { of.Transitions = append(of.Transitions, "packed:"+strings.Repeat("x", 256)) }, column: func(c *Column) { c.Values = append(c.Values, strings.Repeat("x", 256)) }},
	} {
		c, of := delivery(), choice()
		wrong.choice(&of)
		if wrong.column != nil {
			wrong.column(c)
		}
		_, err := c.Plan("deliveries", of)
		require.ErrorContains(t, err, text)
		var typed *Error
		require.ErrorAs(t, err, &typed)
	}
}

// The status of new rows is the given one, the field's default, or the one that nothing leads to.
func TestInitial(t *testing.T) {
	t.Parallel()
	c := &Column{Entity: "Order", Values: []string{"b", "a", "c"}}
	for want, of := range map[string]Choice{
		"a": {Transitions: []string{"a:b", "b:c"}},
		"b": {Transitions: []string{"a:b", "b:a"}},
		"c": {Transitions: []string{"a:b", "b:c", "c:a"}, Initial: "c"},
	} {
		p, err := c.Plan("orders", of)
		require.NoError(t, err)
		require.Equal(t, want, p.Initial)
	}
	c.Default = "a"
	p, err := c.Plan("orders", Choice{Transitions: []string{"a:b", "b:a,c"}})
	require.NoError(t, err)
	require.Equal(t, "a", p.Initial)
	require.Equal(t, "order", p.Machine)
	require.Equal(t, `entity.DrivenByName("order")`, p.Mixin())
	c.Machine = "checkout"
	p, err = c.Plan("orders", Choice{Transitions: []string{"a:b", "b:a,c"}})
	require.NoError(t, err)
	require.Equal(t, "checkout", p.Machine)
	require.Empty(t, p.Mixin(), "the schema has it")
}

// Values may contain what separates them.
func TestValuesWithSeparators(t *testing.T) {
	t.Parallel()
	c := &Column{Entity: "Order", Values: []string{"a", "a:b", "b", "b,a", "c"}}
	to, err := c.transitions([]string{"a:b:b,a,c", "a:b,c"})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a:b": {"b,a", "c"}, "a": {"b", "c"}}, to, "the longest value that fits counts")
	to, err = c.transitions([]string{"a:c,b", "a:c", "b,a:a"})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a": {"c", "b"}, "b,a": {"a"}}, to)
}

func TestWords(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Order": "order", "PurchaseOrder": "purchase_order", "APIKey": "api_key", "UserID": "user_id", "A": "a", "Ünit": "ünit", "Order2Go": "order2_go",
	} {
		require.Equal(t, want, strings.Join(words(name), "_"))
	}
}

// A field gets the names that ent's generator gives to it.
func TestNamesAreEnts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"status", "order_status", "api_status", "http-state", "Status", "orderStatus", "id_of", "utf8", "field", "op", "set_field", "_x", "a__b", "state_2"} {
		f := gen.Field{Name: name}
		require.Equal(t, f.StructField(), pascal(name))
		require.Equal(t, f.MutationSet(), setter(name))
	}
	pascalOf, ok := gen.Funcs["pascal"].(func(string) string)
	require.True(t, ok)
	for _, word := range initialisms {
		require.Equal(t, pascalOf(strings.ToLower(word)), pascal(strings.ToLower(word)))
	}
}

func TestGoNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"InProgress", "InProgress2", "Paid", "Paid2", "V2nd", "Type", "V7", "V支付", "InProgress22", "Él", "HalfPaid"},
		goNames([]string{"in-progress", "in_progress", "PAID", "paid", "2nd", "type", "--", "支付", "in progress2", "él", "halfPaid"}))
}

// schemaOf is a schema as ent loads it.
func schemaOf(fields ...*load.Field) *load.SchemaSpec {
	return &load.SchemaSpec{PkgPath: "example.com/shop/ent/schema", Schemas: []*load.Schema{{Name: "User"}, {
		Name: "Order", Fields: fields, Annotations: map[string]any{entity.AnnotationName: map[string]any{"machine": "checkout"}},
	}}}
}

func enum(change func(f *load.Field)) *load.Field {
	f := &load.Field{Name: "status", Info: &field.TypeInfo{Type: field.TypeEnum}, DefaultValue: "open", Enums: []struct{ N, V string }{{"Open", "open"}, {"Shut", "SHUT"}}}
	if change != nil {
		change(f)
	}
	return f
}

func TestColumns(t *testing.T) {
	t.Parallel()
	c, err := columnOf(schemaOf(enum(nil)), "Order", "status", "")
	require.NoError(t, err)
	require.Equal(t, &Column{Entity: "Order", Field: "status", Values: []string{"open", "SHUT"}, Default: "open", Client: "example.com/shop/ent",
		Machine: "checkout", ID: Type{Name: "int"}}, c)
	id := &load.Field{Name: "id", Info: &field.TypeInfo{Type: field.TypeUUID, Ident: "uuid.UUID", PkgPath: "github.com/google/uuid"}}
	c, err = columnOf(schemaOf(id, enum(func(f *load.Field) {
		f.Info.Ident, f.Info.PkgPath, f.Info.RType = "shop.Status", "example.com/shop", &field.RType{Kind: reflect.String}
	})), "Order", "status", "example.com/db")
	require.NoError(t, err)
	require.Equal(t, "example.com/db", c.Client)
	require.Equal(t, Type{"uuid.UUID", "github.com/google/uuid"}, c.ID)
	require.Equal(t, Type{"shop.Status", "example.com/shop"}, c.Type)

	for text, f := range map[string]*load.Field{
		`schema Order has no field "status", only "state"`: {Name: "state"},
		"Order.status is of type string: make it":          enum(func(f *load.Field) { f.Info.Type = field.TypeString }),
		"whose values are no strings":                      enum(func(f *load.Field) { f.Info.RType = &field.RType{Kind: reflect.Int} }),
		"Order.status is immutable":                        enum(func(f *load.Field) { f.Immutable = true }),
		"Order.status is optional":                         enum(func(f *load.Field) { f.Optional = true }),
		"Order.status is nillable":                         enum(func(f *load.Field) { f.Nillable = true }),
	} {
		_, err := columnOf(schemaOf(f), "Order", "status", "")
		require.ErrorContains(t, err, text)
	}
	_, err = columnOf(schemaOf(enum(nil)), "Orders", "status", "")
	require.ErrorContains(t, err, `there is no schema "Orders", only "User", "Order"`)
	view := schemaOf(enum(nil))
	view.Schemas[1].View = true
	_, err = columnOf(view, "Order", "status", "")
	require.ErrorContains(t, err, "Order is a view")
	typed := schemaOf(enum(nil))
	typed.Schemas[1].Annotations[entity.AnnotationName] = map[string]any{"machine": "checkout", "state": map[string]any{"name": "int"}}
	_, err = columnOf(typed, "Order", "status", "")
	require.ErrorContains(t, err, `schema Order is driven by the declared machine "checkout" already: use entity.DrivenByName`)
}

func TestFoldersAreRefused(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]string{"./orders": "orders", "a/order-flow": "orderflow", "v1.orders": "v1orders", "Orders": "orders"} {
		name, err := PackageOf(folder)
		require.NoError(t, err)
		require.Equal(t, want, name)
	}
	for _, folder := range []string{"/", "2nd", "main", "type", "a b", "x_test"} {
		_, err := PackageOf(folder)
		require.ErrorContains(t, err, "is no name of a Go package", folder)
	}
}

// A folder with a Go file is left as it is.
func TestNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	p, err := delivery().Plan("deliveries", choice())
	require.NoError(t, err)
	for _, name := range []string{"machine.go", "other.go"} {
		folder := t.TempDir()
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte("package other\n"), 0o600))
		_, err = p.Write(folder)
		require.ErrorContains(t, err, "is there already, and nothing is overwritten")
		there, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Len(t, there, 1)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "package other\n", string(text))
	}
	folder := filepath.Join(t.TempDir(), "new", "deliveries")
	written, err := p.Write(folder)
	require.NoError(t, err)
	require.Len(t, written, 3)
	for _, file := range written {
		require.FileExists(t, file)
	}
}

// The drawing in the package's comment is the machine's.
func TestTheDrawing(t *testing.T) {
	t.Parallel()
	p, err := delivery().Plan("deliveries", choice())
	require.NoError(t, err)
	require.Equal(t, p.diagram.Mermaid(), strings.Join(page{p}.Drawing(), "\n")+"\n")
	require.True(t, p.diagram.Leads("pending", "delivered"))
	require.Equal(t, fmt.Sprintf("%%%% %s/1", p.Machine), page{p}.Drawing()[0])
	require.IsType(t, fsm.Diagram{}, p.diagram)
}
