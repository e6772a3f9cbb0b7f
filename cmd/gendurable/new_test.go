package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/vet"
)

// What cannot work is refused before the schema is compiled.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	h := &host{t: t}
	there := filepath.Join(t.TempDir(), "orders")
	require.NoError(t, os.Mkdir(there, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(there, "other.go"), []byte("package other\n"), 0o600))
	for text, args := range map[string][]string{
		`expected "<schema> <column>"`:                                 {"--into", "./orders"},
		"missing flags: --into":                                        {".", "Order.status"},
		`column: "Order" is no field of a schema: write it as`:         {".", "Order", "--into", "./orders"},
		`column: ".status" is no field`:                                {".", ".status", "--into", "./orders"},
		`schema: "./nowhere" is no folder: name the folder of the ent`: {"./nowhere", "Order.status", "--into", "./orders"},
		`--into: "2nd" is no name of a Go package that others import`:  {".", "Order.status", "--into", "./2nd"},
		"other.go is there already, and nothing is overwritten":        {".", "Order.status", "--into", there},
	} {
		h.in(append([]string{"new"}, args...)...).is(codeUsage).complains(text)
	}
}

// hosts is a module with an ent schema, a client that is generated from it, and package deliveries,
// which compiles and whose tests pass.
const hosts = "../../integration/hosts"

// new reads a schema, and writes the package that the host has.
func TestNew(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI) // it compiles a schema, and a host
	self, err := os.Executable()
	require.NoError(t, err)
	begin := func(args ...string) answer {
		t.Helper()
		command := exec.CommandContext(t.Context(), self, append([]string{"new", "./schema"}, args...)...)
		command.Dir = hosts
		command.Env = append(os.Environ(), playVariable+"=1")
		var out, errs buffer
		command.Stdout, command.Stderr = &out, &errs
		_ = command.Run()
		return answer{t, exitCode(command.ProcessState.ExitCode()), out.String(), errs.String()}
	}
	into := filepath.Join(t.TempDir(), "deliveries")
	begin("Delivery.status", "--into", into).is(codeUsage).complains(`Delivery.status has "pending", "packed", "out-for-delivery", "delivered", "cancelled", "archived"`)
	begin("Order.customer", "--into", into).is(codeUsage).complains("Order.customer is of type string")
	require.NoDirExists(t, into)
	args := []string{"Delivery.status", "--into", into, "--client", "github.com/gendurable/gendurable/integration/hosts/ent", "--wait", "pending,out-for-delivery",
		"--transition", "pending:packed,cancelled", "--transition", "packed:out-for-delivery", "--transition", "out-for-delivery:delivered,packed"}
	got := read[begun](begin(append(args, "--json")...).is(codeDone))
	require.Equal(t, begun{Package: "deliveries", Machine: "delivery", Client: "github.com/gendurable/gendurable/integration/hosts/ent",
		Steps: []string{"pending", "packed", "out-for-delivery", "delivered", "cancelled"}, WithoutStep: []string{"archived"}, Files: got.Files}, got)
	require.Len(t, got.Files, 3)
	for _, file := range got.Files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		there, err := os.ReadFile(filepath.Join(hosts, "deliveries", filepath.Base(file)))
		require.NoError(t, err)
		require.Equal(t, string(there), string(text))
	}
	begin(args...).is(codeUsage).complains("adopt.go is there already, and nothing is overwritten")

	found, err := vet.Look(t.Context(), vet.Options{Dir: hosts, Tests: true}, "./deliveries")
	require.NoError(t, err)
	require.Empty(t, found)
}

// A person reads what is left to do.
func TestNewSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := begun{Machine: "order", Files: []string{"orders/machine.go"}, Steps: []string{"a", "b"}, WithoutStep: []string{"c"}, Client: "example.com/shop/ent",
		Mixin: `entity.DrivenByName("order")`, entity: "Order"}
	var out buffer
	b.write(&out, "./orders/")
	require.Equal(t, `machine order: 2 steps, in
  orders/machine.go
no transition names c: no step, and no instance for such rows

before it compiles:
  add entity.DrivenByName("order") to the mixins of schema Order; import github.com/gendurable/gendurable/entity
  generate example.com/shop/ent with gendurable's extension
then: go test ./orders, and read docs/guide/status-columns.md
`, out.String())
	text, err := json.Marshal(b)
	require.NoError(t, err)
	require.JSONEq(t, `{"package":"","machine":"order","files":["orders/machine.go"],"steps":["a","b"],"without_step":["c"],"client":"example.com/shop/ent",
		"mixin":"entity.DrivenByName(\"order\")"}`, string(text))
}
