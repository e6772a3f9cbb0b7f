package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed *.tmpl
var templates embed.FS

// File is a file to be written.
type File struct {
	Name string
	Text []byte
}

// Files returns the files of the package.
func (p *Plan) Files() ([]File, error) {
	all, err := template.New("").Funcs(template.FuncMap{"q": strconv.Quote, "list": listed}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range []string{"machine.go", "adopt.go", "machine_test.go"} {
		var text bytes.Buffer
		if err := all.ExecuteTemplate(&text, name+".tmpl", page{p}); err != nil {
			return nil, err
		}
		formatted, err := format.Source(append(bytes.TrimSpace(text.Bytes()), '\n'))
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", name, err)
		}
		files = append(files, File{name, formatted})
	}
	return files, nil
}

// module is the path of the packages that the files import.
const module = "github.com/gendurable/gendurable/"

// page is what the templates see of a plan.
type page struct{ *Plan }

// Noun is the entity in comments.
func (p page) Noun() string { return strings.Join(words(p.Entity), " ") }

// Pascal is the field's part of Go names.
func (p page) Pascal() string { return pascal(p.Field) }

// Setter sets the field.
func (p page) Setter() string { return setter(p.Field) }

// KeyFormat is the format of keys.
func (p page) KeyFormat() string { return strings.ReplaceAll(p.Machine, "%", "%%") + ":%v" }

// Drawing has the lines of the drawing.
func (p page) Drawing() []string { return strings.Split(strings.TrimSpace(p.diagram.Mermaid()), "\n") }

// entity is the package that ent generates for the entity.
func (p page) entity() imported {
	name := strings.ToLower(p.Entity)
	return importing(name, path.Join(p.Client, name))
}

// EntityPkg is the name of that package.
func (p page) EntityPkg() string { return p.entity().Name }

// foreign imports the package of a type, if it needs one.
func (p page) foreign(t Type) (text string, all []imported) {
	name, rest, found := strings.Cut(t.Name, ".")
	if t.Path == "" || !found {
		return t.Name, nil
	}
	pkg := importing(name, t.Path, p.entity())
	return pkg.Name + "." + rest, []imported{pkg}
}

// IDType is the type of ids.
func (p page) IDType() string {
	text, _ := p.foreign(p.ID)
	return text
}

// StatusType is the type of the column.
func (p page) StatusType() string {
	if p.Type.Name == "" {
		return p.EntityPkg() + "." + p.Pascal()
	}
	text, _ := p.foreign(p.Type)
	return text
}

// Imports are the lines of imports of the machine, AdoptImports and TestImports of the other files.
func (p page) Imports() []string {
	_, ids := p.foreign(p.ID)
	status := []imported{p.entity()}
	if p.Type.Name != "" {
		_, status = p.foreign(p.Type)
	}
	return p.lines(slices.Concat(ids, status, []imported{{"ent", p.Client}, {"fsm", module + "fsm"}})...)
}

// AdoptImports are the imports of adopt.go.
func (p page) AdoptImports() []string {
	_, ids := p.foreign(p.ID)
	return p.lines(slices.Concat(ids, []imported{p.entity(), {"ent", p.Client}, {"sql", "entgo.io/ent/dialect/sql"}, {"engine", module + "engine"}, {"fsm", module + "fsm"}})...)
}

// TestImports are the imports of the test.
func (p page) TestImports() []string {
	var ids []imported
	if len(p.Working()) > 0 {
		_, ids = p.foreign(p.ID)
	}
	return p.lines(slices.Concat(ids, []imported{{"durabletest", module + "durabletest"}, {"fsm", module + "fsm"}})...)
}

// lines are imports in two groups: packages of other projects, and of the host's.
func (p page) lines(all ...imported) (lines []string) {
	slices.SortFunc(all, func(a, b imported) int { return strings.Compare(a.Path, b.Path) })
	own := strings.Split(p.Client, "/")
	host := strings.Join(own[:max(1, min(3, len(own)-1))], "/") + "/"
	var ours []string
	for _, i := range slices.Compact(all) {
		if strings.HasPrefix(i.Path, host) {
			ours = append(ours, i.String())
		} else {
			lines = append(lines, i.String())
		}
	}
	if len(lines) > 0 && len(ours) > 0 {
		lines = append(lines, "")
	}
	return append(lines, ours...)
}

// Working are the steps whose next status the program decides.
func (p page) Working() (all []Step) {
	for _, s := range p.Steps {
		if s.Works() {
			all = append(all, s)
		}
	}
	return all
}

// Move is a transition.
type Move struct {
	From, To string
	Signal   string // the Go name of its signal; "": the program decides
}

// Durable is the name of the signal.
func (m Move) Durable() string { return m.From + ":" + m.To }

// Moves are all transitions.
func (p page) Moves() (all []Move) {
	taken := map[string]bool{}
	for _, s := range p.Steps {
		for _, to := range s.To {
			move := Move{From: s.Value, To: to}
			if s.Waits {
				name := s.Name + "To" + p.nameOf(to)
				move.Signal = name
				for n := 2; taken[move.Signal]; n++ {
					move.Signal = fmt.Sprint(name, n)
				}
				taken[move.Signal] = true
			}
			all = append(all, move)
		}
	}
	return all
}

// Exits are the transitions that a signal asks for.
func (p page) Exits() []Move {
	return slices.DeleteFunc(p.Moves(), func(m Move) bool { return m.Signal == "" })
}

// ExitsOf are the exits of one step.
func (p page) ExitsOf(s Step) []Move {
	return slices.DeleteFunc(p.Exits(), func(m Move) bool { return m.From != s.Value })
}

// Open are the values from which transitions lead, Ending the others.
func (p page) Open() []string { return p.values(func(s Step) bool { return !s.Ends() }) }

// Ending are the values from which no transition leads.
func (p page) Ending() []string { return p.values(Step.Ends) }

func (p page) values(are func(Step) bool) (all []string) {
	for _, s := range p.Steps {
		if are(s) {
			all = append(all, s.Value)
		}
	}
	return all
}

// nameOf is the part of a Go name of a value.
func (p page) nameOf(value string) string {
	return p.Steps[slices.IndexFunc(p.Steps, func(s Step) bool { return s.Value == value })].Name
}
