package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gendurable/gendurable/internal/scaffold"
)

type newCommand struct {
	Schema     string   `arg:""                                                                                                help:"The folder of the ent schema, like ./ent/schema. Work in its module."`
	Column     string   `arg:""                                                                                                help:"The enum field, like Order.status."`
	Into       string   `help:"The folder of the new package, like ./orders."                                                  placeholder:"FOLDER"                                                        required:""`
	Transition []string `help:"A status, and those that may follow it, like pending:paid,cancelled; repeated for each status." placeholder:"FROM:TO"                                                       sep:"none"`
	Wait       []string `help:"The statuses that a person or another system ends, by a signal."                                placeholder:"STATUS"                                                        sep:","`
	Initial    string   `help:"The status of new rows; by default the field's default."                                        placeholder:"STATUS"`
	Machine    string   `help:"The machine's durable name; by default the schema's mixin says it, or it is the entity's name." placeholder:"NAME"`
	Client     string   `help:"The import path of your ent client; by default the package above the schema."                   placeholder:"PATH"`
}

// begun is the result of new.
type begun struct {
	Package     string   `json:"package"`
	Machine     string   `json:"machine"`
	Files       []string `json:"files"`
	Steps       []string `json:"steps"`
	WithoutStep []string `json:"without_step"`    // values that no transition names
	Client      string   `json:"client"`          // the import path
	Mixin       string   `json:"mixin,omitempty"` // a call that the schema lacks

	entity string
}

func (*newCommand) lasts() bool { return true }

// Run runs the command.
func (c *newCommand) Run(a *app) error {
	name, err := scaffold.PackageOf(c.Into)
	if err != nil {
		return err
	}
	column, err := scaffold.Read(c.Schema, c.Column, c.Client)
	if err != nil {
		return err
	}
	plan, err := column.Plan(name, scaffold.Choice{Machine: c.Machine, Initial: c.Initial, Transitions: c.Transition, Waits: c.Wait})
	if err != nil {
		return err
	}
	out := begun{Package: name, Machine: plan.Machine, Steps: []string{}, WithoutStep: some(plan.Without), Client: column.Client, Mixin: plan.Mixin(), entity: column.Entity}
	for _, s := range plan.Steps {
		out.Steps = append(out.Steps, s.Value)
	}
	if out.Files, err = plan.Write(c.Into); err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) { out.write(w, c.Into) })
}

func (b *begun) write(w io.Writer, into string) {
	fmt.Fprintf(w, "machine %s: %d steps, in\n  %s\n", b.Machine, len(b.Steps), strings.Join(b.Files, "\n  "))
	if len(b.WithoutStep) > 0 {
		fmt.Fprintf(w, "no transition names %s: no step, and no instance for such rows\n", strings.Join(b.WithoutStep, ", "))
	}
	fmt.Fprintln(w, "\nbefore it compiles:")
	if b.Mixin != "" {
		fmt.Fprintf(w, "  add %s to the mixins of schema %s; import github.com/gendurable/gendurable/entity\n", b.Mixin, b.entity)
	}
	fmt.Fprintf(w, "  generate %s with gendurable's extension\n", b.Client)
	fmt.Fprintf(w, "then: go test ./%s, and read docs/guide/status-columns.md\n", filepath.ToSlash(filepath.Clean(into)))
}
